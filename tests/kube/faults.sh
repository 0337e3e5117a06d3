# What the suites share in which parts of the mesh or of the cluster end under load: a stage of pods in the mesh and of pods
# that it must not touch, askers whose every failure has a time and a kind, and ends of single containers. Source it after
# lib.sh. shellcheck shell=bash
needs ss
ASKER=$RUN/asker
[ -x "$ASKER" ] || (cd "$ROOT" && CGO_ENABLED=0 go build -o "$ASKER" ./tests/mesh/asker) || not_ok "the asker builds"

captured() { # NAMESPACE COUNT
  local n; n=$(k -n "$1" get pods -o json | jq '[.items[] | select(.metadata.deletionTimestamp == null) | select(.metadata.annotations["ambient.istio.io/redirection"] == "enabled")] | length')
  [ "$n" = "$2" ] || { echo "$n of $2 pods are captured"; k -n "$1" get pods -o wide; return 1; }
}
# reaches NETNS ADDRESS[:PORT]: a request is answered; no API server is needed.
reaches() { [ "$(in_netns "$1" curl -s -o /dev/null -w '%{http_code}' --max-time 30 "http://$2/")" = 200 ]; }

# stage: the namespaces faults, in the mesh, and outside, with the servers and clients of manifests/echo.yaml. The suites that
# need it share it; who is the first makes it.
stage() {
  check "echo servers and clients in the mesh" echo_in faults istio.io/dataplane-mode=ambient
  check "and outside of it" echo_in outside
  check "those of the mesh are captured" eventually 60 captured faults 4
  VIP=$(service_ip faults echo) PLAIN=$(service_ip outside echo)
  IP1=$(pod_ip faults "$(pod_on faults app=echo node1)") IP2=$(pod_ip faults "$(pod_on faults app=echo node2)")
  NS1=$(pod_netns faults client1) NS2=$(pod_netns faults client2) OUT1=$(pod_netns outside client1) OUT2=$(pod_netns outside client2)
  local c s
  for c in "$NS1" "$NS2"; do for s in "$IP1" "$IP2"; do eventually 60 reaches "$c" "$s:8080" >/dev/null || not_ok "clients reach the servers"; done; done
  check "a request between the nodes is carried by the mesh" eventually 60 meshed
  check "the pods' networks have all their addresses" eventually 60 settled
  outside_state >"$WORK/outside" || not_ok "the pods outside can be looked at"
}
meshed() {
  reaches "$NS1" "$IP2:8080" &&
    k -n lateen-system logs "$(pod_on lateen-system app=lateen-node node2)" --tail=200 | grep 'direction="inbound"' | found 'src.identity="spiffe://cluster.local/ns/faults/sa/client"'
}

# settled: the kernel tries an address of IPv6 for a second or two before it has a route to it.
settled() {
  local ns trying
  for ns in "$NS1" "$NS2" "$OUT1" "$OUT2"; do trying=$(in_netns "$ns" ip -6 -o address show tentative) && [ -z "$trying" ] || { echo "$trying"; return 1; }; done
}
# network_of NETNS: all that a mesh could change in a pod's network.
network_of() {
  # What a setting cannot be asked for is not said; that any can be is. How many connections wait in a listener's queue (Recv-Q) is not the network's.
  in_netns "$1" bash -c 'set -eo pipefail; nft list ruleset; ip rule; ip -6 rule; ip route show table all; ip -6 route show table all; ip -o link; ss -Hltun | awk "{\$3 = \"\"; print}" | sort
    { grep -rs . /proc/sys/net/ipv4/conf /proc/sys/net/ipv6/conf || true; } | grep .' | sed 's/ expires [0-9]*sec//'
}
# outside_state: what must stay as it is in pods outside the mesh.
outside_state() {
  k -n outside get pods -o json | jq -r '.items[] | [.metadata.name, .metadata.uid, .metadata.annotations, .status.containerStatuses[0].restartCount] | @json' | sort &&
    network_of "$OUT1" && network_of "$OUT2"
}
# untouched: nothing was changed in the pods outside since stage.
untouched() { outside_state | diff "$WORK/outside" -; }

# ask_begin NAME NETNS TARGET ASKER-FLAGS...: requests from that network until ask_end, at the target's address.
declare -A ASKS=()
ask_begin() {
  local name=$1
  # Straight from this shell, so that the job is the asker itself.
  nsenter --net="$2" -- "$ASKER" -target "$3" -duration 3600s -timeout 30s -failures "$WORK/$name.failures" "${@:4}" >"$WORK/$name.json" 2>"$WORK/$name.err" &
  ASKS[$name]=$!
}
ask_end() { # NAME...
  local name
  for name in "$@"; do
    [ -n "${ASKS[$name]:-}" ] || continue
    kill -TERM "${ASKS[$name]}" 2>/dev/null
    wait "${ASKS[$name]}" 2>/dev/null
    unset "ASKS[$name]"
  done
}
# unharmed NAME...: ends askers; they were served, and none of their requests failed. A kept connection was never replaced.
unharmed() {
  local name served lost connections
  ask_end "$@"
  for name in "$@"; do
    read -r served lost connections <<<"$(jq -r '"\(.counts.served // 0) \(.failed) \(.connections)"' "$WORK/$name.json")"
    if [ "${served:-0}" -gt 0 ] && [ "$lost" = 0 ]; then ok "$name: none of $served requests failed"
    else
      not_ok "$name: ${served:-none} served, ${lost:-?} failed"
      { jq -c '.counts, .why' "$WORK/$name.json"; head -3 "$WORK/$name.failures"; tail -3 "$WORK/$name.failures"; cat "$WORK/$name.err"; } | sed 's/^/    /'
    fi
    case $name in kept*) equal "$name: on the connections of the beginning" "$KEPT" "$connections" ;; esac
  done
}
# open_at NETNS ADDRESS PORT COUNT: at least so many connections from there to the address are open; no API server is needed.
open_at() { [ "$(in_netns "$1" ss -Htn state established "dport = :$3" | grep -cwF "$2")" -ge "$4" ]; }
# load_all [ASKER-FLAGS...]: new and kept connections within and between the nodes, and outside the mesh.
KEPT=4
load_all() {
  ask_begin new1 "$NS1" "$VIP:80" -mode new -workers 4 -rate 60 "$@"
  ask_begin new2 "$NS2" "$VIP:80" -mode new -workers 4 -rate 60 "$@"
  ask_begin kept1 "$NS1" "$IP2:8080" -mode keep -workers $KEPT -rate 20 "$@"
  ask_begin kept2 "$NS2" "$IP1:8080" -mode keep -workers $KEPT -rate 20 "$@"
  ask_begin outside "$OUT1" "$PLAIN:80" -mode new -workers 2 -rate 20
  # The next fault is to meet these connections.
  { eventually 60 open_at "$NS1" "$IP2" 8080 $KEPT && eventually 60 open_at "$NS2" "$IP1" 8080 $KEPT; } >/dev/null || not_ok "the connections that are kept are there"
}
ALL=(new1 new2 kept1 kept2 outside)

# container NAMESPACE POD: where its first container is: node and id.
container() { echo "$(field "$1" "$2" '.spec.nodeName} {.status.containerStatuses[0].containerID' | sed 's|containerd://||')"; }
# kill_container NODE ID: all of its processes, at once. The kubelet starts another one.
kill_container() { on_node "$1" ctr -n k8s.io tasks kill --all -s SIGKILL "$2"; }
part_on() { pod_on lateen-system "app=lateen-$1" "$2"; } # agent|node NODE
# parts_ready: as many as there should be, and nothing else but node proxies that carry their last connections. Not by
# `rollout status`: to a DaemonSet a node is as old as the oldest pod on it, also while that one is on its way out.
parts_ready() {
  local n; n=$(k -n lateen-system get pods -o json | jq -r '[.items[] | select(.metadata.deletionTimestamp == null) | select(.status.conditions[]? | select(.type == "Ready" and .status == "True")) | .metadata.labels.app] | sort | join(" ")')
  [ "$n" = "lateen-agent lateen-agent lateen-control lateen-control lateen-deployer lateen-node lateen-node" ] && k -n lateen-system rollout status deployment/lateen-control --timeout=120s && k -n lateen-system rollout status deployment/lateen-deployer --timeout=120s || { echo "ready: $n"; return 1; }
}

# newborn NAME NODE MARKER: a pod whose very first act is a request, of which it dies if it is not answered.
newborn() {
  k -n faults apply -f - <<Y
apiVersion: v1
kind: Pod
metadata: {name: $1, labels: {app: newborn}}
spec:
  serviceAccountName: client
  restartPolicy: Never
  terminationGracePeriodSeconds: 0
  nodeSelector: {lateen.dev/node-index: "${2#node}"}
  containers: [{name: client, image: docker.io/local/echo:1, imagePullPolicy: Never, command: [wget, -qO-, "http://$VIP/$3"]}]
Y
}
served_at_birth() { k -n faults wait --for=jsonpath='{.status.phase}'=Succeeded "pod/$1" --timeout=120s && k -n faults delete pod "$1" --wait=false; }

fault_cleanup() { [ ${#ASKS[@]} = 0 ] || kill "${ASKS[@]}" 2>/dev/null; cleanup; }
trap fault_cleanup EXIT
