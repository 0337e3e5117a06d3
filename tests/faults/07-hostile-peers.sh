#!/usr/bin/env bash
# Peers with good certificates that abuse HTTP/2 against a proxy under load: each is thrown out with a named reason or
# harmless, the proxy's memory stays bounded, and a neighbour on the same node loses nothing.
# bites: a flood that ends for another reason than its own is not counted under its name: seen red with a CONTINUATION flood
# whose header block was malformed. Without the guard (crates/hbone/src/guard.rs) or the budgets it has not been tried.
source "$(dirname "$0")/lib.sh"
mesh
ip=$(pod_ip echo-)
CA_CERT=$(ls "$RUN"/control/ca/*cert*.pem "$RUN"/control/*cert*.pem 2>/dev/null | head -1)
CA_KEY=$(ls "$RUN"/control/ca/*key*.pem "$RUN"/control/*key*.pem 2>/dev/null | head -1)
flood() { in_node n1 timeout 20 "$TOOLS/flood" -ca-cert "$CA_CERT" -ca-key "$CA_KEY" -connect "$ip:15008" -authority "$ip:8080" -kind "$@"; }
rss() { awk '/^VmRSS/ {print $2}' "/proc/$victim/status"; }
peak() { awk '/^VmHWM/ {print $2}' "/proc/$victim/status"; }
closed_for() { proxy_metrics n2 | awk -v r="reason=\"$1\"" '/^lateen_tunnels_closed_total/ && index($0, r) {n += $2} END {print n + 0}'; }

ask 3 "$WORK/warm" -mode keep -workers 4 -rate 200
victim=$(proxy_pid n2)
before=$(rss)
# Every peer's memory has a bound; all of these together may cost this much, in KiB. The process' budgets are 64 MiB for
# what waits to be read and as much for what waits to be sent.
bound=$((160 * 1024))
ask 60 "$WORK/keep" -mode keep -workers 4 -rate 100 -timeout 10s & KEEP=$!
ask 60 "$WORK/new" -mode new -workers 4 -rate 40 -timeout 10s & NEW=$!
for row in rapid-reset:rapid_reset continuation:header_flood settings:settings_flood ping:ping_flood window:window_update_flood empty-data:empty_data; do
  kind=${row%:*} reason=${row#*:}
  said=$(flood "$kind" -limit 12s 2>&1)
  equal "$kind: the peer is thrown out ($(cut -c1-80 <<<"$said"))" 0 $?
  counted() { [ "$(closed_for "$reason")" -ge 1 ]; }
  check "$kind: counted as $reason" eventually 5 counted
done
flood window-overflow -limit 5s >"$WORK/overflow" 2>&1
equal "window-overflow: the peer is thrown out" 0 $?
flood streams -limit 6s >"$WORK/streams" 2>&1
check "streams: thrown out or held to the limit" [ $? = 0 -o $? = 4 ]
for _ in 1 2 3 4; do flood unread -limit 4s >/dev/null 2>&1 & FLOODS+=("$!"); done
wait "${FLOODS[@]}"
end $KEEP $NEW
equal "the same process serves" "$victim" "$(proxy_pid n2)"
grown=$(($(peak) - before))
check "memory is bounded: $before KiB before, $(peak) KiB at its peak, $(rss) KiB now" [ "$grown" -le "$bound" ]
equal "a neighbour on kept connections lost nothing ($(jq -c .counts "$WORK/keep"))" 0 "$(failed "$WORK/keep")"
equal "nor one on new ones ($(jq -c .counts "$WORK/new"))" 0 "$(failed "$WORK/new")"
check "each has its line in the log" bash -c "[ \$(grep -cE 'resets requests before|headers come in too many|too many settings|too many pings|window updates than|data frames without' '$RUN/nodes/n2/proxy.log') -ge 6 ]"
finish
