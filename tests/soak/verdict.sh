# What a soak makes of its records: $WORK/events (BEGIN END NAME in milliseconds), the askers' counts and failures,
# $WORK/samples (SECOND PART PID RSS-KIB FDS READY) and the logs. It changes nothing in the mesh. shellcheck shell=bash

# excuses SORT: which windows excuse failures on connections of the sort (new, keep): FROM TO KINDS NAME.
# No event in the mesh excuses a request that nobody answered (timeout), or an answer that was not whole on a new connection.
excuses() {
  awk -v sort="$1" '
    # Some awks write large numbers with an exponent if they are left to it.
    function window(from, to, kinds) {printf "%.0f %.0f %s %s\n", from, to, kinds, $3}
    # From the kill until the next one is ready: nobody listens; what was open is lost.
    $3 == "kill-proxy" {window($1, $2 + 500, "refused,reset,closed" (sort == "keep" ? ",partial" : ""))}
    # Kept connections alone: cut when the drain is over, closed by the pod that ends.
    $3 == "replace-proxy" && sort == "keep" {window($2 - 1500, $2 + 500, "reset,closed,partial")}
    # Nobody was served while the machine itself stood still; a check below bounds how long that may be.
    $3 == "standstill" {window($1, $2 + 5000, "timeout")}
    $3 == "scale-down" && sort == "keep" {window($1, $2 + 500, "reset,closed,partial")}' "$WORK/events"
}
# attributed SORT: COUNT KIND REASON for the failures on connections of the sort; REASON is "unexplained" if no window fits.
attributed() {
  awk 'NR == FNR {from[++n] = $1; to[n] = $2; kinds[n] = "," $3 ","; name[n] = $4; next}
    {why = "unexplained"
     for (i = 1; i <= n; i++) if ($1 >= from[i] && $1 <= to[i] && index(kinds[i], "," $2 ",")) why = name[i]
     count[$2 " " why]++}
    END {for (k in count) print count[k], k}' <(excuses "$1") "$WORK/$1.failures" | sort -rn
}
judge_requests() {
  local sort
  check "the machine was there to be judged on: it stood still for $(standstill) of $seconds s" [ "$(standstill)" -le $((seconds / 20)) ]
  for sort in new keep; do
    attributed $sort >"$WORK/$sort.attributed"
    equal "$sort connections: $(count "$WORK/$sort" served) requests served, $(failed "$WORK/$sort") failed, each where an event explains its kind" "" "$(awk '$3 == "unexplained"' "$WORK/$sort.attributed" | head -5 | tr '\n' ';')"
    # What had just begun when the others failed.
    awk -v sort=$sort 'NR == FNR {from[++n] = $1; name[n] = $3; next} {what = "the start"; for (i = 1; i <= n && from[i] <= $1; i++) what = name[i] " +" ($1 - from[i]) " ms"; print "    " sort, $0, "- after", what}' \
      "$WORK/events" <(awk 'NR == FNR {from[++n] = $1; to[n] = $2; kinds[n] = "," $3 ","; next} {for (i = 1; i <= n; i++) if ($1 >= from[i] && $1 <= to[i] && index(kinds[i], "," $2 ",")) next; print}' <(excuses $sort) "$WORK/$sort.failures") | head -10
  done
}
# standstill: seconds in which a process that does nothing but look at the clock every 0.2 s was not let to.
standstill() { awk '$3 == "standstill" {sum += $2 - $1} END {printf "%.0f", sum / 1000}' "$WORK/events"; }
# excused SORT: percent of the time that lies in some window.
excused() {
  excuses "$1" | sort -n | awk -v all="$seconds" '{if ($1 > end) {sum += $2 - $1; end = $2} else if ($2 > end) {sum += $2 - end; end = $2}} END {printf "%.0f", sum / 10 / all}'
}

# lines: PART PIDS FIRST LAST RSS-SLOPE FIRST-FDS LAST-FDS FD-SLOPE over the second half without its first tenth: least
# squares; FIRST and LAST are the line's ends, slopes per second.
lines() {
  sort -s -k2,2 "$WORK/samples" | awk -v start=$((second_half + (seconds - second_half) / 10)) '
    function flush(   d, b, f) {
      if (n < 2) return
      d = n * xx - x * x; if (d == 0) return
      b = (n * xy - x * y) / d; f = (n * xz - x * z) / d
      printf "%s %d %d %d %.2f %d %d %.3f\n", part, pids, y / n - b * (x / n - first), y / n + b * (last - x / n), b, z / n - f * (x / n - first), z / n + f * (last - x / n), f}
    $1 < start {next}
    $2 != part {flush(); part = $2; n = x = y = z = xx = xy = xz = pids = 0; pid = ""; first = $1}
    {n++; x += $1; y += $4; z += $5; xx += $1 * $1; xy += $1 * $4; xz += $1 * $5; last = $1; if ($3 != pid) {pids++; pid = $3}}
    END {flush()}'
}
# A leak of 1 KiB for each new connection is $rate KiB a second in both proxies; a quarter of that is too much in any part.
# One descriptor for a thousand connections is too, beyond those of a pod, which is there or not where the line ends. The
# sockets that are ready to dial from are counted apart: their number goes by how fast a pod once dialled, and has an end.
judge_growth() {
  local part pids first last slope ffirst flast _
  lines >"$WORK/lines"
  equal "every part was measured in the second half" 6 "$(wc -l <"$WORK/lines")"
  while read -r part pids first last slope ffirst flast _; do
    equal "$part is one process throughout the second half" 1 "$pids"
    check "memory of $part rises by less than a quarter of 1 KiB for each connection: $slope KiB/s" awk -v s="$slope" -v most="$rate" 'BEGIN {exit !(s < most / 4)}'
    check "descriptors of $part rise by less than one for a thousand connections and those of a pod: from $ffirst to $flast" [ $((flast - ffirst)) -lt $((rate * (seconds - second_half) / 1000 + 40)) ]
  done <"$WORK/lines"
  check "a pod has no more than two kinds of 64 sockets ready, and some that are being dialled from: $(most_ready)" [ "$(most_ready)" -le 160 ]
  check "and some were ready" [ "$(most_ready)" -ge 8 ]
}
most_ready() { awk '$6 > most {most = $6} END {print most + 0}' "$WORK/samples"; }
growth_table() {
  echo "| part | RSS at the start of the line | at its end | KiB a second | descriptors at the start | at its end |"
  echo "|---|---|---|---|---|---|"
  while read -r part _ first last slope ffirst flast _; do echo "| $part | $first KiB | $last KiB | $slope | $ffirst | $flast |"; done <"$WORK/lines"
}

# Lines of the logs that are warnings or worse. Access log lines of requests that failed are counted as requests already.
warnings() { # FILE...
  grep -hE 'level=(WARN|ERROR)|^[^ ]+[[:space:]]+(warn|error|WARN|ERROR)[[:space:]]' "$@" | grep -vE '^[^ ]+[[:space:]]+(error|ERROR)[[:space:]]+access[[:space:]]'
}
# patterns WHEN: those that hold in the half (first or second); `always` holds in both.
# `standstill` only if the machine stood still.
patterns() {
  local also=$1
  [ "$(standstill)" = 0 ] || also="$1|standstill"
  sed -nE "s/^(always|$also) //p" "$ROOT/tests/soak/expected.txt"
}
# not_of_a_kill: leaves out lines that a `killed` pattern explains, if a proxy was just killed: until half a second after the
# next one was ready.
not_of_a_kill() {
  local line at
  while IFS= read -r line; do
    if grep -qE -f <(sed -nE 's/^killed //p' "$ROOT/tests/soak/expected.txt") <<<"$line"; then
      at=$(date -d "$(sed -E 's/^time=//; s/[[:space:]].*//' <<<"$line")" +%s%3N)
      awk -v at="$at" '$3 == "kill-proxy" && $1 <= at && at <= $2 + 500 {found = 1} END {exit !found}' "$WORK/events" && continue
    fi
    printf '%s\n' "$line"
  done
}
judge_logs() {
  warnings "$RUN"/engine.log "$RUN"/control.log "$RUN"/nodes/*/*.log >"$WORK/warnings"
  # Both kinds of log begin with the time, one of them behind `time=`.
  awk -v at="$second_half_at" -v dir="$WORK" '{t = $1; sub(/^time=/, "", t); print > (dir "/warnings." (t < at ? "first" : "second"))}' "$WORK/warnings"
  local part
  for part in first second; do
    touch "$WORK/warnings.$part"
    grep -vE -f <(patterns $part) "$WORK/warnings.$part" | not_of_a_kill >"$WORK/surprises.$part"
    equal "of $(wc -l <"$WORK/warnings.$part") warnings in the $part half none is unexplained" 0 "$(wc -l <"$WORK/surprises.$part")"
    sed -E 's/[0-9]+/N/g' "$WORK/surprises.$part" | cut -c1-260 | sort | uniq -c | sort -rn | head -15
    # The first of them as they stand, each with what had just begun: the log's time is UTC, the events' in milliseconds.
    head -3 "$WORK/surprises.$part" | cut -c1-400 | while read -r line; do
      at=$(date -d "$(sed -E 's/^time=//; s/[[:space:]].*//' <<<"$line")" +%s%3N)
      echo "    $(awk -v at="$at" '$1 <= at {what = $3 " +" (at - $1) " ms"} END {print what ? what : "the start"}' <(sort -n "$WORK/events")): $line"
    done
  done
  # A pattern that nothing needs any more excuses what nobody has seen.
  sed -nE 's/^(always|first|second|standstill|killed) //p' "$ROOT/tests/soak/expected.txt" | while read -r p; do grep -qE -- "$p" "$WORK/warnings" || echo "   not needed this time: $p"; done
}

figures() {
  echo "$seconds seconds, $round rounds of churn, $restarted of them with a restart, $(wc -l <"$WORK/events") events, $rate new connections a second."
  local sort
  echo "The machine stood still for $(standstill) s."
  for sort in new keep; do
    echo "On $sort connections $(count "$WORK/$sort" served) requests were served and $(failed "$WORK/$sort") failed; windows that excuse some kind of failure cover $(excused $sort) % of the time. By kind and event: $(awk '{printf "%s%d %s (%s)", sep, $1, $2, $3; sep = ", "} END {if (!NR) printf "none"}' "$WORK/$sort.attributed")."
  done
  echo "At most $(most_ready) sockets were ready in one pod; they are not among the descriptors below."
  echo "Warnings in the logs: $(wc -l <"$WORK/warnings.first") in the first half, $(wc -l <"$WORK/warnings.second") in the second."
  echo
}
