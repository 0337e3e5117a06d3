#!/usr/bin/env bash
# A waypoint from `apply` to `delete`: its pods, what is bound to it, protocols through it, who reaches pods past it, and what its author hears of mistakes.
# needs: openssl
# bites: let `refusal` in internal/compile/admission.go return nothing: the service with a policy for its clients is bound, and refuses everybody.
source "$(dirname "$0")/lib.sh"

check "up" lateen up --nodes 2
with_echo "$ROOT/samples/echo/echo.yaml"
echo_ip=$(pod_ip echo-)
CLIENT=$(pod_uid client-)
call() { lateen exec deploy/client -- curl -s -o /dev/null -w '%{http_code}' --max-time 20 "$@"; }
answers() { [ "$(call "${@:2}")" = "$1" ]; }
conditions() { lateen get "$1" "$2" -o json | jq -r '[.status.conditions[]?, .conditions[]?] | .[] | "\(.type) \(.status) \(.reason): \(.message)"'; }
# waypoint COMMAND...: in which --name is a waypoint's name, so that the mesh is named by the environment.
waypoint() { LATEEN_NAME=$MESH "$LATEEN" waypoint "$@"; }
told() { conditions "$1" "$2" | found -- "$3"; }
# The logs of both replicas of the waypoint: either may have served the request.
way_log() { local p; for p in $(lateen get pods -o json | jq -r '.items[].metadata.name | select(startswith("way-"))'); do lateen logs "$p"; done; }

check "a waypoint, and return when it can be used" waypoint apply --name way --for service --wait
check "it has two replicas" lateen scale deployment/way --replicas 2
check "which run" lateen wait deployment/way
check "the list shows it" found -E '(^| )way .*' <(waypoint list)
check "the service asks for it" lateen label svc echo istio.io/use-waypoint=way
check "and is bound" eventually 20 told svc echo 'WaypointBound True.*connections go through waypoint default/way'
check "its status names the service" found 'echo' <(waypoint status --name way)
through() { call "$@" >/dev/null; way_log | found 'echo.default'; }
check "requests pass it" eventually 30 through http://echo:8080/
equal "of HTTP/1.1" 200 "$(call --http1.1 http://echo:8080/)"
equal "of HTTP/2" 200 "$(call --http2-prior-knowledge http://echo:8080/)"
equal "with a body" 200 "$(call -d "$(head -c 20000 /dev/zero | tr '\0' x)" http://echo:8080/)"
equal "that expect 100" 200 "$(call -H 'Expect: 100-continue' -d x http://echo:8080/)"
grpc() { in_netns "$CLIENT" "$ROOT/bin/lateen-load" run --url "grpc://$(lateen get svc echo -o json | jq -r .spec.clusterIP):8080" -n 20 --qps 0 -c 2 --json - | jq -e '.counts.failed == 0' >/dev/null; }
check "and calls of gRPC" grpc
equal "a head beyond the limit is told so" 431 "$(call -H "x-long: $(head -c 70000 /dev/zero | tr '\0' x)" http://echo:8080/)"

# An L4 policy for the clients would refuse the waypoint, as which it is seen by the pods.
l4() { lateen apply -f - <<Y
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: clients}
spec:
  selector: {matchLabels: {app: echo}}
  rules: [{from: [{source: {principals: [$1]}}]}]
Y
}
check "a second Service of the same pods" lateen apply -f - <<'Y'
apiVersion: v1
kind: Service
metadata: {name: second}
spec: {selector: {app: echo}, ports: [{name: http, port: 8080}]}
Y
check "a policy for the clients" l4 '"cluster.local/ns/default/sa/client"'
check "the second Service asks for the waypoint" lateen label svc second istio.io/use-waypoint=way
check "and is told which policy is in the way, and what to add" eventually 20 told svc second 'PolicyRefusesWaypoint: .*AuthorizationPolicy default/clients.*principals: \["cluster.local/ns/default/sa/way"\]'
status_tells() { waypoint status --name way | found 'second is not bound: .*default/clients'; }
check "so are those who run the waypoint" eventually 10 status_tells
lateen wait >/dev/null || not_ok "not every proxy knows of it"
equal "its clients go direct" 200 "$(call http://second:8080/)"
check "a pod's own address is for the clients alone" answers 200 "http://$echo_ip:8080/"
check "the rule is added" l4 '"cluster.local/ns/default/sa/client", "cluster.local/ns/default/sa/way"'
check "then it is bound" eventually 20 told svc second 'WaypointBound True'
lateen wait >/dev/null || not_ok "not every proxy knows of it"
equal "and answers" 200 "$(call http://second:8080/)"
check "a policy for the waypoint alone" l4 '"cluster.local/ns/default/sa/way"'
check "keeps captured clients from the pod's address" eventually 15 answers 000 "http://$echo_ip:8080/"
uncaptured() { in_node n2 curl -s -o /dev/null --max-time 10 "http://$echo_ip:8080/"; }
check_not "and those that are not captured" uncaptured
equal "the way through the waypoint is open" 200 "$(call http://echo:8080/)"
check "the policy goes" lateen delete authorizationpolicy clients

# Mistakes.
check "a Service that asks for a waypoint that is not there" lateen apply -f - <<'Y'
apiVersion: v1
kind: Service
metadata: {name: lost, labels: {istio.io/use-waypoint: nowhere}}
spec: {selector: {app: echo}, ports: [{name: http, port: 8080}]}
Y
check "is told so" eventually 20 told svc lost 'WaypointBound False WaypointIsNotReady: waypoint default/nowhere is not there.*refused until'
check_not "and reached by nobody" call -f http://lost:8080/
check "a Service of another namespace" lateen apply -f - <<'Y'
apiVersion: v1
kind: Namespace
metadata: {name: other}
---
apiVersion: v1
kind: Service
metadata: {name: far, namespace: other, labels: {istio.io/use-waypoint: way, istio.io/use-waypoint-namespace: default}}
spec: {selector: {app: echo}, ports: [{name: http, port: 8080}]}
Y
far() { lateen get svc far -n other -o json | jq -r '.status.conditions[]? | .reason + ": " + .message' | found 'AttachmentDenied: .*does not admit namespace other; let its listener'; }
check "is told that the waypoint does not admit it" eventually 20 far
gateway() { lateen apply -f - <<Y
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: $1}
spec: {gatewayClassName: lateen-waypoint, $2}
Y
}
check "a Gateway whose parameters are not there" gateway bare 'listeners: [{name: mesh, port: 15008, protocol: HBONE}], infrastructure: {parametersRef: {group: "", kind: ConfigMap, name: none}}'
bare() { { lateen get gateway bare -o json; waypoint status --name bare; } | found 'none'; }
check "is told so" eventually 15 bare
check "it goes" lateen delete gateway bare
equal "nobody else noticed" 200 "$(call http://echo:8080/)"

# ServiceEntries whose endpoints the configuration has no address of. The servers are outside of the mesh: a pod, and an address that is nobody's.
check "a server outside of the mesh" lateen apply -f - <<'Y'
apiVersion: v1
kind: Namespace
metadata: {name: outside}
---
apiVersion: v1
kind: Service
metadata: {name: ext, namespace: outside}
spec: {clusterIP: None, selector: {app: ext}, ports: [{name: http, port: 8080}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: ext, namespace: outside}
spec:
  selector: {matchLabels: {app: ext}}
  template:
    metadata: {labels: {app: ext}}
    spec:
      terminationGracePeriodSeconds: 1
      containers: [{name: main, image: lateen/load:1, command: [lateen-load, serve, --listen, "0.0.0.0:8080"], readinessProbe: {httpGet: {path: /health, port: 8080}, periodSeconds: 1}}]
Y
check "runs" lateen wait -n outside deployment/ext
far_ip=198.51.100.9
check "an address beyond the pods" in_node n2 ip address add $far_ip/32 dev lo
check "has a route" in_node n1 ip route add $far_ip via 10.243.0.12
# `nsenter` becomes the program, so that the recorded pid is the program's own.
nsenter --net="/proc/$(engine_pid)/root$RUN/netns/n2" -- "$ROOT/bin/lateen-load" serve --listen $far_ip:8080 >"$WORK/far.log" 2>&1 &
FAR=$!
trap 'kill "$FAR" 2>/dev/null; cleanup' EXIT
# The server outside of the mesh speaks TLS as well. Its certificate names it, so that its clients see to whom they come.
tls_host=ext.outside.svc.cluster.local
check "a certificate" openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1 -subj /CN=ext -addext "subjectAltName=DNS:$tls_host" -keyout "$WORK/key.pem" -out "$WORK/cert.pem"
nsenter --net="/proc/$(engine_pid)/root$RUN/netns/$(pod_uid ext- outside)" -- "$ROOT/bin/lateen-load" serve --listen 0.0.0.0:8443 --tls-cert "$WORK/cert.pem" --tls-key "$WORK/key.pem" >"$WORK/tls.log" 2>&1 &
SEALED=$!
trap 'kill "$FAR" "$SEALED" 2>/dev/null; cleanup' EXIT
entry() { lateen apply -f - <<Y
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: $1, labels: {istio.io/use-waypoint: way}}
spec: {hosts: ["$2"], ports: [{number: 8080, name: http, protocol: HTTP}, {number: 8443, name: tls, protocol: TLS}], $3}
Y
}
check "an entry for all hosts of a domain" entry wild '*.outside.svc.cluster.local' 'resolution: DYNAMIC_DNS'
check "one for a host whose addresses are taken one at a time" entry rr rr.example 'resolution: DNS_ROUND_ROBIN, endpoints: [{address: ext.outside.svc.cluster.local}]'
check "one that goes where its clients want" entry none none.example 'resolution: NONE, addresses: [198.51.100.0/24]'
check "one whose endpoint is a pod of the mesh" entry pod pod.example "resolution: STATIC, endpoints: [{address: $echo_ip}]"
for e in wild rr none pod; do check "$e is bound" eventually 20 told serviceentry $e 'WaypointBound True'; done
wild_ip=$(lateen get serviceentry wild -o json | grep -o -m1 '240\.240\.[0-9]*\.[0-9]*' | head -1)
wild() { call --connect-to "::$wild_ip:8080" "http://$1:8080/"; }
wild_answers() { [ "$(wild "$2")" = "$1" ]; }
check "a host of the domain is resolved by the waypoint" eventually 30 wild_answers 200 ext.outside.svc.cluster.local
# The waypoint's other pod may hear of the entry later.
check "one that nobody knows is not reached" eventually 10 wild_answers 503 nobody.outside.svc.cluster.local
check "one of another domain is not found" eventually 10 wild_answers 404 echo.default.svc.cluster.local
said() { way_log | found "$1"; }
check "the log says why" eventually 20 said 'does not cover the host echo.default.svc.cluster.local'
# Connections of TLS go by the server name, and end at the server: the client verifies its certificate.
sealed() { in_netns "$CLIENT" curl -s -o /dev/null -w '%{http_code}' --max-time 20 --cacert "$WORK/cert.pem" --connect-to "::$wild_ip:8443" "https://$1:8443/"; }
sealed_answers() { [ "$(sealed "$2")" = "$1" ]; }
check "TLS of a host of the domain ends at the host" eventually 30 sealed_answers 200 $tls_host
check "by way of the waypoint" eventually 20 said "connection complete.*$wild_ip:8443"
check_not "TLS of a host of another domain is refused" sealed other.example
check "and the log says why" eventually 20 said 'does not cover the host other.example'
check "the host with addresses one at a time answers" eventually 30 answers 200 http://rr.example:8080/
check "a dialled address of the range answers" eventually 30 answers 200 "http://$far_ip:8080/"
check "by way of the waypoint" eventually 20 said "none.example.*dst.asked=\"\?$far_ip:8080"
check "a pod of the namespace that the mesh does not capture" lateen apply -f - <<'Y'
apiVersion: v1
kind: Service
metadata: {name: plain, labels: {istio.io/use-waypoint: way}}
spec: {selector: {app: plain}, ports: [{name: http, port: 8080}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: plain}
spec:
  selector: {matchLabels: {app: plain}}
  template:
    metadata: {labels: {app: plain, istio.io/dataplane-mode: none}}
    spec:
      terminationGracePeriodSeconds: 1
      containers: [{name: main, image: lateen/load:1, command: [lateen-load, serve, --listen, "0.0.0.0:8080"], readinessProbe: {httpGet: {path: /health, port: 8080}, periodSeconds: 1}}]
Y
check "runs" lateen wait deployment/plain
check "and answers through the waypoint, in plain text" eventually 20 answers 200 http://plain:8080/
check "plain text is forbidden" lateen apply -f - <<'Y'
apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {name: strict}
spec: {mtls: {mode: STRICT}}
Y
refused_in_plain() { ! uncaptured; }
check "to all" eventually 15 refused_in_plain
equal "a service answers through the waypoint" 200 "$(call http://echo:8080/)"
check "so does an entry with the address of a pod" eventually 15 answers 200 http://pod.example:8080/
check "a pod outside of the mesh is not sent plain text" eventually 15 answers 503 http://plain:8080/
check "and the log says what to do" eventually 20 said 'default/plain-.*PeerAuthentication.*demands mTLS; label its pod istio.io/dataplane-mode=ambient'
check "the rule goes" lateen delete peerauthentication strict
check "then it is" eventually 15 answers 200 http://plain:8080/
kill "$FAR" "$SEALED"
trap cleanup EXIT
for e in wild rr none pod; do check "entry $e goes" lateen delete serviceentry $e; done

for s in echo second plain; do check "$s is unbound" lateen label svc $s istio.io/use-waypoint=none --overwrite; done
check "the waypoint goes" waypoint delete way
gone() { ! lateen get deployment way; }
check "and its pods" eventually 20 gone
check "the service answers without it" eventually 15 answers 200 http://echo:8080/
finish
