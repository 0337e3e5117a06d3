#!/usr/bin/env bash
# A deployment is rolled over under load, several times: no new connection fails, though every pod that served it is gone in
# the end. Peers are told to leave a pod's tunnels before its network goes.
source "$(dirname "$0")/lib.sh"

check "up" lateen up --nodes 2
check "apply echo and client" lateen apply -f "$ROOT/samples/echo/echo.yaml"
check "two replicas" lateen scale deployment/echo --replicas 2
check "enrol" lateen label ns default istio.io/dataplane-mode=ambient
check "ready, captured" lateen wait deployment/echo deployment/client
check "known to every proxy" lateen wait

pods() { lateen get pods -o json | jq -r '.items[].metadata.name | select(startswith("echo-"))' | sort; }
first=$(pods)
lateen exec deploy/client -- lateen-load run --url "http://echo:8080/?size=77" --qps 100 --connections 8 --no-keepalive --warmup 0s --timeout 15s --duration 30s --json - >"$WORK/load.json" 2>/dev/null & LOAD=$!
eventually 30 has_tunnelled >/dev/null || not_ok "the load does not begin"
roll() { # ROUND: what `kubectl rollout restart` does
  lateen get deployment echo -o json | jq --arg r "$1" 'del(.status, .metadata.resourceVersion, .metadata.uid, .metadata.creationTimestamp, .metadata.generation) | .spec.replicas = 2 | .spec.template.metadata.annotations["kubectl.kubernetes.io/restartedAt"] = $r' | lateen apply -f -
}
rolled() { local now; now=$(pods); [ "$(wc -l <<<"$now")" = 2 ] && [ -z "$(comm -12 <(echo "$1") <(echo "$now"))" ]; }
for round in 1 2 3; do
  old=$(pods)
  check "roll over, round $round" roll "$round"
  check "every pod is another one" eventually 30 rolled "$old"
done
wait $LOAD
equal "no request failed, waited in vain or was left unsent" "0 0 0" "$(jq -r '"\(.counts.failed) \(.counts.unsent) \(.counts.unanswered)"' "$WORK/load.json")"
check "they were many ($(jq .counts.ok "$WORK/load.json"))" [ "$(jq .counts.ok "$WORK/load.json")" -gt 1000 ]
check "the pods that served first are gone" [ -z "$(comm -12 <(echo "$first") <(pods))" ]
check "peers were told to leave the tunnels of pods that were being deleted" eventually 15 grep -q "a pod is being deleted" "$RUN/nodes/n2/proxy.log"
finish
