#!/usr/bin/env bash
# Thousands of raw requests through a waypoint, Envoy, nginx and HAProxy: what reaches the server behind each is equal, or the difference
# has a row with a reason in docs/reference/hostile-http.md. Then clients and servers that mean harm, with a polite client beside them.
# MEASURE=6 measures in six rounds what the polite client waits for beside each of the others, one at a time, and does nothing else. The
# others run only while the machine is idle: their own cost is left out, and the times are a lower bound.
# SEEDS="2 3" CASES=4000 sends other requests instead, and plays nobody. WRITE=1 writes what is seen into the page.
# bites: let has_encoded_dots in crates/http/src/path/normalise.rs return false: dots before an encoded slash reach the server.
source "$(dirname "$0")/lib.sh"
LANES=12
FIRST=8000 TOOL=$WORK/hostilehttp PAGE=$ROOT/docs/reference/hostile-http.md
waypoint() { LATEEN_NAME=$MESH "$LATEEN" waypoint "$@"; }

check "the tool is built" env -C "$ROOT" CGO_ENABLED=0 go build -trimpath -o "$TOOL" ./internal/tools/hostilehttp
check "up" lateen up --nodes 2
ports() { for ((lane = 0; lane <= LANES + 1; lane++)); do echo "    - {name: http-$lane, port: $((FIRST + lane))}"; done; }
pod() { # NAME NODE
  cat <<Y
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: $1}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: $1, labels: {app: $1}}
spec:
  selector: {matchLabels: {app: $1}}
  template:
    metadata: {labels: {app: $1}}
    spec:
      serviceAccountName: $1
      terminationGracePeriodSeconds: 1
      nodeSelector: {lateen.dev/node-index: "$2"}
      containers: [{name: main, image: lateen/load:1, command: [lateen-load, serve, --listen, "0.0.0.0:9080"], readinessProbe: {httpGet: {path: /health, port: 9080}, periodSeconds: 1}}]
Y
}
objects() {
  cat <<Y
apiVersion: v1
kind: Service
metadata: {name: site}
spec:
  selector: {app: site}
  ports:
$(ports)
Y
  pod site 2
  pod client 1
  pod polite 1
}
check "a server with a port for each lane and two more, a client and a polite one" lateen apply -f - < <(objects)
check "enrol" lateen label ns default istio.io/dataplane-mode=ambient
check "ready, captured" lateen wait deployment/site deployment/client deployment/polite
check "a waypoint" waypoint apply --name way --for service --wait
check "the service asks for it" lateen label svc site istio.io/use-waypoint=way
check "a policy denies a path to everybody" lateen apply -f - <<'Y'
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: closed}
spec:
  targetRefs: [{group: "", kind: Service, name: site}]
  action: DENY
  rules: [{to: [{operation: {paths: [/admin, "/admin/*"]}}]}]
Y
check "known to every proxy" lateen wait
denied() { [ "$(lateen exec deploy/client -- curl -s -o /dev/null -w '%{http_code}' --max-time 20 "http://site:$FIRST/admin")" = 403 ]; }
check "and to the waypoint" eventually 20 denied

others=()
missing() { skipped=$((skipped + 1)); echo "skip - $*"; }
# other NAME PROGRAM [VERSION]: one to compare with, if it is there. The page of differences holds for this version, which Debian 12 has.
other() {
  local version
  [ -n "$2" ] || { missing "there is no $1 to compare with"; return; }
  if [ -n "${3:-}" ]; then
    version=$("$2" -v 2>&1 | grep -oEm1 '[0-9]+\.[0-9]+' | head -1)
    [ "$version" = "$3" ] || { missing "$1 is left out: it is ${version:-of no version}, and the page of differences is about $3"; return; }
  fi
  others+=("-$1=$2")
}
other envoy "$("$ROOT/hack/envoy.sh" 2>"$WORK/envoy" || sed 's/^/    /' "$WORK/envoy" >&2)"
other nginx "$(PATH=$PATH:/usr/sbin type -P nginx)" 1.22
other haproxy "$(PATH=$PATH:/usr/sbin type -P haproxy)" 2.6

# Proxies and their servers have a network of their own, so that their ports are free, and end with the tool, however that ends.
run() {
  local netns=/proc/$(engine_pid)/root$RUN/netns
  unshare --net --pid --fork --kill-child bash -c 'ip link set lo up && exec "$@"' - "$TOOL" -waypoint "$(lateen get svc site -o json | jq -r .spec.clusterIP)" -port $FIRST -lanes $LANES \
    -client-netns "$netns/$(pod_uid client-)" -polite-netns "$netns/$(pod_uid polite-)" -upstream-netns "$netns/$(pod_uid site-)" -page "$PAGE" ${others[@]+"${others[@]}"} "$@"
}
counted() { # counts the checks that the tool prints
  local line begun=
  while IFS= read -r line; do
    case $line in
      "ok - "*) ok "${line#ok - }"; begun=1 ;;
      "not ok - "*) not_ok "${line#not ok - }"; begun=1 ;;
      *) echo "$line" ;;
    esac
  done < <(run "$@" 2>&1; [ $? -le 1 ] || echo "not ok - the tool ended with another code than 0 and 1")
  [ -n "$begun" ] || not_ok "the tool made no check"
}
if [ -n "${MEASURE:-}" ]; then
  others=()
  measured() { run -measure "$MEASURE" >"$WORK/table" 2>"$WORK/why" || { cat "$WORK/why"; return 1; }; }
  check "a polite client is measured beside each of the others" measured
  cat "$WORK/table"
elif [ -n "${WRITE:-}" ]; then counted -write
elif [ -z "${SEEDS:-}" ]; then
  counted -abuse
else
  for seed in $SEEDS; do counted -seed "$seed" -cases "${CASES:-4000}"; done
fi
check "the waypoint runs on" denied
equal "and has not been started again" 0 "$(lateen get pods -o json | jq -r '[.items[] | select(.metadata.name | startswith("way-")) | .status.containerStatuses[]?.restartCount] | add // 0')"
finish
