#!/usr/bin/env bash
# The cluster itself, before any mesh: what the other suites take for granted.
source "$(dirname "$0")/lib.sh"

check "both nodes are Ready" k wait --for=condition=Ready node/node1 node/node2 --timeout=120s
equal "the API server, the kubelets and kubectl are of one version" 1 \
  "$({ k version -o json | jq -r '.clientVersion.gitVersion, .serverVersion.gitVersion'; k get nodes -o jsonpath='{range .items[*]}{.status.nodeInfo.kubeletVersion}{"\n"}{end}'; } | sort -u | wc -l)"
check "echo servers and clients run" echo_in plain
equal "one echo server on each node" "node1 node2" "$(k -n plain get pods -l app=echo -o jsonpath='{.items[*].spec.nodeName}' | tr ' ' '\n' | sort | xargs)"

IP1=$(pod_ip plain "$(pod_on plain app=echo node1)")
IP2=$(pod_ip plain "$(pod_on plain app=echo node2)")
CLIENT=$(pod_ip plain client1)
VIP=$(service_ip plain echo)
stats() { in_pod plain/client1 curl -s "http://$1:8080/stats" | jq -r ".$2"; }

check "DNS: the Service by its short name" eventually 60 get plain/client1 http://echo/
check "DNS: the Service by its full name, from the other node" eventually 60 get plain/client2 http://echo.plain.svc.cluster.local/
check_not "DNS: a name that is not there" get plain/client1 http://missing.plain.svc.cluster.local/

# A node's rules follow the Service's endpoints, a moment after these are ready.
NETNS=$(pod_netns plain client1)
both_answer() { [ "$(for _ in {1..20}; do in_netns "$NETNS" curl -s --max-time 30 "http://$VIP/"; done | grep -o 'node=node[12]' | sort -u | wc -l)" = 2 ]; }
check "both servers are reached through the Service" eventually 60 both_answer
before=$(($(stats "$IP1" requests) + $(stats "$IP2" requests)))
for _ in {1..40}; do in_pod plain/client1 curl -s "http://$VIP/"; done >"$WORK/answers"
equal "40 requests to the Service are 40 at its pods" 40 "$(($(stats "$IP1" requests) + $(stats "$IP2" requests) - before))"
equal "the Service reaches both nodes" "node=node1 node=node2" "$(grep -o 'node=node[12]' "$WORK/answers" | sort -u | xargs)"
equal "the source address is preserved, across nodes and through the Service" "from=$CLIENT" \
  "$(grep -oE 'from=[0-9.]+' "$WORK/answers" | sort -u | xargs)"
check "the servers log connections with their sources" eventually 60 bash -c "'$KUBE/k' -n plain logs -l app=echo --tail=-1 | grep -q 'connection.*\"from\":\"$CLIENT:'"
equal "TCP: a line comes back across nodes" marker-tcp "$(in_pod plain/client1 bash -c "exec 3<>/dev/tcp/$IP2/9000; echo marker-tcp >&3; head -1 <&3")"

watch_wire tcp
in_pod plain/client1 curl -s "http://$IP2:8080/marker-plain" >/dev/null
in_pod plain/client1 curl -s "http://$IP1:8080/marker-local" >/dev/null
unwatch_wire
check "what crosses the fabric in plain is seen by the watch" [ "$(in_clear marker-plain)" -gt 0 ]
equal "what stays on a node is not" 0 "$(in_clear marker-local)"

check "kubectl exec, logs" k -n plain exec client1 -- id
check "the load generator runs in a pod's network" load plain/client1 --url "http://$VIP/" --qps 50 --duration 2s
"$SET/bin/mkimage" -o "$WORK/other.tar" -name docker.io/local/other:1 -entrypoint /echo "$SET/bin/echo:/echo"
check "an image is loaded on both nodes" load_images "$WORK/other.tar"
has_image() { on_node "$1" ctr -n k8s.io images ls -q | found -x docker.io/local/other:1; }
for n in node1 node2; do check "$n has the image" has_image $n; done

# A component goes and comes back, as suites make it.
check "the API server ends" "$KUBE/ctl" stop kube-apiserver
check_not "and answers no more" k get --raw=/readyz --request-timeout=2s
check "meanwhile the pods answer" in_netns "$NETNS" curl -sf "http://$VIP/"
check "it starts again" "$KUBE/ctl" start kube-apiserver
check "and answers" eventually 60 k get --raw=/readyz
check "the other node loses its power" "$KUBE/ctl" stop node2
check_not "and its pod answers no more" in_netns "$NETNS" curl -s --max-time 5 "http://$IP2:8080/"
check "it comes back" "$KUBE/ctl" start node2
check "its pods run again" eventually 120 bash -c "'$KUBE/k' -n plain exec client2 -- wget -qO- http://echo/"
check "both nodes are Ready again" k wait --for=condition=Ready node/node1 node/node2 --timeout=120s
k delete namespace plain --wait=false >/dev/null
finish
