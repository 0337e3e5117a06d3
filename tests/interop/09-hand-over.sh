#!/usr/bin/env bash
# A live node goes from lateen-proxy to ztunnel and back, as an upgrade on a cluster does it: the new one starts beside the old
# one, in a network of its own, is ready, and only then is the old one told to end. Under load no connection hangs or is refused.
source "$(dirname "$0")/lib.sh"
check "up with lateen-proxy on both nodes" lateen up --nodes 2
check "apply echo and client" lateen apply -f "$ROOT/samples/echo/echo.yaml"
check "enrol" lateen label ns default istio.io/dataplane-mode=ambient
check "ready, captured" lateen wait deployment/echo deployment/client
check "known to every proxy" lateen wait

# The network of an unmodified ztunnel, beside the node's own: on a cluster it is a pod and has its own as well.
fabric() { nsenter -t "$(engine_pid)" -m -n -p -- "$@"; }
bridge=$(in_fabric ip -j link show type bridge | jq -r '.[0].ifname')
# The name is a file of the machine, which outlives the mesh: it is this run's own, and goes with it.
trap 'cleanup; rm -f "/run/netns/peer-$$-"n[12]' EXIT
room() { # NODE NUMBER
  local ns=peer-$$-$1
  fabric ip netns add "$ns" && fabric ip link add "v$1" type veth peer name eth0 netns "$ns" && fabric ip link set "v$1" master "$bridge" up &&
    fabric ip -n "$ns" addr add "10.243.0.$2/24" dev eth0 && fabric ip -n "$ns" link set eth0 up && fabric ip -n "$ns" link set lo up
}
engine_proxy_pid() { lateen status -o json | jq -r --arg n "$1" '.nodes[] | select(.name == $n) | .proxy.pid'; }
declare -A BESIDE=()
beside() { # NODE: an unmodified ztunnel for it, in the room; environment and token are the node's
  local node=$1 env
  env=$(tr '\0' '\n' <"/proc/$(engine_proxy_pid "$node")/environ" | grep -vE '^(LATEEN|NOTIFY|TERMINATION)')
  (
    while IFS= read -r kv; do export "$kv"; done <<<"$env"
    export TERMINATION_GRACE_PERIOD_SECONDS=30
    exec nsenter -t "$(engine_pid)" -m -p -n -- ip netns exec "peer-$$-$node" "$ZTUNNEL"
  ) >"$WORK/ztunnel-$node.log" 2>&1 &
  BESIDE[$node]=$!
}
ztunnel_ready() { fabric ip netns exec "peer-$$-$1" curl -sf -o /dev/null --max-time 1 http://127.0.0.1:15021/healthz/ready; }
end_ztunnel() { # the program itself: nsenter --pid is its parent
  local parent=${BESIDE[$1]} child
  child=$(pgrep -P "$parent" | head -1)
  kill -TERM "${child:-$parent}"
}
load() { # SECONDS FILE FLAGS...
  local seconds=$1 file=$2; shift 2
  lateen exec deploy/client -- lateen-load run --url "http://echo:8080/?size=77" --warmup 0s --timeout 5s --duration "${seconds}s" --json - "$@" >"$file" 2>/dev/null
}
counts() { jq -r '"\(.counts.failed) \(.counts.unsent) \(.counts.unanswered)"' "$1"; }

for n in n1 n2; do check "a network for another proxy of $n" room $n "20${n#n}"; done
# Which of two listeners of one port a connection comes to is the kernel's choice: while both run, both serve.
for node in n1 n2; do
  what=$([ $node = n1 ] && echo "the client's node" || echo "the server's node")
  load 14 "$WORK/to.json" --qps 100 --connections 8 --no-keepalive & LOAD=$!
  sleep 1
  beside $node
  check "$what: ztunnel is ready beside ours" eventually 10 ztunnel_ready $node
  sleep 1
  kill -TERM "$(engine_proxy_pid $node)"
  sleep 4
  end_ztunnel $node
  wait $LOAD
  equal "$what: from ours to ztunnel and back: no new connection was refused, failed or hung" "0 0 0" "$(counts "$WORK/to.json")"
  check "they were many ($(jq .counts.ok "$WORK/to.json"))" [ "$(jq .counts.ok "$WORK/to.json")" -gt 1000 ]
  served=$(grep -c 'connection complete' "$WORK/ztunnel-$node.log")
  check "some went by ztunnel ($served)" [ "$served" -gt 10 ]
  gone() { ! kill -0 "${BESIDE[$node]}" 2>/dev/null; }
  check "$what: ztunnel ends" eventually 40 gone
done
finish
