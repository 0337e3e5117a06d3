#!/usr/bin/env bash
# Whoever operates a mesh sees its connections while they happen: who, to whom, decided by which policy, and how busy pods are.
source "$(dirname "$0")/lib.sh"

check "up" lateen up --nodes 2
check "apply echo and client" lateen apply -f "$ROOT/samples/echo/echo.yaml"
check "enrol" lateen label ns default istio.io/dataplane-mode=ambient
check "ready, captured" lateen wait

get() { lateen exec deploy/client -- lateen-load run --url "http://echo:8080/?size=$1" --qps "$2" --connections 1 "${@:4}" --warmup 0s --timeout 15s --duration "$3" --json - >"$WORK/load.json" 2>/dev/null; }
seen() { jq -es "map(select($1)) | length > 0" "$WORK/$2" >/dev/null; }
watching() { [ "$(grep -c '"watching"' "$WORK/$1")" = 2 ]; }

"$LATEEN" --name "$MESH" tap -A -o json >"$WORK/all" 2>"$WORK/all.err" & TAP=$!
"$LATEEN" --name "$MESH" tap -A --denied -o json >"$WORK/denied" 2>&1 & DENIED=$!
"$LATEEN" --name "$MESH" tap deploy/client >"$WORK/people" 2>"$WORK/people.err" & PEOPLE=$!
check "both nodes are heard" eventually 30 watching all
check "and for denials" eventually 30 watching denied
check "requests are served" get 5000 20 1s --no-keepalive
out='.event == "closed" and .direction == "outbound" and .service == "echo.default.svc.cluster.local"'
check "the way out: the service, the pod behind it, both identities" eventually 30 seen "$out and .tunnelled and (.source.workload | startswith(\"client-\")) and (.destination.workload | startswith(\"echo-\")) and .destination.identity == \"spiffe://cluster.local/ns/default/sa/echo\" and .bytes.serverToClient > 5000 and .seconds > 0 and .error == null" all
check "the way in: the peer that TLS proved, and the tunnel" eventually 30 seen '.event == "closed" and .direction == "inbound" and .source.identity == "spiffe://cluster.local/ns/default/sa/client" and .tunnel > 0 and (.destination.address | endswith(":8080"))' all
check_not "nothing was denied so far" seen '.event == "closed"' denied

check "deny" lateen apply -f - <<'YAML'
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: nobody, namespace: default}
spec:
  selector: {matchLabels: {app: echo}}
  action: DENY
  rules: [{to: [{operation: {ports: ["8080"]}}]}]
YAML
check "in force" lateen wait authorizationpolicy/nobody
get 1 5 1s --no-keepalive
check "a denial names itself, its policy and the peer" eventually 30 seen '.flags == "DENY" and (.error | contains("nobody")) and .source.identity == "spiffe://cluster.local/ns/default/sa/client"' denied
check "its client's end is told as well" eventually 30 seen '.verdict == "denied by peer" and .direction == "outbound"' denied
check_not "and --denied shows nothing else" seen '.event == "closed" and .flags != "DENY" and (.deniedByPeer | not)' denied
check "allow again" lateen delete -n default AuthorizationPolicy/nobody
served() { lateen exec deploy/client -- curl -sf --max-time 15 -o /dev/null http://echo:8080/; }
check "in force" eventually 30 served

get 20000 200 15s & LOAD=$!
check "top: the busy pod has connections, bytes and time" eventually 30 bash -c "'$LATEEN' --name '$MESH' top --once -o json | jq -e 'map(select(.pod | startswith(\"echo-\"))) | .[0] | .open > 0 and .sentBytesPerSecond > 1e6 and .cpu > 0'"
check "top connections: with their rates" eventually 30 bash -c "'$LATEEN' --name '$MESH' top connections --once -o json | jq -e 'map(select(.direction == \"inbound\" and .bytesPerSecond.serverToClient > 1e6)) | length > 0'"
check "a table for people" bash -c "'$LATEEN' --name '$MESH' top --once | grep -q '^NAMESPACE .* CPU$'"
metrics() { in_node n2 curl -sf http://127.0.0.1:15020/metrics | found '^lateen_pod_cpu_seconds_total{namespace="default",pod="echo-'; }
check "each pod's time is a metric" eventually 15 metrics
wait $LOAD
check "people read lines under a heading" eventually 15 bash -c "head -1 '$WORK/people' | grep -q '^TIME .* REASON$' && grep -Eq ' outbound +default/client-[^ ]+ +echo.default:8080 +default/echo +ok ' '$WORK/people'"
check "one that lasts is shown before it ends" eventually 15 grep -Eq ' open ' "$WORK/people"
kill -TERM $PEOPLE; wait $PEOPLE
check "at the end it says what it saw, and what to do next" grep -q "ended: .* denied" "$WORK/people.err"

check_not "a pod that is not there is no pod to watch" lateen tap nowhere --for 1s
refused() { proxy_page n1 "/connections?only=everything" -o /dev/null -w '%{http_code}'; }
equal "a filter that does not exist is refused" 400 "$(refused)"
crowd() { for _ in 1 2 3 4 5 6 7 8 9 10; do proxy_page n1 "/connections?follow" -N --max-time 8 -o /dev/null -w '%{http_code}\n' & done; wait; }
check "those who watch are bounded" bash -c "[ $(crowd | grep -c 503) -ge 2 ]"
kill -TERM $TAP $DENIED; wait $TAP; equal "told to end, it ends in order" 0 $?
check "served as before" get 10 20 1s
equal "no request failed" 0 "$(jq .counts.failed "$WORK/load.json")"
finish
