#!/usr/bin/env bash
# An unmodified ztunnel on one node and lateen-proxy on the other: traffic flows both ways, and a denied principal is denied on
# either.
source "$(dirname "$0")/lib.sh"

check "up with an unmodified ztunnel on n2" lateen up --nodes 2 --node-proxy "n2=$ZTUNNEL"
cat >"$WORK/pair.yaml" <<'Y'
apiVersion: v1
kind: ServiceAccount
metadata: {name: east}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: west}
---
apiVersion: v1
kind: Service
metadata: {name: east}
spec: {selector: {app: east}, ports: [{port: 8080}]}
---
apiVersion: v1
kind: Service
metadata: {name: west}
spec: {selector: {app: west}, ports: [{port: 8080}]}
Y
for side in east:n1 west:n2; do
  cat >>"$WORK/pair.yaml" <<Y
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: ${side%:*}}
spec:
  replicas: 1
  selector: {matchLabels: {app: ${side%:*}}}
  template:
    metadata: {labels: {app: ${side%:*}}}
    spec:
      serviceAccountName: ${side%:*}
      nodeSelector: {kubernetes.io/hostname: ${side#*:}}
      containers:
        - name: main
          image: lateen/echo:1
          command: ["lateen-load", "serve", "--listen", "0.0.0.0:8080"]
          readinessProbe: {httpGet: {path: /health, port: 8080}}
Y
done
check "a server and client on each node" lateen apply -f "$WORK/pair.yaml"
ready() { lateen get pods -o json | jq -e '[.items[] | select(.status.conditions[]? | select(.type=="Ready" and .status=="True"))] | length >= 2'; }
check "ready" eventually 60 ready
check "enrol" lateen label ns default istio.io/dataplane-mode=ambient
enrolled() { lateen get pods -o json | jq -e '[.items[] | select(.metadata.annotations["ambient.istio.io/redirection"] == "enabled")] | length >= 2'; }
check "captured on both nodes" eventually 30 enrolled
call() { lateen exec "deploy/$1" -- curl -sS --max-time 5 "http://$2:8080/?size=1024" -o /dev/null -w '%{http_code}'; }
tunnelled() { [ "$(call "$1" "$2")" = 200 ] && proxy_log "$3" | grep 'direction="inbound"' | found "src.identity=\"spiffe://cluster.local/ns/default/sa/$1\""; }
check "lateen-proxy to ztunnel" eventually 20 tunnelled east west n2
check "ztunnel to lateen-proxy" eventually 20 tunnelled west east n1
for side in east west; do
  check "large answers arrive whole from $side" bash -c "[ \$('$LATEEN' --name $MESH exec deploy/$([ $side = east ] && echo west || echo east) -- curl -sS --max-time 20 'http://$side:8080/?size=8000000' | wc -c) = 8000000 ]"
done

deny() { # SERVER CLIENT
  cat <<Y
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: deny-$2}
spec:
  selector: {matchLabels: {app: $1}}
  action: DENY
  rules: [{from: [{source: {principals: ["cluster.local/ns/default/sa/$2"]}}]}]
Y
}
refused() { ! [ "$(call "$1" "$2" 2>/dev/null)" = 200 ]; }
explained() { proxy_log "$1" | grep 'direction="inbound"' | found "default/deny-$2"; }
check "deny east at west (ztunnel decides)" lateen apply -f - < <(deny west east)
check "ztunnel refuses lateen-proxy's pod" eventually 10 refused east west
check "and explains it" eventually 5 explained n2 east
check "deny west at east (lateen-proxy decides)" lateen apply -f - < <(deny east west)
check "lateen-proxy refuses ztunnel's pod" eventually 10 refused west east
check "and explains it" eventually 5 explained n1 west
check "remove the policies" lateen delete authorizationpolicy deny-east deny-west
check "lateen-proxy to ztunnel again" eventually 10 bash -c "[ \"\$('$LATEEN' --name $MESH exec deploy/east -- curl -sS --max-time 5 http://west:8080/ -o /dev/null -w '%{http_code}')\" = 200 ]"

check "STRICT" lateen apply -f - <<'Y'
apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {name: default, namespace: istio-system}
spec: {mtls: {mode: STRICT}}
Y
plain() { in_node "$1" curl -sS --max-time 3 "http://$2:8080/" -o /dev/null; }
ip_of() { lateen get pods -o json | jq -r --arg p "$1" '.items[] | select(.metadata.name | startswith($p)) | .status.podIP'; }
strict() { ! plain "$1" "$(ip_of "$2")"; }
check "ztunnel refuses plaintext" eventually 10 strict n1 west
check "lateen-proxy refuses plaintext" eventually 10 strict n2 east
check "the mesh goes on under STRICT, east to west" tunnelled east west n2
check "the mesh goes on under STRICT, west to east" tunnelled west east n1
finish
