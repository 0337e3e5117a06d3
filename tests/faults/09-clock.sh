#!/usr/bin/env bash
# The clock of a node's proxy is stepped thirteen hours forwards, and back again, while load runs: no request fails, the
# certificates that are past their half-life by then are renewed, logs stay sane, and nothing runs in circles. Only that
# process' wall clock is stepped, by a library that is preloaded into it.
# bites: with `LOOK` (crates/identity/src/schedule.rs) at hours nothing is renewed. Seen red so.
source "$(dirname "$0")/lib.sh"
HERE=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$WORK/clock"
check "a clock that can be stepped" cc -shared -fPIC -O2 -Wall -o "$WORK/clock/shim.so" "$HERE/clock-shim.c"
step() { echo "$1" >"$WORK/clock/next" && chmod a+r "$WORK/clock/next" && mv "$WORK/clock/next" "$WORK/clock/offset"; }
step 0
mesh
printf '#!/bin/sh\nexport LD_PRELOAD=%s CLOCK_OFFSET_FILE=%s\nexec %s "$@"\n' "$WORK/clock/shim.so" "$WORK/clock/offset" "$RUN/bin/lateen-proxy" >"$WORK/clock/lateen-proxy"
chmod -R a+rX "$WORK"; chmod a+x "$WORK/clock/lateen-proxy"
check "a node proxy with that clock" lateen proxy replace n1 --binary "$WORK/clock/lateen-proxy" --drain 1s --wait
pid=$(proxy_pid n1)
check "it has it" grep -q shim.so "/proc/$pid/maps"
granted() { proxy_metrics n1 | awk '/^lateen_certificate_requests_total/ && /granted/ {n += $2} END {print n + 0}'; }
# Hundredths of a second of processor time.
used() { sed 's/.*) //' "/proc/$pid/stat" | awk '{print $12 + $13}'; }
quiet() { # WHAT: it uses less than a third of a core while nobody asks anything
  local before; before=$(used)
  sleep 3
  check "$1: nothing runs in circles ($(($(used) - before)) of 300 ticks)" [ $(($(used) - before)) -lt 100 ]
}
# logged SECONDS: a line is of this hour by a clock that is ahead by so much. The hour may end meanwhile: each look asks for its own.
logged() { sed 's/\x1b\[[0-9;]*m//g' "$RUN/nodes/n1/proxy.log" | awk -v y="$(day "$1")" 'index($1, y) == 1' | found .; }
day() { date -u -d "@$(($(date +%s) + $1))" +%Y-%m-%dT%H:; }
ahead=$((13 * 3600))

# They ask until they are told to end.
ask 200 "$WORK/keep" -mode keep -workers 2 -rate 50 & KEEP=$!
ask 200 "$WORK/new" -mode new -workers 2 -rate 50 & NEW=$!
sleep 1
before=$(granted)
lines=$(wc -l <"$RUN/nodes/n1/proxy.log")
step $ahead
check "the log shows the new time" eventually 20 logged $ahead
renewed() { [ "$(granted)" -gt "$before" ]; }
check "certificates past their half-life are renewed" eventually 80 renewed
# The authority's clock is another one: what it issues is past half of its life already, which must not make a storm.
first=$(granted) began=$(date +%s%3N)
sleep 8
more=$(($(granted) - first)) took=$(($(date +%s%3N) - began))
check "and not without a pause: $more more in $took ms" [ $more -le $((20 * took / 8000)) ]
step 0
sleep 5
end $KEEP $NEW
for sort in keep new; do
  equal "$sort: none of $(count "$WORK/$sort" served) requests failed ($(jq -c .counts "$WORK/$sort"))" 0 "$(failed "$WORK/$sort")"
  check "$sort: they were many" [ "$(count "$WORK/$sort" served)" -gt 100 ]
done
check "still served" eventually 15 answers
quiet "afterwards"
equal "it is the same process" "$pid" "$(proxy_pid n1)"
tail -n +$((lines + 1)) "$RUN/nodes/n1/proxy.log" >"$WORK/log"
equal "no warning, error or panic was logged" 0 "$(grep -cE 'panicked|^[^ ]+[[:space:]]+(warn|error)[[:space:]]' "$WORK/log")"
grep -E 'panicked|^[^ ]+[[:space:]]+(warn|error)[[:space:]]' "$WORK/log" | head -5
# The longest connection was that of the kept ones: minutes, not hours.
equal "no connection is said to have lasted for hours" 0 "$(grep -cE 'duration="[0-9]{7,}ms"|duration="-' "$WORK/log")"
finish
