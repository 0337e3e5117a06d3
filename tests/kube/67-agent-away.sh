#!/usr/bin/env bash
# No agent on node 1, for longer than an agent's own token would last: pods start or wait as their own labels say, not only as
# their namespace does. The agent that comes back has lost its notes of pods' networks: it finds those of captured pods again,
# and a process of such a pod that poses with its address in a network of its own changes nothing.
# lane: faults
source "$(dirname "$0")/lib.sh"
captured() { [ "$(field away "$1" .metadata.annotations.ambient\\.istio\\.io/redirection)" = enabled ]; }
a_pod() { # NAME MODE NAMESPACE
  k -n "$3" apply -f - <<Y
apiVersion: v1
kind: Pod
metadata: {name: $1, labels: {app: born, istio.io/dataplane-mode: $2}}
spec:
  terminationGracePeriodSeconds: 0
  nodeSelector: {lateen.dev/node-index: "1"}
  containers: [{name: c, image: docker.io/local/echo:1, imagePullPolicy: Never, command: [sleep, "1000000"]}]
Y
}
runs() { k -n "$1" wait --for=condition=Ready "pod/$2" --timeout=120s; }
agents() { k -n lateen-system get pods -l app=lateen-agent --field-selector "spec.nodeName=node1" -o name; }
no_agent() { local a; a=$(agents) && [ -z "$a" ] || { echo "$a"; return 1; }; }

check "echo servers and clients in the mesh" echo_in away istio.io/dataplane-mode=ambient
check "a namespace outside" k create namespace away-plain
check "a client is captured" eventually 60 captured client1
IP2=$(pod_ip away "$(pod_on away app=echo node2)")
equal "and served" 200 "$(code away/client1 "http://$IP2:8080/")"

check "the agents are sent off their nodes" k -n lateen-system patch daemonset lateen-agent --type=merge \
  -p '{"spec":{"template":{"spec":{"nodeSelector":{"lateen.dev/nowhere":"true"}}}}}'
check "none is on node 1" eventually 60 no_agent
equal "a captured pod is served" 200 "$(code away/client1 "http://$IP2:8080/")"
# An API server knows a token for ten seconds after it has ended.
sleep 12
check "a pod that stays out of the enrolled namespace is made" a_pod out none away
check "and starts" runs away out
check "a pod of a namespace outside that is enrolled by its own label is made" a_pod in ambient away-plain
waits() { k -n away-plain get events --field-selector involvedObject.name=in -o json | jq -r '.items[].message' | found "say the API server's labels"; }
check "and waits: the API server's labels say that it is of the mesh" eventually 60 waits
check_not "it has not started" [ "$(field away-plain in .status.phase)" = Running ]

# Whatever the agent noted of networks is lost, and a pod poses.
rm -f "$(node_files node1)/run/lateen/sandboxes.json"
IP1=$(pod_ip away client1)
check "a process of the captured pod makes itself a network with the pod's address" k -n away exec client1 -- \
  sh -c "busybox unshare -Urn sh -c 'ip address add $IP1/32 dev lo && ip link set lo up && : >/tmp/posed && exec sleep 1000' >/dev/null 2>&1 &
    for i in \$(busybox seq 300); do [ ! -e /tmp/posed ] || break; sleep 0.1; done; [ -e /tmp/posed ] && kill -0 \$!"
check "the agents are back" k -n lateen-system patch daemonset lateen-agent --type=json -p '[{"op":"remove","path":"/spec/template/spec/nodeSelector"}]'
check "and ready" k -n lateen-system rollout status daemonset/lateen-agent --timeout=120s
check "the pod that waited starts" runs away-plain in
born() { [ "$(field away-plain in .metadata.annotations.ambient\\.istio\\.io/redirection)" = enabled ]; }
check "captured" eventually 60 born
known() {
  on_node node1 sh -c 'cat /run/lateen/sandboxes.json' | jq -e --arg uid "$(field away client1 .metadata.uid)" '.[$uid].netns | startswith("/var/run/netns/")'
}
check "the captured pod's network is found, and is what the runtime mounted" eventually 60 known
check "it is captured" captured client1
watch_wire tcp
equal "and served" 200 "$(code away/client1 "http://$IP2:8080/marker-away")"
unwatch_wire
equal "no packet shows it" 0 "$(in_clear marker-away)"
k delete namespace away away-plain --wait=false >/dev/null
finish
