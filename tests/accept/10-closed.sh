#!/usr/bin/env bash
# Closed when something is down: with the node proxies, the agents and the control plane killed under load, no captured
# pod's request crosses between the nodes in the clear, and no request that a policy denies is served.
# needs: tcpdump
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/capture.sh"

check "up" lateen up --nodes 2
check "apply echo and client" lateen apply -f "$ROOT/samples/echo/echo.yaml"
check "enrol" lateen label ns default istio.io/dataplane-mode=ambient
check "ready, captured, known to every proxy" lateen wait deployment/echo deployment/client
check "everything" lateen wait

# kill_parts kills processes by the pids that the engine reports now, so that it can mean no others. A part that does not run has the
# pid 0, which would mean this script's own group.
kill_parts() { lateen status -o json | jq -r "$1 | select(. > 1)" | while read -r pid; do kill -KILL "$pid"; done; }
restarted() { lateen status -o json | jq -e "$1" >/dev/null; }
serving() { [ "$(lateen exec deploy/client -- curl -sS --max-time 10 http://echo:8080/ -o /dev/null -w '%{http_code}' 2>/dev/null)" = 200 ]; }

capture "$WORK/all.pcap"
check "watching the wire" grep -q 'listening on' "$WORK/all.pcap.log"
load() { # SECONDS FILE: a new connection for each request
  lateen exec deploy/client -- lateen-load run --url "http://echo:8080/?size=77" --qps 200 --connections 8 --no-keepalive --warmup 0s --timeout 2s --duration "$1s" --json - >"$2" 2>/dev/null
}
load 20 "$WORK/load.json" & LOAD=$!
# The load ends at once where its first connections find nobody.
eventually 30 has_tunnelled >/dev/null || not_ok "the load does not begin"
for _ in 1 2 3; do sleep 2; kill_parts '.nodes[].proxy.pid'; done
sleep 2; kill_parts '.nodes[].agent.pid, .control.pid'
wait $LOAD
check "service is back" eventually 30 serving
end_capture "$WORK/all.pcap"
check "requests were served in between" [ "$(jq .counts.ok "$WORK/load.json")" -gt 500 ]
equal "no request crossed between the nodes in the clear" 0 "$(tcpdump -r "$WORK/all.pcap" -A 2>/dev/null | grep -c 'GET /?size=77')"
check "while the tunnel was in use" bash -c "tcpdump -r '$WORK/all.pcap' -n tcp port 15008 2>/dev/null | head -1 | grep -q ."

check "deny everything" lateen apply -f - <<'Y'
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: nobody, namespace: default}
spec: {action: DENY, rules: [{}]}
Y
denied() { lateen wait authorizationpolicy/nobody && ! serving; }
check "denied" eventually 30 denied
# curl by curl: the load generator gives up when its target answers nothing at all.
# It ends when all kills and rewrites are done, or after two minutes.
lateen exec deploy/client -- sh -c 'end=$(($(date +%s) + 120)); until [ -e /tmp/enough ] || [ "$(date +%s)" -ge $end ]; do curl -s --max-time 2 http://echo:8080/ -o /dev/null -w "%{http_code} %{time_total}\n"; done' >"$WORK/denied" & LOAD=$!
for _ in 1 2; do sleep 2; kill_parts '.nodes[].proxy.pid'; done
sleep 1; kill_parts '.control.pid'; sleep 1; kill_parts '.nodes[].proxy.pid, .nodes[].agent.pid, .control.pid'
# The same denial, written wider and narrower: at no moment is it gone.
for i in 1 2 3 4 5 6; do
  selector='{}'; [ $((i % 2)) = 0 ] || selector='{selector: {matchLabels: {app: echo}}}'
  jq -n --arg s "$selector" '{apiVersion: "security.istio.io/v1", kind: "AuthorizationPolicy", metadata: {name: "nobody", namespace: "default"}, spec: ({action: "DENY", rules: [{}]} + (if $s == "{}" then {} else {selector: {matchLabels: {app: "echo"}}} end))}' | lateen apply -f - >/dev/null 2>&1
  sleep 0.3
done
# A request that hangs is no refusal.
many() { [ "$(awk '$1 == "000" && $2 < 1' "$WORK/denied" | wc -l)" -gt 50 ]; }
eventually 60 many >/dev/null
lateen exec deploy/client -- touch /tmp/enough
wait $LOAD
equal "through kills and rewrites no denied request was served" 0 "$(grep -c '^200' "$WORK/denied")"
check "denied requests were made all the while ($(wc -l <"$WORK/denied"))" many
check "the proxies are back" eventually 30 restarted '[.nodes[].proxy.ready] | all'
check "delete the policy" lateen delete authorizationpolicy nobody
check "served again" eventually 30 serving
finish
