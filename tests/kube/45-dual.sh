#!/usr/bin/env bash
# Pods and Services with addresses of both families: all that holds for IPv4 holds for IPv6. Running pods are captured under load,
# a pod's other address and a Service's are reached through the tunnel and by no other way, names have both addresses, policies refuse by
# identity and by address, and who leaves the mesh has nothing left of it.
# lane: dual
# families: dual
source "$(dirname "$0")/lib.sh"
[ "$IP_FAMILIES" = dual ] || { not_ok "the cluster has both families: start it with IP_FAMILIES=dual tests/kube/up.sh"; finish; }
captured() { # NAMESPACE COUNT
  local n; n=$(k -n "$1" get pods -o json | jq '[.items[] | select(.metadata.deletionTimestamp == null) | select(.metadata.annotations["ambient.istio.io/redirection"] == "enabled")] | length')
  [ "$n" = "$2" ] || { echo "$n of $2 pods are captured"; k -n "$1" get pods -o wide; return 1; }
}
pod_ip6() { field "$1" "$2" .status.podIPs[1].ip; }
asked() { [ "$(code "$1" "$2")" = "$3" ]; } # NAMESPACE/POD URL STATUS

check "echo servers and clients run outside the mesh" echo_in dual
check "their Service has both families" k -n dual patch service echo --type=merge -p '{"spec": {"ipFamilyPolicy": "RequireDualStack", "ipFamilies": ["IPv4", "IPv6"]}}'
VIP=$(service_ip dual echo)
VIP6=$(k -n dual get service echo -o jsonpath='{.spec.clusterIPs[1]}')
SERVER=$(pod_on dual app=echo node2)
IP2=$(pod_ip dual "$SERVER") IP6=$(pod_ip6 dual "$SERVER") CLIENT6=$(pod_ip6 dual client1)
check "a pod's second address is one of IPv6" [ "${IP6#fd00:10:244:2:}" != "$IP6" ]
check "and so is the Service's" [ "${VIP6#fd00:10:96:}" != "$VIP6" ]
check "the Service answers at it, without the mesh" eventually 60 asked dual/client1 "http://[$VIP6]/" 200

load_begin kept dual/client1 --url "http://[$VIP6]/" --qps 40 --connections 4
load_begin new dual/client1 --url "http://[$VIP6]/" --qps 20 --connections 2 --no-keepalive
check "connections are there from before" eventually 60 some_open dual/client1 80 4
sleep 2
check "the namespace gets the label, under load on IPv6" k label namespace dual istio.io/dataplane-mode=ambient
check "its four pods are captured" eventually 60 captured dual 4
sleep 5
load_end kept
load_end new
# The server may end the connections that began outside of the mesh a moment later, in plain text.
check "the connections from before have ended" eventually 60 none_open dual/client1 80

watch_wire tcp
answer=$(in_pod dual/client1 curl -gs --max-time 30 "http://[$IP6]:8080/marker-pod6")
by_service=$(in_pod dual/client1 curl -gs --max-time 30 "http://[$VIP6]/marker-service6")
four=$(in_pod dual/client1 curl -gs --max-time 30 "http://$VIP/marker-service4")
unwatch_wire
check "a request to a pod's IPv6 address is answered" [ "${answer#*path=/marker-pod6}" != "$answer" ]
check "and shows the client's own address of that family" [ "${answer#*from=\[$CLIENT6\]:}" != "$answer" ]
check "one to the Service's IPv6 address is answered" [ "${by_service#*path=/marker-service6}" != "$by_service" ]
check "and one to its IPv4 address" [ "${four#*path=/marker-service4}" != "$four" ]
check "packets of the tunnel's port cross the fabric" [ "$(on_wire tcp port 15008)" -gt 0 ]
for m in marker-pod6 marker-service6 marker-service4; do equal "no packet shows $m" 0 "$(in_clear $m)"; done
equal "none is for a server's port" 0 "$(on_wire "tcp port 8080")"

lookup() { k -n dual exec client1 -- nslookup "$1"; }
shows() { local out; out=$(lookup "$1"); grep -qwF "$2" <<<"$out" || { echo "$out"; return 1; }; }
check "the Service's name has its IPv4 address in a captured pod" eventually 60 shows echo.dual.svc.cluster.local "$VIP"
check "and its IPv6 address" eventually 60 shows echo.dual.svc.cluster.local "$VIP6"

check "a client outside of the mesh" echo_in dual-stranger

# A pod whose very first act is a request to an IPv6 address. That the watch would see it in clear a request from outside of the mesh shows.
watch_wire tcp
stranger=$(in_pod dual-stranger/client1 curl -gs --max-time 30 "http://[$IP6]:8080/marker-in-clear")
check "a pod is made" k -n dual apply -f - <<Y
apiVersion: v1
kind: Pod
metadata: {name: newborn, labels: {app: client}}
spec:
  serviceAccountName: client
  restartPolicy: Never
  terminationGracePeriodSeconds: 0
  nodeSelector: {lateen.dev/node-index: "1"}
  containers: [{name: client, image: docker.io/local/echo:1, imagePullPolicy: Never, command: [wget, -qO-, "http://[$IP6]:8080/marker-newborn"]}]
Y
check "it ends well" k -n dual wait --for=jsonpath='{.status.phase}'=Succeeded pod/newborn --timeout=120s
unwatch_wire
told() { k -n dual logs newborn | found path=/marker-newborn; }
check "the server has answered it" eventually 60 told
check "and the client outside of the mesh" [ "${stranger#*path=/marker-in-clear}" != "$stranger" ]
check "whose request the watch sees" [ "$(in_clear marker-in-clear)" -gt 0 ]
equal "no packet shows the pod's" 0 "$(in_clear marker-newborn)"
k -n dual delete pod newborn --wait=false >/dev/null

check "PERMISSIVE: it is served over IPv6" eventually 60 asked dual-stranger/client1 "http://[$IP6]:8080/" 200
check "STRICT" k apply -f - <<'Y'
apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {name: default, namespace: dual}
spec: {mtls: {mode: STRICT}}
Y
check "the stranger is refused over IPv6" eventually 60 asked dual-stranger/client1 "http://[$IP6]:8080/" 000
check "and over IPv4" eventually 60 asked dual-stranger/client1 "http://$IP2:8080/" 000
equal "the client is served" 200 "$(code dual/client1 "http://[$IP6]:8080/")"

check "the addresses of the client's node are denied" k apply -f - <<'Y'
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: refused, namespace: dual}
spec:
  selector: {matchLabels: {app: echo}}
  action: DENY
  rules: [{from: [{source: {ipBlocks: ["fd00:10:244:1::/64"]}}]}]
Y
check "it is refused over IPv6" eventually 60 asked dual/client1 "http://[$IP6]:8080/" 000
equal "the other node's client is served" 200 "$(code dual/client2 "http://[$IP6]:8080/")"
equal "and the first one over IPv4, which the policy does not name" 200 "$(code dual/client1 "http://$IP2:8080/")"
check "its identity is denied in place of addresses" k apply -f - <<'Y'
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: refused, namespace: dual}
spec:
  selector: {matchLabels: {app: echo}}
  action: DENY
  rules: [{from: [{source: {principals: ["cluster.local/ns/dual/sa/client"]}}]}]
Y
check "the other node's client is refused over IPv6 as well" eventually 60 asked dual/client2 "http://[$IP6]:8080/" 000
check "probes pass all the while" k -n dual wait --for=condition=Ready pod -l app=echo --timeout=60s
k -n dual delete authorizationpolicy/refused peerauthentication/default >/dev/null
check "the policies go, and the client is served" eventually 60 asked dual/client1 "http://[$IP6]:8080/" 200

check "the namespace loses the label" k label namespace dual istio.io/dataplane-mode-
check "all its pods are released" eventually 60 captured dual 0
equal "and served over IPv6" 200 "$(code dual/client1 "http://[$VIP6]/")"
check "no rule of the mesh stays in a released pod" eventually 60 no_rules dual/client1
rules6() { local r; r=$(in_pod dual/client1 ip -6 rule) && ! grep -vE '^(0|32766|32767):' <<<"$r"; }
check "also none for IPv6" eventually 60 rules6
k delete namespace dual dual-stranger --wait=false >/dev/null
finish
