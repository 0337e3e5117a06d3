#!/usr/bin/env bash
# A mesh that is not left alone for SOAK_SECONDS (600): pods come and go, labels flip, certificates live seconds, policies
# change, every part is restarted and proxies are replaced, under load on kept and new connections. The verdict: memory and
# descriptors flat, every failed request within the window of an event that may cost requests (a killed proxy; on kept
# connections the end of a drain or of a pod), no warning or error in a log that tests/soak/expected.txt does not explain. SOAK_REPORT names a file for the table.
source "$(dirname "$0")/../faults/lib.sh"
seconds=${SOAK_SECONDS:-600}
# What a killed proxy may cost, in milliseconds from the kill.
window=3000
# How long a replaced proxy may keep its connections, in milliseconds; then it cuts them.
drain=5000
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

ask $((seconds + 10)) "$WORK/keep" -mode keep -workers 4 -rate 50 & KEEP=$!
ask $((seconds + 10)) "$WORK/new" -mode new -workers 4 -rate 50 & NEW=$!
began=$SECONDS
: >"$WORK/samples"
sample() { # one line for each part: SECOND PART PID RSS-KIB FDS THREADS
  local at=$((SECONDS - began)) part pid
  lateen status -o json 2>/dev/null | jq -r '"control \(.control.pid // 0)", (.nodes[] | "agent-\(.name) \(.agent.pid // 0)", "proxy-\(.name) \(.proxy.pid // 0)")' | { cat; echo "engine $(engine_pid)"; } |
    while read -r part pid; do
      [ "$pid" -gt 1 ] && [ -r "/proc/$pid/status" ] || continue
      echo "$at $part $pid $(awk '/^VmRSS/ {print $2}' "/proc/$pid/status") $(ls "/proc/$pid/fd" 2>/dev/null | wc -l) $(awk '/^Threads/ {print $2}' "/proc/$pid/status")"
    done >>"$WORK/samples"
}
(while sleep 5; do sample; done) & SAMPLER=$!

event() { # NAME COMMAND...: an event and when it was; those called kill-proxy may cost requests
  local name=$1 at; shift
  at=$(date +%s%3N)
  "$@" >"$WORK/event" 2>&1 || { not_ok "event $name"; tail -3 "$WORK/event" | sed 's/^/    /'; }
  echo "$at $(date +%s%3N) $name" >>"$WORK/events"
}
killed() { local pid; pid=$("$@"); kill -KILL "$pid" && another "$pid" "$@"; }
policy() { jq -n --arg a "$1" --arg p "$2" '{apiVersion: "security.istio.io/v1", kind: "AuthorizationPolicy", metadata: {name: "soak", namespace: "default"}, spec: {action: $a, rules: [{from: [{source: {principals: [$p]}}]}]}}' | lateen apply -f -; }
round=0
while [ $((SECONDS - began)) -lt "$seconds" ]; do
  event scale-down lateen scale deployment/echo --replicas 2
  event churn lateen scale deployment/bystander -n churn --replicas $((2 + round % 2))
  event enrol lateen label ns churn istio.io/dataplane-mode=ambient
  event policy-deny-others policy DENY cluster.local/ns/default/sa/nobody
  event replace-proxy-n1 lateen proxy replace n1 --drain 5s
  event scale-up lateen scale deployment/echo --replicas 3
  event policy-allow-client policy ALLOW cluster.local/ns/default/sa/client
  event replace-proxy-n2 lateen proxy replace n2 --drain 5s
  case $((round % 4)) in
    0) event kill-control killed control_pid ;;
    1) event kill-agent-n$((1 + round / 4 % 2)) killed agent_pid n$((1 + round / 4 % 2)) ;;
    2) event kill-proxy-n$((1 + round / 4 % 2)) killed proxy_pid n$((1 + round / 4 % 2)) ;;
    3) event delete-pod lateen delete pod "$(pod_of bystander churn)" -n churn ;;
  esac
  sleep 2
  event policy-gone lateen delete authorizationpolicy soak
  event release lateen label ns churn istio.io/dataplane-mode-
  round=$((round + 1))
done
kill $SAMPLER
wait $KEEP $NEW

# Requests: every failure lies in the window of a killed proxy, or, on kept connections, where
# a drain comes to its deadline or a pod ends.
unexplained() { # FILE DRAINS: failures outside of every window; DRAINS=1: kept connections, which a drain's deadline cuts
  awk -v window=$window -v drain=$drain -v drains="$2" 'NR == FNR {
      if ($3 ~ /^kill-proxy/) {from[++n] = $1; to[n] = $1 + window}
      if ($3 ~ /^replace-proxy/ && drains) {from[++n] = $2 + drain - 500; to[n] = $2 + drain + 1500}
      if ($3 == "scale-down" && drains) {from[++n] = $1; to[n] = $2 + 2500} # the pod that ends closes what it keeps
      next}
    {for (i = 1; i <= n; i++) if ($1 >= from[i] && $1 <= to[i]) next; print}' "$WORK/events" "$1"
}
{ unexplained "$WORK/keep.failures" 1; unexplained "$WORK/new.failures" 0; } | sort -n >"$WORK/strays"
served=$(($(count "$WORK/keep" served) + $(count "$WORK/new" served)))
failures=$(($(failed "$WORK/keep") + $(failed "$WORK/new")))
strays=$(wc -l <"$WORK/strays")
equal "of $served requests, through $(wc -l <"$WORK/events") events, $failures failed, each where a proxy was killed, its drain was over or a pod ended" 0 "$strays"
# What had just begun when the others failed.
awk 'NR == FNR {from[++n] = $1; name[n] = $3; next} {what = "the start"; for (i = 1; i <= n && from[i] <= $1; i++) what = name[i]; kinds[what " " $2]++} END {for (k in kinds) print "    " kinds[k], "after", k}' "$WORK/events" "$WORK/strays"

# Memory and descriptors: the medians of the last two quarters. Flat means that the last is at most a tenth and 4 MiB above
# the one before it: allocators and rounding need room, leaks under this load would need far more.
quarters() { # COLUMN: PART MEDIAN-OF-3RD MEDIAN-OF-4TH
  sort -k2,2 -k1,1n "$WORK/samples" | awk -v c="$1" -v end="$seconds" '
    function median(a, n,   i, j, t) {for (i = 2; i <= n; i++) {t = a[i]; for (j = i - 1; j > 0 && a[j] > t; j--) a[j + 1] = a[j]; a[j + 1] = t}; return n ? a[int((n + 1) / 2)] : 0}
    function flush() {if (part != "") print part, median(third, n3), median(fourth, n4)}
    $2 != part {flush(); part = $2; n3 = n4 = 0; delete third; delete fourth}
    $1 >= end / 2 && $1 < end * 3 / 4 {third[++n3] = $c}
    $1 >= end * 3 / 4 {fourth[++n4] = $c}
    END {flush()}'
}
{ echo "| part | RSS, third quarter | RSS, last quarter | descriptors, third | descriptors, last |"; echo "|---|---|---|---|---|"
  join <(quarters 4) <(quarters 5) | while read -r part r3 r4 f3 f4; do echo "| $part | $r3 KiB | $r4 KiB | $f3 | $f4 |"; done; } >"$WORK/table"
while read -r part before after; do
  check "memory of $part is flat: $before KiB, then $after KiB" [ "$after" -le $((before + before / 10 + 4096)) ]
done < <(quarters 4)
while read -r part before after; do
  check "descriptors of $part are flat: $before, then $after" [ "$after" -le $((before + before / 10 + 20)) ]
done < <(quarters 5)

# Logs: each line that is a warning or worse has a reason in the list.
grep -hE 'level=(WARN|ERROR)|(^|[^a-z])(WARN|warn|ERROR|error)[[:space:]]' "$RUN"/engine.log "$RUN"/control.log "$RUN"/nodes/*/*.log | grep -vE '(^|[[:space:]])info[[:space:]]|access' >"$WORK/warnings"
grep -vE -f <(grep -vE '^(#|$)' "$ROOT/tests/soak/expected.txt") "$WORK/warnings" >"$WORK/surprises"
equal "of $(wc -l <"$WORK/warnings") warnings none is unexplained" 0 "$(wc -l <"$WORK/surprises")"
sed -E 's/[0-9]+/N/g' "$WORK/surprises" | cut -c1-220 | sort | uniq -c | sort -rn | head -15
if [ -n "${SOAK_REPORT:-}" ]; then
  { echo "$seconds seconds, $round rounds, $(wc -l <"$WORK/events") events; $served requests served, $failures failed, $strays of them outside the windows of killed proxies, ended drains and ended pods."; echo; cat "$WORK/table"; } >"$SOAK_REPORT"
fi
cat "$WORK/table"
finish
