#!/usr/bin/env bash
# The ends of the mesh: captured pods reach the API server as `kubernetes.default`, by name and token and with a watch that
# lasts; pods outside the mesh are not touched by anything that the mesh does on their node; over the network the mesh's parts tell
# monitoring and probes what they need and nobody anything else, and a pod gets no certificate for itself.
# bites: a label that enrols the namespace outside changes its pods' networks. Seen red so.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/faults.sh"
stage

SERVER=$(k -n default get service kubernetes -o jsonpath='{.spec.clusterIP}')
TOKEN=$(k -n faults exec client1 -- cat /var/run/secrets/kubernetes.io/serviceaccount/token)
equal "the Service is where pods look for it" "$SERVER" "$(k -n faults exec client1 -- sh -c 'echo $KUBERNETES_SERVICE_HOST')"
# The certificate is the server's own: nobody stands between.
api() { # NETNS PATH CURL-OPTIONS...
  in_netns "$1" curl -sS -N --cacert "$RUN/pki/ca.crt" --resolve "kubernetes.default.svc:443:$SERVER" -H "Authorization: Bearer $TOKEN" "${@:3}" "https://kubernetes.default.svc$2"
}
version() { api "$1" /version --max-time 30 | found gitVersion; }
check "it answers a captured pod on node1" version "$NS1"
check "on node2" version "$NS2"
check "and a pod outside" version "$OUT1"
equal "it knows a captured pod by its token" system:serviceaccount:faults:client "$(api "$NS1" /apis/authentication.k8s.io/v1/selfsubjectreviews --max-time 30 \
  -H 'Content-Type: application/json' -d '{"kind": "SelfSubjectReview", "apiVersion": "authentication.k8s.io/v1"}' | jq -r .status.userInfo.username)"
name() { k -n faults exec client1 -- nslookup "$1" | found -w "Address.*$SERVER"; }
check "kubernetes.default is its name" name kubernetes.default.svc.cluster.local

# The doors of the mesh's own parts: monitoring and probes come over the network, and nothing about the mesh is told there.
CONTROL=$(k -n lateen-system get pods -l app=lateen-control -o jsonpath='{.items[0].status.podIP}')
NODE=$(field faults client1 .status.hostIP) PROXY=$(pod_ip lateen-system "$(pod_on lateen-system app=lateen-node node1)")
k -n lateen-system create token lateen-node --audience istio-ca >"$WORK/node-token"
answers() { in_netns "$1" curl -s -o "$WORK/page" -w '%{http_code}' --max-time 10 --path-as-is -H "Authorization: Bearer $(cat "$WORK/node-token")" "http://$2"; }
for of in "$CONTROL:15014/metrics" "$CONTROL:15014/ready" "$NODE:15014/metrics" "$PROXY:15020/metrics" "$PROXY:15021/healthz/ready"; do
  equal "a pod outside reads $of" 200 "$(answers "$OUT1" "$of")"
done
for page in / /debug/objects /debug/clients /debug/resources /debug/ca /debug/replicas /metrics/../debug/ca; do
  equal "and not the control plane's $page, with whatever token" 403 "$(answers "$OUT1" "$CONTROL:15014$page")"
done
for of in "$CONTROL:15000" "$CONTROL:15020" "$NODE:15000" "$PROXY:15000" "$IP1:15000" "$IP1:15014" "$IP1:15020" "$IP1:15021"; do
  for from in "$OUT1" "$NS2"; do check_not "nobody tells anything at $of" [ "$(answers "$from" "$of/config_dump")" = 200 ]; done
done
for of in "$NODE:15014/v1/status" "$NODE:15014/debug/pprof/" "$PROXY:15020/config_dump" "$PROXY:15020/connections" "$PROXY:15020/logging" "$PROXY:15021/config_dump"; do
  check_not "nor at $of" [ "$(answers "$OUT1" "$of")" = 200 ]
done
check "by port-forward the control plane's pages are read" lateen ca status

# A pod that asks for itself gets nothing, whatever token it mounts.
(cd "$ROOT" && go build -o "$WORK/" ./tests/mesh/askcert) || not_ok "askcert builds"
k -n faults get configmap istio-ca-root-cert -o jsonpath='{.data.root-cert\.pem}' >"$WORK/root.pem"
k -n faults create token client --audience istio-ca --bound-object-kind Pod --bound-object-name client1 --bound-object-uid "$(field faults client1 .metadata.uid)" >"$WORK/token"
why=$(in_netns "$OUT1" "$WORK/askcert" -address "$CONTROL:15012" -server-name lateen-control.lateen-system.svc -root "$WORK/root.pem" -token-file "$WORK/token" -own -identity spiffe://cluster.local/ns/faults/sa/client 2>&1)
if grep -q 'PermissionDenied.*--own-identity-accounts' <<<"$why"; then ok "a pod gets no certificate in its own name: $why"; else not_ok "a pod gets no certificate in its own name: $why"; fi

# A watch, as controllers in the mesh have them.
k create rolebinding watches --clusterrole=view --serviceaccount=faults:client -n faults >/dev/null
allowed() { api "$NS1" /api/v1/namespaces/faults/configmaps --max-time 30 | found ConfigMapList; }
check "it may watch" eventually 60 allowed
api "$NS1" '/api/v1/namespaces/faults/configmaps?watch=true&timeoutSeconds=300' >"$WORK/watch" 2>"$WORK/watch.err" &
WATCHER=$!
began() { [ -s "$WORK/watch" ]; }
check "a watch begins" eventually 60 began

# What the mesh does to its own pods, it does beside those that are not its own.
check "pods of the mesh are released" k label namespace faults istio.io/dataplane-mode-
check "all of them" eventually 60 captured faults 0
check "and captured again" k label namespace faults istio.io/dataplane-mode=ambient
check "all of them" eventually 60 captured faults 4
check "a pod outside is labelled, for something else" k -n outside label pod client1 istio.io/dataplane-mode=none
k -n outside label pod client1 istio.io/dataplane-mode- >/dev/null
check "nothing has changed in the pods outside" untouched
check "no rule of the mesh is in them" no_rules outside/client1
k -n faults create configmap told --from-literal=a=b >/dev/null
told() { grep -q '"name":"told"' "$WORK/watch"; }
check "the watch that began before tells of what happens now" eventually 60 told
# The job is a shell; a watch that outlives it would keep a node proxy that is replaced.
pkill -P "$WATCHER"; wait "$WATCHER" 2>/dev/null
k -n faults delete configmap/told rolebinding/watches >/dev/null
finish
