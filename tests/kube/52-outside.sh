#!/usr/bin/env bash
# The ends of the mesh: captured pods reach the API server as `kubernetes.default`, by name and token and with a watch that
# lasts; pods outside the mesh are not touched by anything that the mesh does on their node.
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
