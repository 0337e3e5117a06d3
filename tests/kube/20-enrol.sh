#!/usr/bin/env bash
# Enrolment: running pods are captured by a label, without a restart and without a failed request; new ones are captured at
# birth; what goes between the nodes is then encrypted, as the captured packets show; the label's removal undoes it.
source "$(dirname "$0")/lib.sh"
captured() { # NAMESPACE COUNT
  local n; n=$(k -n "$1" get pods -o json | jq '[.items[] | select(.metadata.deletionTimestamp == null) | select(.metadata.annotations["ambient.istio.io/redirection"] == "enabled")] | length')
  [ "$n" = "$2" ] || { echo "$n of $2 pods are captured"; k -n "$1" get pods -o wide; return 1; }
}
state() { k -n enrol get pods -o json | jq -r '.items[] | [.metadata.name, .metadata.uid, .status.containerStatuses[0].restartCount, .status.containerStatuses[0].containerID] | @tsv' | sort; }

check "echo servers and clients run outside the mesh" echo_in enrol
before=$(state)
VIP=$(service_ip enrol echo)
IP1=$(pod_ip enrol "$(pod_on enrol app=echo node1)")
IP2=$(pod_ip enrol "$(pod_on enrol app=echo node2)")
CLIENT=$(pod_ip enrol client1)

load_begin kept enrol/client1 --url "http://$VIP/" --qps 40 --connections 4
load_begin new enrol/client1 --url "http://$VIP/" --qps 20 --connections 2 --no-keepalive
check "connections are there from before" eventually 60 some_open enrol/client1 80 4
sleep 2
check "the namespace gets the label, under load" k label namespace enrol istio.io/dataplane-mode=ambient
check "its four pods are captured" eventually 60 captured enrol 4
equal "none was replaced or restarted" "$before" "$(state)"
sleep 5
load_end kept
load_end new

meshed() {
  local node
  node=$(k -n lateen-system get pods -l app=lateen-node --field-selector spec.nodeName=node2 -o jsonpath='{.items[0].metadata.name}')
  in_pod enrol/client1 curl -sf --max-time 30 -o /dev/null "http://$IP2:8080/" &&
    k -n lateen-system logs "$node" --tail=200 | grep 'direction="inbound"' | found 'src.identity="spiffe://cluster.local/ns/enrol/sa/client"'
}
check "a request between the nodes carries the client's identity, says the server's proxy" eventually 60 meshed
# The server may end the connections that began outside of the mesh a moment later, in plain text.
check "the connections from before have ended" eventually 60 none_open enrol/client1 80

watch_wire tcp
answer=$(in_pod enrol/client1 curl -s --max-time 30 "http://$IP2:8080/marker-captured")
by_name=$(get enrol/client1 http://echo/marker-by-name)
line=$(in_pod enrol/client1 timeout 30 bash -c "exec 3<>/dev/tcp/$IP2/9000; echo marker-line >&3; head -1 <&3")
unwatch_wire
check "a request to a pod on the other node is answered" [ "${answer#*path=/marker-captured}" != "$answer" ]
check "and shows the client's own address" [ "${answer#*from=$CLIENT:}" != "$answer" ]
check "a request by the Service's name is answered" [ "${by_name#*path=/marker-by-name}" != "$by_name" ]
equal "TCP that is no HTTP goes through" marker-line "$line"
check "packets of the tunnel's port cross the fabric" [ "$(on_wire tcp port 15008)" -gt 0 ]
for m in marker-captured marker-by-name marker-line; do equal "no packet shows $m" 0 "$(in_clear $m)"; done
equal "none is for the servers' ports" 0 "$(on_wire "host $IP2 and (tcp port 8080 or tcp port 9000)")"

# A pod whose very first act is a request: it is captured before its program starts.
watch_wire tcp
check "a pod is made" k -n enrol apply -f - <<Y
apiVersion: v1
kind: Pod
metadata: {name: newborn, labels: {app: client}}
spec:
  serviceAccountName: client
  restartPolicy: Never
  terminationGracePeriodSeconds: 0
  nodeSelector: {lateen.dev/node-index: "1"}
  containers: [{name: client, image: docker.io/local/echo:1, imagePullPolicy: Never, command: [wget, -qO-, "http://$IP2:8080/marker-newborn"]}]
Y
check "it ends well" k -n enrol wait --for=jsonpath='{.status.phase}'=Succeeded pod/newborn --timeout=120s
unwatch_wire
check "its request was answered" eventually 60 bash -c "'$KUBE/k' -n enrol logs newborn | grep -q path=/marker-newborn"
equal "and no packet shows it" 0 "$(in_clear marker-newborn)"
k -n enrol delete pod newborn --wait=false >/dev/null

# Of four servers these two stay: their addresses are used below.
stay() { local p; for p in $(pods enrol app=echo); do k -n enrol annotate pod "$p" controller.kubernetes.io/pod-deletion-cost=100 || return 1; done; }
check "the servers are those that stay" stay
check "two more servers are started" k -n enrol scale deployment/echo --replicas=4
check "they become ready" k -n enrol rollout status deployment/echo --timeout=120s
check "and are captured" eventually 60 captured enrol 6
k -n enrol scale deployment/echo --replicas=2 >/dev/null

# A pod may stay out of it.
check "a label keeps a pod out" k -n enrol label pod client2 istio.io/dataplane-mode=none
released() { [ -z "$(k -n enrol get pod client2 -o jsonpath='{.metadata.annotations.ambient\.istio\.io/redirection}')" ]; }
check "it is released" eventually 60 released
equal "and still served" 200 "$(code enrol/client2 "http://$IP1:8080/")"
watch_wire tcp
in_pod enrol/client2 curl -s --max-time 30 -o /dev/null "http://$IP1:8080/marker-released"
unwatch_wire
check "in plain, as outside the mesh" [ "$(in_clear marker-released)" -gt 0 ]

check "the namespace loses the label" k label namespace enrol istio.io/dataplane-mode-
check "all its pods are released" eventually 60 captured enrol 0
equal "and served" 200 "$(code enrol/client1 "http://$VIP/")"
check "no rule of the mesh stays in a released pod" eventually 60 no_rules enrol/client1
equal "no client was restarted in all this" 0 "$(k -n enrol get pods -o json | jq '[.items[].status.containerStatuses[0].restartCount] | add')"

# What waits for a Deployment waits for its roll-out and for its pods' place in the mesh, whoever owns them in between.
check "the servers are rolled out anew" k -n enrol rollout restart deployment/echo
check "lateen wait returns" lateen wait -n enrol deployment/echo --timeout 120s
equal "when that is done" 'deployment "echo" successfully rolled out' "$(k -n enrol rollout status deployment/echo --watch=false)"
check "a pod outside has a program of its own on the tunnel's port" k -n enrol apply -f - <<Y
apiVersion: apps/v1
kind: Deployment
metadata: {name: taken}
spec:
  selector: {matchLabels: {app: taken}}
  template:
    metadata: {labels: {app: taken}}
    spec:
      terminationGracePeriodSeconds: 0
      containers: [{name: taken, image: docker.io/local/echo:1, imagePullPolicy: Never, command: [nc, -l, -p, "15008"]}]
Y
check "its Deployment is as it should be" lateen wait -n enrol deployment/taken --timeout 120s
listens() { in_pod "enrol/$(pods enrol app=taken)" ss -Hltn 'sport = :15008' | grep .; }
check "and its program has the port" eventually 60 listens
check "the pod is to be in the mesh and cannot be captured" k -n enrol label pod -l app=taken istio.io/dataplane-mode=ambient
not_yet() { local said; ! said=$(lateen wait -n enrol deployment/taken --timeout 10s 2>&1) && found 'pod/taken-.*not in the mesh yet' <<<"$said" || { echo "$said"; return 1; }; }
check "lateen wait for the Deployment names it" not_yet
check "it gives the port back" k -n enrol patch deployment taken --type=merge -p '{"spec":{"template":{"metadata":{"labels":{"istio.io/dataplane-mode":"ambient"}},"spec":{"containers":[{"name":"taken","image":"docker.io/local/echo:1","imagePullPolicy":"Never","command":["sleep","1000000"]}]}}}}'
check "and is waited for with success" lateen wait -n enrol deployment/taken --timeout 120s
equal "when its pod is captured" enabled "$(k -n enrol get pods -l app=taken -o json | jq -r '.items[] | select(.metadata.deletionTimestamp == null) | .metadata.annotations["ambient.istio.io/redirection"]')"
k delete namespace enrol --wait=false >/dev/null
finish
