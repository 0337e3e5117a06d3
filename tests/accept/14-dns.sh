#!/usr/bin/env bash
# The DNS proxy: what captured pods ask their resolver is answered from the mesh, over UDP and TCP, and everything else by
# the resolver; a proxy that is away answers nothing, and nobody else does; a pod may opt out. The client is Go's.
source "$(dirname "$0")/lib.sh"
(cd "$ROOT" && go build -o "$WORK/" ./tests/mesh/dnsask) || not_ok "the client builds"

check "up" lateen up --nodes 2
check "apply echo and client" lateen apply -f "$ROOT/samples/echo/echo.yaml"
check "apply names" lateen apply -f - <<Y
apiVersion: v1
kind: Service
metadata: {name: pods, namespace: default}
spec: {clusterIP: None, selector: {app: echo}, ports: [{name: http, port: 8080}]}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: outside, namespace: default}
spec:
  hosts: [api.example.com]
  addresses: [240.1.0.1]
  resolution: STATIC
  location: MESH_EXTERNAL
  ports: [{number: 80, name: http, protocol: HTTP}]
  endpoints: [{address: 10.1.2.3}]
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: wild, namespace: default}
spec:
  hosts: ["*.example.com"]
  addresses: [240.1.0.2]
  resolution: STATIC
  location: MESH_EXTERNAL
  ports: [{number: 80, name: http, protocol: HTTP}]
  endpoints: [{address: 10.1.2.3}]
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: many, namespace: default}
spec:
  hosts: [many.example.com]
  addresses: [$(seq -s, -f '240.2.0.%g' 1 60)]
  resolution: STATIC
  location: MESH_EXTERNAL
  ports: [{number: 80, name: http, protocol: HTTP}]
  endpoints: [{address: 10.1.2.3}]
Y
check "enrol" lateen label ns default istio.io/dataplane-mode=ambient
check "captured and ready" lateen wait
client_node=$(node_of client)
# A program of the machine in the client's network, as the client's own programs are.
in_client() { nsenter --net="/proc/$(engine_pid)/root$RUN/netns/$(lateen get pods -o json | jq -r '.items[] | select(.metadata.name | startswith("client")) | .metadata.uid')" -- "$@"; }
ask() { in_client "$WORK/dnsask" -wait 15s "$@"; }
vip=$(lateen get services -o json | jq -r '.items[] | select(.metadata.name == "echo") | .spec.clusterIP')
pod_ip=$(lateen get pods -o json | jq -r '.items[] | select(.metadata.name | startswith("echo")) | .status.podIP')
upstream() { proxy_metrics "$client_node" | awk '/^istio_dns_upstream_requests_total/ {n += $NF} END {print n + 0}'; }
answers() { # DESCRIPTION PATTERN ARGUMENTS...: the reply matches
  local what=$1 want=$2; shift 2
  local got; got=$(ask "$@" 2>&1)
  if [[ $got == $want ]]; then ok "$what"; else not_ok "$what: want '$want', got '$got'"; fi
}
known() { ask many.example.com | found ' n=2[89] ' && ask api.example.com | found ' 240.1.0.1$' && ask a.b.example.com | found ' 240.1.0.2$' && ask pods | found " $pod_ip\$"; }
check "the proxy knows the names" eventually 20 known

before=$(upstream)
for net in udp tcp; do
  for name in echo echo.default echo.default.svc echo.default.svc.cluster.local eCHo.DEFault; do
    answers "$name over $net" "NOERROR aa,ra,rd $name. ttl=30 * n=1 $vip" -net $net $name
  done
  answers "no IPv6 is no error over $net" "NOERROR aa,ra,rd echo. ttl=0 * n=0 " -net $net -type AAAA echo
  answers "a headless service's pods over $net" "NOERROR * n=1 $pod_ip" -net $net pods
  answers "a ServiceEntry over $net" "NOERROR * n=1 240.1.0.1" -net $net api.example.com
  answers "what the search list makes of it over $net" "NOERROR * n=1 240.1.0.1" -net $net api.example.com.default.svc.cluster.local
  answers "a wildcard over $net" "NOERROR * n=1 240.1.0.2" -net $net a.b.example.com
  answers "an update is not implemented over $net" "NOTIMP *" -net $net -opcode 5 echo
done
answers "a small datagram is cut and says so" "NOERROR aa,ra,rd,tc * n=2[89] 240.2.*" many.example.com
answers "a large one is whole" "NOERROR aa,ra,rd many* n=60 240.2.*" -edns 1232 many.example.com
answers "so is TCP" "NOERROR aa,ra,rd many* n=60 240.2.*" -net tcp many.example.com
equal "no resolver was asked for any of it" "$before" "$(upstream)"

for net in udp tcp; do
  answers "a resolver answers for other types over $net" "NOERROR * n=1 echo.default.svc.cluster.local." -net $net -type SRV _http._tcp.echo.default.svc.cluster.local
  answers "a name that nobody knows over $net" "NXDOMAIN *" -net $net nobody.example.org
  answers "a name of the mesh is not denied for another type over $net" "NOERROR * n=0 " -net $net -type HTTPS api.example.com
done
equal "each of them was forwarded" $((before + 6)) "$(upstream)"
resolved() { lateen exec deploy/client -- getent ahostsv4 echo | found "^$vip"; }
check "the machine's own resolver library agrees" resolved

# Many at once: no answer is anybody else's, none is lost.
flood() { local i; for i in $(seq 1 40); do ask "n$i.example.com" & ask -net tcp "m$i.example.com" & done; wait; }
flood >"$WORK/flood" 2>&1
equal "eighty questions at once" 80 "$(grep -c ' n=1 240.1.0.2' "$WORK/flood")"

proxy=$(proxy_pid "$client_node")
kill -STOP "$proxy"
check_not "a proxy that is away answers nothing over UDP" ask -wait 1s echo
check_not "nor over TCP" ask -wait 1s -net tcp echo
kill -CONT "$proxy"
check "it is back" eventually 30 ask echo
kill -KILL "$proxy"
check "a new one takes its place" eventually 30 ask -wait 1s -net tcp echo

check "a pod opts out" lateen apply -f - <<Y
apiVersion: v1
kind: Pod
metadata:
  name: alone
  namespace: default
  annotations: {ambient.istio.io/dns-capture: "false"}
spec:
  nodeSelector: {lateen.dev/node-index: "1"}
  containers: [{name: alone, image: lateen/load:1, command: [sleep, infinity]}]
Y
check "it runs, captured" lateen wait
in_client() { nsenter --net="/proc/$(engine_pid)/root$RUN/netns/$(lateen get pods -o json | jq -r '.items[] | select(.metadata.name == "alone") | .metadata.uid')" -- "$@"; }
# The resolver of the machine comes to know a service a moment later than the mesh does.
knows() { ask echo.default.svc.cluster.local | found ' n=1 '; }
eventually 15 knows >/dev/null
answers "its resolver answers by itself" "NOERROR * ttl=5 * n=1 $vip" echo.default.svc.cluster.local
answers "and knows nothing of the mesh's names" "NXDOMAIN *" api.example.com
excepted() { lateen status -o json | found '"DNS"'; }
check "status says so" eventually 15 excepted

finish
