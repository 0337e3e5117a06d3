#!/usr/bin/env bash
# An agent is killed, one is replaced, and a container runtime is killed, under load: no request fails, pods that are born
# meanwhile start in the mesh or, outside of it, at once.
# bites: let Over in internal/agent/source/kube/daemonset.go take a replaced agent for one whose mesh is uninstalled: the
# networks of captured pods change, and requests cross in clear. Seen red so.
# bites: let trimPod in internal/agent/source/kube/pods.go trim what it has trimmed: after an agent's start nothing is probed.
# lane: faults
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/faults.sh"
stage
rules() { network_of "$NS1" && network_of "$NS2"; }
seen() { rules >"$WORK/rules" && [ -s "$WORK/rules" ]; }
check "the captured pods' networks can be read" seen
same() { rules | diff "$WORK/rules" -; }
state() { k get pods -n faults -l app -o json | jq -r '.items[] | select(.metadata.labels.app != "newborn") | [.metadata.name, .metadata.uid, .status.containerStatuses[0].restartCount] | @tsv' | sort; }
# probed: what kubelets' probes reach past policy. A server that is probed is among it.
probed() {
  local n
  for n in node1 node2; do in_node $n nft list set inet lateen-probes probed4 | grep -oE '[0-9.]+ \. [0-9]+' | sort; done >"$WORK/probed.now"
  grep -q "^$IP1 \. 8080$" "$WORK/probed.now" && grep -q "^$IP2 \. 8080$" "$WORK/probed.now" || { cat "$WORK/probed.now"; return 1; }
}
still_probed() { probed && diff "$WORK/probed" "$WORK/probed.now"; }
check "the servers' probes pass" eventually 60 probed
cp "$WORK/probed.now" "$WORK/probed"
before=$(state)
check "and who runs there" [ -n "$before" ]

watch_wire tcp and not port 6443
load_all -path /marker-agent
read -r node id <<<"$(container lateen-system "$(part_on agent node2)")"
check "an agent is killed" kill_container "$node" "$id"
check "a pod is made on its node" newborn while-killed node2 marker-agent
check "and served" served_at_birth while-killed
check "the agent is back" eventually 60 k -n lateen-system rollout status daemonset/lateen-agent --timeout=120s
check "the same is probed" still_probed

old=$(part_on agent node1)
check "an agent is replaced" k -n lateen-system delete pod "$old" --wait=false
check "a pod is made on its node" newborn while-replaced node1 marker-agent
check "another one outside the mesh" k -n outside run passer --image=docker.io/local/echo:1 --image-pull-policy=Never --overrides='{"spec": {"nodeSelector": {"lateen.dev/node-index": "1"}}}'
check "the one outside starts" k -n outside wait --for=condition=Ready pod/passer --timeout=120s
check "the one of the mesh is served" served_at_birth while-replaced
k -n outside delete pod passer --wait=false --grace-period=0 --force >/dev/null 2>&1
check "the agent is back" eventually 60 k -n lateen-system rollout status daemonset/lateen-agent --timeout=120s
check "the captured pods' networks are as they were" same
check "the same is probed" still_probed

# The daemon is the oldest of its name: what it starts has that, too, until it is another program.
runtime() { on_node node2 pgrep -o -x containerd; }
pid=$(runtime)
check "a container runtime is killed ($pid)" on_node node2 kill -KILL "$pid"
another() { local now; now=$(runtime); [ -n "$now" ] && [ "$now" != "$pid" ] && on_node node2 ctr version; }
check "another one starts" eventually 60 another
check "a pod is made on its node" newborn after-runtime node2 marker-agent
check "and served" served_at_birth after-runtime
check "the captured pods' networks are as they were" same
equal "no other pod was restarted" "$before" "$(state)"
unharmed "${ALL[@]}"
unwatch_wire
equal "nothing crossed in clear" 0 "$(in_clear marker-agent)"
check "while the tunnel was in use" [ "$(on_wire tcp port 15008)" -gt 0 ]
gone() { [ -z "$(k -n outside get pod passer -o name --ignore-not-found)" ]; }
check "the passer has gone" eventually 60 gone
check "nothing has changed in the other pods outside" untouched
finish
