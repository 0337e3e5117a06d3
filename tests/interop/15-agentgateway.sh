#!/usr/bin/env bash
# An unmodified agentgateway is the waypoint of services whose servers stand behind lateen-proxy and behind ztunnel: requests pass from
# behind either, tunnels are HBONE on both sides of it, and a policy of the server sees the waypoint's identity. AGENTGATEWAY names the
# program, which you build from its own sources.
# It reads services and pods from a file, and gets its certificate from an authority in its own pod (tests/mesh/certificates).
source "$(dirname "$0")/lib.sh"
AGENTGATEWAY=${AGENTGATEWAY:-}
if [ ! -x "$AGENTGATEWAY" ]; then
  echo "not ok - set AGENTGATEWAY to the path of an unmodified agentgateway: make interop ZTUNNEL=... AGENTGATEWAY=/path/to/agentgateway"
  echo "0 passed, 1 failed, 0 skipped"
  exit 1
fi
begin
# Pods see the manifest's directory by a mount. Nobody else reaches its keys, since WORK is closed.
shown=$WORK/pod
mkdir -m 755 "$shown"
check "the authority builds" env -C "$ROOT" CGO_ENABLED=0 go build -trimpath -o "$shown/" ./tests/mesh/certificates
install -m 755 "$AGENTGATEWAY" "$shown/agentgateway"
install -m 644 "$RUN/control/root-cert.pem" "$RUN/control/root-key.pem" "$shown/"

# Without a control plane of its own it takes itself for the waypoint default of the namespace default.
{
  cat <<'Y'
config:
  namespace: default
  serviceAccount: default
  trustDomain: cluster.local
  caAddress: http://127.0.0.1:15099
binds:
  - port: 15008
    tunnelProtocol: hboneWaypoint
    listeners: [{name: mesh, protocol: HBONE}]
workloads:
Y
  for s in ours ztunnel; do
    pod_json "server-$s" | jq -r '"  - {uid: \(.metadata.uid), name: \(.metadata.name), namespace: default, trustDomain: cluster.local, serviceAccount: server, workloadIps: [\(.status.podIP)], protocol: HBONE, services: {default/server-'$s'.default.svc.cluster.local: {\"8080\": 8080}}}"'
  done
  echo "services:"
  for s in ours ztunnel; do
    echo "  - {name: server-$s, namespace: default, hostname: server-$s.default.svc.cluster.local, vips: [/$(lateen get svc "server-$s" -o json | jq -r .spec.clusterIP)], ports: {\"8080\": 8080}, waypoint: {destination: default/default.default.svc.cluster.local, hboneMtlsPort: 15008}}"
  done
} >"$shown/config.yaml"
cat >"$shown/waypoint.yaml" <<'Y'
apiVersion: v1
kind: Service
metadata: {name: default, labels: {gateway.networking.k8s.io/gateway-name: default, gateway.istio.io/managed: istio.io-mesh-controller}}
spec: {selector: {gateway.networking.k8s.io/gateway-name: default}, ports: [{name: hbone, port: 15008}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: default}
spec:
  replicas: 1
  selector: {matchLabels: {gateway.networking.k8s.io/gateway-name: default}}
  template:
    metadata:
      labels:
        gateway.networking.k8s.io/gateway-name: default
        gateway.istio.io/managed: istio.io-mesh-controller
        networking.istio.io/tunnel: http
        istio.io/dataplane-mode: none
    spec:
      serviceAccountName: default
      terminationGracePeriodSeconds: 1
      containers:
        - name: istio-proxy
          image: agentgateway
          command:
            - sh
            - -c
            - cd /run/lateen/manifest && ./certificates -ca-cert root-cert.pem -ca-key root-key.pem -identity spiffe://cluster.local/ns/default/sa/default & exec /run/lateen/manifest/agentgateway --file /run/lateen/manifest/config.yaml
          readinessProbe: {tcpSocket: {port: 15008}, periodSeconds: 1}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: default, labels: {istio.io/waypoint-for: service}}
spec:
  gatewayClassName: istio-waypoint
  listeners: [{name: mesh, port: 15008, protocol: HBONE, allowedRoutes: {namespaces: {from: All}}}]
Y
check "an agentgateway as a waypoint" lateen apply -f "$shown/waypoint.yaml"
check "it runs" lateen wait deployment/default
bound_to() { lateen get svc "server-$1" -o json | jq -e '.status.conditions[]? | select(.type == "WaypointBound") | .status == "True"'; }
for s in ours ztunnel; do
  check "the service behind $s asks for it" lateen label svc "server-$s" istio.io/use-waypoint=default
  check "and is bound" eventually 60 bound_to $s
done
check "known to every proxy" lateen wait

# logged PATH: the waypoint has logged a request for it.
logged() { lateen logs deployment/default | found "http.path=$1 .*http.status=200"; }
passes() { [ "$(call "client-$1" "http://server-$2:8080/$3")" = 200 ]; }
for s in ours ztunnel; do
  for c in ours ztunnel; do
    check "a request from behind $c to a server behind $s passes" eventually 10 passes $c $s "from-$c-to-$s"
    check "through the agentgateway" eventually 5 logged "/from-$c-to-$s"
  done
  large() { [ "$(lateen exec "deploy/client-$s" -- curl -sS --max-time 20 "http://server-$s:8080/?size=4194304" | wc -c)" = 4194304 ]; }
  check "an answer of 4 MiB passes" large
done

# A server that admits the waypoint alone.
check "a policy for the waypoint's identity alone" lateen apply -f - <<'Y'
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: by-the-waypoint}
spec:
  action: ALLOW
  rules: [{from: [{source: {principals: [cluster.local/ns/default/sa/default]}}]}]
Y
check "known to every proxy" lateen wait
refused() { ! passes "$1" "$2" straight; }
for s in ours ztunnel; do
  for c in ours ztunnel; do check "from behind $c a server behind $s still answers by the waypoint" eventually 10 passes $c $s "by-$c-to-$s"; done
  check "the service behind $s leaves it" lateen label svc "server-$s" istio.io/use-waypoint-
  for c in ours ztunnel; do check "from behind $c it answers nobody straight" eventually 10 refused $c $s; done
done
finish
