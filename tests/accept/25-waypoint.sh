#!/usr/bin/env bash
# Waypoints as the next hop: of a service, of a workload, two that share a service by weight, one that is away; and pods
# that take their connections with a PROXY header. The waypoint is Go's TLS and HTTP/2 and writes down what it is asked.
source "$(dirname "$0")/lib.sh"
(cd "$ROOT" && go build -o "$WORK/" ./tests/mesh/hbonehop) || not_ok "the waypoint builds"
CA_CERT=$RUN/control/root-cert.pem CA_KEY=$RUN/control/root-key.pem

check "up" lateen up --nodes 2
check "apply echo and client" lateen apply -f "$ROOT/samples/echo/echo.yaml"
waypoint() { # NAME
  cat <<Y
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: $1}
---
apiVersion: v1
kind: Service
metadata: {name: $1}
spec: {selector: {app: $1}, ports: [{name: hbone, port: 15008}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: $1}
spec:
  selector: {matchLabels: {app: $1}}
  template:
    metadata: {labels: {app: $1, networking.istio.io/tunnel: http, istio.io/dataplane-mode: none}}
    spec:
      serviceAccountName: $1
      terminationGracePeriodSeconds: 1
      nodeSelector: {kubernetes.io/hostname: n2}
      containers: [{name: main, image: none, command: [sleep, infinity]}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: $1, labels: {istio.io/waypoint-for: all}}
spec:
  gatewayClassName: istio-waypoint
  listeners: [{name: mesh, port: 15008, protocol: HBONE}]
Y
}
{ waypoint way; waypoint canary; } >"$WORK/waypoints.yaml"
check "two waypoints" lateen apply -f "$WORK/waypoints.yaml"
check "pods that take PROXY headers" lateen apply -f - <<'Y'
apiVersion: v1
kind: Service
metadata: {name: told}
spec: {selector: {app: told}, ports: [{name: hbone, port: 15008}, {name: http, port: 8080}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: told}
spec:
  selector: {matchLabels: {app: told}}
  template:
    metadata: {labels: {app: told, gateway.networking.k8s.io/gateway-name: told, gateway.istio.io/managed: istio.io-mesh-controller}}
    spec:
      serviceAccountName: echo
      terminationGracePeriodSeconds: 1
      nodeSelector: {kubernetes.io/hostname: n2}
      containers: [{name: main, image: none, command: [sleep, infinity]}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: told, annotations: {ambient.istio.io/waypoint-inbound-binding: PROXY/15088}}
spec:
  gatewayClassName: istio-waypoint
  listeners: [{name: mesh, port: 15088, protocol: istio.io/PROXY}]
Y
check "enrol" lateen label ns default istio.io/dataplane-mode=ambient
check "ready, captured, known to every proxy" lateen wait
pod_json() { lateen get pods -o json | jq --arg p "$1-" '[.items[] | select(.metadata.name | startswith($p))][0]'; }
ip_of() { pod_json "$1" | jq -r .status.podIP; }
HOPS=()
hop() { # POD ARGUMENT...: the program in a pod's network
  local ns; ns=/proc/$(engine_pid)/root$RUN/netns/$(pod_json "$1" | jq -r .metadata.uid)
  nsenter --net="$ns" -- "$WORK/hbonehop" -ca-cert "$CA_CERT" -ca-key "$CA_KEY" "${@:2}" 2>>"$WORK/hop.err" & HOPS+=($!)
}
trap 'kill "${HOPS[@]}" 2>/dev/null; cleanup' EXIT
echo_ip=$(ip_of echo) client_ip=$(ip_of client)
vip=$(lateen get svc echo -o json | jq -r .spec.clusterIP)
call() { lateen exec deploy/client -- curl -sS --max-time 15 "$1" 2>&1; }
through() { [[ $(call "$1") == "hop "* ]]; }
straight() { lateen exec deploy/client -- curl -sf --max-time 15 -o "/tmp/x" "$1" && ! through "$1"; }
seen() { tail -1 "$WORK/$1.json" | jq -r "$2"; }

# Away: nobody listens there yet.
check "bind the service" lateen label svc echo istio.io/use-waypoint=way
away() { ! lateen exec deploy/client -- curl -sf --max-time 15 -o /tmp/x http://echo:8080/; }
check "while the waypoint does not listen, nobody goes around it" eventually 30 away
log_says() { grep 'direction="outbound"' "$RUN/nodes/n1/proxy.log" | grep 'error=' | found "$1"; }
# An attempt may have failed for another reason, so each look makes one of its own.
refusal_says() { away && log_says "$1"; }
check "the log names what was refused" eventually 30 refusal_says 'the waypoint default/way.default.svc.cluster.local: .*Connection refused.*see whether its pods run'

hop way -identity spiffe://cluster.local/ns/default/sa/way -record "$WORK/way.json"
hop canary -identity spiffe://cluster.local/ns/default/sa/canary -record "$WORK/canary.json"
check "the service is reached through its waypoint" eventually 30 through http://echo:8080/
equal "it is asked for the service" "$vip:8080" "$(seen way .authority)"
equal "by the client's own identity" "spiffe://cluster.local/ns/default/sa/client $client_ip" "$(seen way '"\(.peer) \(.source)"')"
equal "and told for whom" "true true" "$(seen way '"\(.headers.Forwarded[0] | test("for=\"?'"$client_ip"'.*host=\"?echo.default.svc.cluster.local")) \(.headers.Baggage[0] | test("service.name=client|k8s.deployment.name=client|k8s.workload.name=client"))"')"
way_ip=$(ip_of way)
tells() { grep 'dst.service="echo.default' "$RUN/nodes/n1/proxy.log" | grep -v error= | found "dst.addr=$way_ip:15008.*dst.hbone_addr=$vip:8080"; }
check "the log tells of the way" eventually 15 tells # the client has its answer before the connection has ended
check "a pod of it is not behind it" straight "http://$echo_ip:8080/"

check "a canary for some of them" lateen label svc echo istio.io/use-waypoint-canary=canary
lateen get svc echo -o json | jq '.metadata.annotations["istio.io/use-waypoint-canary-weight"] = "30" | del(.status)' | lateen apply -f - >"$WORK/weight" 2>&1 || not_ok "its weight: $(cat "$WORK/weight")"
shared() { through http://echo:8080/; [ -s "$WORK/canary.json" ]; }
check "the canary gets a share" eventually 30 shared
before=$(wc -l <"$WORK/canary.json") all=$(cat "$WORK"/{way,canary}.json | wc -l)
lateen exec deploy/client -- sh -c 'for i in $(seq 100); do curl -s --max-time 15 http://echo:8080/; done' >"$WORK/many"
equal "everybody is answered" 100 "$(grep -c '^hop ' "$WORK/many")"
equal "each once" 100 "$(($(cat "$WORK"/{way,canary}.json | wc -l) - all))"
share=$(($(wc -l <"$WORK/canary.json") - before))
check "about thirty of a hundred go to the canary ($share)" [ "$share" -gt 8 -a "$share" -lt 55 ]
check "no canary any more" lateen label svc echo istio.io/use-waypoint-canary-
check "unbind the service" lateen label svc echo istio.io/use-waypoint-
check "and it is reached without a waypoint" eventually 30 straight http://echo:8080/

echo_pod=$(pod_of echo)
check "bind the pod" lateen label pod "$echo_pod" istio.io/use-waypoint=way
check "the pod is reached through its waypoint" eventually 30 through "http://$echo_ip:8080/"
equal "it is asked for the pod" "$echo_ip:8080" "$(seen way .authority)"
check "unbind the pod" lateen label pod "$echo_pod" istio.io/use-waypoint-

told_ip=$(ip_of told)
hop told -plain 127.0.0.1:15088 -record "$WORK/told.json"
check "a pod that takes PROXY headers is reached" eventually 30 through "http://$told_ip:8080/"
hex() { printf '%02x%02x%02x%02x' ${1//./ }; }
uri=spiffe://cluster.local/ns/default/sa/client
identity=$(printf %s "$uri" | od -An -tx1 | tr -d ' \n')
# Version 2, PROXY, TCP over IPv4, the length of 12 bytes of addresses and of one field; who, whereto; the field.
want=$(printf '0d0a0d0a000d0a515549540a2111%04x%s%s....1f90d0%04x%s' $((12 + 3 + ${#uri})) "$(hex "$client_ip")" "$(hex "$told_ip")" ${#uri} "$identity")
check "the header says who and whereto" grep -qxE "$want" <(seen told .first)

# A waypoint whose pods are gone is refused by name.
check "bind the service again" lateen label svc echo istio.io/use-waypoint=way
check "through it" eventually 30 through http://echo:8080/
check "its pods go" lateen scale deployment/way --replicas 0
check "nobody goes around it" eventually 15 away
check "the log names the waypoint, and what to do" eventually 30 refusal_says 'service default/echo.default.svc.cluster.local is behind the waypoint .*way.*check that its pods run'
check "its Gateway goes" lateen delete gateway way
bound() { lateen get svc echo -o json | jq -r '.status.conditions[] | select(.type == "WaypointBound") | .status + ": " + .message'; }
unbound() { bound | found '^False: waypoint default/way is not there.*its connections are refused'; }
known() { unbound && lateen wait; }
check "the control plane knows" eventually 30 known
check "still nobody goes around it" away
check "the service says so" eventually 15 unbound
check "until its owner says otherwise" lateen label svc echo istio.io/use-waypoint=none --overwrite
check "then it is reached without a waypoint" eventually 30 straight http://echo:8080/
check "a service that is born behind a waypoint" lateen apply -f - <<'Y'
apiVersion: v1
kind: Service
metadata: {name: born, labels: {istio.io/use-waypoint: way}}
spec: {selector: {app: echo}, ports: [{name: http, port: 8080}]}
Y
heard() { proxy_page n1 /config_dump -f | found 'born\.default\.svc' && lateen wait; }
check "and is not there" eventually 30 heard
born() { lateen exec deploy/client -- curl -s -o /dev/null --max-time 15 http://born:8080/; }
check_not "is reached by nobody" born
finish
