#!/usr/bin/env bash
# What both proxies ask of a next hop that is neither of them: a waypoint of a service and of a workload, a gateway to another
# network, and a destination that takes a PROXY header. The hop writes down peer, authority and headers; they must be alike.
source "$(dirname "$0")/lib.sh"
(cd "$ROOT" && go build -o "$WORK/" ./tests/mesh/hbonehop) || not_ok "the hop builds"
CA_CERT=$RUN/control/root-cert.pem CA_KEY=$RUN/control/root-key.pem
begin

{
  account way default
  for p in way gate; do deployment $p default way n1 "networking.istio.io/tunnel: http, istio.io/dataplane-mode: none" '[sleep, infinity]'; done
  cat <<'Y'
---
apiVersion: v1
kind: Service
metadata: {name: way, namespace: default}
spec: {selector: {app: way}, ports: [{name: hbone, port: 15008}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: way, namespace: default, labels: {istio.io/waypoint-for: all}}
spec:
  gatewayClassName: istio-waypoint
  listeners: [{name: mesh, port: 15008, protocol: HBONE, allowedRoutes: {namespaces: {from: All}}}]
Y
} >"$WORK/way.yaml"
check "a waypoint" lateen apply -f "$WORK/way.yaml"

check "it runs" lateen wait deployment/way deployment/gate
remember way gate client-ours client-ztunnel
in_pod way "$WORK/hbonehop" -ca-cert "$CA_CERT" -ca-key "$CA_KEY" -identity spiffe://cluster.local/ns/default/sa/way -record "$WORK/way.json" 2>"$WORK/way.err" & HOPS=$!
trap 'end_behind $HOPS; cleanup' EXIT

# norm FILE SIDE: what was seen last, without what belongs to the one connection: its client's name, place and address, its trace. Nor is
# the key exchange compared: whether ztunnel offers a hybrid is up to the library it was built with.
norm() {
  tail -1 "$1" | jq -S --arg ip "$(ip_of "client-$2")" --arg pod "$(pod_json "client-$2" | jq -r .metadata.name)" '
    del(.group)
    | walk(if type == "string" then gsub($ip + ":[0-9]+"; "IP:PORT") | gsub($ip; "IP") | gsub($pod; "POD") | gsub("client-(ours|ztunnel)"; "client") | gsub("local-n[0-9]"; "ZONE") else . end)
    | .headers |= with_entries(if .key == "Traceparent" then .value |= map(gsub("[0-9a-f]"; "x")) else . end)'
}
# alike WHAT FILE COMMAND-WITH-SIDE...: both proxies' clients get through, and the hop sees the same.
alike() {
  local what=$1 file=$2 side; shift 2
  for side in ours ztunnel; do
    check "$what from behind $side" eventually 10 "$@" "$side"
    norm "$file" $side >"$WORK/$side.norm"
  done
  if diff -u "$WORK/ztunnel.norm" "$WORK/ours.norm" >"$WORK/diff"; then ok "$what: the hop sees the same from both"; else not_ok "$what: the hop sees (-ztunnel +ours)"; cat "$WORK/diff"; fi
}
says_hop() { [ "$(lateen exec "deploy/client-$2" -- curl -sS --max-time 5 "$1" 2>/dev/null | cut -c1-3)" = hop ]; }

for s in ours ztunnel; do
  check "bind the service behind $s" lateen label svc "server-$s" istio.io/use-waypoint=way
  alike "a service ($s) by its waypoint" "$WORK/way.json" says_hop "http://server-$s:8080/"
  equal "the authority is the service's address" "$(lateen get svc "server-$s" -o json | jq -r .spec.clusterIP):8080" "$(tail -1 "$WORK/way.json" | jq -r .authority)"
  check "unbind it" lateen label svc "server-$s" istio.io/use-waypoint-
  straight() { [ "$(call client-ours "http://server-$s:8080/")$(call client-ztunnel "http://server-$s:8080/")" = 200200 ] && ! says_hop "http://server-$s:8080/" ours && ! says_hop "http://server-$s:8080/" ztunnel; }
  check "and it is reached without one" eventually 10 straight
done
for s in ours ztunnel; do
  pod=$(pod_json "server-$s" | jq -r .metadata.name)
  check "bind the pod behind $s" lateen label pod "$pod" istio.io/use-waypoint=way
  alike "a workload ($s) by its waypoint" "$WORK/way.json" says_hop "http://$(ip_of "server-$s"):8080/"
  # Past the waypoint: a destination must not take for granted what did not come through it.
  check "unbind the pod" lateen label pod "$pod" istio.io/use-waypoint-
done

# Another network: the outer tunnel ends at the gateway, the inner one at the server.
gateway_ip=$(ip_of gate)
declare -A vip=([ours]=1 [ztunnel]=2)
for s in ours ztunnel; do
  in_pod gate "$WORK/hbonehop" -listen ":1500$([ $s = ours ] && echo 8 || echo 9)" -ca-cert "$CA_CERT" -ca-key "$CA_KEY" -identity spiffe://cluster.local/ns/default/sa/gate \
    -pass "$(ip_of "server-$s"):15008" -record "$WORK/gate-$s.json" 2>"$WORK/gate-$s.err" & HOPS="$HOPS $!"
  port=1500$([ $s = ours ] && echo 8 || echo 9)
  cat >>"$WORK/networks.yaml" <<Y
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: net-$s, namespace: default, labels: {topology.istio.io/network: net-$s}, annotations: {gateway.istio.io/service-account: gate}}
spec:
  gatewayClassName: istio-remote
  addresses: [{type: IPAddress, value: $gateway_ip}]
  listeners: [{name: cross-network, port: $port, protocol: HBONE, tls: {mode: Passthrough}}]
---
apiVersion: networking.istio.io/v1
kind: WorkloadEntry
metadata: {name: far-$s, namespace: default}
spec: {address: 10.99.0.1, network: net-$s, serviceAccount: server, labels: {app: server-$s, networking.istio.io/tunnel: http}}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: wide-$s, namespace: default}
spec:
  hosts: [wide-$s.example.com]
  addresses: [240.3.0.${vip[$s]}]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{number: 8080, name: http, protocol: HTTP}]
  workloadSelector: {labels: {app: server-$s}}
  subjectAltNames: [spiffe://cluster.local/ns/default/sa/server]
Y
done
check "servers in other networks, behind a gateway" lateen apply -f "$WORK/networks.yaml"
check "known to every proxy" lateen wait
through() { # CLIENT-SIDE SERVER-SIDE: until one of them went by the gateway
  local before now i
  before=$(wc -l <"$WORK/gate-$2.json")
  for i in $(seq 1 40); do
    [ "$(call "client-$1" "http://240.3.0.${vip[$2]}:8080/")" = 200 ] || { echo "request $i failed"; proxy_log "${NODE[client-$1]}" | tail -3; proxy_log "${NODE[server-$2]}" | tail -2; return 1; }
    now=$(wc -l <"$WORK/gate-$2.json")
    [ "$now" = "$before" ] || return 0
  done
  echo "none of 40 went by the gateway"; return 1
}
for s in ours ztunnel; do
  for c in ours ztunnel; do
    rm -f "$WORK/$c.norm"
    check "a service of two networks, its server behind $s, from behind $c: none fails, some go by the gateway" through $c $s
    norm "$WORK/gate-$s.json" $c >"$WORK/$c.norm"
    equal "the outer tunnel names the host" "wide-$s.example.com:8080" "$(tail -1 "$WORK/gate-$s.json" | jq -r .authority)"
    check "the inner tunnel ends at the server, with the client's identity" eventually 5 line "${NODE[server-$s]}" 'direction="inbound"' 'sa/client"' "src.addr=$gateway_ip:"
  done
  if diff -u "$WORK/ztunnel.norm" "$WORK/ours.norm" >"$WORK/diff"; then ok "and the gateway sees the same from both"; else not_ok "the gateway to $s sees (-ztunnel +ours)"; cat "$WORK/diff"; fi
done

# A destination that takes a PROXY header: its pods are of a waypoint bound so. The bytes are compared.
for s in ours ztunnel; do
  {
    deployment "tunnelled-$s" default server "${NODE[server-$s]}" "gateway.networking.k8s.io/gateway-name: tunnelled-$s, gateway.istio.io/managed: istio.io-mesh-controller" '[sleep, infinity]'
    cat <<Y
---
apiVersion: v1
kind: Service
metadata: {name: tunnelled-$s, namespace: default}
spec: {selector: {app: tunnelled-$s}, ports: [{name: hbone, port: 15008}, {name: http, port: 8080}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: tunnelled-$s, namespace: default, annotations: {ambient.istio.io/waypoint-inbound-binding: PROXY/15088}}
spec:
  gatewayClassName: istio-waypoint
  listeners: [{name: mesh, port: 15088, protocol: istio.io/PROXY, allowedRoutes: {namespaces: {from: All}}}]
Y
  } >"$WORK/tunnelled.yaml"
  check "pods behind $s that take PROXY headers" lateen apply -f "$WORK/tunnelled.yaml"
done
check "they run, captured" lateen wait deployment/tunnelled-ours deployment/tunnelled-ztunnel
check "known" lateen wait
remember tunnelled-ours tunnelled-ztunnel
for s in ours ztunnel; do in_pod "tunnelled-$s" "$WORK/hbonehop" -plain :15088 -record "$WORK/plain-$s.json" 2>"$WORK/plain-$s.err" & HOPS="$HOPS $!"; done
for c in ours ztunnel; do
  for s in ours ztunnel; do
    check "$c reaches the tunnelled pod behind $s" eventually 10 says_hop "http://$(ip_of "tunnelled-$s"):8080/" $c
    # Addresses and the client's port differ; all else is the same.
    from=$(ip_of client-$c) to=$(ip_of "tunnelled-$s")
    hex() { printf '%02x%02x%02x%02x' ${1//./ }; }
    tail -1 "$WORK/plain-$s.json" | jq -r .first | sed -E "s/^(.{32})$(hex "$from")$(hex "$to")....(1f90)/\1FROM TO PORT \2/" >"$WORK/head-$c-$s"
  done
  equal "the header from $c is the same behind both: $(cut -c1-60 "$WORK/head-$c-ztunnel")" "$(cat "$WORK/head-$c-ztunnel")" "$(cat "$WORK/head-$c-ours")"
  check "it has both addresses" grep -q 'FROM TO PORT' "$WORK/head-$c-ours"
done
finish
