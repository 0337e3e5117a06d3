#!/usr/bin/env bash
# A mesh that is not left alone for SOAK_SECONDS (600), under load on kept and on new connections. In the first half every
# part is killed and proxies are replaced; in the second no process ends, so that it has an age at which a leak shows, while
# pods come and go, a namespace joins and leaves, policies change and certificates live seconds throughout. The verdict:
# - each failed request lies in a window of an event that explains failures of its kind on connections of its sort;
# - a line through each process' memory and descriptors in the second half does not rise as a leak would;
# - no warning or error in a log that tests/soak/expected.txt does not explain.
# SOAK_REPORT names a file for the figures.
# bites: let the proxy leak 1 KiB for each outbound connection (mem::forget in crates/proxy/src/node/outbound.rs): 107 KiB a
# second in 90 s of soak. Seen red so.
export TZ=UTC
source "$(dirname "$0")/../faults/lib.sh"
source "$(dirname "$0")/verdict.sh"
seconds=${SOAK_SECONDS:-600}
half=$((seconds / 2))
rate=100 # new connections a second
mesh --cert-ttl 20s
check "three replicas" lateen scale deployment/echo --replicas 3
check "bystanders, which join and leave the mesh" lateen apply -f - <<'Y'
apiVersion: v1
kind: Namespace
metadata: {name: churn}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: bystander, namespace: churn}
spec:
  replicas: 2
  selector: {matchLabels: {app: bystander}}
  template:
    metadata: {labels: {app: bystander}}
    spec:
      terminationGracePeriodSeconds: 1
      containers: [{name: main, image: none, command: [sleep, infinity]}]
Y
check "ready" lateen wait deployment/echo
[ "$failed" = 0 ] || finish # there is nothing to soak

ask $((seconds + 120)) "$WORK/keep" -mode keep -workers 4 -rate 50 & KEEP=$!
ask $((seconds + 120)) "$WORK/new" -mode new -workers 8 -rate $rate & NEW=$!
began=$SECONDS
: >"$WORK/samples"
# ready PID: how many sockets a proxy has ready to dial from, in all pods and in the pod that has most (crates/netns/src/socket_pool.rs).
ready() { "$TOOLS/sockets" "$1" 2>/dev/null | awk '$4 == "NEW" {all++; if (++n[$1, $3] > most) most = n[$1, $3]} END {print all + 0, most + 0}'; }
# One line for each part: SECOND PART PID RSS-KIB FDS READY, READY the most that one pod has; they are not among the FDS.
sample() {
  local at=$((SECONDS - began)) part pid all most
  lateen status -o json 2>/dev/null | jq -r '"control \(.control.pid // 0)", (.nodes[] | "agent-\(.name) \(.agent.pid // 0)", "proxy-\(.name) \(.proxy.pid // 0)")' | { cat; echo "engine $(engine_pid)"; } |
    while read -r part pid; do
      [ "$pid" -gt 1 ] && [ -r "/proc/$pid/status" ] || continue
      all=0 most=0
      [[ $part != proxy-* ]] || read -r all most < <(ready "$pid")
      echo "$at $part $pid $(awk '/^VmRSS/ {print $2}' "/proc/$pid/status") $(($(ls "/proc/$pid/fd" 2>/dev/null | wc -l) - all)) $most"
    done >>"$WORK/samples"
}
(while sleep 3; do sample; done) & SAMPLER=$!
# Looks at the clock; an event when that was not possible for two seconds.
(last=$(date +%s%3N); while sleep 0.2; do now=$(date +%s%3N); [ $((now - last)) -lt 2000 ] || echo "$last $now standstill" >>"$WORK/events"; last=$now; done) & CLOCK=$!

event() { # NAME COMMAND...: an event, and when it began and ended
  local name=$1 at; shift
  at=$(date +%s%3N)
  "$@" >"$WORK/event" 2>&1 || { not_ok "event $name"; tail -3 "$WORK/event" | sed 's/^/    /'; }
  echo "$at $(date +%s%3N) $name" >>"$WORK/events"
}
killed() { local pid; pid=$("$@"); kill -KILL "$pid" && another "$pid" "$@"; }
proxy_ready() { in_node "$1" curl -sf --max-time 1 http://127.0.0.1:15021/healthz/ready; }
killed_proxy() { killed proxy_pid "$1" && eventually 15 proxy_ready "$1"; }
policy() { jq -n --arg a "$1" --arg p "$2" '{apiVersion: "security.istio.io/v1", kind: "AuthorizationPolicy", metadata: {name: "soak", namespace: "default"}, spec: {action: $a, rules: [{from: [{source: {principals: [$p]}}]}]}}' | lateen apply -f -; }
echoes() { [ "$(lateen get pods -o json | jq '[.items[] | select(.metadata.name | startswith("echo-"))] | length')" = "$1" ]; }
# Until the pod has gone: what it kept ends with it.
scaled_down() { lateen scale deployment/echo --replicas 2 && eventually 20 echoes 2; }
scaled_up() { lateen scale deployment/echo --replicas 3 && lateen wait deployment/echo; }

# churn ROUND: what goes on throughout.
churn() {
  event scale-down scaled_down
  event bystanders lateen scale deployment/bystander -n churn --replicas $((2 + $1 % 2))
  event enrol lateen label ns churn istio.io/dataplane-mode=ambient
  event policy-deny-others policy DENY cluster.local/ns/default/sa/nobody
  event scale-up scaled_up
  event policy-allow-client policy ALLOW cluster.local/ns/default/sa/client
  event delete-pod lateen delete pod "$(pod_of bystander churn)" -n churn
  sleep 1
  event policy-gone lateen delete authorizationpolicy soak
  event release lateen label ns churn istio.io/dataplane-mode-
}
round=0
while [ $((SECONDS - began)) -lt "$half" ]; do
  churn $round
  case $((round % 7)) in
    0) event kill-proxy killed_proxy n1 ;;
    1) event kill-control killed control_pid ;;
    2) event replace-proxy lateen proxy replace n2 --drain 3s --wait ;;
    3) event kill-agent killed agent_pid n1 ;;
    4) event kill-proxy killed_proxy n2 ;;
    5) event replace-proxy lateen proxy replace n1 --drain 3s --wait ;;
    6) event kill-agent killed agent_pid n2 ;;
  esac
  sleep 1
  round=$((round + 1))
done
restarted=$round
second_half=$((SECONDS - began)) second_half_at=$(date +%Y-%m-%dT%H:%M:%S)
while [ $((SECONDS - began)) -lt "$seconds" ]; do
  churn $round
  sleep 1
  round=$((round + 1))
done
sleep 2
kill $SAMPLER $CLOCK
end $KEEP $NEW

judge_requests
judge_growth
judge_logs
KEEP_LOGS=${KEEP_LOGS:-}; { figures; growth_table; } | tee "${SOAK_REPORT:-/dev/null}"
finish
