#!/usr/bin/env bash
# Peers with good certificates that abuse HTTP/2 against a proxy under load: each is thrown out with a named reason or
# harmless, the proxy's memory stays bounded, and a neighbour on the same node loses nothing.
# bites: a flood that ends for another reason than its own is not counted under its name: seen red with a CONTINUATION flood
# whose header block was malformed.
# bites: with allowances that never end (Meters::take in crates/h2/src/abuse.rs) floods of SETTINGS, PING and WINDOW_UPDATE
# are tolerated.
# bites: without the send budget (`paid` in crates/hbone/src/send_buffer.rs gives what is asked for) a peer that reads nothing
# costs 39 MiB and four 100 MiB. Seen red so.
source "$(dirname "$0")/lib.sh"
mesh
ip=$(pod_ip echo-)
CA_CERT=$(ls "$RUN"/control/ca/*cert*.pem "$RUN"/control/*cert*.pem 2>/dev/null | head -1)
CA_KEY=$(ls "$RUN"/control/ca/*key*.pem "$RUN"/control/*key*.pem 2>/dev/null | head -1)
flood() { in_node n1 timeout 40 "$TOOLS/flood" -ca-cert "$CA_CERT" -ca-key "$CA_KEY" -connect "$ip:15008" -authority "$ip:8080" -kind "$@"; }
rss() { awk '/^VmRSS/ {print $2}' "/proc/$victim/status"; }
peak() { awk '/^VmHWM/ {print $2}' "/proc/$victim/status"; }
closed_for() { proxy_metrics n2 | awk -v r="reason=\"$1\"" '/^lateen_tunnels_closed_total/ && index($0, r) {n += $2} END {print n + 0}'; }

# cost COMMAND...: runs it and prints by how many KiB the victim's memory rose at its peak meanwhile.
cost() {
  local before
  echo 5 >"/proc/$victim/clear_refs" # the peak begins at what there is
  before=$(rss)
  "$@" >"$WORK/said" 2>&1
  echo $? >"$WORK/code"
  echo $(($(peak) - before))
}
# unread COUNT: so many peers at once ask for much and read none of it.
unread() { local all=() i; for i in $(seq "$1"); do flood unread -limit 4s & all+=("$!"); done; wait "${all[@]}"; }

ask 3 "$WORK/warm" -mode keep -workers 4 -rate 200
victim=$(proxy_pid n2)
before=$(rss)
# They ask until they are told to end.
ask 250 "$WORK/keep" -mode keep -workers 4 -rate 100 -timeout 10s & KEEP=$!
ask 250 "$WORK/new" -mode new -workers 4 -rate 40 -timeout 10s & NEW=$!
# Each peer's memory has a bound, in KiB: what waits to be sent on its tunnel (4 MiB) and for each of its 90 streams (4 KiB),
# as much again in the allocator's gaps, and what the load beside it takes.
each=$((12 * 1024))
for row in rapid-reset:rapid_reset continuation:header_flood settings:settings_flood ping:ping_flood window:window_update_flood empty-data:empty_data window-overflow:protocol_error; do
  kind=${row%:*} reason=${row#*:} counted_before=$(closed_for "$reason")
  grown=$(cost flood "$kind" -limit 12s)
  equal "$kind: the peer is thrown out ($(tail -1 "$WORK/said" | cut -c1-80))" 0 "$(cat "$WORK/code")"
  check "$kind: it cost less than $each KiB: $grown" [ "$grown" -le $each ]
  counted() { [ "$(closed_for "$reason")" -gt "$counted_before" ]; }
  check "$kind: counted as $reason" eventually 15 counted
done
grown=$(cost flood streams -limit 6s)
code=$(cat "$WORK/code")
check "streams: thrown out or held to the limit" [ "$code" = 0 -o "$code" = 4 ]
check "streams: it cost less than $each KiB: $grown" [ "$grown" -le $each ]
one=$(cost unread 1)
check "a peer that reads nothing costs less than $each KiB: $one" [ "$one" -le $each ]
four=$(cost unread 4)
check "four peers that read nothing cost less than four times as much: $four" [ "$four" -le $((4 * each)) ]
end $KEEP $NEW
equal "the same process serves" "$victim" "$(proxy_pid n2)"
check "what the allocator keeps of it is bounded as well: $before KiB before, $(rss) KiB now" [ $(($(rss) - before)) -le $((4 * each)) ]
equal "a neighbour on kept connections lost nothing ($(jq -c .counts "$WORK/keep"))" 0 "$(failed "$WORK/keep")"
equal "nor one on new ones ($(jq -c .counts "$WORK/new"))" 0 "$(failed "$WORK/new")"
check "each has its line in the log" eventually 15 bash -c "[ \$(grep -cE 'resets requests before|headers come in too many|too many settings|too many pings|window updates than|data frames without' '$RUN/nodes/n2/proxy.log') -ge 6 ]"
finish
