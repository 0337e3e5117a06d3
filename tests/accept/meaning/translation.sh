#!/usr/bin/env bash
# Translation of services, endpoints, waypoints and names. 38-meaning.sh sources this in its mesh.
# A cluster and Go tests have the rest: the local engine reads neither EndpointSlices nor the status of objects, and
# all owners of its pods are Deployments.
# shellcheck shell=bash

(cd "$ROOT" && go build -o "$WORK/" ./tests/mesh/hbonehop) || not_ok "the hop builds"
# One pod stands for a waypoint and for the gateway to another network, by port.
check "a pod for a waypoint and a gateway" lateen apply -n shop -f - <<'Y'
apiVersion: v1
kind: ServiceAccount
metadata: {name: hop}
---
apiVersion: v1
kind: Service
metadata: {name: hop}
spec: {selector: {app: hop}, ports: [{name: hbone, port: 15008}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: hop}
spec:
  selector: {matchLabels: {app: hop}}
  template:
    metadata: {labels: {app: hop, networking.istio.io/tunnel: http, istio.io/dataplane-mode: none}}
    spec:
      serviceAccountName: hop
      terminationGracePeriodSeconds: 1
      nodeSelector: {kubernetes.io/hostname: n2}
      containers: [{name: main, image: none, command: [sleep, infinity]}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: hop}
spec:
  gatewayClassName: istio-waypoint
  listeners: [{name: mesh, port: 15008, protocol: HBONE}]
Y
check "it runs" lateen wait -n shop deployment/hop
check "known to every proxy" lateen wait
HOPS=()
translation_hop() { # ARGUMENT...: the program in the pod
  nsenter --net="/proc/$(engine_pid)/root$RUN/netns/$(pod_uid hop- shop)" -- \
    "$WORK/hbonehop" -ca-cert "$RUN/control/root-cert.pem" -ca-key "$RUN/control/root-key.pem" -identity spiffe://cluster.local/ns/shop/sa/hop "$@" 2>>"$WORK/hop.err" & HOPS+=($!)
}
trap 'kill "${HOPS[@]}" 2>/dev/null; cleanup' EXIT
translation_hop -record "$WORK/waypoint.json"
translation_hop -listen :15009 -pass "$(pod_ip web- shop):15008" -record "$WORK/gateway.json"

translation_call() { lateen exec -n a deploy/client -- curl -sS --max-time 20 "$1" 2>&1; }
translation_through() { [[ $(translation_call http://web.shop:8080/) == "hop "* ]]; }
translation_straight() { lateen exec -n a deploy/client -- curl -sf --max-time 20 -o /tmp/x http://web.shop:8080/ && ! translation_through; }
# translation_told KIND/NAME WORDS: the object's author is told so.
translation_told() { lateen get "${1%/*}" "${1#*/}" -n shop -o json | jq -e --arg words "$2" '[.. | .message? // empty | select(type == "string" and contains($words))] | length > 0'; }

# A port's protocol, as the control plane sends it; node proxies do not read it.
check "ports of several protocols" lateen apply -n shop -f - <<'Y'
apiVersion: v1
kind: Service
metadata: {name: ports}
spec: {ports: [{name: db, port: 3306}, {name: grpc, port: 81, appProtocol: grpc-web}, {name: x, port: 82, appProtocol: kubernetes.io/h2c}, {name: http-web, port: 83}]}
Y
translation_ports() { [ "$(in_fabric curl -s "http://127.0.0.1:15014/debug/resources?type=Address" | jq -r '.[] | select(.name == "shop/ports.shop.svc.cluster.local") | [.content.service.ports[] | .appProtocol // "UNKNOWN"] | join(" ")')" = "TCP UNKNOWN HTTP2 HTTP11" ]; }
check "are sent as Istio sends them" eventually 20 translation_ports
check "they go" lateen delete service ports -n shop

# An empty label ends the search for a waypoint.
check "shop has a waypoint" lateen label ns shop istio.io/use-waypoint=hop
check "web is reached through it" eventually 30 translation_through
lateen get svc web -n shop -o json | jq '.metadata.labels["istio.io/use-waypoint"] = "" | del(.status)' >"$WORK/svc.json"
check "web has an empty label of its own" lateen apply -f "$WORK/svc.json"
check "and is reached without a waypoint" eventually 30 translation_straight
check "its author is told why" eventually 15 translation_told svc/web "label istio.io/use-waypoint is empty"
check "without the label" lateen label svc web -n shop istio.io/use-waypoint-
check "the namespace's waypoint counts again" eventually 30 translation_through
check "shop has none any more" lateen label ns shop istio.io/use-waypoint-
check "web is reached without" eventually 30 translation_straight

# Endpoints that have a network and no address. The gateway comes last.
check "endpoints of another network, without addresses" lateen apply -n shop -f - <<'Y'
apiVersion: networking.istio.io/v1
kind: WorkloadEntry
metadata: {name: far}
spec: {network: far, serviceAccount: web, labels: {app: web}}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: wide}
spec:
  hosts: [wide.example.com]
  addresses: [240.3.0.1]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{number: 8080, name: http, protocol: HTTP}]
  workloadSelector: {labels: {app: web}}
  subjectAltNames: [spiffe://cluster.local/ns/shop/sa/web]
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: inline}
spec:
  hosts: [inline.example.com]
  addresses: [240.3.0.2]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{number: 8080, name: http, protocol: HTTP}]
  endpoints: [{network: far, serviceAccount: web}, {network: far, serviceAccount: web, weight: 2}]
  subjectAltNames: [spiffe://cluster.local/ns/shop/sa/web]
Y
check "without a gateway the workload's author is told" eventually 15 translation_told workloadentry/far "no Gateway leads there"
check "and the entry's" eventually 15 translation_told serviceentry/inline "no Gateway leads there"
check "the gateway comes" lateen apply -n shop -f - <<Y
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: far, labels: {topology.istio.io/network: far}, annotations: {gateway.istio.io/service-account: hop}}
spec:
  gatewayClassName: istio-remote
  addresses: [{type: IPAddress, value: $(pod_ip hop- shop)}]
  listeners: [{name: cross-network, port: 15009, protocol: HBONE, tls: {mode: Passthrough}}]
Y
check "known to every proxy" lateen wait
check "the entry is in force" eventually 15 translation_told serviceentry/inline "as it is written"
translation_asked() { jq -r .authority "$WORK/gateway.json" | grep -cx "$1"; }
translation_far() { # until one of them went by the gateway, and all were served
  local i
  for i in $(seq 40); do
    [ "$(lateen exec -n a deploy/client -- curl -sS --max-time 20 -o /tmp/x -w '%{http_code}' http://240.3.0.1:8080/)" = 200 ] || { echo "request $i failed"; proxy_log n1 | tail -3; return 1; }
    [ "$(translation_asked wide.example.com:8080)" = 0 ] || return 0
  done
  echo "none of 40 went by the gateway"; return 1
}
check "of a service whose workload is on another network no request fails, and some go by the gateway" translation_far
translation_inline() { translation_call http://240.3.0.2:8080/ >/dev/null; [ "$(translation_asked inline.example.com:8080)" -gt 0 ]; }
check "endpoints of an entry are reached by the gateway" eventually 15 translation_inline
equal "each has a name of its own" "1 2" "$(proxy_page n1 /config_dump -f | jq -r '[.workloads[] | .uid | capture("ServiceEntry/shop/inline/network/(?<n>[0-9]+)/far$").n] | sort | join(" ")')"
check "all of that goes" bash -c "for o in workloadentry/far serviceentry/wide serviceentry/inline gateway/far; do '$LATEEN' --name $MESH delete \${o%/*} \${o#*/} -n shop || exit; done"

check "the hop goes" bash -c "for o in deployment/hop service/hop serviceaccount/hop gateway/hop; do '$LATEEN' --name $MESH delete \${o%/*} \${o#*/} -n shop || exit; done"
kill "${HOPS[@]}" 2>/dev/null
HOPS=()
