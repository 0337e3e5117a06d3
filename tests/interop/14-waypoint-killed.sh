#!/usr/bin/env bash
# Compares how many requests are lost when a replica of a waypoint is killed: of Lateen's waypoint, and of a stock Envoy with an istiod's
# configuration. An unmodified ztunnel runs on both nodes. In each of ROUNDS (5) one replica of each is killed under load, one after the
# other. The median of Lateen's waypoint may be greater by six, since the load has six connections.
# hack/envoy.sh has the Envoy, and ENVOY names another one.
source "$(dirname "$0")/lib.sh"
ROUNDS=${ROUNDS:-5}
ENVOY=$("$ROOT/hack/envoy.sh" 2>"$WORK/why") || {
  echo "not ok - there is no Envoy to compare with: $(cat "$WORK/why")"
  echo "0 passed, 1 failed, 0 skipped"
  exit 1
}
check "the tool builds" env -C "$ROOT" CGO_ENABLED=0 go build -trimpath -o "$WORK/" ./tests/mesh/envoywaypoint
check "up: ztunnel on both nodes" lateen up --nodes 2 --node-proxy "n1=$ZTUNNEL" --node-proxy "n2=$ZTUNNEL"
bound() { printf -- '---\napiVersion: v1\nkind: Service\nmetadata: {name: %s}\nspec: {selector: {app: server}, ports: [{name: http, port: 8080}]}\n' "$1"; }
check "a client, a server, and two services of it" lateen apply -f - < <(
  account client default
  account server default
  deployment client default client n1 "" '[sleep, infinity]'
  deployment server default server n2 "" '[lateen-load, serve, --listen, "0.0.0.0:8080"]'
  bound by-lateen
  bound by-envoy
)
check "enrol" lateen label ns default istio.io/dataplane-mode=ambient
check "captured and known to every proxy" lateen wait

check "Lateen's waypoint" lateen waypoint apply --name lateen --for service
check "of two replicas" lateen scale deployment/lateen --replicas 2
check "which run" lateen wait deployment/lateen
# A pod sees the manifest's directory by a mount. Nobody else reaches its keys, since WORK is closed.
shown=$WORK/pod
mkdir -m 755 "$shown"
install -m 755 "$ENVOY" "$shown/envoy"
lateen get svc -o json >"$WORK/services.json"
lateen get pods -o json >"$WORK/pods.json"
check "an istiod's configuration for an Envoy" "$WORK/envoywaypoint" -name default/envoy -dir "$shown" -shown /run/lateen/manifest -control "$RUN/control" \
  -services "$WORK/services.json" -pods "$WORK/pods.json" -bound by-envoy
cat >"$shown/waypoint.yaml" <<'Y'
apiVersion: v1
kind: ServiceAccount
metadata: {name: envoy}
---
apiVersion: v1
kind: Service
metadata: {name: envoy, labels: {gateway.networking.k8s.io/gateway-name: envoy, gateway.istio.io/managed: istio.io-mesh-controller}}
spec: {selector: {gateway.networking.k8s.io/gateway-name: envoy}, ports: [{name: hbone, port: 15008}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: envoy}
spec:
  replicas: 2
  selector: {matchLabels: {gateway.networking.k8s.io/gateway-name: envoy}}
  template:
    metadata:
      labels:
        gateway.networking.k8s.io/gateway-name: envoy
        gateway.istio.io/managed: istio.io-mesh-controller
        networking.istio.io/tunnel: http
        istio.io/dataplane-mode: none
    spec:
      serviceAccountName: envoy
      terminationGracePeriodSeconds: 1
      containers:
        - name: istio-proxy
          image: envoy
          command: [/run/lateen/manifest/envoy, --config-path, /run/lateen/manifest/envoy.json, --concurrency, "2", --disable-hot-restart, --file-flush-interval-msec, "1000", --log-level, warning]
          readinessProbe: {tcpSocket: {port: 15008}, periodSeconds: 1}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: envoy, labels: {istio.io/waypoint-for: service}}
spec:
  gatewayClassName: istio-waypoint
  listeners: [{name: mesh, port: 15008, protocol: HBONE, allowedRoutes: {namespaces: {from: All}}}]
Y
check "an Envoy of two replicas as a waypoint" lateen apply -f "$shown/waypoint.yaml"
check "both run" lateen wait deployment/lateen deployment/envoy
bound_to() { lateen get svc "by-$1" -o json | jq -e --arg w "True connections go through waypoint default/$1" '.status.conditions[]? | select(.type == "WaypointBound") | .status + " " + .message | startswith($w)' | found true; }
for w in lateen envoy; do
  check "the service asks for $w" lateen label svc "by-$w" "istio.io/use-waypoint=$w"
  check "it is bound to $w" eventually 60 bound_to $w
done
check "known to every proxy" lateen wait
passes() { call client "http://by-$1:8080/" >/dev/null; lateen logs "deployment/$1" | found "by-$1.default"; }
for w in lateen envoy; do check "requests pass $w" eventually 30 passes $w; done

answers() { [ "$(call client "http://by-$1:8080/")" = 200 ]; }
remember client
declare -A VIP
for w in lateen envoy; do VIP[$w]=$(lateen get svc "by-$w" -o json | jq -r .spec.clusterIP); done
pids_of() { # POD-PREFIX: the processes in the network of a pod
  local ns; ns=$(stat -L -c %i "/proc/$(engine_pid)/root$RUN/netns/$(pod_uid "$1")") || return
  local p; for p in /proc/[0-9]*; do [ "$(stat -L -c %i "$p/ns/net" 2>/dev/null)" != "$ns" ] || echo "${p#/proc/}"; done
}
# killed WAYPOINT ROUND: a replica is killed two seconds after the load has begun. Prints how many requests were lost and how many answered, and why they were lost.
killed() {
  local w=$1 file=$WORK/$1.$2 load pids
  in_pod client "$ROOT/bin/lateen-load" run --url "http://${VIP[$w]}:8080/?size=64" --qps 100 -c 6 --requests-per-connection 20:200 --timeout 20s -d 12s --warmup 0s \
    --initial-errors --json "$file" >/dev/null 2>&1 & load=$!
  sleep 2
  pids=$(pids_of "$w-")
  # Without a kill there are no numbers.
  [ -n "$pids" ] || { kill $load; wait $load; return; }
  kill -KILL $pids
  wait $load
  jq -r '"\(.counts.failed) \(.counts.ok) \(.errors | tojson)"' "$file"
}
declare -A LOST=([lateen]="" [envoy]="")
for ((round = 1; round <= ROUNDS; round++)); do
  order="lateen envoy"
  [ $((round % 2)) = 1 ] || order="envoy lateen"
  for w in $order; do
    read -r lost answered why < <(killed $w $round)
    check "round $round: $w answered many requests around the kill (${answered:-none}, and lost ${lost:-none}: ${why:-})" [ "${answered:-0}" -gt 500 ]
    check "round $round: $w has two replicas again" lateen wait "deployment/$w"
    check "round $round: and answers" eventually 30 answers $w
    LOST[$w]+="${lost:-9999} "
    sleep 2
  done
done
median() { tr ' ' '\n' <<<"$1" | grep . | sort -n | sed -n "$(((ROUNDS + 1) / 2))p"; }
# Each of the six connections may have had a request under way.
check "of 1200 requests a round Lateen's waypoint lost ${LOST[lateen]}and the Envoy ${LOST[envoy]}: the median is greater by six at most" \
  [ "$(median "${LOST[lateen]}")" -le $(($(median "${LOST[envoy]}") + 6)) ]
finish
