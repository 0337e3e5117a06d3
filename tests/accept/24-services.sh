#!/usr/bin/env bash
# Every kind of service, each with what crosses: which pod answered, and whether it was mutual TLS or not. Kubernetes'
# services by where their endpoints are and whether they are ready, ServiceEntries, WorkloadEntries, and who sees them.
# needs: tcpdump
source "$(dirname "$0")/lib.sh"

check "up in three places" lateen up --nodes 3 --node n1=eu/eu-1 --node n2=eu/eu-2 --node n3=us/us-1
server() { # NAME NAMESPACE NODE LABELS [PROBED PATH]
  jq -n --arg name "$1" --arg ns "$2" --arg node "$3" --argjson labels "$4" --arg probe "${5:-/}" '{
    apiVersion: "apps/v1", kind: "Deployment", metadata: {name: $name, namespace: $ns},
    spec: {selector: {matchLabels: {name: $name}}, template: {
      metadata: {labels: ($labels + {name: $name})},
      spec: {serviceAccountName: "who", terminationGracePeriodSeconds: 1, nodeSelector: {"kubernetes.io/hostname": $node},
        containers: [{name: "main", image: "none", readinessProbe: {httpGet: {path: $probe, port: 8080}, periodSeconds: 1}, command: ["python3", "-c", (
"import http.server
class Name(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        found = self.path != \"/never\"
        self.send_response(200 if found else 404)
        self.end_headers()
        self.wfile.write(b\"" + $name + "\\n\")
    def log_message(self, *_): pass
class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 64
Server((\"0.0.0.0\", 8080), Name).serve_forever()")]}]}}}}'
}
{
  for ns in default other outside; do
    echo '{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "'$ns'"}}'
    echo '{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "who", "namespace": "'$ns'"}}'
  done
  for one in a:n1 b:n2 c:n3; do server "${one%:*}" default "${one#*:}" '{"app": "who"}'; done
  server late default n2 '{"app": "late"}' /never
  server ext outside n2 '{"app": "ext"}'
  server client default n1 '{"app": "client"}'
  server client other n1 '{"app": "client"}'
  service() { jq -n --arg name "$1" --arg app "$2" --argjson spec "$3" '{apiVersion: "v1", kind: "Service", metadata: {name: $name, namespace: "default"}, spec: ({selector: {app: $app}, ports: [{name: "http", port: 80, targetPort: 8080}]} + $spec)}'; }
  service who who '{}'
  service close who '{"trafficDistribution": "PreferClose"}'
  service same-node who '{"trafficDistribution": "PreferSameNode"}'
  service local who '{"internalTrafficPolicy": "Local"}'
  service eager late '{"publishNotReadyAddresses": true}'
  service patient late '{}'
  service pods who '{"clusterIP": "None", "ports": [{"name": "http", "port": 8080}]}'
  service ext ext '{"clusterIP": "None", "ports": [{"name": "http", "port": 8080}]}' | jq '.metadata.namespace = "outside"'
} >"$WORK/base.json"
jq -s '{apiVersion: "v1", kind: "List", items: .}' "$WORK/base.json" >"$WORK/base.list"
check "servers, services" lateen apply -f "$WORK/base.list"
check "enrol default" lateen label ns default istio.io/dataplane-mode=ambient
check "enrol other" lateen label ns other istio.io/dataplane-mode=ambient
check "ready" lateen wait deployment/a deployment/b deployment/c deployment/client
check "ready too" lateen wait -n outside deployment/ext
check "and in the other namespace" lateen wait -n other deployment/client
ext_ip=$(lateen get pods -n outside -o json | jq -r '.items[0].status.podIP')
a_ip=$(lateen get pods -o json | jq -r '.items[] | select(.metadata.name | startswith("a-")) | .status.podIP')
check "entries" lateen apply -f - <<Y
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: static, namespace: default}
spec: {hosts: [static.example], resolution: STATIC, location: MESH_EXTERNAL, ports: [{number: 80, targetPort: 8080, name: http, protocol: HTTP}], endpoints: [{address: $ext_ip}]}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: dns, namespace: default}
spec: {hosts: [dns.example], resolution: DNS, location: MESH_EXTERNAL, ports: [{number: 80, targetPort: 8080, name: http, protocol: HTTP}], endpoints: [{address: ext.outside.svc.cluster.local}]}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: nobody, namespace: default}
spec: {hosts: [nobody.example], resolution: DNS, location: MESH_EXTERNAL, ports: [{number: 80, name: http, protocol: HTTP}], endpoints: [{address: nobody.invalid}]}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: wild, namespace: default}
spec: {hosts: ["*.wild.example"], addresses: [240.1.0.9], resolution: STATIC, location: MESH_EXTERNAL, ports: [{number: 80, targetPort: 8080, name: http, protocol: HTTP}], endpoints: [{address: $ext_ip}]}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: selected, namespace: default}
spec: {hosts: [selected.example], resolution: STATIC, location: MESH_INTERNAL, ports: [{number: 80, targetPort: 8080, name: http, protocol: HTTP}], workloadSelector: {labels: {app: who}}}
---
apiVersion: networking.istio.io/v1
kind: WorkloadEntry
metadata: {name: machine, namespace: default, labels: {app: machine}}
spec: {address: $ext_ip, serviceAccount: machine}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: machines, namespace: default}
spec: {hosts: [machines.example], resolution: STATIC, location: MESH_INTERNAL, ports: [{number: 80, targetPort: 8080, name: http, protocol: HTTP}], workloadSelector: {labels: {app: machine}}}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: private, namespace: other}
spec: {hosts: [private.example], addresses: [240.1.0.10], exportTo: ["."], resolution: STATIC, location: MESH_EXTERNAL, ports: [{number: 80, targetPort: 8080, name: http, protocol: HTTP}], endpoints: [{address: $ext_ip}]}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: range, namespace: default}
spec: {hosts: [range.example], addresses: [${ext_ip%.*}.128/25, ${ext_ip%.*}.0/25], resolution: NONE, location: MESH_EXTERNAL, ports: [{number: 8080, name: http, protocol: HTTP}]}
Y
dump() { proxy_page n1 /config_dump -f; }
knows() { dump | found "$1"; }
check "the last of them is known" eventually 30 knows '"range.example"'

# Endpoints that are something else in the mesh: a Service by its name, a pod by the name of a headless one, the service itself.
check "entries for names of the mesh" lateen apply -f - <<Y
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: alias, namespace: default}
spec: {hosts: [alias.example], resolution: DNS, location: MESH_EXTERNAL, ports: [{number: 80, name: http, protocol: HTTP}], endpoints: [{address: who.default.svc.cluster.local}]}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: pod-name, namespace: default}
spec: {hosts: [pod-name.example], resolution: DNS, location: MESH_EXTERNAL, ports: [{number: 80, targetPort: 8080, name: http, protocol: HTTP}], endpoints: [{address: pods.default.svc.cluster.local}]}
---
apiVersion: v1
kind: Service
metadata: {name: circle, namespace: default}
spec: {selector: {app: circle}, ports: [{name: http, port: 80}]}
---
apiVersion: networking.istio.io/v1
kind: WorkloadEntry
metadata: {name: circle, namespace: default, labels: {app: circle}}
spec: {address: circle.default.svc.cluster.local}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: older, namespace: outside}
spec: {hosts: [older.example], addresses: [240.1.0.20], resolution: STATIC, location: MESH_EXTERNAL, ports: [{number: 80, targetPort: 8080, name: http, protocol: HTTP}], endpoints: [{address: $ext_ip}]}
Y
sleep 1.1 # creation times have seconds
check "a younger entry with an address that is declared already" lateen apply -f - <<Y
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: younger, namespace: other}
spec: {hosts: [younger.example], addresses: [240.1.0.20], resolution: STATIC, location: MESH_EXTERNAL, ports: [{number: 80, targetPort: 8080, name: http, protocol: HTTP}], endpoints: [{address: $a_ip}]}
Y
check "it is known" eventually 15 knows '"younger.example"'

get() { # NAMESPACE URL [TIMES]: who answered, each once
  lateen exec -n "$1" deploy/client -- sh -c "for i in \$(seq ${3:-1}); do curl -sf --max-time 15 '$2' || echo nobody; done" 2>/dev/null | sort -u | tr '\n' ' ' | sed 's/ $//'
}
crossed() { # PATTERN: "tls" or "plain" for the last outbound connections of n1 that match
  grep 'direction="outbound"' "$RUN/nodes/n1/proxy.log" | grep 'connection complete' | grep "$1" | tail -5 |
    awk '{print (/dst.hbone_addr=/ ? "tls" : "plain") (/error=/ ? " failed" : "")}' | sort -u | tr '\n' ' ' | sed 's/ $//'
}
crosses() { [ "$(crossed "$1")" = "$2" ]; }
serves() { # DESCRIPTION NAMES TLS|PLAIN PATTERN URL [TIMES]
  equal "$1" "$2" "$(get default "$5" "${6:-1}")"
  if eventually 30 crosses "$4" "$3" >/dev/null; then ok "    it is $3"; else not_ok "    it is $3: got '$(crossed "$4")'"; fi
}
watch() { # what crosses the node's network from here on
  # Not by in_node: what is killed must be tcpdump, not a shell around it.
  nsenter --net="/proc/$(engine_pid)/root$RUN/netns/n1" -- tcpdump -B 32768 -s 2048 --immediate-mode -i any -U -w "$WORK/wire.pcap" tcp 2>"$WORK/wire.log" & SNIFFER=$!
  eventually 15 grep -q 'listening on' "$WORK/wire.log" >/dev/null || not_ok "watching the wire"
}
# What plain HTTP says of itself, with this in its path: how many packets of the last watch show it.
in_clear() { tcpdump -r "$WORK/wire.pcap" -A 2>/dev/null | grep -c -- "GET /$1"; }
refused() { # DESCRIPTION URL WORDS
  equal "$1" nobody "$(get default "$2")"
  check "    the log says why" eventually 30 grep -q "$3" "$RUN/nodes/n1/proxy.log"
}

# Chance chooses among endpoints: of three, forty turns leave one out once in four million runs.
serves "a service's endpoints all serve it" "a b c" tls 'dst.service="who.default' http://who/ 40
serves "near endpoints go first" a tls 'dst.service="close.default' http://close/ 12
serves "so does one on the same node" a tls 'dst.service="same-node.default' http://same-node/ 12
serves "a local policy takes no other" a tls 'dst.service="local.default' http://local/ 12
serves "a headless service's pods serve it" "a b c" tls 'dst.workload="[abc]-' http://pods:8080/ 40
serves "a pod serves by its address" a tls "dst.workload=\"a-" "http://$a_ip:8080/"
serves "what publishes endpoints that are not ready is served" late tls 'dst.service="eager.default' http://eager/
refused "what does not is refused" http://patient/ 'service default/patient.default.svc.cluster.local has no endpoint for port 80: 1 known, 1 not ready'
serves "a ServiceEntry with an address" ext plain 'dst.service="static.example"' http://static.example/
serves "a ServiceEntry with a name" ext plain 'dst.service="dns.example"' http://dns.example/
refused "a name that nobody knows is refused" http://nobody.example/ 'knows no address of nobody.invalid'
watch
serves "an endpoint that is a Service by its name is that Service" "a b c" tls 'dst.service="who.default.svc.cluster.local"' http://alias.example/sealed 40
serves "an endpoint that is a pod by its name is that pod" "a b c" tls 'dst.service="pod-name.example"' http://pod-name.example/sealed 40
serves "and one that is outside the mesh is seen on the wire" ext plain 'dst.service="dns.example"' http://dns.example/open
refused "a service that is its own endpoint is refused" http://circle/sealed 'service default/circle.default.svc.cluster.local has the endpoint .* leads back to the service itself'
# While it watches: what it has not written yet when it is told to end is lost, and would be missed below as well.
plain_is_seen() { [ "$(in_clear open)" -gt 0 ]; }
check "the wire shows what is plain" eventually 15 plain_is_seen
kill "$SNIFFER" && wait "$SNIFFER" 2>/dev/null
equal "and nothing of what a name of the mesh led to" 0 "$(in_clear sealed)"
equal "an address of several entries is the oldest's for others" ext "$(get default http://240.1.0.20/)"
equal "and a namespace's own for its clients" a "$(get other http://240.1.0.20/)"
serves "a ServiceEntry for names of a kind" ext plain 'dst.service="\*.wild.example"' http://one.wild.example/
serves "a ServiceEntry that selects pods" "a b c" tls 'dst.service="selected.example"' http://selected.example/ 40
serves "a ServiceEntry that selects machines" ext plain 'dst.service="machines.example"' http://machines.example/
serves "a range that is passed through" ext plain "dst.addr=$ext_ip:8080" "http://$ext_ip:8080/"
equal "what a namespace keeps to itself serves it" ext "$(get other http://private.example/)"
equal "and nobody else" nobody "$(get default http://private.example/)"
equal "not even by its address" nobody "$(get default http://240.1.0.10/)"

forgotten() { ! dump | jq -r '.workloads[].uid' | found "/$1-"; }
check "the near endpoint goes" lateen scale deployment/a --replicas 0
check "every proxy knows" eventually 30 forgotten a
serves "another zone of the region takes over" b tls 'dst.service="close.default' http://close/ 12
serves "where the node decides, the region comes next" b tls 'dst.service="same-node.default' http://same-node/ 24
refused "a local policy takes nobody" http://local/ 'service default/local.default.svc.cluster.local has no endpoint'
check "the region goes" lateen scale deployment/b --replicas 0
check "every proxy knows" eventually 30 forgotten b
serves "another region takes over" c tls 'dst.service="close.default' http://close/ 12
finish
