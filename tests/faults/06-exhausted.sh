#!/usr/bin/env bash
# A full disk and no descriptors left. Disk: proxies, agents and the control plane share one file system without a free
# byte: connections go on, a proxy that is killed comes back, what cannot be stored is refused with the reason, and all
# heals when there is room. Descriptors: a proxy with 200 of them sheds what it cannot take, says so, and serves its other
# pods.
# bites: without `has` in WriteFile (internal/ca/root.go) the control plane does not start on a full disk. Seen red so.
# bites: without the limit of a pod's share (`take` in crates/accept/src/fd_quota.rs) the neighbour is reset. Seen red so.
# The whole mesh lives in a file system of a few megabytes, in a mount namespace of this script's own.
if [ -z "${OWN_MOUNTS:-}" ] && [ "$(id -u)" = 0 ]; then OWN_MOUNTS=1 exec unshare -m bash "$0" "$@"; fi
source "$(dirname "$0")/lib.sh"
# Over /run and not over /run/lateen: the last mesh that ends outside removes that directory, and with it what is mounted there.
mount -t tmpfs -o size=24m,mode=755 tmpfs /run || not_ok "a small file system"
mesh
# They ask until they are told to end.
ask 120 "$WORK/keep" -mode keep -workers 4 -rate 100 & KEEP=$!
ask 120 "$WORK/new" -mode new -workers 4 -rate 100 & NEW=$!
eventually 20 answered_on 4 >/dev/null
sleep 1
# A process that replaces a file gives a page back, in which a policy has room: what is free is taken again and again.
fill() { dd if=/dev/zero bs=4k >>"$RUN/ballast" 2>/dev/null; }
full() { fill; [ "$(df --output=avail -k /run | tail -1 | tr -d ' ')" = 0 ]; }
check "the disk is full" eventually 10 full
while [ -d "$WORK" ] && [ ! -e "$WORK/refused" ]; do fill; sleep 0.02; done & FILLER=$!
sleep 2
lateen apply -f - >"$WORK/apply" 2>&1 <<'Y'
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: closed, namespace: default}
spec: {action: DENY, rules: [{}]}
Y
touch "$WORK/refused"; wait $FILLER
check "what cannot be stored is refused ($(tail -1 "$WORK/apply" | cut -c1-150))" grep -qi 'no space left' "$WORK/apply"
before=$(jq -n '[$a, $b]' --arg a "$(proxy_pid n1)" --arg b "$(agent_pid n1)")
sleep 5
end $KEEP $NEW
equal "no request on established connections failed" 0 "$(failed "$WORK/keep")"
equal "no request on new connections failed ($(count "$WORK/new" served))" 0 "$(failed "$WORK/new")"
equal "no process ended" "$before" "$(jq -n '[$a, $b]' --arg a "$(proxy_pid n1)" --arg b "$(agent_pid n1)")"
pid=$(proxy_pid n1); kill -KILL "$pid"
check "a proxy that is killed meanwhile is started" another "$pid" proxy_pid n1
check "and serves" eventually 30 answers
pid=$(agent_pid n2); kill -KILL "$pid"; another "$pid" agent_pid n2 >/dev/null
pid=$(control_pid); kill -KILL "$pid"; another "$pid" control_pid >/dev/null
ready() { lateen status -o json | jq -e '.control.ready and ([.nodes[].agent.ready, .nodes[].proxy.ready] | all)'; }
check "agent and control plane come back as well" eventually 40 ready
rm -f "$RUN/ballast"
check "with room, a policy is stored" lateen apply -f - <<'Y'
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: closed, namespace: default}
spec: {action: DENY, rules: [{}]}
Y
check "and in force" eventually 30 silent
check "take it away" lateen delete authorizationpolicy closed
check "served" eventually 30 answers

# Few descriptors: the node proxy is replaced by itself with a low limit.
mkdir -p "$WORK/few"
printf '#!/bin/sh\nulimit -n 200\nexec %s "$@"\n' "$RUN/bin/lateen-proxy" >"$WORK/few/lateen-proxy"
chmod -R a+rx "$WORK"; chmod +x "$WORK/few/lateen-proxy"
check "a second client on the same node" lateen apply -f - <<'Y'
apiVersion: v1
kind: Pod
metadata: {name: neighbour, labels: {app: neighbour}}
spec:
  nodeSelector: {lateen.dev/node-index: "1"}
  terminationGracePeriodSeconds: 1
  containers: [{name: main, image: none, command: [sleep, infinity]}]
Y
captured() { [ "$(lateen get pod neighbour -o json | jq -r '.metadata.annotations["ambient.istio.io/redirection"]')" = enabled ]; }
check "captured" eventually 30 captured
check "a node proxy with 200 descriptors" lateen proxy replace n1 --binary "$WORK/few/lateen-proxy" --drain 1s --wait
equal "that is its limit" 200 "$(awk '/^Max open files/ {print $4}' "/proc/$(proxy_pid n1)/limits")"
pid=$(proxy_pid n1)
HOG=$CLIENT
CLIENT=$HOG ask 150 "$WORK/hog" -mode keep -workers 400 -rate 400 -timeout 4s -path "/?size=77&delay=100ms" & HOGS=$!
shed() { [ "$(proxy_metrics n1 | awk '/^lateen_connections_shed_total/ {n += $2} END {print n + 0}')" -gt 0 ]; }
check "the hog has all of its share" eventually 20 shed
CLIENT=$(pod_uid neighbour) ask 5 "$WORK/neighbour" -mode new -workers 2 -rate 40
end $HOGS
equal "the neighbour loses nothing ($(jq -c .counts "$WORK/neighbour"))" 0 "$(failed "$WORK/neighbour")"
check "the hog is served as far as its share goes ($(jq -c .counts "$WORK/hog"))" [ "$(count "$WORK/hog" served)" -gt 50 -a "$(failed "$WORK/hog")" -gt 0 ]
equal "the process is the same" "$pid" "$(proxy_pid n1)"
check "afterwards all is served" eventually 30 answers
finish
