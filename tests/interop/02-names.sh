#!/usr/bin/env bash
# Names and what stands behind them, asked from behind both proxies: the DNS proxy, ServiceEntries of each kind, headless
# services, hosts that only a resolver knows, exceptions from capture. The answers must be the same.
source "$(dirname "$0")/lib.sh"
(cd "$ROOT" && go build -o "$WORK/" ./tests/mesh/dnsask) || not_ok "the client builds"
begin
outside=10.243.0.1 # the fabric: outside of the mesh for everybody
in_fabric "$ROOT/bin/lateen-load" serve --listen $outside:8088 >/dev/null 2>&1 & OUTSIDE=$!
trap 'end_behind $OUTSIDE; cleanup' EXIT
server_ours=$(ip_of server-ours) server_ztunnel=$(ip_of server-ztunnel)
check "names" lateen apply -f - <<Y
apiVersion: v1
kind: Service
metadata: {name: heads, namespace: default}
spec: {clusterIP: None, selector: {kind: server}, ports: [{name: http, port: 8080}]}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: static, namespace: default}
spec: {hosts: [static.example.com], addresses: [240.1.0.1], resolution: STATIC, location: MESH_EXTERNAL, ports: [{number: 80, name: http, protocol: HTTP, targetPort: 8088}], endpoints: [{address: $outside}]}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: wild, namespace: default}
spec: {hosts: ["*.example.org"], addresses: [240.1.0.2], resolution: STATIC, location: MESH_EXTERNAL, ports: [{number: 80, name: http, protocol: HTTP, targetPort: 8088}], endpoints: [{address: $outside}]}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: inside, namespace: default}
spec: {hosts: [inside.example.com], addresses: [240.1.0.3], resolution: STATIC, location: MESH_INTERNAL, ports: [{number: 80, name: http, protocol: HTTP, targetPort: 8080}], workloadSelector: {labels: {kind: server}}}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: resolved, namespace: default}
spec: {hosts: [resolved.example.com], addresses: [240.1.0.4], resolution: DNS, location: MESH_EXTERNAL, ports: [{number: 80, name: http, protocol: HTTP, targetPort: 8080}], endpoints: [{address: heads.default.svc.cluster.local}]}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: nobody, namespace: default}
spec: {hosts: [nobody.example.com], addresses: [240.1.0.5], resolution: STATIC, location: MESH_EXTERNAL, ports: [{number: 80, name: http, protocol: HTTP}]}
---
apiVersion: networking.istio.io/v1
kind: WorkloadEntry
metadata: {name: machine, namespace: default}
spec: {address: 10.99.1.1, serviceAccount: server, labels: {app: machine}}
Y
check "known to every proxy" lateen wait
remember client-ours client-ztunnel
ask() { local p=$1; shift; in_pod "$p" "$WORK/dnsask" "$@" 2>&1; }
# alike WHAT DNSASK-ARGUMENTS: the same answer but for its time to live, its flags and two known differences: for a name that the
# search list made ztunnel sends a CNAME besides, and where a resolver says that there is no name ours hands its SOA on.
whole() { ask "client-$1" "${@:2}" | sed -E 's/ttl=[0-9]+/ttl/; s/ bytes=[0-9]+ n=[0-9]+//; s/ static\.example\.com\.$//; s/ (aa|ra|rd|tc|,)+ / FLAGS /'; }
alike() {
  local what=$1 a b; shift
  a=$(whole ours "$@") b=$(whole ztunnel "$@")
  if [ -n "$a" ] && [ "$a" = "$b" ]; then ok "$what: $a"; else not_ok "$what: ours '$a', ztunnel '$b'"; fi
}
knows() { ask client-ours static.example.com | found 240.1.0.1 && ask client-ztunnel static.example.com | found 240.1.0.1; }
check "both know the names" eventually 10 knows
for net in udp tcp; do
  for name in server-ours server-ours.default server-ztunnel.default.svc server-ours.default.svc.cluster.local; do alike "$name over $net" -net $net $name; done
  alike "a headless service over $net" -net $net heads
  alike "a static entry over $net" -net $net static.example.com
  alike "what the search list makes of it over $net" -net $net static.example.com.default.svc.cluster.local
  alike "a wildcard over $net" -net $net a.b.example.org
  alike "an entry that a resolver resolves over $net" -net $net resolved.example.com
  alike "an entry without endpoints over $net" -net $net nobody.example.com
  alike "no IPv6 over $net" -net $net -type AAAA static.example.com
  alike "a name that nobody knows over $net" -net $net nobody.invalid
  alike "another type over $net" -net $net -type SRV _http._tcp.heads.default.svc.cluster.local
done
for c in ours ztunnel; do
  says() { [ "$(call "client-$c" "$1")" = "$2" ]; }
  check "$c: a static entry" eventually 10 says "http://240.1.0.1/" 200
  check "$c: by its name" eventually 5 says "http://static.example.com/" 200
  check "$c: a wildcard" eventually 5 says "http://some.example.org/" 200
  check "$c: an entry that chooses pods" eventually 5 says "http://inside.example.com/" 200
  check "$c: an entry that a resolver resolves" eventually 10 says "http://resolved.example.com/" 200
  check "$c: a headless service" eventually 5 says "http://heads:8080/" 200
  check "$c: an entry without endpoints is refused" says "http://nobody.example.com/" 000
  check "$c: an address that nobody described" says "http://$outside:8088/" 200
  check "$c: a service's port that is not there" says "http://server-ours:9999/" 000
  check "$c: entries that choose pods lead through the tunnel" eventually 5 line "${NODE[client-$c]}" 'direction="outbound"' 'dst.service="inside.example.com"' 'dst.hbone_addr='
done

# Another namespace's entry for the short name of a pod, and for a range around a node, takes neither, whichever proxy is asked, but a
# ztunnel of 1.30: it does not know that the control plane keeps the entry to its namespace, and gives the name away.
node_ip=$(lateen get nodes -o json | jq -r --arg n "${NODE[server-ours]}" '.items[] | select(.metadata.name == $n) | .status.addresses[0].address')
check "a pod with a name, and a stranger's entry for it" lateen apply -f - <<Y
apiVersion: v1
kind: Namespace
metadata: {name: foreign}
---
apiVersion: v1
kind: Pod
metadata: {name: head-0, namespace: default, labels: {kind: server}}
spec: {hostname: head-0, subdomain: heads, serviceAccountName: server, terminationGracePeriodSeconds: 1, containers: [{name: main, image: lateen/load:1, command: [lateen-load, serve, --listen, "0.0.0.0:8080"]}]}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: greedy, namespace: foreign}
spec: {hosts: [head-0.heads, canary.example.com], addresses: [240.1.0.9, $node_ip/31], resolution: STATIC, location: MESH_EXTERNAL, ports: [{number: 80, name: http, protocol: HTTP}]}
Y
check "known to every proxy" lateen wait
for c in ours ztunnel; do
  canary() { ask "client-$c" canary.example.com | found 240.1.0.9; }
  check "$c: knows the entry by its other name" eventually 10 canary
  for name in head-0.heads head-0.heads.default.svc.cluster.local; do
    taken() { ask "client-$c" $name | found 240.1.0.9; }
    if [ "$c $RELEASE" = "ztunnel 1.30" ]; then check "$c: 1.30 takes $name for the stranger's" taken; else check_not "$c: $name is the stranger's" taken; fi
  done
  named() { [ "$(call "client-$c" "http://head-0.heads:8080/")" = 200 ]; }
  if [ "$c $RELEASE" = "ztunnel 1.30" ]; then check_not "$c: nor does the pod answer by it" named; else check "$c: the pod answers by its short name" eventually 10 named; fi
done
told() { lateen get serviceentries -n foreign -o wide | found "has no effect: in it are addresses of Node"; }
check "its author is told whose the range is" told

# Exceptions from capture: the agent's, whichever proxy runs.
for s in ours ztunnel; do
  check "a pod with exceptions behind $s" lateen apply -f - < <(deployment "excepted-$s" default server "${NODE[server-$s]}" "kind: excepted" "[sh, -c, 'lateen-load serve --listen 0.0.0.0:8081 & exec lateen-load serve --listen 0.0.0.0:8080']" '"traffic.sidecar.istio.io/excludeInboundPorts": "8081", "traffic.sidecar.istio.io/excludeOutboundPorts": "8088"')
done
check "captured" lateen wait
check "STRICT" lateen apply -f - <<'Y'
apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {name: default, namespace: istio-system}
spec: {mtls: {mode: STRICT}}
Y
check "known to every proxy" lateen wait
plain() { in_node n1 curl -s -o /dev/null --max-time 3 -w '%{http_code}' "http://$1/"; }
for s in ours ztunnel; do
  ip=$(ip_of "excepted-$s")
  strict() { [ "$(plain "$ip:8080")" = 000 ]; }
  check "$s: a captured port refuses what is not encrypted" eventually 5 strict
  equal "$s: an excepted port takes it" 200 "$(plain "$ip:8081")"
  before=$(proxy_log "${NODE[server-$s]}" | grep -c "dst.addr=$outside:8088")
  equal "$s: out to an excepted port" 200 "$(call "excepted-$s" "http://$outside:8088/")"
  equal "$s: past the proxy" "$before" "$(proxy_log "${NODE[server-$s]}" | grep -c "dst.addr=$outside:8088")"
done
finish
