#!/usr/bin/env bash
# A client pod reaches a service on the other node by name through both node proxies; both access logs name both
# identities; connections opened after enrolment carry only TLS between the nodes.
# needs: tcpdump
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/capture.sh"

check "up" lateen up --nodes 2
check "apply echo and client" lateen apply -f "$ROOT/samples/echo/echo.yaml"
check "echo and client are ready" eventually 60 bash -c "'$LATEEN' --name $MESH get pods -o json | jq -e '[.items[] | select(.status.conditions[]? | select(.type==\"Ready\" and .status==\"True\"))] | length >= 2'"

client_node=$(node_of client) echo_node=$(node_of echo)
check "client ($client_node) and echo ($echo_node) are on different nodes" [ "$client_node" != "$echo_node" ]

fetch() { lateen exec deploy/client -- curl -sS --max-time 15 "http://echo:8080/?size=$1" -o /dev/null -w '%{http_code}'; }
# A ready pod comes to its service's name and address a moment later than to the list of pods.
served() { [ "$(fetch 64)" = 200 ]; }
eventually 30 served >/dev/null
equal "without the mesh the service answers by name" 200 "$(fetch 64)"

plain_requests() { tcpdump -r "$1" -A 2>/dev/null | grep -c 'GET /?size='; }

capture "$WORK/plain.pcap"; fetch 65 >/dev/null; end_capture "$WORK/plain.pcap"
check "without the mesh the capture shows the request in the clear" [ "$(plain_requests "$WORK/plain.pcap")" -gt 0 ]

check "enrol the namespace" lateen label ns default istio.io/dataplane-mode=ambient
enrolled() { lateen get pods -o json | jq -e '[.items[] | select(.metadata.annotations["ambient.istio.io/redirection"] == "enabled")] | length >= 2'; }
check "both pods are captured" eventually 20 enrolled
tunnelled() { fetch 66 >/dev/null; proxy_log "$client_node" | grep 'connection complete' | found 'direction="outbound"' && proxy_log "$client_node" | found 'dst.hbone_addr='; }
check "connections go through the tunnel" eventually 20 tunnelled

capture "$WORK/mesh.pcap"
equal "with the mesh the service answers by name" 200 "$(fetch 67)"
end_capture "$WORK/mesh.pcap"
equal "no request crosses in the clear" 0 "$(plain_requests "$WORK/mesh.pcap")"
check "what crosses goes to port 15008" bash -c "tcpdump -r '$WORK/mesh.pcap' -n tcp port 15008 2>/dev/null | grep -q ."
equal "nothing crosses to any other port" 0 "$(tcpdump -r "$WORK/mesh.pcap" -n 'tcp and not port 15008 and tcp[tcpflags] & tcp-push != 0' 2>/dev/null | wc -l)"

client_id=spiffe://cluster.local/ns/default/sa/client echo_id=spiffe://cluster.local/ns/default/sa/echo
line() { proxy_log "$1" | grep 'connection complete' | grep "direction=\"$2\"" | grep "src.identity=\"$client_id\"" | found "dst.identity=\"$echo_id\""; }
check "the client's node logs both identities" eventually 30 line "$client_node" outbound
check "the server's node logs both identities" eventually 30 line "$echo_node" inbound
metric() { proxy_metrics "$1" | grep '^istio_tcp_connections_opened_total' | grep "reporter=\"$2\"" | grep "source_principal=\"$client_id\"" | grep "destination_principal=\"$echo_id\"" | found 'connection_security_policy="mutual_tls"'; }
check "metrics at the source" eventually 15 metric "$client_node" source
check "metrics at the destination" eventually 15 metric "$echo_node" destination
handshakes() { proxy_metrics "$1" | awk -v r="reporter=\"$2\"" '/^lateen_tunnels_opened_total/ && index($0, r) {n += $2} END {print n + 0}'; }
same() { [ "$(handshakes "$client_node" source)" = "$(handshakes "$echo_node" destination)" ]; }
eventually 15 same >/dev/null
began=$(handshakes "$client_node" source)
check "TLS handshakes are counted where they begin: $began" [ "$began" -ge 1 ]
equal "and once more where they end" "$began" "$(handshakes "$echo_node" destination)"

check "down" lateen down
finish
