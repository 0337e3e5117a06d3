#!/usr/bin/env bash
# A node proxy is killed: its pods' new connections are refused at once, never left hanging and never in clear; none fails once
# its successor is ready; what it had open is counted and named.
# bites: let `sweep` and `closeOrphans` in internal/agent/listenerstore/socket_table.go keep sockets: nobody is refused, connections wait.
# Seen red so.
# bites: ledgers without a name (memory files alone): what dies with the agent is not counted. Seen red so.
source "$(dirname "$0")/lib.sh"
mesh
lost() { agent_metric "$1" "lateen_agent_connections_lost_total{direction=\"$2\"}"; }
connections=3
# met DIRECTION: a new connection has failed. The client's own proxy, if that was killed, leaves the client to the kernel, which refuses.
met() { if [ "$1" = outbound ]; then grep -q ' refused ' "$WORK/new.failures"; else [ -s "$WORK/new.failures" ]; fi; }

for side in client:n1:outbound server:n2:inbound; do
  IFS=: read -r whose node direction <<<"$side"
  before=$(lost "$node" "$direction")
  watch_wire
  rm -f "$WORK/new.failures"
  ask 120 "$WORK/keep" -mode keep -workers $connections -rate 60 -path "/?size=77&marker=in-the-clear" & KEEP=$!
  eventually 20 answered_on $connections >/dev/null
  ask 120 "$WORK/new" -mode new -workers 4 -rate 200 -path "/?size=77&marker=in-the-clear" & NEW=$!
  sleep 1.5
  pid=$(proxy_pid "$node")
  # The engine starts the next process, and on a busy machine askers may be late by more than that takes. It stands still until one of
  # them has met that nobody listens.
  engine=$(engine_pid)
  freeze "$engine" >/dev/null
  kill -KILL "$pid"
  eventually 20 met "$direction" >/dev/null
  kill -CONT "$engine"
  ready() { local now; now=$(proxy_pid "$node"); [ -n "$now" ] && [ "$now" != "$pid" ] && in_node "$node" curl -sf --max-time 1 http://127.0.0.1:15021/healthz/ready; }
  check "$whose: another process is ready" eventually 40 ready
  check "$whose: and serves" eventually 40 answers
  ask 2 "$WORK/after" -mode new -workers 4 -rate 200 -path "/?size=77&marker=in-the-clear"
  end $KEEP $NEW
  unwatch_wire
  if [ "$direction" = outbound ]; then
    check "$whose: new connections were refused ($(jq -c .counts "$WORK/new"))" [ "$(count "$WORK/new" refused)" -ge 1 ]
  else
    # The client's own proxy lives: it has taken the connection before it learns that nobody serves it.
    check "$whose: new connections failed ($(jq -c .counts "$WORK/new"))" [ "$(failed "$WORK/new")" -ge 1 ]
  fi
  equal "$whose: none hung" "0 0" "$(count "$WORK/new" timeout) $(count "$WORK/keep" timeout)"
  equal "$whose: none fails once the next process serves" 0 "$(failed "$WORK/after")"
  counted() { [ $(($(lost "$node" "$direction") - before)) -ge $connections ]; }
  check "$whose: lost connections are counted" eventually 30 counted
  check "$whose: and named" eventually 15 grep -q 'connections lost with the node proxy that was killed.*pod=default/' "$RUN/nodes/$node/agent.log"
  equal "$whose: nothing crossed in clear" 0 "$(in_clear 'marker=in-the-clear')"
  check "$whose: while the tunnel was in use" bash -c "tcpdump -r '$WORK/fabric.pcap' -n tcp port 15008 2>/dev/null | head -1 | grep -q ."
done

# Asked at the very moment that nobody listens: refused, not silent.
check "answers" eventually 30 answers
for round in 1 2 3; do
  # No successor comes before the askers are done: what hangs is not saved by it. 5 s are more than the node agent is late by.
  pid=$(proxy_pid n1)
  freeze "$engine" >/dev/null
  kill -KILL "$pid"
  ask 1 "$WORK/gone" -workers 4 -rate 100 -timeout 5s
  kill -CONT "$engine"
  check "dead, round $round: refused and nothing else ($(jq -c .counts "$WORK/gone"))" [ "$(count "$WORK/gone" timeout)" = 0 ]
  check "and served again" eventually 30 answers
done

# The agent, which would have noticed, dies at the same moment: what was lost stands in the node's directory.
ask 120 "$WORK/both" -mode keep -workers $connections -rate 60 & BOTH=$!
eventually 20 answered_on $connections >/dev/null
pid=$(proxy_pid n1) agent=$(agent_pid n1)
named() { agent_log n1 | grep -c 'connections lost with the node proxy that was killed.*pod=default/client-'; }
before=$(named)
kill -KILL "$agent" "$pid"
check "agent and proxy die together: another agent" another "$agent" agent_pid n1
check "and another proxy" another "$pid" proxy_pid n1
# The next agent begins to count at zero.
counted() { [ "$(lost n1 outbound)" -ge $connections ]; }
check "lost connections are counted all the same" eventually 30 counted
named_again() { [ "$(named)" -gt "$before" ]; }
check "and named" eventually 15 named_again
end $BOTH
check "served again" eventually 30 answers
# Each living proxy has one for each worker.
few() { [ "$(find "$RUN/nodes/n1/ledgers" -type f | wc -l)" -le "$(nproc)" ]; }
check "no ledger of a proxy that is gone stays" eventually 15 few
finish
