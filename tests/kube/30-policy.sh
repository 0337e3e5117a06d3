#!/usr/bin/env bash
# L4 policy on Kubernetes: STRICT refuses who is outside, a denied identity is refused with the policy's name in the log,
# what cannot be decided on L4 admits nobody, and policies of the root namespace hold everywhere.
source "$(dirname "$0")/lib.sh"
check "echo servers and clients in the mesh" echo_in policy istio.io/dataplane-mode=ambient
check "a client outside of it" bash -c "'$KUBE/k' create namespace stranger --dry-run=client -o yaml | '$KUBE/k' apply -f - && '$KUBE/k' -n stranger apply -f '$KUBE/manifests/echo.yaml' && '$KUBE/k' -n stranger wait --for=condition=Ready pod/client1 --timeout=120s"
IP2=$(pod_ip policy "$(pod_on policy app=echo node2)")
served() { [ "$(code policy/client1 "http://$IP2:8080/")" = 200 ]; }
refused() { [ "$(code policy/client1 "http://$IP2:8080/")" = 000 ]; }
stranger_served() { [ "$(code stranger/client1 "http://$IP2:8080/")" = 200 ]; }
stranger_refused() { [ "$(code stranger/client1 "http://$IP2:8080/")" = 000 ]; }
server_log() { k -n lateen-system logs "$(pod_on lateen-system app=lateen-node node2)" --tail=400; }
check "the client is served" eventually 60 served
check "PERMISSIVE: so is a stranger" eventually 60 stranger_served

check "STRICT" k apply -f - <<'Y'
apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {name: default, namespace: policy}
spec: {mtls: {mode: STRICT}}
Y
check "the stranger is refused" eventually 60 stranger_refused
check "the client is served still" served
strict_line() { server_log | grep 'direction="inbound"' | found 'error=.*policy rejection'; }
check "the refusal is in the server's access log" eventually 60 strict_line

check "the client's identity is denied" k apply -f - <<'Y'
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: no-client, namespace: policy}
spec:
  selector: {matchLabels: {app: echo}}
  action: DENY
  rules: [{from: [{source: {principals: ["cluster.local/ns/policy/sa/client"]}}]}]
Y
check "it is refused" eventually 60 refused
deny_line() { server_log | grep 'direction="inbound"' | grep 'src.identity="spiffe://cluster.local/ns/policy/sa/client"' | found 'policy/no-client'; }
check "the log names identity and policy" eventually 60 deny_line

check "ALLOW by an HTTP method, which L4 cannot see" k apply -f - <<'Y'
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: no-client, namespace: policy}
spec:
  selector: {matchLabels: {app: echo}}
  action: ALLOW
  rules: [{to: [{operation: {methods: [GET]}}]}]
Y
# The policy before it refuses the client as well, for another reason.
none_allowed() { refused && server_log | grep 'direction="inbound"' | grep 'src.identity="spiffe://cluster.local/ns/policy/sa/client"' | found 'none allowed'; }
check "takes the place of the denial" eventually 60 none_allowed
check "admits nobody" refused
check "the policies go" k -n policy delete authorizationpolicy/no-client peerauthentication/default
check "the client is served" eventually 60 served
check "and the stranger" eventually 60 stranger_served

check "a policy of the root namespace" bash -c "'$KUBE/k' create namespace istio-system --dry-run=client -o yaml | '$KUBE/k' apply -f - && '$KUBE/k' apply -f -" <<'Y'
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: only-9000, namespace: istio-system}
spec:
  action: DENY
  rules: [{to: [{operation: {ports: ["8080"]}}]}]
Y
check "holds in every namespace" eventually 60 refused
equal "for what it says alone" marker "$(in_pod policy/client1 timeout 30 bash -c "exec 3<>/dev/tcp/$IP2/9000; echo marker >&3; head -1 <&3")"
k -n istio-system delete authorizationpolicy only-9000 >/dev/null
check "and ends with it" eventually 60 served
check_not "what the kind's schema forbids is refused at once" k apply -f - <<'Y'
apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {name: wrong, namespace: policy}
spec: {mtls: {mode: SOMETIMES}}
Y
check "what the schema lets through and makes no sense is taken" k apply -f - <<'Y'
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: nonsense, namespace: policy}
spec: {action: DENY, selector: {matchLabels: {app: nobody}}, rules: [{from: [{source: {ipBlocks: ["10.0.0.0/99"]}}]}]}
Y
# told WORDS...: the command fails, and says so with the field and the fix.
told() { local said; ! said=$("$@" 2>&1) && grep -q 'ipBlocks\[0\].*write an address' <<<"$said" || { echo "$said"; return 1; }; }
check "lateen wait does not call it ready" eventually 30 told lateen wait -n policy authorizationpolicy/nonsense --timeout 20s
listed() { lateen status | grep 'policy/nonsense' | found 'ipBlocks\[0\].*write an address'; }
check "lateen status lists it with field and fix" eventually 60 listed
k delete namespace policy stranger --wait=false >/dev/null
finish
