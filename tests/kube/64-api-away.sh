#!/usr/bin/env bash
# The API server is away for a minute, under load, and with it the controllers and the scheduler, as when their machine starts
# again: established and new connections go on, an agent that starts meanwhile lets nobody go, a node proxy that starts
# meanwhile gets its configuration and its certificates; nothing is captured or released; then all reconcile.
# bites: with the mesh's settings in the environment by envFrom (charts/lateen/templates/node.yaml) the kubelet cannot start the
# killed proxy again. Seen red so.
# There are two replicas, and one may never have had to verify the token of the killed proxy: the next one turns to the other.
# lane: faults
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/faults.sh"
stage
PLANE=(kube-controller-manager kube-scheduler kube-apiserver)

# What can be asked when nobody can be asked for it any more.
read -r _ agent <<<"$(container lateen-system "$(part_on agent node1)")"
read -r _ proxy <<<"$(container lateen-system "$(part_on node node2)")"
rules() { network_of "$NS1" && network_of "$NS2"; }
plain() { network_of "$OUT1" && network_of "$OUT2"; }
seen() { rules >"$WORK/rules" && plain >"$WORK/plain" && [ -s "$WORK/rules" ] && [ -s "$WORK/plain" ]; }
check "the pods' networks can be read" seen
same() { "$1" | diff "$WORK/$1" -; }
restarted() { on_node "$1" ctr -n k8s.io tasks ls | awk -v id="$2" '$1 == id && $3 == "RUNNING" {exit 1}'; }
state() { k get pods -n faults -o json | jq -r '.items[] | [.metadata.name, .metadata.uid, .metadata.annotations["ambient.istio.io/redirection"], .status.containerStatuses[0].restartCount] | @tsv' | sort; }
before=$(state)

load_all
sleep 2
away=$SECONDS
for c in "${PLANE[@]}"; do check "$c ends" "$KUBE/ctl" stop "$c"; done
check_not "nobody answers" k get --raw=/readyz --request-timeout=2s
check "a name of the mesh is known" in_netns "$NS1" "$SET/debian/usr/bin/busybox" nslookup echo.faults.svc.cluster.local 10.96.0.10
sleep 5
check "an agent is killed" kill_container node1 "$agent"
agent_is_back() { restarted node1 "$agent" && in_node node1 curl -sf --max-time 30 http://127.0.0.1:15014/metrics | found '^lateen_agent_source_connected 0'; }
check "another one starts, which has nobody to ask" eventually 60 agent_is_back
# The agent looks again after 30 seconds, and puts right what somebody has changed.
next=$((SECONDS + 33)) enough=$((away + 42))
[ $next -le $enough ] || enough=$next
sleep $((enough - SECONDS > 0 ? enough - SECONDS : 0))
check "the captured pods' networks are as they were" same rules
check "and those outside" same plain
unharmed "${ALL[@]}"

check "a node proxy is killed" kill_container node2 "$proxy"
back() { restarted node2 "$proxy" && reaches "$NS2" "$IP1:8080" && reaches "$NS1" "$IP2:8080"; }
began=$SECONDS
check "another one serves its pods: it has got configuration and certificates" eventually 60 back
echo "   after $((SECONDS - began)) s"
load_all
check "a captured pod is captured still: nothing of it is in clear" same rules
sleep $((away + 62 - SECONDS > 0 ? away + 62 - SECONDS : 0))
check "the API server starts after $((SECONDS - away)) s" "$KUBE/ctl" start kube-apiserver
check "and answers" eventually 60 k get --raw=/readyz
for c in kube-controller-manager kube-scheduler; do check "$c starts" "$KUBE/ctl" start $c; done

# Kubelets listen again after up to a minute: their own pause between attempts.
check "every part is ready" eventually 120 parts_ready
after() { [ "$(state)" = "$before" ] || { diff <(echo "$before") <(state); return 1; }; }
check "no pod was captured, released or restarted" after
check "a policy takes effect and is programmed" bash -c "'$KUBE/k' -n faults apply -f - <<'Y' && '$KUBE/k' -n faults wait --for=condition=lateen.dev/Programmed authorizationpolicy/closed --timeout=120s
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: closed}
spec: {selector: {matchLabels: {app: echo}}, action: DENY, rules: [{to: [{operation: {ports: [\"9000\"]}}]}]}
Y"
no_line() { in_netns "$NS1" true && ! in_netns "$NS1" timeout 30 bash -c "exec 3<>/dev/tcp/$IP2/9000; echo line >&3; head -1 <&3" 2>/dev/null | found line; }
check "as a client sees" eventually 60 no_line
k -n faults delete authorizationpolicy closed >/dev/null
check "a pod is born into the mesh" newborn after-away node1 ""
check "and served" served_at_birth after-away
check "a label releases a pod" k -n faults label pod client2 istio.io/dataplane-mode=none
check "it is released" eventually 60 captured faults 3
check "and captures it" k -n faults label pod client2 istio.io/dataplane-mode-
check "it is captured" eventually 60 captured faults 4
check "lateen check finds nothing" eventually 60 lateen check
unharmed "${ALL[@]}"
check "nothing has changed in the pods outside" untouched
finish
