#!/usr/bin/env bash
# Two pods of one node: their connections are handed over inside the proxy. What the mesh promises holds for them as for all
# others: identities, policies, the client's address, logs and counters on both sides, replaced proxies and ended pods, and a
# network that does not let the one pod reach the other. What passes between the pods is watched by a tool that is not ours.
# needs: nft ss tcpdump
source "$(dirname "$0")/lib.sh"

handed() { value lateen_connections_handed_over_total; }
hands_over() { [ "$(handed)" -gt "${1:-0}" ]; }
fetch() { lateen exec deploy/client -- curl -sS --max-time "${2:-20}" "http://echo:8080/?size=$1" -o /dev/null -w '%{http_code}'; }
load() { # SECONDS FILE FLAGS...
  local seconds=$1 file=$2; shift 2
  lateen exec deploy/client -- lateen-load run --url "http://echo:8080/?size=77" --warmup 0s --timeout 20s --duration "${seconds}s" --json - "$@" >"$file" 2>/dev/null
}
hold() { # FILE FLAGS...: connections that stay open until `release`
  local file=$1; shift
  "$LATEEN" --name "$MESH" exec deploy/client -- lateen-load run --url "http://echo:8080/?size=77" --warmup 0s --timeout 5s --duration 120s --json - "$@" >"$file" 2>/dev/null & HELD=$!
}
release() { kill "$HELD"; wait "$HELD"; } 2>/dev/null
counts() { jq -r '"\(.counts.failed) \(.counts.unsent) \(.counts.unanswered)"' "$1"; }

# Two workers: the two ends of a tunnel need not be on the same one.
on_one_node --workers 2
client=$(pod_ip client-) echo=$(pod_ip echo-)

echo "# what is to be seen of it"
# nsenter replaces itself by tcpdump, so that the recorded pid is tcpdump's own.
nsenter --net="/proc/$(engine_pid)/root$RUN/netns/n1" -- tcpdump -B 32768 -s 2048 --immediate-mode -i any -U -w "$WORK/node.pcap" "(host $client and host $echo) or tcp dst port 9" 2>"$WORK/node.log" & SNIFF=$!
check "the node's own interfaces are watched" eventually 30 grep 'listening on' "$WORK/node.log"
equal "the service answers by name" 200 "$(fetch 67)"
check "the connection was handed over" eventually 10 hands_over
equal "a large answer, too" 200 "$(fetch 3000000)"
packets() { tcpdump -r "$WORK/node.pcap" -n "$@" 2>/dev/null; }
# A marker ends the capture: packets stand in the file in their order, so that with it all before it is there.
marked() { in_node n1 bash -c ': </dev/tcp/127.0.0.1/9' 2>/dev/null; [ -n "$(packets tcp dst port 9)" ]; }
check "the capture has all until now" eventually 30 marked
kill "$SNIFF"; wait "$SNIFF" 2>/dev/null
equal "nothing passes between the pods in the clear" 0 "$(tcpdump -r "$WORK/node.pcap" -A 2>/dev/null | grep -c 'GET /?size=')"
equal "no payload passes to any port but 15008" 0 "$(packets 'tcp and not port 15008 and tcp[tcpflags] & tcp-push != 0' | wc -l)"
check "the tunnel that proves both passes there" [ "$(packets 'tcp port 15008' | wc -l)" -gt 0 ]
bytes=$(packets -q 'tcp port 15008' | awk '/ tcp / { n += $NF } END { print n + 0 }')
check "and the answers do not pass through it ($bytes bytes)" [ "$bytes" -lt 300000 ]
client_id=spiffe://cluster.local/ns/default/sa/client echo_id=spiffe://cluster.local/ns/default/sa/echo
line() { proxy_log n1 | grep 'connection complete' | grep "direction=\"$1\"" | grep "src.identity=\"$client_id\"" | grep "dst.hbone_addr=$echo:8080" | found "dst.identity=\"$echo_id\""; }
metric() { proxy_metrics n1 | grep '^istio_tcp_connections_opened_total' | grep "reporter=\"$1\"" | grep "source_principal=\"$client_id\"" | grep "destination_principal=\"$echo_id\"" | found 'connection_security_policy="mutual_tls"'; }
check "the way out is logged with both identities" eventually 15 line outbound
check "the way in is, too" eventually 15 line inbound
check "metrics at the source" eventually 10 metric source
check "metrics at the destination" eventually 10 metric destination

load 10 "$WORK/kept.json" --qps 50 --connections 3 & LOAD=$!
from_client() { [ "$(in_pod echo ss -Htn state established sport = :8080 | awk '{ print $4 }' | grep -c "$client")" -ge 3 ]; }
check "the application sees the client's address" eventually 15 from_client
wait $LOAD
equal "kept connections: no request failed" "0 0 0" "$(counts "$WORK/kept.json")"

echo "# policy"
deny() { lateen apply -f - <<'Y'
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: no-client, namespace: default}
spec:
  selector: {matchLabels: {app: echo}}
  action: DENY
  rules: [{from: [{source: {principals: ["cluster.local/ns/default/sa/client"]}}]}]
Y
}
hold "$WORK/cut.json" --qps 20 --connections 2
opened() { [ "$(in_pod echo ss -Htn state established sport = :8080 | grep -c "$client")" -ge 2 ]; }
check "connections are open" eventually 15 opened
check "a policy comes that denies them" deny
cut() { proxy_log n1 | grep 'direction="inbound"' | found 'closed due to policy change'; }
check "they are cut" eventually 15 cut
check_not "new ones are refused" fetch 1
why() { proxy_log n1 | grep "direction=\"$1\"" | found "$2"; }
check "the refusal names the policy at the server" eventually 15 why inbound 'default/no-client'
check "and is an error at the client" eventually 15 why outbound 'error=.*401'
check "allow again" lateen delete -n default AuthorizationPolicy/no-client
release
served() { [ "$(fetch 5)" = 200 ]; }
check "served again" eventually 15 served

echo "# a replaced proxy, replaced pods"
before=$(handed)
load 15 "$WORK/new.json" --qps 60 --connections 4 --no-keepalive & NEW=$!
load 15 "$WORK/long.json" --qps 20 --connections 2 & LONG=$!
check "loads are under way" eventually 10 hands_over $((before + 20))
check "replace the proxy" lateen proxy replace n1 --drain 60s
wait $NEW $LONG
equal "no new connection failed" "0 0 0" "$(counts "$WORK/new.json")"
equal "kept connections went on" "0 0 0" "$(counts "$WORK/long.json")"
anew() { fetch 67 >/dev/null; hands_over; }
check "the new process hands connections over" eventually 20 anew
check "two replicas" lateen scale deployment/echo --replicas 2
check "ready" lateen wait deployment/echo
check "known" lateen wait
before=$(handed)
load 15 "$WORK/roll.json" --qps 60 --connections 4 --no-keepalive & ROLL=$!
check "a load is under way" eventually 10 hands_over $((before + 20))
echoes() { lateen get pods -o json | jq -r '.items[].metadata.name | select(startswith("echo-"))' | sort; }
old=$(echoes)
roll() { lateen get deployment echo -o json | jq 'del(.status, .metadata.resourceVersion, .metadata.uid, .metadata.creationTimestamp, .metadata.generation) | .spec.template.metadata.annotations["kubectl.kubernetes.io/restartedAt"] = "1"' | lateen apply -f -; }
rolled() { [ "$(echoes | wc -l)" = 2 ] && [ -z "$(comm -12 <(echo "$old") <(echoes))" ]; }
check "every replica is replaced" roll
check "and is another one" eventually 40 rolled
wait $ROLL
equal "no connection failed meanwhile" "0 0 0" "$(counts "$WORK/roll.json")"
check "one replica" lateen scale deployment/echo --replicas 1
alone() { [ "$(echoes | wc -l)" = 1 ]; }
check "is left" eventually 30 alone

echo "# a network that does not let them"
hold "$WORK/lost.json" --qps 5 --connections 1
kept() { [ "$(in_pod echo ss -Htn state established sport = :8080 | grep -c "$client")" -ge 1 ]; }
check "a connection is open" eventually 15 kept
# As a network plugin enforces a NetworkPolicy that does not allow the tunnels' port.
barred() { in_pod echo nft -f - <<'N'
table inet netpol { chain in { type filter hook input priority -300; tcp dport 15008 drop; }; }
N
}
check "the network lets nothing through to the pod any more" barred
lost() { proxy_log n1 | grep 'connection complete' | found 'the tunnel between its two pods was lost'; }
check "what is open is cut when the tunnel is found dead" eventually 60 lost
check_not "and nothing new is handed over" fetch 9 5
release
check "the network lets them again" in_pod echo nft delete table inet netpol
check "served again" eventually 60 served
# A process that drains takes its tunnels out of use; what rests on them goes on resting on them.
hold "$WORK/drained.json" --qps 5 --connections 1
check "a connection is open" eventually 15 kept
check "its process is replaced" lateen proxy replace n1 --drain 120s
sleep 2
check "and lets it go on" kept
before=$(proxy_log n1 | grep -c 'the tunnel between its two pods was lost')
check "the network lets nothing through any more" barred
again() { # Says at the end what happened instead.
  proxy_log n1 | grep 'connection complete' | tail -4
  [ "$(proxy_log n1 | grep -c 'the tunnel between its two pods was lost')" -ge $((before + 2)) ]
}
check "it is cut all the same, at both of its ends" eventually 60 again
release
check "the network lets them again" in_pod echo nft delete table inet netpol
check "served again" eventually 60 served
check "down" lateen down

echo "# turned off"
on_one_node --proxy-env LATEEN_SAME_NODE=false
equal "the service answers" 200 "$(fetch 67)"
equal "through tunnels" 0 "$(handed)"
check "down" lateen down
finish
