#!/usr/bin/env bash
# A node proxy is replaced under load without a refused connection: new connections and long-lived ones, on both nodes. A
# successor that does not start changes nothing. A killed proxy refuses, never hangs; no request fails once its successor serves,
# and what it had open is counted and named.
source "$(dirname "$0")/lib.sh"

check "up" lateen up --nodes 2
check "apply echo and client" lateen apply -f "$ROOT/samples/echo/echo.yaml"
check "enrol" lateen label ns default istio.io/dataplane-mode=ambient
check "ready, captured" lateen wait deployment/echo deployment/client
check "known to every proxy" lateen wait

load() { # SECONDS FILE FLAGS...
  local seconds=$1 file=$2; shift 2
  lateen exec deploy/client -- lateen-load run --url "http://echo:8080/?size=77" --warmup 0s --timeout 15s --duration "${seconds}s" --json - "$@" >"$file" 2>/dev/null
}
counts() { jq -r '"\(.counts.failed) \(.counts.unsent) \(.counts.unanswered)"' "$1"; }

# Hand-over. The long-lived connections idle for most of the time, as those do that suffer most from an upgrade.
before=$(proxy_pid n1),$(proxy_pid n2)
load 27 "$WORK/long.json" --qps 20 --connections 4 & LONG=$!
eventually 30 client_has_open 4 >/dev/null || not_ok "the long-lived connections are not opened"
load 24 "$WORK/new.json" --qps 150 --connections 8 --no-keepalive & NEW=$!
eventually 30 has_tunnelled >/dev/null || not_ok "the new connections do not begin"
check "replace the proxy of the client's node" lateen proxy replace n1 --drain 60s
sleep 1
check "replace the proxy of the server's node" lateen proxy replace n2 --drain 60s
sleep 1
# Both have connections that go on: they are at work, and drain, at once.
drains() { # NODE PID
  lateen status -o json | jq -e --arg n "$1" --argjson p "$2" '.nodes[] | select(.name == $n).proxy.draining[] | select(.pid == $p) | .connections > 0 and .until > .since' &&
    lateen status | found -E "^ *$1 +$2 +[1-9][0-9]* +[0-9]+[smh] ago +20"
}
check "status shows the client's that drains" eventually 15 drains n1 "${before%,*}"
check "and the server's" eventually 15 drains n2 "${before#*,}"
check_not "a successor that does not start is refused" lateen proxy replace n1 --binary /bin/true
printf '%s\n' '#!/bin/sh' 'echo first >&2' 'echo "error: no such setting" >&2' 'echo "note: see the manual" >&2' 'exit 3' >"$WORK/failing"
chmod +x "$WORK/failing"
said=$(lateen proxy replace n1 --binary "$WORK/failing" 2>&1 | grep '^error:')
equal "the reason of one that says why is one line" "error: the node proxy of n1 was not replaced: the new process ended before it was ready: it exited with code 3: error: no such setting" "$said"
check "and status does not show it among those that drain" eventually 15 bash -c "'$LATEEN' --name '$MESH' status -o json | jq -e --argjson old '[$before]' '[.nodes[].proxy | .draining[]?.pid] - \$old == []'"
check "replace both once more" lateen proxy replace n2 --drain 60s
check "and the other" lateen proxy replace n1 --drain 60s
wait $NEW $LONG
equal "of new connections all through the replacements none was refused or failed" "0 0 0" "$(counts "$WORK/new.json")"
check "they were many ($(jq .counts.ok "$WORK/new.json"))" [ "$(jq .counts.ok "$WORK/new.json")" -gt 1000 ]
equal "long-lived connections went on" "0 0 0" "$(counts "$WORK/long.json")"
equal "on the connections that were open before" 4 "$(jq .counts.connections_opened "$WORK/long.json")"
check "each node has another process" [ "$before" != "$(proxy_pid n1),$(proxy_pid n2)" ]
ended() { [ "$(grep -c "the process that was replaced has ended" "$RUN/engine.log")" = 4 ]; }
check "the old processes end with their last connections" eventually 30 ended
quiet() { lateen status -o json | jq -e '[.nodes[].proxy.draining[]?] == []' && ! lateen status | found "still drain"; }
check "and status forgets them" eventually 15 quiet

# The deadline: what outlives it is cut, with its reason in the log and in a counter.
load 15 "$WORK/cut.json" --qps 20 --connections 4 & CUT=$!
eventually 30 client_has_open 4 >/dev/null || not_ok "the connections that are to be cut are not opened"
sleep 1
check "replace with a short drain and wait for the end" lateen proxy replace n1 --drain 2s --wait
wait $CUT
check "connections beyond the deadline are cut with a named reason" eventually 15 grep -q 'error="connection closed due to connection drain' "$RUN/nodes/n1/proxy.log"

# Killed, with nobody to take over.
lost() { in_node n2 curl -s http://127.0.0.1:15014/metrics | awk '/^lateen_agent_connections_lost_total\{direction="inbound"\}/ {print $2}'; }
none_lost() { [ "$(lost)" = 0 ]; }
eventually 15 none_lost >/dev/null # nobody answers while an agent is late
equal "nothing is lost so far" 0 "$(lost)"
load 8 "$WORK/killed.json" --qps 100 --connections 4 & LOAD=$!
eventually 30 client_has_open 4 >/dev/null || not_ok "the connections that are to be lost are not opened"
sleep 2
kill -KILL "$(proxy_pid n2)"
wait $LOAD
counted() { [ "$(lost)" -ge 1 ]; }
eventually 15 counted >/dev/null
check "lost connections are counted ($(lost))" [ "$(lost)" -ge 1 ]
check "and named" eventually 15 grep -q 'connections lost with the node proxy that was killed.*pod=default/echo-' "$RUN/nodes/n2/agent.log"
serves() { load 1 "$WORK/serves.json" --qps 5 --connections 1 && [ "$(counts "$WORK/serves.json")" = "0 0 0" ]; }
check "the service is back" eventually 30 serves
load 2 "$WORK/after.json" --qps 100 --connections 4
equal "and no request fails from then on" "0 0 0" "$(counts "$WORK/after.json")"
equal "nothing hung" 0 "$(jq '.counts.unanswered' "$WORK/killed.json")"
finish
