#!/usr/bin/env bash
# The replica of the control plane that leads is killed under load: no request fails; what is asked for while it is dead takes
# effect through the other one, which then leads.
# bites: a lease of 15 minutes (leaseDuration in internal/control/cluster/leader.go): nobody else leads. Seen red so.
# lane: faults
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/faults.sh"
stage

leads() { local l; l=$(leader_raw); [ -n "$l" ] && [ "$l" != "$1" ]; }
leader_raw() { k -n lateen-system get lease lateen-control -o jsonpath='{.spec.holderIdentity}'; }
replicas() { k -n lateen-system get pods -l app=lateen-control -o json | jq -r '.items[] | select(.metadata.deletionTimestamp == null) | .metadata.name'; }
equal "two replicas" 2 "$(replicas | wc -l)"
check "one of them leads" eventually 60 leads ""
policy() { # apply|delete
  k -n faults "$1" -f - <<'Y'
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: closed}
spec: {selector: {matchLabels: {app: echo}}, action: DENY, rules: [{to: [{operation: {ports: ["9000"]}}]}]}
Y
}
line() { [ "$(in_netns "$NS1" timeout 30 bash -c "exec 3<>/dev/tcp/$IP2/9000; echo line >&3; head -1 <&3" 2>/dev/null)" = line ]; }
no_line() { ! line; }
check "lines are answered" eventually 60 line

load_all
sleep 2
# The holder is a pod and a life of it.
first=$(leader_raw) pod=${first%-*}
read -r node id <<<"$(container lateen-system "$pod")"
check "the replica that leads is killed ($pod)" kill_container "$node" "$id"
check "at that moment a policy" policy apply
check "and a pod" newborn after-leader node2 ""
check "the policy takes effect" eventually 60 no_line
check "the pod is served" served_at_birth after-leader
check "another one leads, or it does again, in a new life" eventually 60 leads "$first"
check "who leads says that the policy is programmed" k -n faults wait --for=condition=lateen.dev/Programmed authorizationpolicy/closed --timeout=120s
check "both are ready again" eventually 60 parts_ready
policy delete >/dev/null
check "lines are answered again" eventually 60 line
unharmed "${ALL[@]}"
check "nothing has changed in the pods outside" untouched
finish
