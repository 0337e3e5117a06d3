#!/usr/bin/env bash
# A denied peer is never admitted while identities come and go. A namespace joins and leaves the mesh, and servers come and
# go, under requests that a policy denies throughout; then one address passes between an identity that is allowed and one
# that is not: neither has what the other may, nor the other's tunnels.
# bites: let the first identity of an address be the source of all its tunnels (`open` in crates/proxy/src/node/tunnel.rs) and
# do not retire them with the pod (`forget` in worker.rs): the foe is not turned away as itself. Seen red so.
source "$(dirname "$0")/lib.sh"
mesh
check "accounts, a namespace that is not enrolled, and an intruder in it" lateen apply -f - <<'Y'
{apiVersion: v1, kind: Namespace, metadata: {name: churn}}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: intruder, namespace: churn}}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: friend, namespace: default}}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: foe, namespace: default}}
---
apiVersion: v1
kind: Pod
metadata: {name: intruder, namespace: churn, labels: {app: intruder}}
spec:
  serviceAccountName: intruder
  nodeSelector: {lateen.dev/node-index: "1"}
  terminationGracePeriodSeconds: 1
  containers: [{name: main, image: none, command: [sleep, infinity]}]
---
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: friends, namespace: default}
spec: {action: DENY, rules: [{from: [{source: {notPrincipals: ["cluster.local/ns/default/sa/client", "cluster.local/ns/default/sa/friend"]}}]}]}
Y
CLIENT_POD=$CLIENT
there() { [ -n "$(pod_uid "$@")" ] && in_netns "$(pod_uid "$@")" true; }
check "the intruder has a network" eventually 20 there intruder churn
INTRUDER=$(pod_uid intruder churn)
shut_out() { CLIENT=$INTRUDER silent; }
# A pod that has only just a network may get no answer for another reason.
lateen wait authorizationpolicy/friends >/dev/null 2>&1 || not_ok "every proxy has the policy"
check "it is denied" eventually 20 shut_out
check "others are not" eventually 20 answers
lateen wait >/dev/null 2>&1

# Each part stops its hammer itself.
CLIENT=$INTRUDER ask 300 "$WORK/plain" -mode new -workers 4 -rate 150 -timeout 2s & NEW=$!
CLIENT=$INTRUDER ask 300 "$WORK/kept" -mode keep -workers 2 -rate 60 -timeout 2s & KEEP=$!
captured() { [ "$(lateen get pod intruder -n churn -o json | jq -r '.metadata.annotations["ambient.istio.io/redirection"] // "none"')" = "$1" ]; }
for round in 1 2 3; do
  check "round $round: the intruder joins the mesh" lateen label ns churn istio.io/dataplane-mode=ambient
  check "and is captured" eventually 30 captured enabled
  check "a server comes" bash -c "'$LATEEN' --name '$MESH' scale deployment/echo --replicas 2 && '$LATEEN' --name '$MESH' wait deployment/echo"
  check "the intruder leaves" lateen label ns churn istio.io/dataplane-mode-
  check "a server goes" lateen scale deployment/echo --replicas 1
  released() { ! captured enabled; }
  check "and is released" eventually 30 released
done
end $NEW $KEEP
for how in plain kept; do
  tried=$(jq '[.counts[]] | add' "$WORK/$how")
  equal "$how: of $tried requests none was answered ($(jq -c .counts "$WORK/$how"))" 0 "$(($(count "$WORK/$how" served) + $(count "$WORK/$how" partial)))"
  check "$how: they were many" [ "$tried" -gt 20 ]
done
CLIENT=$CLIENT_POD
check "others are still served" eventually 20 answers

# One address for pods of either identity. Addresses are given out in turn, so all others are taken: by pods that cannot be
# made, as their host names are too long, and that cost nothing else.
LONG=$(printf 'a%.0s' {1..63})
{ for i in $(seq 1 253); do cat <<Y
---
apiVersion: v1
kind: Pod
metadata: {name: taken-$i, namespace: churn}
spec:
  nodeSelector: {lateen.dev/node-index: "1"}
  hostname: $LONG
  subdomain: taken
  setHostnameAsFQDN: true
  restartPolicy: Never
  containers: [{name: main, image: none, command: ["true"]}]
Y
done; } >"$WORK/taken.yaml"
check "all addresses of the node are taken" lateen apply -f "$WORK/taken.yaml"
# Each has failed with its address, or is told that there is none. One that is still being made would give its address up later.
taken() {
  lateen get pods -n churn -o json | jq '[.items[] | select(.metadata.name | startswith("taken-"))]' >"$WORK/taken.json"
  jq -e 'length == 253 and ([.[] | select(.status.phase == "Failed")] | length >= 200) and
    all(.[]; .status.phase == "Failed" or (.status.message // "" | contains("pod address")))' "$WORK/taken.json"
}
check "by pods that have none" eventually 120 taken
# One of them gives its address up.
victim=$(jq -r '[.[] | select(.status.phase == "Failed")][100].metadata.name' "$WORK/taken.json")
# Those that found none would take it.
jq -r '.[] | select(.status.phase == "Failed") | .metadata.name' "$WORK/taken.json" | sort >"$WORK/have"
seq -f 'taken-%g' 1 253 | sort | comm -23 - "$WORK/have" >"$WORK/without"
while read -r name; do lateen delete pod "$name" -n churn >/dev/null 2>&1; done <"$WORK/without"
check "one address is free" lateen delete pod "$victim" -n churn

someone() { # NAME ACCOUNT
  lateen apply -f - >/dev/null <<Y
apiVersion: v1
kind: Pod
metadata: {name: $1, namespace: default, labels: {app: someone}}
spec:
  serviceAccountName: $2
  nodeSelector: {lateen.dev/node-index: "1"}
  terminationGracePeriodSeconds: 1
  containers: [{name: main, image: none, command: [sleep, infinity]}]
Y
}
said() { proxy_log "$1" | grep -F "$2"; }
# What both proxies said last of an address: where a failed check shows which of them did not do its part.
last_said() {
  local node
  for node in "${NODES[@]}"; do echo "$node's proxy, of $1"; said "$node" "$1" | tail -n 5; done
}
absent() { ! lateen get pods -o json | jq -e --arg p "$1" 'any(.items[]; .metadata.name == $p)' >/dev/null; }
has_address() { [[ $(pod_ip "$1") == *.* ]]; }
address=
for round in 1 2 3; do
  for account in friend foe; do
    name=$account-$round
    check "$name is made" someone "$name" "$account"
    check "$name has a network" eventually 30 there "$name"
    CLIENT=$(pod_uid "$name")
    # From its first moment on, before anybody has heard who it is.
    ask 200 "$WORK/$name.new" -mode new -workers 2 -rate 60 -timeout 2s & NEW=$!
    ask 200 "$WORK/$name.keep" -mode keep -workers 2 -rate 60 -timeout 2s & KEEP=$!
    eventually 20 has_address "$name" >/dev/null
    ip=$(pod_ip "$name")
    address=${address:-$ip}
    equal "$name has the address of those before it" "$address" "$ip"
    check "$name is captured" lateen wait pod/"$name"
    if [ $account = friend ]; then
      check "$name is served" eventually 20 answers
    else
      # Until the server's proxy has turned it away by its own name.
      denied() { said n2 "src.addr=$address:" | grep -F 'sa/foe"' | found -F "$name" || { last_said "$address:"; return 1; }; }
      check "$name is turned away as itself" eventually 40 denied
    fi
    [ $account = foe ] || { sleep 1; }
    # The friend's tunnels are warm when it goes.
    check "$name is deleted" lateen delete pod "$name"
    end $NEW $KEEP
    if [ $account = foe ]; then
      for how in new keep; do equal "$name, $how: nothing was answered ($(jq -c .counts "$WORK/$name.$how"))" 0 "$(($(count "$WORK/$name.$how" served) + $(count "$WORK/$name.$how" partial)))"; done
    fi
    check "$name is gone" eventually 30 absent "$name"
  done
done
finish
