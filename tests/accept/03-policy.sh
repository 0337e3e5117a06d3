#!/usr/bin/env bash
# L4 policy: a denied principal, plaintext to a STRICT workload; each refused, counted, explained in the access log.
source "$(dirname "$0")/lib.sh"

check "up" lateen up --nodes 2
check "apply echo and client" lateen apply -f "$ROOT/samples/echo/echo.yaml"
check "a client outside the mesh" lateen apply -f - <<'Y'
apiVersion: v1
kind: Namespace
metadata: {name: outside}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: stranger, namespace: outside}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: stranger, namespace: outside}
spec:
  replicas: 1
  selector: {matchLabels: {app: stranger}}
  template:
    metadata: {labels: {app: stranger}}
    spec:
      serviceAccountName: stranger
      containers:
        - {name: main, image: none, command: ["sleep", "infinity"]}
Y
ready() { lateen get pods -o json | jq -e '[.items[] | select(.status.conditions[]? | select(.type=="Ready" and .status=="True"))] | length >= 2'; }
known() { ready && lateen wait -n outside deployment/stranger; }
check "ready" eventually 60 known
check "enrol default" lateen label ns default istio.io/dataplane-mode=ambient
client_node=$(node_of client) echo_node=$(node_of echo)
fetch() { lateen exec deploy/client -- curl -sS --max-time 15 http://echo:8080/ -o /dev/null -w '%{http_code}'; }
stranger() { lateen exec -n outside deploy/stranger -- curl -sS --max-time 15 http://echo.default:8080/ -o /dev/null -w '%{http_code}'; }
meshed() { fetch >/dev/null && proxy_log "$echo_node" | grep 'direction="inbound"' | found 'src.identity="spiffe://cluster.local/ns/default/sa/client"'; }
check "meshed" eventually 20 meshed
equal "PERMISSIVE: a client outside the mesh is served" 200 "$(stranger)"

check "STRICT" lateen apply -f - <<'Y'
apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {name: default, namespace: default}
spec: {mtls: {mode: STRICT}}
Y
# The policy is in force first: a client may fail for another reason, and its refusal would then be sought in vain.
refused() { lateen wait peerauthentication/default && ! stranger; }
check "STRICT: plaintext is refused" eventually 30 refused
equal "STRICT: the mesh client is served" 200 "$(fetch)"
plain_line() { proxy_log "$echo_node" | grep 'direction="inbound"' | found 'error=.*policy rejection'; }
check "the refusal of plaintext is explained in the access log" eventually 30 plain_line
plain_metric() { proxy_metrics "$echo_node" | grep '^istio_tcp_connections' | grep 'response_flags="DENY"' | found 'reporter="destination"'; }
check "and counted" eventually 30 plain_metric

check "deny the client's principal" lateen apply -f - <<'Y'
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: no-client, namespace: default}
spec:
  selector: {matchLabels: {app: echo}}
  action: DENY
  rules:
    - from: [{source: {principals: ["cluster.local/ns/default/sa/client"]}}]
Y
denied() { lateen wait authorizationpolicy/no-client && ! fetch; }
check "the denied principal is refused" eventually 30 denied
deny_line() { proxy_log "$echo_node" | grep 'direction="inbound"' | grep 'src.identity="spiffe://cluster.local/ns/default/sa/client"' | found 'default/no-client'; }
check "the refusal names the policy in the server's access log" eventually 30 deny_line
client_line() { proxy_log "$client_node" | grep 'direction="outbound"' | found 'error=.*401'; }
check "and is an error in the client's" eventually 30 client_line

check "an L7 rule fails closed" lateen apply -f - <<'Y'
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: no-client, namespace: default}
spec:
  selector: {matchLabels: {app: echo}}
  action: ALLOW
  rules:
    - to: [{operation: {methods: ["GET"]}}]
Y
# The policy that it replaces denies as well. What is said of an object is about its present version.
told() { lateen get authorizationpolicy no-client -o json | jq -e '[.. | .conditions? // empty | .[]? | .message // ""] | any(test("L7|HTTP|waypoint"; "i"))'; }
in_force() { told && lateen wait; }
eventually 30 in_force >/dev/null || not_ok "the policy is not in force"
check_not "ALLOW with only L7 attributes admits nobody" fetch
check "its condition says so" eventually 15 told
check "delete the policy" lateen delete authorizationpolicy no-client
served() { [ "$(fetch)" = 200 ]; }
check "served again" eventually 30 served
finish
