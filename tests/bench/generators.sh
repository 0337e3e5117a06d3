#!/usr/bin/env bash
# Throughput of load generators against one server in one run: closed loop, the same connections, rounds interleaved and
# their order reversed each time, generator and server on a processor each where there are two. lateen-load is compared
# with those of wrk, oha and fortio that are on PATH (WRK=, OHA=, FORTIO= name others); one that is absent is said to be.
#   [ROUNDS=10] [SECONDS_EACH=3] [CONNECTIONS=16] [SIZE=1024] [LOAD=bin/lateen-load] tests/bench/generators.sh
# Writes a Markdown table to standard output: medians over rounds, and the median of the ratios within rounds. P50 and P99
# are each generator's own word; they agree within the resolution of its histogram.
set -uo pipefail
ROOT=$(cd "$(dirname "$0")/../.." && pwd)
LOAD=${LOAD:-$ROOT/bin/lateen-load}
ROUNDS=${ROUNDS:-10} SECONDS_EACH=${SECONDS_EACH:-3} CONNECTIONS=${CONNECTIONS:-16} SIZE=${SIZE:-1024}
[ -x "$LOAD" ] || { echo "no $LOAD: build it (make build), or name it with LOAD=" >&2; exit 64; }
WORK=$(mktemp -d)
server=
cleanup() { [ -n "$server" ] && kill "$server" 2>/dev/null; rm -rf "$WORK"; }
trap cleanup EXIT
trap 'exit 130' INT TERM

here() { "$@"; }; there() { "$@"; }
if [ "$(nproc)" -ge 2 ] && command -v taskset >/dev/null; then
  here() { taskset -c 0 "$@"; }; there() { exec taskset -c 1 "$@"; }
fi
(there "$LOAD" serve --listen 127.0.0.1:0) 2>"$WORK/server" & server=$!
for _ in $(seq 150); do address=$(sed -n 's/.*listening on //p' "$WORK/server" | head -1); [ -n "$address" ] && break; sleep 0.1; done
[ -n "$address" ] || { echo "the server does not start: $(cat "$WORK/server")" >&2; exit 1; }
url="http://$address/?size=$SIZE"

# What runs, and how its output is read: requests per second, P50 in ms, P99 in ms.
run_lateen_load() { here "$LOAD" run --url "$url" --qps 0 -c "$CONNECTIONS" -d "${SECONDS_EACH}s" --warmup 0 --json -; }
read_lateen_load() { jq -r '[.rates.achieved_qps, .response_time.p50, .response_time.p99] | @tsv'; }
run_wrk() { here "$WRK" -t1 -c "$CONNECTIONS" -d "${SECONDS_EACH}s" --latency "$url"; }
read_wrk() {
  awk 'function ms(t) { return t ~ /us$/ ? t / 1000 : t ~ /ms$/ ? t + 0 : t * 1000 }
    $1 == "50%" { p50 = ms($2) } $1 == "99%" { p99 = ms($2) } /^Requests\/sec/ { print $2 "\t" p50 "\t" p99 }'
}
run_oha() { here "$OHA" -z "${SECONDS_EACH}s" -c "$CONNECTIONS" --no-tui --output-format json "$url"; }
read_oha() { jq -r '[.summary.requestsPerSec, .latencyPercentiles.p50 * 1000, .latencyPercentiles.p99 * 1000] | @tsv'; }
run_fortio() { here "$FORTIO" load -qps 0 -c "$CONNECTIONS" -t "${SECONDS_EACH}s" -r 0.000001 -p 50,99 -json - "$url"; }
read_fortio() { jq -r '[.ActualQPS, .DurationHistogram.Percentiles[0].Value * 1000, .DurationHistogram.Percentiles[1].Value * 1000] | @tsv'; }
WRK=${WRK:-$(type -P wrk)} OHA=${OHA:-$(type -P oha)} FORTIO=${FORTIO:-$(type -P fortio)}
tools=(lateen_load)
for tool in wrk oha fortio; do
  path=${tool^^}
  if [ -x "${!path}" ]; then tools+=("$tool"); else echo "$tool is not on PATH: not measured" >&2; fi
done
[ ${#tools[@]} -gt 1 ] || { echo "nothing to compare with: install wrk, oha or fortio" >&2; exit 1; }

TIMEFORMAT='%U %S'
for round in $(seq "$ROUNDS"); do
  order=("${tools[@]}")
  [ $((round % 2)) = 0 ] && mapfile -t order < <(printf '%s\n' "${tools[@]}" | tac)
  for tool in "${order[@]}"; do
    echo "round $round/$ROUNDS: $tool" >&2
    { time "run_$tool" >"$WORK/out" 2>"$WORK/err"; } 2>"$WORK/time"
    read -r qps p50 p99 < <("read_$tool" <"$WORK/out") || { echo "$tool gave no result: $(cat "$WORK/err")" >&2; exit 1; }
    read -r user sys <"$WORK/time"
    printf '%s\t%s\t%s\t%s\t%s\t%s\n' "$tool" "$round" "$qps" "$p50" "$p99" "$(awk -v cpu="$user $sys" -v q="$qps" -v s="$SECONDS_EACH" 'BEGIN { split(cpu, t, " "); print (t[1] + t[2]) * 1e6 / (q * s) }')" >>"$WORK/blocks"
  done
done
jq -Rrs --arg c "$CONNECTIONS" --arg s "$SECONDS_EACH" --arg size "$SIZE" '
  def median: sort | if length % 2 == 1 then .[length / 2 | floor] else (.[length / 2 - 1] + .[length / 2]) / 2 end;
  def digits(n): . * pow(10; n) | round / pow(10; n);
  [split("\n")[] | select(length > 0) | split("\t") | {tool: .[0], round: .[1], qps: (.[2] | tonumber), p50: (.[3] | tonumber), p99: (.[4] | tonumber), cpu: (.[5] | tonumber)}]
  | . as $blocks | (map({key: .tool, value: 1}) | from_entries | keys_unsorted) as $tools
  | ($blocks | map(select(.tool == "lateen_load")) | map({key: .round, value: .qps}) | from_entries) as $ours
  | "\($ours | length) rounds of \($s) s, \($c) connections, answers of \($size) bytes:\n\n| generator | requests/s | lateen-load against it | its CPU µs/request | P50 ms | P99 ms |\n|---|---|---|---|---|---|",
    ($tools[] as $tool | $blocks | map(select(.tool == $tool)) as $mine
     | "| \($tool | sub("_"; "-")) | \([$mine[].qps] | median | round) | \([$mine[] | $ours[.round] / .qps] | [(median | digits(3)), (min | digits(3)), (max | digits(3))] | if $tool == "lateen_load" then "–" else "\(.[0]) (\(.[1])–\(.[2]))" end) | \([$mine[].cpu] | median | digits(2)) | \([$mine[].p50] | median | digits(3)) | \([$mine[].p99] | median | digits(3)) |")
' "$WORK/blocks"
