#!/usr/bin/env bash
# takeover.sh ISTIOD INSTALL-CNI ISTIO-CNI ZTUNNEL: `lateen install --take-over=istio` on a real cluster in which an Istio in ambient mode
# runs, under load and with policies in force; then `lateen uninstall`. The arguments are paths of Istio's own binaries (pilot-discovery,
# install-cni and istio-cni linked statically), which this repository neither contains nor builds; the cluster is made for it and goes
# again. IPTABLES=legacy has istio-cni write rules of the older kind. LOGS=FOLDER keeps logs. Needs root and `make build images`; no part of what CI runs.
if [ $# != 4 ] || [ ! -x "$1" ] || [ ! -x "$2" ] || [ ! -x "$3" ] || [ ! -x "$4" ]; then
  echo "not ok - usage: takeover.sh PILOT-DISCOVERY INSTALL-CNI ISTIO-CNI ZTUNNEL"
  echo "0 passed, 1 failed, 0 skipped"
  exit 1
fi
istiod=$1 installer=$2 plugin=$3 ztunnel=$4
export KUBE_NAME=${KUBE_NAME:-takeover}
kube=$(cd "$(dirname "${BASH_SOURCE[0]}")/../kube" && pwd)
"$kube/up.sh" --name "$KUBE_NAME" || exit 1
source "$kube/lib.sh"
source "$kube/faults.sh"
trap 'fault_cleanup; [ -n "${KEEP:-}" ] || "$KUBE/down.sh" --name "$KUBE_NAME"' EXIT

# files BINARY PATH: it, and the libraries that it is linked with, as mkimage wants them.
files() { echo "$1:$2"; ldd "$1" 2>/dev/null | grep -oE '/[^ ]+' | sed 's/.*/&:&/'; }
tables() {
  local kind=${IPTABLES:-nft} b=$SET/debian/usr/sbin lib=/usr/lib/$(uname -m)-linux-gnu
  files "$b/xtables-$kind-multi" "/usr/sbin/xtables-$kind-multi"
  # Those of the packages, in the place of what the host has or has not.
  for f in "$SET/debian$lib"/lib*.so.*[0-9]; do echo "$(realpath "$f"):$lib/$(basename "$f")"; done
  for f in "$SET/debian$lib"/xtables/*.so; do echo "$f:$lib/xtables/$(basename "$f")"; done
}
image() { # NAME MKIMAGE-ARGUMENTS...
  "$SET/bin/mkimage" -o "$WORK/$1.tar" -name "docker.io/local/$1:1" "${@:2}"
}
links=()
for t in iptables ip6tables; do for s in '' -save -restore; do links+=(-link "/usr/sbin/$t-${IPTABLES:-nft}$s=xtables-${IPTABLES:-nft}-multi" -link "/usr/sbin/$t$s=xtables-${IPTABLES:-nft}-multi"); done; done
image pilot -entrypoint /usr/local/bin/pilot-discovery "$istiod:/usr/local/bin/pilot-discovery"
mapfile -t parts < <({ tables; echo "$installer:/usr/local/bin/install-cni"; echo "$plugin:/opt/cni/bin/istio-cni"; } | sort -u -t: -k2)
image install-cni "${links[@]}" "${parts[@]}"
mapfile -t parts < <(files "$ztunnel" /usr/local/bin/ztunnel | sort -u -t: -k2)
image ztunnel -entrypoint /usr/local/bin/ztunnel -entrypoint proxy -entrypoint ztunnel "${parts[@]}"
check "the images are on the nodes" load_images "$ROOT"/bin/images/{control,agent,proxy}.tar "$WORK"/{pilot,install-cni,ztunnel}.tar

# Istio.
for f in "$ROOT"/charts/lateen-crds/files/*; do k apply --server-side -f "$f" >/dev/null || not_ok "definitions of $f"; done
k wait --for=condition=Established crd --all --timeout=60s >/dev/null
k create namespace istio-system >/dev/null
check "Istio is applied" k apply -f "$(dirname "${BASH_SOURCE[0]}")/takeover/istio.yaml"
check "istiod is ready" k -n istio-system rollout status deployment/istiod --timeout=120s
check "istio-cni is ready" k -n istio-system rollout status daemonset/istio-cni-node --timeout=120s
check "ztunnel is ready" k -n istio-system rollout status daemonset/ztunnel --timeout=120s

CLIENT='src.identity="spiffe://cluster.local/ns/faults/sa/client"'
inbound() { k -n "$1" logs "$(pod_on "$1" "app=$2" node2)" --tail=400 | grep 'direction="inbound"' | found "$CLIENT"; }
meshed() { reaches "$NS1" "$IP2:8080" && inbound istio-system ztunnel; }
stage
check "a client that is not let in" k apply -f - <<'Y'
apiVersion: v1
kind: ServiceAccount
metadata: {name: stranger, namespace: faults}
---
apiVersion: v1
kind: Pod
metadata: {name: stranger, namespace: faults, labels: {app: stranger}}
spec:
  serviceAccountName: stranger
  terminationGracePeriodSeconds: 0
  nodeSelector: {lateen.dev/node-index: "1"}
  containers: [{name: client, image: docker.io/local/echo:1, imagePullPolicy: Never, command: [sleep, "1000000"]}]
---
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: no-stranger, namespace: faults}
spec: {selector: {matchLabels: {app: echo}}, action: DENY, rules: [{from: [{source: {principals: ["cluster.local/ns/faults/sa/stranger"]}}]}]}
---
apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {name: default, namespace: faults}
spec: {mtls: {mode: STRICT}}
Y
check "it is ready" k -n faults wait --for=condition=Ready pod/stranger --timeout=60s
check "and captured" eventually 60 captured faults 5
STRANGER=$(pod_netns faults stranger)
kept_out() { ! reaches "$STRANGER" "$IP2:8080" && ! reaches "$STRANGER" "$IP1:8080" && ! reaches "$OUT1" "$IP2:8080" && ! reaches "$OUT2" "$IP1:8080" && meshed; }
check "the policies are in force" eventually 30 kept_out
root() { k -n "$1" get configmap istio-ca-root-cert -o jsonpath='{.data.root-cert\.pem}'; }
before=$(root faults)
equal "the root is that of istio-ca-secret" "$(k -n istio-system get secret istio-ca-secret -o jsonpath='{.data.ca-cert\.pem}' | base64 -d)" "$before"

# What is refused, and what is promised.
refused() { ! lateen "$@" >"$WORK/said" 2>&1; }
names() { grep -qF -e "$1" "$WORK/said" || { cat "$WORK/said"; return 1; }; }
lateen check --pre >"$WORK/said" 2>&1
check "check --pre names Istio" names LAT104
check "install refuses" refused install --set image.pullPolicy=Never
for n in "Deployment istiod" "DaemonSet ztunnel" "DaemonSet istio-cni-node" "MutatingWebhookConfiguration istio-sidecar-injector" "ValidatingWebhookConfiguration istio-validator-istio-system" --take-over=istio; do
  check "and says: $n" names "$n"
done
take=(install --take-over=istio --set image.pullPolicy=Never --timeout 4m)
inventory >"$WORK/inventory"
lateen "${take[@]}" --dry-run >"$WORK/said" 2>&1 || { not_ok "a dry run"; cat "$WORK/said"; }
for n in istio-ca-secret "scale Deployment istio-system/istiod to 0" "remove DaemonSet istio-system/istio-cni-node" "remove DaemonSet istio-system/ztunnel" "remove MutatingWebhookConfiguration istio-sidecar-injector"; do
  check "a dry run says: $n" names "$n"
done
unchanged() { inventory | diff "$WORK/inventory" -; }
check "and changes nothing" unchanged

# The take-over, under load. Who may not come in keeps trying.
watch_wire tcp and not port 6443
load_all -path /marker-taken
for a in stranger1:$STRANGER:$IP1 stranger2:$STRANGER:$IP2 plain1:$OUT1:$IP2 plain2:$OUT2:$IP1; do
  IFS=: read -r name ns ip <<<"$a"
  case $name in stranger*) path=/marker-stranger ;; *) path=/in-clear ;; esac
  ask_begin "$name" "$ns" "$ip:8080" -mode new -workers 2 -rate 20 -path $path
done
births() {
  local n=0
  while [ ! -e "$WORK/enough" ]; do
    n=$((n + 1))
    newborn "born-$n" node$((n % 2 + 1)) marker-born >/dev/null 2>&1 || echo "born-$n not made"
    if ! served_at_birth "born-$n" >/dev/null 2>&1; then echo "born-$n not served"; k -n faults describe pod "born-$n" | tail -8; fi
    echo "$n" >"$WORK/births"
  done >"$WORK/unserved"
}
births & BIRTHS=$!
# Kubelets say of every probe that fails that it does. What cannot be read, or tells nothing at all, is not the absence of failures.
unhealthy() { k -n faults get events -o json | jq -ce 'if .items == [] then error("there are no events") else . end | "events", ([.items[] | select(.reason == "Unhealthy")] | sort_by(.lastTimestamp)[] | [.firstTimestamp, .lastTimestamp, .count, .involvedObject.name, .message])'; }
check "the events of pods can be read" unhealthy
unhealthy >"$WORK/unhealthy"
sleep 2
began=$SECONDS
if lateen "${take[@]}" > >(while IFS= read -r l; do echo "$(date +%s%3N) $l"; done >"$WORK/install") 2>&1; then ok "lateen ${take[*]} ($((SECONDS - began)) s)"; else not_ok "lateen ${take[*]}"; cat "$WORK/install"; fi
sed 's/^/    /' "$WORK/install"
# Proxies of Istio's may take half a minute to end.
sleep 10
touch "$WORK/enough"; wait $BIRTHS
if [ -n "${LOGS:-}" ]; then
  mkdir -p "$LOGS"
  for n in node1 node2; do k -n lateen-system logs "$(part_on agent $n)" >"$LOGS/agent-$n" 2>&1; done
  { k get events -A -o json; cat "$WORK/install"; } >"$LOGS/events" 2>&1
fi
probes_passed() { unhealthy | diff "$WORK/unhealthy" -; }
check "no probe has failed meanwhile" probes_passed
equal "pods born meanwhile ($(cat "$WORK/births")) were served at once" "" "$(cat "$WORK/unserved")"
ask_end stranger1 stranger2 plain1 plain2
for n in stranger1 stranger2 plain1 plain2; do
  equal "$n was never let in ($(jq -c .counts "$WORK/$n.json"))" 0 "$(jq '(.counts.served // 0) + (.counts.partial // 0)' "$WORK/$n.json")"
done
unharmed outside
ask_end new1 new2 kept1 kept2
# What a ztunnel carries when its time is up it cuts: of new connections what is under way in that moment, if anything; of those that last
# all, once at either end.
few() { # NAME MOST
  echo "   $1: $(jq -c . "$WORK/$1.json")" >&3
  head -3 "$WORK/$1.failures" >&3; tail -3 "$WORK/$1.failures" >&3
  [ "$(jq .failed "$WORK/$1.json")" -le "$2" ] && [ "$(jq '.counts.served // 0' "$WORK/$1.json")" -gt 50 ]
}
exec 3>&1
for n in new1 new2; do check "$n: of new connections at most two fail" few $n 2; done
for n in kept1 kept2; do check "$n: kept ones are cut once at either end at most" few $n $((2 * KEPT)); done
unwatch_wire
check "the watch sees what is in clear: the load outside" test "$(in_clear size=77)" -gt 0
for m in marker-taken marker-born marker-stranger; do equal "no packet between the nodes shows $m" 0 "$(in_clear $m)"; done

# What has become of Istio.
meshed() { reaches "$NS1" "$IP2:8080" && inbound lateen-system lateen-node; }
check "this mesh carries requests" eventually 30 meshed
check "the policies are in force" eventually 30 kept_out
equal "the root is the same: in the mesh's namespace" "$before" "$(root lateen-system)"
equal "and in pods' namespaces" "$before" "$(root faults)"
equal "it is this mesh's to keep" lateen "$(k -n faults get configmap istio-ca-root-cert -o jsonpath='{.metadata.labels.app\.kubernetes\.io/name}')"
lateen ca status | sed 's/^/    /'
# What cannot be looked at is not gone.
gone_all() { local left; left=$(k -n istio-system get pods -o name) && [ -z "$left" ]; }
check "no pod of Istio is left" eventually 60 gone_all
no_webhook() { local left; left=$(k get validatingwebhookconfigurations,mutatingwebhookconfigurations -o name) && ! grep istio <<<"$left"; }
check "nor a webhook" no_webhook
# kube-proxy's chains for Services have their names, and stay for a while when these are gone.
bare_node() { local rules; rules=$(in_node "$1" nft list ruleset) && ! grep -i istio <<<"$rules" | grep -v 'service-[A-Z0-9]*-istio-system/istiod/'; }
for n in node1 node2; do
  equal "$n: the plugin of Istio is out of the network configuration" lateen-cni "$(jq -r '[.plugins[].type | select(test("istio|lateen"))] | join(" ")' "$(node_files $n)"/etc/cni/net.d/*.conflist)"
  check "$n: no rule of Istio's" bare_node $n
done
# Rules of the older kind nobody removes, and the guide has such pods started anew.
anew() {
  k -n faults get pods client1 client2 stranger -o json | jq 'del(.items[] | .status, .spec.nodeName, .metadata.uid, .metadata.resourceVersion, .metadata.annotations)' >"$WORK/anew.json" &&
    k replace --force --grace-period=0 -f "$WORK/anew.json" && k -n faults delete pods -l app=echo && k -n faults rollout status deployment/echo --timeout=120s &&
    k -n faults wait --for=condition=Ready pod/client1 pod/client2 pod/stranger --timeout=120s && eventually 60 captured faults 5
}
if [ "${IPTABLES:-nft}" = legacy ]; then
  check "the pods are started anew" anew
  IP1=$(pod_ip faults "$(pod_on faults app=echo node1)") IP2=$(pod_ip faults "$(pod_on faults app=echo node2)")
  NS1=$(pod_netns faults client1) NS2=$(pod_netns faults client2) STRANGER=$(pod_netns faults stranger)
  check "on both nodes" [ -n "$IP1" -a -n "$IP2" ]
  check "and in the mesh" eventually 30 kept_out
fi
clean() {
  local p pods ns rules
  pods=$(k -n faults get pods -o json | jq -r '.items[] | select(.metadata.deletionTimestamp == null and .status.phase == "Running") | .metadata.name') && [ -n "$pods" ] || return 1
  for p in $pods; do
    ns=$(pod_netns faults "$p") && rules=$(in_netns "$ns" sh -c 'nft list ruleset && { cat /proc/net/ip_tables_names /proc/net/ip6_tables_names 2>/dev/null || true; }') || { echo "the rules of $p cannot be read"; return 1; }
    ! grep -iE 'istio|^(nat|mangle|raw)$' <<<"$rules" || { echo "in $p"; return 1; }
  done
}
check "nor in pods" eventually 60 clean
k get gatewayclasses -o custom-columns=NAME:.metadata.name,BY:.spec.controllerName,ACCEPTED:.status.conditions[0].status | sed 's/^/    /'
lateen check >"$WORK/said" 2>&1 && ok "lateen check" || { not_ok "lateen check"; cat "$WORK/said"; }
check "nothing has changed in the pods outside" untouched

# And away.
check "lateen uninstall" lateen uninstall --timeout 4m
all_open() { reaches "$NS1" "$IP2:8080" && reaches "$NS2" "$IP1:8080" && reaches "$STRANGER" "$IP1:8080" && reaches "$OUT1" "$IP2:8080" && reaches "$NS1" "$VIP"; }
check "pods reach each other without a mesh" eventually 30 all_open
by_name() { k -n faults exec client2 -- wget -qO- http://echo.faults.svc.cluster.local/; }
check "by name, too" eventually 15 by_name
bare() {
  local p rules
  for p in "$NS1" "$NS2" "$STRANGER"; do
    rules=$(in_netns "$p" sh -c 'nft list ruleset && ip rule && { ip route show table 100 2>/dev/null || true; }') || { echo "the rules in $p cannot be read"; return 1; }
    ! grep -iE 'istio|lateen|redirect|fwmark' <<<"$rules" || return 1
  done
}
check "nothing of either mesh is left in them" bare
finish
