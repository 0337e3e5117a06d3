#!/usr/bin/env bash
# One compromised node: with its kubelet's credential and its node proxy's token, node1 writes and asks for what docs/design/what-a-node-can-claim.md
# lists. Identities and connections of other nodes hold, or the API server refuses the write.
# node1's kubelet is stopped meanwhile, so that it puts nothing right; this script renews its Lease.
# bites: a mirror pod in another namespace gives its node that namespace's default identity, and takes part of a Service's connections.
# lane: dual
# needs: python3
source "$(dirname "$0")/lib.sh"
TRUST=cluster.local STOLEN=10.244.1.250
ASKCERT=$RUN/askcert
(cd "$ROOT" && CGO_ENABLED=0 go build -o "$ASKCERT" ./tests/mesh/askcert) || not_ok "askcert builds"

# as_node COMMAND...: kubectl with the credential of node1's kubelet.
as_node() { in_fabric env KUBECONFIG="$RUN/pki/node1.kubeconfig" "$SET/bin/kubectl" "$@"; }
# patches PATH JSON: a merge patch with that credential. kubectl would read the status first, which a kubelet may not.
patches() {
  in_fabric curl -sS --fail-with-body --max-time 30 --cacert "$RUN/pki/ca.crt" --cert "$RUN/pki/node1.crt" --key "$RUN/pki/node1.key" \
    -X PATCH -H 'Content-Type: application/merge-patch+json' -d "$2" "https://$API_ADDRESS:$API_PORT/api/v1/$1"
}
# writes NAMESPACE POD JSON: node1 writes a pod's status.
writes() { patches "namespaces/$1/pods/$2/status" "$3"; }
# forbids WORDS COMMAND...: the command fails with these words.
forbids() { local said; ! said=$("${@:2}" 2>&1) && found -E "$1" <<<"$said" || { echo "$said"; return 1; }; }
# mirror NAMESPACE NAME LABELS [SPEC]: the manifest of a mirror pod, as node1 may make one anywhere.
mirror() {
  cat <<Y
apiVersion: v1
kind: Pod
metadata:
  name: $2
  namespace: $1
  labels: $3
  annotations: {kubernetes.io/config.mirror: forged, kubernetes.io/config.source: file}
  ownerReferences: [{apiVersion: v1, kind: Node, name: node1, uid: $NODE_UID, controller: true}]
spec: {nodeName: ${4:-node1}, ${5:-}containers: [{name: echo, image: "docker.io/local/echo:1", ports: [{name: http, containerPort: 8080}]}]}
Y
}
makes() { mirror "$@" | as_node create --validate=false -f -; }
makes_plain() { mirror bank plain '{forged: mirror}' | grep -v annotations: | as_node create --validate=false -f -; }
running() { printf '{"status":{"phase":"Running","podIP":"%s","podIPs":[{"ip":"%s"}],"conditions":[{"type":"Ready","status":"True"}]}}' "$1" "$1"; }
replicas() { pods lateen-system app=lateen-control,forged!=mirror; }
page() { in_pod "lateen-system/$1" curl -sf --max-time 30 "http://127.0.0.1:15014$2"; } # REPLICA PATH
# known NAMESPACE POD JQ-FILTER: every replica of the control plane says so of the pod.
known() {
  local r said
  for r in $(replicas); do
    said=$(page "$r" "/debug/objects?kind=Pod&namespace=$1&name=$2") && jq -e "any(.[]; $3)" <<<"$said" >/dev/null || { echo "$r: $said"; return 1; }
  done
}
# ask ACCOUNT NAMESPACE: what the CA answers node1's proxy, whichever replica it comes to.
ask() { in_fabric "$ASKCERT" -address "$CONTROL:15012" -server-name lateen-control.lateen-system.svc -root "$WORK/root.pem" -token-file "$WORK/token" -identity "spiffe://$TRUST/ns/$2/sa/$1" 2>&1; }
granted() { ask "$1" "$2"; }
refused() {
  local said i
  for i in {1..6}; do ! said=$(ask "$1" "$2") && found PermissionDenied <<<"$said" || { echo "$said"; return 1; }; done
}
answered() { [ "$(code hostile/client2 "$1")" = 200 ] || { echo "$1 is not answered"; return 1; }; }
# by_tunnel NAME URL: a request of a captured client of the other node is answered, and does not show on the wire.
by_tunnel() {
  local answer marker="marker-$1-$RANDOM"
  watch_wire tcp
  answer=$(in_pod hostile/client2 curl -s --max-time 30 "$2$marker")
  unwatch_wire
  check "$1: it is answered" [ "${answer#*path=/"$marker"}" != "$answer" ]
  equal "$1: and crosses the wire encrypted" 0 "$(in_clear "$marker")"
}

# The stage: servers and clients in the mesh, a namespace outside, and pods on node1 that end in different ways.
check "echo servers and clients in the mesh" echo_in hostile istio.io/dataplane-mode=ambient
check "namespaces in the mesh and outside of it" bash -c "for n in bank outside-it; do '$KUBE/k' create namespace \$n || exit 1; done; '$KUBE/k' label namespace bank istio.io/dataplane-mode=ambient"
pod() { # NAMESPACE NAME NODE-INDEX RESTART COMMAND
  k create serviceaccount -n "$1" "$2" && k -n "$1" apply -f - <<Y
apiVersion: v1
kind: Pod
metadata: {name: $2, labels: {app: $2}}
spec:
  serviceAccountName: $2
  restartPolicy: $4
  terminationGracePeriodSeconds: 1
  nodeSelector: {lateen.dev/node-index: "$3"}
  containers: [{name: c, image: "docker.io/local/echo:1", imagePullPolicy: Never, command: $5}]
Y
}
check "a pod on the other node" pod hostile vault 2 Always '[sleep, "1000000"]'
check "one that is to be deleted" pod hostile leaver 1 Always '[sleep, "1000000"]'
check "one that its node deletes" pod hostile hoarder 1 Always '[sleep, "1000000"]'
check "one that ends" pod hostile job 1 Never '[sleep, "1"]'
check "one outside of the mesh" pod outside-it bait 1 Always '[sleep, "1000000"]'
check "they run" k -n hostile wait --for=condition=Ready pod/vault pod/leaver pod/hoarder --timeout=120s
check "all of them" k -n outside-it wait --for=condition=Ready pod/bait --timeout=120s
check "and one has ended" k -n hostile wait --for=jsonpath='{.status.phase}'=Succeeded pod/job --timeout=120s
captured() { local n; n=$(k -n hostile get pods -o json | jq '[.items[] | select(.status.phase == "Running") | select(.metadata.annotations["ambient.istio.io/redirection"] == "enabled")] | length'); [ "$n" = 7 ] || { echo "$n of 7"; return 1; }; }
check "seven are captured" eventually 60 captured
VIP=$(service_ip hostile echo) CONTROL=$(service_ip lateen-system lateen-control) IP2=$(pod_ip hostile "$(pod_on hostile app=echo node2)") BAIT=$(pod_ip outside-it bait)
k -n hostile get configmap istio-ca-root-cert -o jsonpath='{.data.root-cert\.pem}' >"$WORK/root.pem"
NODE_UID=$(k get node node1 -o jsonpath='{.metadata.uid}')
k get node node1 -o json | jq -c '{status: {addresses: .status.addresses}}' >"$WORK/addresses"
proxy=$(k -n lateen-system get pods -l app=lateen-node --field-selector spec.nodeName=node1 -o jsonpath='{.items[0].metadata.uid}')
on_node node1 cat "/var/lib/kubelet/pods/$proxy/volumes/kubernetes.io~projected/token/istio-token" >"$WORK/token"
check "requests between the nodes are answered" eventually 60 answered "http://$VIP/"

# From here on node1 is the attacker's.
KUBELET=$(on_node node1 pgrep -f '^kubernetes kubelet ' | head -1)
check "node1's kubelet stops" on_node node1 kill -STOP "$KUBELET"
renew() { while sleep 4; do as_node -n kube-node-lease patch lease node1 --type=merge -p "{\"spec\":{\"renewTime\":\"$(date -u +%FT%T.%6NZ)\"}}" >/dev/null 2>&1; done; }
renew &
RENEWING=$!
undo() {
  kill "$RENEWING" ${LISTENING:-} 2>/dev/null
  [ ! -s "$WORK/addresses" ] || patches nodes/node1/status "$(cat "$WORK/addresses")" >/dev/null 2>&1
  k delete pod -A -l forged=mirror --force --grace-period=0 >/dev/null 2>&1
  k -n hostile patch pod hoarder --type=merge -p '{"metadata":{"finalizers":null}}' >/dev/null 2>&1
  k delete namespace hostile bank outside-it --wait=false >/dev/null 2>&1
  in_node node1 ip addr del $STOLEN/32 dev lo 2>/dev/null
  on_node node1 kill -CONT "$KUBELET"
}
trap 'undo; cleanup' EXIT

check "the token gets the identity of a pod on node1" granted leaver hostile
check "and none of a pod on node2" refused vault hostile

# A deleted pod: its kubelet alone says when its containers have ended, and this one says nothing.
check "a pod of node1 is deleted" k -n hostile delete pod leaver --wait=false
deleted=$SECONDS
check "for a while it keeps its identity" granted leaver hostile
check "node1 deletes a pod of its own, in thirty years" as_node -n hostile delete pod hoarder --grace-period=1000000000 --wait=false
k -n hostile delete pod hoarder --wait=false >/dev/null
check "which a deletion without a period does not shorten" [ "$(date -d "$(k -n hostile get pod hoarder -o jsonpath='{.metadata.deletionTimestamp}')" +%Y)" -gt 2040 ]

# Mirror pods: in any namespace, with any label.
check "node1 makes a mirror pod in another namespace" makes bank forged '{forged: mirror, app: vault}'
check "and says that it runs" writes bank forged "$(running 10.244.1.251)"
check "the control plane knows of it" eventually 30 known bank forged .
check "the pod gives node1 no identity there" refused default bank
check "a mirror pod has the labels of a Service" makes hostile forged '{forged: mirror, app: echo}'
in_node node1 ip addr add $STOLEN/32 dev lo
# The shell writes its own process ID, which the server keeps: that of the job would be the node's entrance.
in_node node1 bash -c 'echo $$ >"$0/listening"; exec python3 -m http.server --bind "$1" --directory "$0" 8080' "$WORK" $STOLEN >"$WORK/stolen" 2>&1 &
check "a server listens at an address of node1" eventually 60 test -s "$WORK/listening"
LISTENING=$(cat "$WORK/listening")
check "it serves at an address of node1" writes hostile forged "$(running $STOLEN)"
check "where it can be reached" eventually 30 in_node node2 curl -sf --max-time 5 -o /dev/null "http://$STOLEN:8080/"
slices() { k -n hostile get endpointslices -l kubernetes.io/service-name=echo -o json | jq -e --arg ip $STOLEN 'any(.items[].endpoints[]; .addresses[0] == $ip and .conditions.ready)'; }
check "to Kubernetes it is an endpoint" eventually 60 slices
check "to the mesh it is none, and its condition says why" eventually 30 known hostile forged '.conditions[]? | .reason == "NoIdentity" and (.message | test("no endpoint of hostile/echo"))'
sleep 2
codes=$(for _ in {1..40}; do code hostile/client2 "http://$VIP/one-of-forty"; echo; done | sort | uniq -c | xargs)
equal "40 requests to the Service are answered" "40 200" "$codes"
equal "none of them by the mirror pod" 0 "$(grep -c one-of-forty "$WORK/stolen")"
check "whose requests are written down" grep -q GET "$WORK/stolen"
check "a mirror pod has the label of the control plane" makes lateen-system forged '{forged: mirror, app: lateen-control}'
check "and says that it runs" writes lateen-system forged "$(running $STOLEN)"
no_replica() { local r said; for r in $(replicas); do said=$(page "$r" /debug/replicas) && ! found '"forged"' <<<"$said" || { echo "$said"; return 1; }; done; }
sleep 2
check "it is no replica" no_replica
# Kubernetes leads a part of the connections to the control plane's Service there, which TLS makes fail.
k -n lateen-system delete pod forged --force --grace-period=0 >/dev/null 2>&1

# Addresses.
check "a pod of node1 says that it is at a Service's address" writes outside-it bait "$(running "$VIP")"
check "its condition names the Service" eventually 30 known outside-it bait ".conditions[]? | .reason != \"Accepted\" and (.message | test(\"$VIP\"))"
sleep 2
by_tunnel forged-podIP "http://$VIP/"
check "the pod goes back" writes outside-it bait "$(running "$BAIT")"
check "node1 says that the Service's address is its own" patches nodes/node1/status "{\"status\":{\"addresses\":[{\"type\":\"InternalIP\",\"address\":\"10.200.0.11\"},{\"type\":\"ExternalIP\",\"address\":\"$VIP\"}]}}"
sleep 2
by_tunnel forged-node-address "http://$VIP/"
check "node1 says that a pod is where one of node2 is, captured" writes outside-it bait "$(running "$IP2" | jq -c '.metadata.annotations["ambient.istio.io/redirection"] = "enabled"')"
check "its condition names the address" eventually 30 known outside-it bait ".conditions[]? | .reason != \"Accepted\" and (.message | test(\"$IP2\"))"
sleep 2
by_tunnel forged-pod "http://$IP2:8080/"
check "node1 says that a pod is where node2 is, captured" writes outside-it bait "$(running 10.200.0.12 | jq -c '.metadata.annotations["ambient.istio.io/redirection"] = "enabled"')"
check "the address stays node2's" eventually 30 known outside-it bait '.conditions[]? | .reason == "Conflicted" and (.message | test("10.200.0.12 .* belongs to Node node2"))'
# Where nothing gives nodes ranges, a kubelet may give its own node one, once. So wide a range counts as none.
ranges=$(k get node node1 -o jsonpath='{.spec.podCIDRs}')
if [ -n "$ranges" ]; then
  check "node1's range stays $ranges" forbids 'may not change podCIDR' patches nodes/node1 '{"spec":{"podCIDR":"0.0.0.0/0","podCIDRs":["0.0.0.0/0"]}}'
else
  check "node1 gives itself all addresses for a range" patches nodes/node1 '{"spec":{"podCIDR":"0.0.0.0/0","podCIDRs":["0.0.0.0/0"]}}'
fi
check "node1 says again that a pod is where one of node2 is, captured" writes outside-it bait "$(running "$IP2" | jq -c '.metadata.annotations["ambient.istio.io/redirection"] = "enabled"')"
check "its condition still names the address" eventually 30 known outside-it bait ".conditions[]? | .reason == \"Conflicted\" and (.message | test(\"$IP2\"))"
sleep 2
by_tunnel forged-range "http://$IP2:8080/"

# A pod that has ended.
check "a pod that has ended gives no identity" refused job hostile
check "the API server lets node1 write Running back" writes hostile job '{"status":{"phase":"Running","containerStatuses":null}}'
equal "and so it stands there" Running "$(field hostile job .status.phase)"
sleep 3
check "it gives no identity all the same" refused job hostile

# Writes that the API server itself refuses.
check "no other pod" forbids 'can only create mirror pods' makes_plain
check "no mirror pod with an account" forbids 'reference (a )?service account' makes bank other '{forged: mirror}' node1 'serviceAccountName: default, '
check "no mirror pod on another node" forbids 'spec.nodeName set to itself' makes bank other '{forged: mirror}' node2
check "no labels of its own pods" forbids 'cannot update labels' writes outside-it bait '{"metadata":{"labels":{"app":"echo"}}}'
check "no status of another node's pods" forbids 'forbidden' writes hostile vault '{"status":{"phase":"Failed"}}'
check "no deletion of another node's pods" forbids 'forbidden' as_node -n hostile delete pod vault --wait=false
check "no change of what marks a mirror pod" forbids 'config.mirror' writes bank forged '{"metadata":{"annotations":{"kubernetes.io/config.mirror":null}}}'
writes bank forged '{"metadata":{"ownerReferences":null}}' >/dev/null
equal "nor of its owner" Node "$(field bank forged '.metadata.ownerReferences[0].kind')"
check "no account of a mirror pod" forbids 'forbidden|cannot bind' as_node -n bank create token default --bound-object-kind Pod --bound-object-name forged --bound-object-uid "$(field bank forged .metadata.uid)"
check "no token of an account that runs elsewhere" forbids 'forbidden' as_node -n hostile create token vault --bound-object-kind Pod --bound-object-name vault --bound-object-uid "$(field hostile vault .metadata.uid)"
check "no token for the CA of a pod that mounts none" forbids 'audience' as_node -n hostile create token client --audience istio-ca --bound-object-kind Pod --bound-object-name client1 --bound-object-uid "$(field hostile client1 .metadata.uid)"
check "no EndpointSlice" forbids 'forbidden' as_node -n hostile create --validate=false -f - <<Y
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: forged, labels: {kubernetes.io/service-name: echo}}
addressType: IPv4
endpoints: [{addresses: ["$STOLEN"]}]
ports: [{name: http, port: 8080}]
Y
check "no Service" forbids 'forbidden' as_node -n hostile patch service echo --type=merge -p '{"spec":{"selector":{"app":"client"}}}'
check "no label of a namespace" forbids 'forbidden' as_node label namespace hostile istio.io/dataplane-mode-
check "no status of another node" forbids 'forbidden|not allowed' patches nodes/node2/status '{"status":{"addresses":[]}}'
check "no Lease of another node" forbids 'forbidden' as_node -n kube-node-lease patch lease node2 --type=merge -p '{"spec":{"renewTime":null}}'
check "no Lease of the control plane" forbids 'forbidden' as_node -n lateen-system create --validate=false -f - <<<'{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"forged"}}'
check "no policy" forbids 'forbidden' as_node -n hostile create --validate=false -f - <<<'{"apiVersion":"security.istio.io/v1","kind":"PeerAuthentication","metadata":{"name":"forged"},"spec":{"mtls":{"mode":"DISABLE"}}}'
check "no key of the CA" forbids 'forbidden' as_node -n lateen-system get secret lateen-ca

# The deadline of what was deleted first: the grace period, and a minute.
sleep $((deleted + 70 - SECONDS > 0 ? deleted + 70 - SECONDS : 0))
equal "the deleted pod is still there" leaver "$(field hostile leaver .metadata.name)"
check "and gives no identity any more" refused leaver hostile
check "a pod that runs does" granted client hostile
check "requests between the nodes are answered" answered "http://$VIP/"
undo
trap cleanup EXIT
node_ready() { k wait --for=condition=Ready node/node1 --timeout=5s && [ -z "$(k get pods -A -l forged=mirror -o name)" ]; }
check "node1 is itself again" eventually 60 node_ready
finish
