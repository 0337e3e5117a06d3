#!/usr/bin/env bash
# Dual stack: one service, both families, across nodes and through the mesh; policy by IPv6 block; and a capture by a tool
# that is not ours, in which neither family shows a request in the clear. Then a mesh that has IPv6 alone.
# needs: tcpdump
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/capture.sh"

# The sample's echo, for both families.
manifest() {
  sed -e 's/0\.0\.0\.0:8080/[::]:8080/' "$ROOT/samples/echo/echo.yaml" | awk '
    {print} /^kind: Service$/ {service=1} service && /^spec:/ {print "  ipFamilyPolicy: PreferDualStack"; service=0}'
}
ready() { lateen get pods -o json | jq -e '[.items[] | select(.status.conditions[]? | select(.type=="Ready" and .status=="True"))] | length >= 2'; }
enrolled() { lateen get pods -o json | jq -e '[.items[] | select(.metadata.annotations["ambient.istio.io/redirection"] == "enabled")] | length >= 2'; }
fetch() { lateen exec deploy/client -- curl -sS "-$1" --max-time 15 "http://echo:8080/?size=$2" -o /dev/null -w '%{http_code}'; }

check "up with both families" lateen up --nodes 2 --ip-families dual --node n1=eu/eu-1 --node n2=eu/eu-2
equal "nodes say where they are" eu/eu-2 "$(lateen get nodes -o json | jq -r '.items[] | select(.metadata.name == "n2") | .metadata.labels | .["topology.kubernetes.io/region"] + "/" + .["topology.kubernetes.io/zone"]')"
check "apply echo and client" bash -c "$(declare -f manifest); ROOT='$ROOT'; manifest | '$LATEEN' --name '$MESH' apply -f -"
check "echo and client are ready" eventually 60 ready
equal "the service has an address of each family" "IPv4,IPv6 2" "$(lateen get svc echo -o json | jq -r '(.spec.ipFamilies | join(",")) + " " + (.spec.clusterIPs | length | tostring)')"
equal "and so has every pod" 2 "$(lateen get pods -o json | jq '[.items[].status.podIPs | length] | min')"
client_node=$(node_of client) echo_node=$(node_of echo)
check "client ($client_node) and echo ($echo_node) are on different nodes" [ "$client_node" != "$echo_node" ]
# A ready pod comes to its service's name and addresses a moment later than to the list of pods.
served() { [ "$(fetch 4 64) $(fetch 6 64)" = "200 200" ]; }
eventually 30 served >/dev/null
for f in 4 6; do equal "without the mesh, IPv$f" 200 "$(fetch $f 64)"; done

check "enrol the namespace" lateen label ns default istio.io/dataplane-mode=ambient
check "both pods are captured" eventually 20 enrolled
client6=$(lateen get pods -o json | jq -r '.items[] | select(.metadata.name | startswith("client")) | .status.podIPs[1].ip')
line() { proxy_log "$echo_node" | grep 'connection complete' | grep 'direction="inbound"' | grep 'src.identity="spiffe://cluster.local/ns/default/sa/client"' | found -F "$1"; }
tunnelled() { fetch "$1" 65 >/dev/null; line "src.addr=$2"; }
check "IPv4 goes through the tunnel" eventually 20 tunnelled 4 10.244.
check "IPv6 goes through the tunnel, from the client's own address" eventually 20 tunnelled 6 "[$client6]"

capture "$WORK/mesh.pcap"
for f in 4 6; do equal "with the mesh, IPv$f" 200 "$(fetch $f 67)"; done
end_capture "$WORK/mesh.pcap"
equal "no request crosses in the clear" 0 "$(tcpdump -r "$WORK/mesh.pcap" -A 2>/dev/null | grep -c 'GET /?size=')"
for f in ip ip6; do check "what crosses over $f goes to port 15008" bash -c "tcpdump -r '$WORK/mesh.pcap' -n $f and tcp port 15008 2>/dev/null | grep -q ."; done
equal "nothing with a payload crosses to any other port over IPv4" 0 "$(tcpdump -r "$WORK/mesh.pcap" -n 'ip and tcp and not port 15008 and tcp[tcpflags] & tcp-push != 0' 2>/dev/null | wc -l)"
equal "nor over IPv6" 0 "$(tcpdump -r "$WORK/mesh.pcap" -n 'ip6 and tcp and not port 15008 and ip6[53] & 8 != 0' 2>/dev/null | wc -l)"

check "deny the client's IPv6 block" lateen apply -f - <<Y
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: no-six, namespace: default}
spec:
  selector: {matchLabels: {app: echo}}
  action: DENY
  rules:
    - from: [{source: {ipBlocks: ["fd00:10:244:1::/64", "fd00:10:244:2::/64"]}}]
Y
denied() { lateen wait authorizationpolicy/no-six && ! fetch 6 66; }
check "IPv6 is refused" eventually 30 denied
equal "IPv4 is served" 200 "$(fetch 4 66)"
check "down" lateen down

check "up with IPv6 alone" lateen up --nodes 2 --ip-families ipv6
check "apply echo and client again" bash -c "$(declare -f manifest); ROOT='$ROOT'; manifest | '$LATEEN' --name '$MESH' apply -f -"
check "both are ready" eventually 60 ready
check "enrol the namespace again" lateen label ns default istio.io/dataplane-mode=ambient
check "both are captured" eventually 20 enrolled
check "connections go through the tunnel" eventually 20 tunnelled 6 "[fd00:10:244:"
equal "and are served" 200 "$(fetch 6 67)"
check "down again" lateen down
finish
