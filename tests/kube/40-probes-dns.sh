#!/usr/bin/env bash
# What captured pods take for granted: the kubelet's probes reach them under STRICT and a policy that admits nobody, and
# names resolve as before, with those of the mesh among them.
source "$(dirname "$0")/lib.sh"
check "echo servers and clients in the mesh" echo_in probes istio.io/dataplane-mode=ambient
check "STRICT, and nobody is allowed" k apply -f - <<'Y'
apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {name: default, namespace: probes}
spec: {mtls: {mode: STRICT}}
---
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: nobody, namespace: probes}
spec: {}
Y
IP2=$(pod_ip probes "$(pod_on probes app=echo node2)")
refused() { [ "$(code probes/client1 "http://$IP2:8080/")" = 000 ]; }
check "which the client sees" eventually 60 refused
check "a pod with every kind of probe" k -n probes apply -f - <<'Y'
apiVersion: v1
kind: Pod
metadata: {name: probed, labels: {app: probed}}
spec:
  terminationGracePeriodSeconds: 0
  nodeSelector: {lateen.dev/node-index: "2"}
  containers:
    - name: echo
      image: docker.io/local/echo:1
      imagePullPolicy: Never
      startupProbe: {httpGet: {path: /ready, port: 8080}, periodSeconds: 1, timeoutSeconds: 20, failureThreshold: 100}
      readinessProbe: {tcpSocket: {port: 9000}, periodSeconds: 1, timeoutSeconds: 20, failureThreshold: 1}
      livenessProbe: {httpGet: {path: /ready, port: 8080}, periodSeconds: 1, timeoutSeconds: 20, failureThreshold: 2}
Y
check "becomes ready" k -n probes wait --for=condition=Ready pod/probed --timeout=120s
sleep 6
equal "and stays so, without a restart" "True 0" "$(k -n probes get pod probed -o jsonpath='{.status.conditions[?(@.type=="Ready")].status} {.status.containerStatuses[0].restartCount}')"
PROBED=$(pod_ip probes probed)
root_refused() { [ "$(in_node node2 curl -s -o /dev/null -w '%{http_code}' --max-time 30 "http://$PROBED:8080/")" = 000 ]; }
check "while root on its node is refused" eventually 60 root_refused
check "the servers are ready as well" k -n probes wait --for=condition=Ready pod -l app=echo --timeout=120s
check "the policies go" k -n probes delete authorizationpolicy/nobody peerauthentication/default

lookup() { k -n probes exec client1 -- nslookup "$1"; }
shows() { local out; out=$(lookup "$1"); grep -qw "Address.*$2" <<<"$out" || { echo "$out"; return 1; }; }
VIP=$(service_ip probes echo)
check "a Service by its full name" eventually 60 shows echo.probes.svc.cluster.local "$VIP"
served() { get probes/client1 http://echo/; }
check "and by its short one" eventually 60 served
check "a Service outside the mesh" shows kubernetes.default.svc.cluster.local 10.96.0.1
check_not "a name that nobody knows" lookup nobody.probes.svc.cluster.local
check "a name of the mesh's own" k -n probes apply -f - <<'Y'
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: outside}
spec:
  hosts: [api.example.com]
  addresses: [240.1.0.1]
  resolution: STATIC
  location: MESH_EXTERNAL
  ports: [{number: 80, name: http, protocol: HTTP}]
  endpoints: [{address: 10.1.2.3}]
Y
check "is resolved in captured pods" eventually 60 shows api.example.com 240.1.0.1
check "a pod outside asks for it, and for a name that it knows" k -n kube-system run asker --restart=Never --image=docker.io/local/echo:1 --image-pull-policy=Never --command -- \
  sh -c 'nslookup kubernetes.default.svc.cluster.local; nslookup api.example.com; echo asked-both'
check "and ends" k -n kube-system wait --for=jsonpath='{.status.phase}'=Succeeded pod/asker --timeout=120s
elsewhere() { local out; out=$(k -n kube-system logs asker) && grep -q asked-both <<<"$out" && grep -qw 'Address.*10\.96\.0\.1' <<<"$out" && ! grep -q 240.1.0.1 <<<"$out" || { echo "$out"; return 1; }; }
check "it is not resolved there" eventually 30 elsewhere
k -n kube-system delete pod asker --wait=false >/dev/null
k delete namespace probes --wait=false >/dev/null
finish
