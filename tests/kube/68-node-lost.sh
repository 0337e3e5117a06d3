#!/usr/bin/env bash
# A node loses its power: its containers and its kubelet are gone at once, and nobody says so. What was established there is
# told; new connections wait for as long as it takes to find the tunnel dead, and then all are served by the endpoints that
# remain. When the node is back its pods are captured before their first packet, though all in its memory is lost.
# bites: a state file that names namespaces alone (cni.State before it had pods): the pod that is enrolled by its own label
# asks in clear as it starts again. Seen red so.
# lane: faults
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/faults.sh"
stage

# Pods that ask without a pause, from their first moment on: by the namespace's label, by their own, and outside.
asks() { # NAMESPACE NAME LABELS TARGET
  k -n "$1" apply -f - <<Y
apiVersion: v1
kind: Pod
metadata: {name: $2, labels: {$3}}
spec:
  terminationGracePeriodSeconds: 0
  nodeSelector: {lateen.dev/node-index: "2"}
  containers: [{name: client, image: docker.io/local/echo:1, imagePullPolicy: Never, command: [sh, -c, "while :; do wget -qO- http://$4/marker-$2; sleep 0.1; done"]}]
Y
}
k create namespace apart --dry-run=client -o yaml | k apply -f - >/dev/null
check "pods that ask all the time: in the mesh" asks faults enrolled "app: asks" "$VIP"
check "in the mesh by their own label" asks apart alone "app: asks, istio.io/dataplane-mode: ambient" "$VIP"
check "outside" asks outside plain "app: asks" "$PLAIN"
for p in faults/enrolled apart/alone outside/plain; do check "$p runs" k -n "${p%/*}" wait --for=condition=Ready "pod/${p#*/}" --timeout=120s; done
check "those of the mesh are captured" eventually 60 captured faults 5
check "both" eventually 60 captured apart 1

KEPT=2
watch_wire tcp and not port 6443
# The client has reached the pod itself before the node is lost.
LOST=$(pod_netns faults "$(pod_on faults app=echo node2)") CLIENT=$(pod_ip faults client1)
there() { [ "$(in_netns "$LOST" ss -Htn state established "sport = :8080" | grep -cwF "$CLIENT")" -ge 2 ]; }
ask_begin there "$NS1" "$IP2:8080" -mode keep -workers 2 -rate 4 -timeout 90s
check "a client of the other node has connections to a pod there" eventually 60 there
ask_begin new "$NS1" "$VIP:80" -mode new -workers 8 -rate 40 -timeout 90s
ask_begin kept-here "$NS1" "$IP1:8080" -mode keep -workers $KEPT -rate 10
ask_begin outside "$OUT1" "$(pod_ip outside "$(pod_on outside app=echo node1)"):8080" -mode new -workers 2 -rate 20
check "and to one of its own node" eventually 60 open_at "$NS1" "$IP1" 8080 $KEPT
check "the wire shows what the pod outside asks" eventually 60 seen_in_clear marker-plain
sleep 3
proxy=$(part_on node node1)
tunnels() { k -n lateen-system exec "$1" -- true 2>/dev/null; in_pod "lateen-system/$1" curl -s --max-time 30 http://127.0.0.1:15020/metrics | awk '/^lateen_tunnels_closed_total/ && /reporter="source"/ && /(lost|unresponsive)/ {n += $2} END {print n + 0}'; }
ended=$(tunnels "$proxy")
lost=$SECONDS cut_at=$(date +%s%3N)
check "node2 loses its power" "$KUBE/ctl" stop node2
cut() { [ -s "$WORK/there.failures" ]; }
check "who talks to a pod there is told" eventually 60 cut
echo "   after $((SECONDS - lost)) s"
more() { [ "$(tunnels "$proxy")" -gt "$ended" ]; }
check "the tunnel has ended" eventually 60 more
not_ready() { k get node node2 -o json | jq -e '.status.conditions[] | select(.type == "Ready") | .status != "True"'; }
check "the cluster notices" eventually 120 not_ready
echo "   after $((SECONDS - lost)) s"
out_of_service() { [ "$(k -n faults get endpointslices -l kubernetes.io/service-name=echo -o json | jq '[.items[].endpoints[] | select(.conditions.ready)] | length')" = 1 ]; }
check "and takes its pod out of the Service" eventually 60 out_of_service
ask_end there
quick() { in_netns "$NS1" "$ASKER" -target "$VIP:80" -mode new -workers 2 -rate 20 -duration 2s -timeout 5s | jq -e '.failed == 0'; }
check "then every request is answered" eventually 60 quick
ask_end new
# A peer that says nothing for 8 s gets no new request; what waited for its answer goes to the endpoint that remains. Only a
# request that was on its way to the application when the node was lost can be lost with it: at most one of each worker, and
# it is told after 20 to 30 s without a sign of life.
check "at most one request of each worker was lost with the node ($(jq -c .counts "$WORK/new.json"))" \
  awk -v until=$((cut_at + 40000)) '{print} $1 > until || $2 == "timeout" {late = 1} END {exit late || NR > 8}' "$WORK/new.failures"
check "the others were served" [ "$(jq '.counts.served' "$WORK/new.json")" -gt 50 ]
unharmed kept-here outside
unwatch_wire
for m in marker-enrolled marker-alone; do equal "no packet shows $m" 0 "$(in_clear $m)"; done
check "those of the pod outside are seen" [ "$(in_clear marker-plain)" -gt 0 ]

rm -f "$WORK/wire.pcap"
watch_wire tcp and not port 6443
ask_begin new "$NS1" "$VIP:80" -mode new -workers 8 -rate 40 -timeout 90s
ask_begin kept-here "$NS1" "$IP1:8080" -mode keep -workers $KEPT -rate 10
check "it has power again" "$KUBE/ctl" start node2
check "it is Ready" k wait --for=condition=Ready node/node2 --timeout=120s
check "every part is ready" eventually 120 parts_ready
running() { k -n "$1" get pod "$2" -o json | jq -e '.status.containerStatuses[0] | .ready and .restartCount > 0'; }
for p in faults/enrolled apart/alone outside/plain faults/client2 outside/client2; do check "$p runs again" eventually 120 running "${p%/*}" "${p#*/}"; done
check "the server runs again" k -n faults wait --for=condition=Ready pod -l app=echo --timeout=120s
check "all are captured" eventually 60 captured faults 5
check "the one by its own label too" eventually 60 captured apart 1
IP2=$(pod_ip faults "$(pod_on faults app=echo node2)") NS2=$(pod_netns faults client2) OUT2=$(pod_netns outside client2)
check "a client of the other node reaches it, through the mesh" eventually 60 meshed
check "its own clients are served" eventually 60 reaches "$NS2" "$IP1:8080"
served() { k -n "$1" logs "$2" --tail=5 | found path=/marker; }
for p in faults/enrolled apart/alone outside/plain; do check "$p is served" eventually 60 served "${p%/*}" "${p#*/}"; done
check "the wire shows what the pod outside asks" eventually 60 seen_in_clear marker-plain
sleep 2
unwatch_wire
for m in marker-enrolled marker-alone; do equal "no packet shows $m" 0 "$(in_clear $m)"; done
check "those of the pod outside are seen" [ "$(in_clear marker-plain)" -gt 0 ]
unharmed new kept-here
k delete namespace apart faults outside --wait=false >/dev/null
finish
