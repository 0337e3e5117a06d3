#!/usr/bin/env bash
# An unmodified ztunnel is the node proxy of one node of a real cluster, in the place of our DaemonSet there: it comes under load, pods
# are born and enrolled on its node, traffic flows both ways under both sides' identities, policies hold on either side,
# probes pass, and it goes again under load. Of a cluster of its own: ZTUNNEL=/path/to/ztunnel tests/interop/kubernetes.sh
# (needs root, `make build images`; no part of `make interop` or of what CI runs).
if [ ! -x "${ZTUNNEL:-}" ]; then
  echo "not ok - set ZTUNNEL to the path of an unmodified ztunnel binary"
  echo "0 passed, 1 failed, 0 skipped"
  exit 1
fi
export KUBE_NAME=${KUBE_NAME:-interop}
kube=$(cd "$(dirname "${BASH_SOURCE[0]}")/../kube" && pwd)
"$kube/up.sh" --name "$KUBE_NAME" || exit 1
source "$kube/lib.sh"
source "$kube/faults.sh"
trap 'fault_cleanup; [ -n "${KEEP:-}" ] || "$KUBE/down.sh" --name "$KUBE_NAME"' EXIT

files=("$ZTUNNEL:/usr/local/bin/ztunnel")
while read -r lib; do files+=("$lib:$lib"); done < <(ldd "$ZTUNNEL" | grep -oE '/[^ ]+')
"$SET/bin/mkimage" -o "$WORK/ztunnel.tar" -name docker.io/local/ztunnel:1 -entrypoint /usr/local/bin/ztunnel -entrypoint proxy -entrypoint ztunnel "${files[@]}"
check "the images are on the nodes" load_images "$ROOT"/bin/images/{control,agent,proxy}.tar "$WORK/ztunnel.tar"
check "lateen install" lateen install --set image.pullPolicy=Never --timeout 3m
stage

# ztunnel's DaemonSet: ours, with another image and on node2 alone.
ztunnel() {
  k -n lateen-system get daemonset lateen-node -o json | jq '{apiVersion, kind, metadata: {name: "unmodified-ztunnel", namespace: "lateen-system"}, spec}
    | .spec.selector.matchLabels = {app: "unmodified-ztunnel"} | .spec.template.metadata.labels = {app: "unmodified-ztunnel"}
    | .spec.template.spec.nodeSelector = {"kubernetes.io/hostname": "node2"} | .spec.template.spec.terminationGracePeriodSeconds = 30
    | .spec.template.spec.containers[0] |= (.image = "docker.io/local/ztunnel:1" | del(.args))'
}
own() { # VALUES...: where our node proxies run
  lateen upgrade --timeout 3m --reset-values --set image.pullPolicy=Never "$@"
}
load_all
sleep 1
check "ztunnel comes to node2, under load" k apply -f - < <(ztunnel)
check "it is ready" k -n lateen-system rollout status daemonset/unmodified-ztunnel --timeout=60s
check "and ours goes from there" own --set "node.nodeSelector.kubernetes\.io/hostname=node1"
ours_gone() { [ -z "$(k -n lateen-system get pods -l app=lateen-node --field-selector spec.nodeName=node2 -o json | jq -r '.items[] | select(.metadata.deletionTimestamp == null) | .metadata.name')" ]; }
check "it has been told to" eventually 30 ours_gone
sleep 5
unharmed "${ALL[@]}"

# Both kinds serve, ask, judge and name their peers.
CLIENT='src.identity="spiffe://cluster.local/ns/faults/sa/client"'
inbound() { k -n lateen-system logs "$(pod_on lateen-system "app=$1" "$2")" --tail=400 | grep 'direction="inbound"' | found "$CLIENT"; }
to_ztunnel() { reaches "$NS1" "$IP2:8080" && inbound unmodified-ztunnel node2; }
to_ours() { reaches "$NS2" "$IP1:8080" && inbound lateen-node node1; }
check "ours to ztunnel, with the client's identity" eventually 30 to_ztunnel
check "ztunnel to ours" eventually 30 to_ours
watch_wire tcp and not port 6443
check "a pod is born on ztunnel's node" newborn born-there node2 marker-born
check "and served" served_at_birth born-there
check "one on ours" newborn born-here node1 marker-born
check "and served" served_at_birth born-here
by_name() { k -n faults exec client2 -- wget -qO- http://echo.faults.svc.cluster.local/marker-name; }
check "a name, behind ztunnel" eventually 15 by_name
unwatch_wire
for m in marker-born marker-name; do equal "no packet shows $m" 0 "$(in_clear $m)"; done

check "an identity is denied, and nothing is accepted in clear" k apply -f - <<'Y'
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: no-client, namespace: faults}
spec: {selector: {matchLabels: {app: echo}}, action: DENY, rules: [{from: [{source: {principals: ["cluster.local/ns/faults/sa/client"]}}], to: [{operation: {ports: ["9000"]}}]}]}
---
apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {name: default, namespace: faults}
spec: {mtls: {mode: STRICT}}
Y
line() { in_netns "$1" timeout 5 bash -c "exec 3<>/dev/tcp/$2/9000; echo line >&3; head -1 <&3" 2>/dev/null | found line; }
judged() { ! line "$1" "$2" && reaches "$1" "$2:8080" && ! reaches "$3" "$2:8080"; }
check "ztunnel refuses both, and admits who may" eventually 30 judged "$NS1" "$IP2" "$OUT1"
check "so does ours" eventually 30 judged "$NS2" "$IP1" "$OUT2"
sleep 5
equal "the kubelet's probes pass on both nodes" "True True" "$(k -n faults get pods -l app=echo -o json | jq -r '[.items[].status.conditions[] | select(.type == "Ready") | .status] | join(" ")')"
k -n faults delete authorizationpolicy/no-client peerauthentication/default >/dev/null
open() { line "$NS1" "$IP2" && line "$NS2" "$IP1"; }
check "then they are admitted again" eventually 30 open

load_all
sleep 1
check "ours comes back to node2, under load" own
check "and ztunnel goes" k -n lateen-system delete daemonset unmodified-ztunnel --wait=false
sleep 8
# What ztunnel carried it cuts when its time is up, as it does on its own.
unharmed new1 new2 outside
ask_end kept1 kept2
check "ours serves there" eventually 30 meshed
check "nothing has changed in the pods outside" untouched
finish
