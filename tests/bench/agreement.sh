#!/usr/bin/env bash
# Whether load generators agree on one server whose times are known: each waits a fixed 5 ms, or 5 ms for 98 % and 20 ms for 2 % of
# requests, before it answers; 20 ms for gRPC. lateen-load runs twice in each round, so that what two runs of one program differ by
# stands beside the others. These are wrk, oha and fortio for HTTP/1.1, h2load for HTTP/2, and ghz for gRPC: those that are on PATH
# (WRK=, OHA=, FORTIO=, H2LOAD=, GHZ= name others). Where ghz is absent, the Go module proxy, or its cache, gives it.
#   [ROUNDS=12] [SECONDS_EACH=2] [CONNECTIONS=8] [QPS=400] [LOAD=bin/lateen-load] tests/bench/agreement.sh
# Writes Markdown tables to standard output: medians over rounds, and what a generator says less what lateen-load says in the
# same round, as median and 99 % interval (order statistics). A generator agrees where each interval touches 3 %, or what its own
# resolution allows if that is more: of P50, P90, P99, and the rate. The server's processor time for each request is judged in cases of
# its own, to 3 % as well: one connection and no wait, the server on one processor and the generator on another. In other cases the
# time depends on when the server is woken: once for all connections whose waits end together, and on the generator's own processor for
# a sixth of the time that a wake-up of another takes. ghz has no such case: grpc-go sends a PING and a WINDOW_UPDATE for an answer,
# which the server has to read and to answer. It is judged by P50 and the rate: its P90 and P99 hold 0.5 and 1.4 ms of its own time.
# The last line counts generators that agree, that do not, and wrk, h2load and ghz where they are absent. Exits with 1 where a
# generator does not agree, and with 2 where one does not run.
# Times are service times: the others know no others. wrk and h2load keep no rate and stay out where one is asked for. For each wait of
# more than two of its mean intervals wrk counts further requests that it never sent; 2 % of them leave P50, P90 and P99 alone.
set -uo pipefail
ROOT=$(cd "$(dirname "$0")/../.." && pwd)
LOAD=${LOAD:-$ROOT/bin/lateen-load}
GHZ_VERSION=v0.93.0
ROUNDS=${ROUNDS:-12} SECONDS_EACH=${SECONDS_EACH:-2} CONNECTIONS=${CONNECTIONS:-8} QPS=${QPS:-400}
[ -x "$LOAD" ] || { echo "no $LOAD: build it (make build), or name it with LOAD=" >&2; exit 64; }
WORK=$(mktemp -d)
server=
cleanup() { [ -n "$server" ] && kill "$server" 2>/dev/null; rm -rf "$WORK"; }
trap cleanup EXIT
trap 'exit 130' INT TERM

"$LOAD" serve --listen 127.0.0.1:0 2>"$WORK/server" & server=$!
for _ in $(seq 150); do address=$(sed -n 's/.*listening on //p' "$WORK/server" | head -1); [ -n "$address" ] && break; sleep 0.1; done
[ -n "$address" ] || { echo "the server does not start: $(cat "$WORK/server")" >&2; exit 1; }

# What runs at a rate (0: as fast as the answers come), and how its word is read: P50, P90 and P99 in ms, requests per second,
# and in ms what each percentile is known to. lateen-load's histogram has three digits and wrk prints two decimals; oha
# keeps every sample; Fortio's percentiles lie somewhere in a bucket, whose width its result tells.
run_lateen_load() { "${PIN[@]}" "$LOAD" run "${FLAGS[@]}" --url "$1" --qps "$2" -c "$CONNECTIONS" -d "${SECONDS_EACH}s" --warmup 0 --all-percentiles --json -; }
read_lateen_load() { jq -r '.service_time as $t | [$t.p50, $t.p90, $t.p99] | [.[], $q, (.[] / 1000)] | @tsv' --argjson q "$(jq .rates.achieved_qps "$1")" "$1"; }
run_lateen_load_again() { run_lateen_load "$@"; }
read_lateen_load_again() { read_lateen_load "$@"; }
run_wrk() { "${PIN[@]}" "$WRK" -t1 -c "$CONNECTIONS" -d "${SECONDS_EACH}s" --latency "$1"; }
read_wrk() {
  awk 'function ms(t) { return t ~ /us$/ ? t / 1000 : t ~ /ms$/ ? t + 0 : t * 1000 }
    function step(t) { return t ~ /us$/ ? 0.00001 : t ~ /ms$/ ? 0.01 : 10 }
    $1 ~ /^(50|90|99)%$/ { at[$1] = ms($2); by[$1] = step($2) } /^Requests\/sec/ { rate = $2 }
    END { OFS = "\t"; if (rate) print at["50%"], at["90%"], at["99%"], rate, by["50%"], by["90%"], by["99%"] }' "$1"
}
run_oha() { "${PIN[@]}" "$OHA" -z "${SECONDS_EACH}s" -c "$CONNECTIONS" $([ "$2" = 0 ] || echo "-q $2") --no-tui --output-format json "$1"; }
read_oha() { jq -r '.summary.requestsPerSec as $q | .latencyPercentiles | [.p50, .p90, .p99 | . * 1000] | [.[], $q, 0, 0, 0] | @tsv' "$1"; }
run_fortio() { "${PIN[@]}" "$FORTIO" load -quiet -qps "$2" -c "$CONNECTIONS" -t "${SECONDS_EACH}s" -r 0.0005 -p 50,90,99 -uniform -json - "$1"; }
read_fortio() {
  jq -r '.ActualQPS as $q | .DurationHistogram | .Data as $buckets | [.Percentiles[].Value] | . as $at
    | [.[] * 1000, $q] + [$at[] as $v | ($buckets | map(select(.End >= $v)) | .[0] // $buckets[-1]) | (.End - .Start) * 1000] | @tsv' "$1"
}

# h2load keeps every sample in its log: start in µs, status, duration in µs.
run_h2load() { "${PIN[@]}" "$H2LOAD" -c "$CONNECTIONS" -m 1 -D "$SECONDS_EACH" --log-file="$WORK/h2load" "$1"; }
read_h2load() {
  local rate; rate=$(sed -n 's|^finished in .*, \([0-9.]*\) req/s.*|\1|p' "$1")
  [ -n "$rate" ] && sort -n -k3,3 "$WORK/h2load" | awk -v q="$rate" '{ at[NR] = $3 / 1000 }
    function p(x) { return at[int(NR * x) + 1 > NR ? NR : int(NR * x) + 1] } END { OFS = "\t"; if (NR) print p(0.5), p(0.9), p(0.99), q, 0.001, 0.001, 0.001 }'
  rm -f "$WORK/h2load"
}
run_ghz() {
  "${PIN[@]}" "$GHZ" --insecure --proto "$WORK/ping.proto" --call fgrpc.PingServer.Ping -d '{"delayNanos": 20000000}' -c "$CONNECTIONS" --connections "$CONNECTIONS" -z "${SECONDS_EACH}s" \
    --duration-stop wait -O json "${1#grpc://}"
}
read_ghz() {
  jq -r '.rps as $q | [.latencyDistribution[] | select(.percentage == (50, 90, 99)) | .latency / 1e6] | [.[], $q, 0, 0, 0] | @tsv' "$1"
}
cat >"$WORK/ping.proto" <<'P'
syntax = "proto3";
package fgrpc;
message PingMessage { int64 seq = 1; int64 ts = 2; string payload = 3; int64 delayNanos = 4; }
service PingServer { rpc Ping(PingMessage) returns (PingMessage); }
P
printf '\x20\x80\xda\xc4\x09' >"$WORK/ping" # delayNanos: 20,000,000

H2LOAD=${H2LOAD:-$(type -P h2load)} GHZ=${GHZ:-$(type -P ghz)}
if [ -z "$GHZ" ] && GOBIN=$WORK go install "github.com/bojand/ghz/cmd/ghz@$GHZ_VERSION" >&2; then GHZ=$WORK/ghz; fi
WRK=${WRK:-$(type -P wrk)} OHA=${OHA:-$(type -P oha)} FORTIO=${FORTIO:-$(type -P fortio)}
tools=(lateen_load lateen_load_again)
for tool in wrk oha fortio h2load ghz; do
  path=${tool^^}
  if [ -x "${!path}" ]; then tools+=("$tool"); else missing="${missing:+$missing, }$tool"; fi
done
[ ${#tools[@]} -gt 2 ] || { echo "nothing to compare with: install wrk, oha, fortio, h2load or ghz" >&2; exit 1; }

# spent: the server's processor time so far, in ns.
spent() { cat /proc/"$server"/task/*/schedstat | awk '{ t += $1 } END { printf "%.0f", t }'; }
# among NAMES...: those of them that run in this round, in its order.
among() { local t; for t in "${order[@]}"; do case " $* " in *" $t "*) echo "$t" ;; esac; done; }

measure() { # JUDGED NAME QPS URL TOOLS...: appends to blocks what each tool says in a round; JUDGED is "times" or "processor"
  local judged=$1 name=$2 qps=$3 url=$4 tool; shift 4
  for tool in "$@"; do
    echo "round $round/$ROUNDS, $name: ${tool//_/-}" >&2
    local said before after
    before=$(spent)
    "run_$tool" "$url" "$qps" >"$WORK/out" 2>"$WORK/err"
    after=$(spent)
    said=$("read_$tool" "$WORK/out")
    [ "$(wc -w <<<"$said")" = 7 ] || { echo "${tool//_/-} gave no result: $(tail -n 3 "$WORK/err" "$WORK/out")" >&2; exit 2; }
    said+=$'\t'$(awk -v ns=$((after - before)) -v s="$SECONDS_EACH" '{ print ns / 1000 / ($4 * s) }' <<<"$said")
    printf '%s\t%s\t%s\t%s\t%s\t%s\n' "$judged" "$name" "$qps" "$tool" "$round" "$said" >>"$WORK/blocks"
  done
}
# measure_processor NAME URL TOOLS...: one connection, the server and the generators on processors of their own.
measure_processor() {
  local CONNECTIONS=1 PIN=(taskset -c "${processors[1]}")
  taskset -a -c -p "${processors[0]}" "$server" >/dev/null
  measure processor "$1, one connection, no wait, as fast as the answers come" 0 "${@:2}"
  taskset -a -c -p "$(IFS=,; echo "${processors[*]}")" "$server" >/dev/null
}
PIN=()
mapfile -t processors < <(taskset -c -p $$ | sed 's/.*: //' | tr , '\n' | while IFS=- read -r a b; do seq "$a" "${b:-$a}"; done)
[ ${#processors[@]} -gt 1 ] || { echo "the server and a generator need a processor each, and there is one" >&2; exit 1; }
for round in $(seq "$ROUNDS"); do
  order=("${tools[@]}")
  [ $((round % 2)) = 0 ] && mapfile -t order < <(printf '%s\n' "${tools[@]}" | tac)
  http1=(lateen_load lateen_load_again wrk oha fortio)
  FLAGS=()
  measure times "HTTP/1.1, 5 ms, as fast as the answers come" 0 "http://$address/?size=1024&delay=5ms" $(among "${http1[@]}")
  measure times "HTTP/1.1, 5 ms, and 20 ms for 2 %, as fast as the answers come" 0 "http://$address/?size=1024&delay=5ms:98,20ms:2" $(among "${http1[@]}")
  measure times "HTTP/1.1, 5 ms, and 20 ms for 2 %, at $QPS requests/s" "$QPS" "http://$address/?size=1024&delay=5ms:98,20ms:2" $(among "${http1[@]/wrk/}")
  measure_processor "HTTP/1.1" "http://$address/?size=1024" $(among "${http1[@]}")
  FLAGS=(--http2)
  [ ! -x "$H2LOAD" ] || measure times "HTTP/2, 5 ms, as fast as the answers come" 0 "http://$address/?size=1024&delay=5ms" $(among lateen_load lateen_load_again h2load)
  [ ! -x "$H2LOAD" ] || measure_processor "HTTP/2" "http://$address/?size=1024" $(among lateen_load lateen_load_again h2load)
  FLAGS=(--body-file "$WORK/ping")
  [ ! -x "$GHZ" ] || measure times "gRPC, 20 ms, as fast as the answers come" 0 "grpc://$address" $(among lateen_load lateen_load_again ghz)
done

# A closed loop's rate may also differ by the requests that are under way at the end.
jq -Rrs --argjson rounds "$ROUNDS" --arg s "$SECONDS_EACH" --argjson c "$CONNECTIONS" --arg missing "${missing:-}" '
  def median: sort | if length % 2 == 1 then .[length / 2 | floor] else (.[length / 2 - 1] + .[length / 2]) / 2 end;
  # The narrowest pair of order statistics that holds the median in 99 % of cases; with fewer than nine values the extremes.
  def interval: sort | length as $n
    | (reduce range(0; $n) as $k ([1]; . + [.[-1] * ($n - $k) / ($k + 1)])) as $choose
    | ([range(0; ($n / 2 | floor)) | select(([$choose[:. + 1][]] | add) * 2 / pow(2; $n) <= 0.01)] | max // 0) as $k
    | [.[$k], .[$n - 1 - $k]];
  def text: if . == 0 then "0" else (if fabs >= 100 then 0 elif fabs >= 10 then 1 else 3 end) as $d | . * pow(10; $d) | round / pow(10; $d) | tostring | sub("^-"; "−") end;
  def named: gsub("_"; "-") | sub("-again"; ", again");
  [split("\n")[] | select(length > 0) | split("\t") | {judged: .[0], case: .[1], qps: .[2], tool: .[3], round: .[4], at: (.[5:8] + [.[8]] | map(tonumber)), by: (.[9:12] | map(tonumber)), cpu: (.[12] | tonumber)}] as $blocks
  | ($blocks | map(.case) | reduce .[] as $x ([]; if index([$x]) then . else . + [$x] end)) as $cases
  | "\($rounds) rounds of \($s) s, \($c) connections where no other number is given, answers of 1024 bytes\(if $missing == "" then "" else "; not on this machine: \($missing)" end):",
    ($cases[] as $case | ($blocks | map(select(.case == $case))) as $mine
     | ($mine | map(select(.tool == "lateen_load")) | map({key: .round, value: .}) | from_entries) as $ours
     | "\n\($case):\n\n| generator | P50 ms | P90 ms | P99 ms | requests/s | resolution at P50, P99 | P50 differs by ms | P90 | P99 | requests/s by | server µs/request | of lateen-load'"'"'s | agrees |\n|---|---|---|---|---|---|---|---|---|---|---|---|---|",
       (["lateen_load", "lateen_load_again", "wrk", "oha", "fortio", "h2load", "ghz"][] as $tool | ($mine | map(select(.tool == $tool))) as $his | select($his | length > 0)
        | [range(4) as $i | [$his[] | .at[$i]] | median] as $at
        | [range(3) as $i | [$his[] | .by[$i] + $ours[.round].by[$i]] | median] as $by
        | [range(4) as $i | [$his[] | .at[$i] - $ours[.round].at[$i]]] as $off
        | [$his[] | .cpu / $ours[.round].cpu] as $cpu
        | [[$by + [($c | tonumber) / ($s | tonumber)], [$at[] * 0.03]] | transpose[] | max] as $allowed
        | (if $his[0].judged == "times" then [range(4) as $i | $off[$i] | interval as $in | ($tool == "ghz" and ($i == 1 or $i == 2)) or ($in[0] <= $allowed[$i] and $in[1] >= -$allowed[$i])] + [true]
           else [true, true, true, true] + [$cpu | interval | .[0] <= 1.03 and .[1] >= 0.97] end) as $agrees
        | "| \($tool | named) | \([$at[] | text] | join(" | ")) | \([$his[] | .by[0]] | median | text), \([$his[] | .by[2]] | median | text) | "
          + (if $tool == "lateen_load" then "– | – | – | – | \([$his[].cpu] | median | text) | – | – |"
             else ([range(4) as $i | $off[$i] | "\(median | text) (\(interval | map(text) | join(" to ")))"] | join(" | "))
               + " | \([$his[].cpu] | median | text) | \($cpu | "\(median | text) (\(interval | map(text) | join(" to ")))")"
               + " | \(if $agrees | all then "yes" else "**no**: \([["P50", "P90", "P99", "requests/s", "server'"'"'s time"], $agrees] | transpose | map(select(.[1] | not) | .[0]) | join(", "))" end) |" end)))
' "$WORK/blocks" | tee "$WORK/table" || { echo "the tables could not be made" >&2; exit 2; }
failed=$(grep -c '\*\*no\*\*' "$WORK/table")
absent=0
for tool in WRK H2LOAD GHZ; do [ -x "${!tool}" ] || absent=$((absent + 1)); done
echo
echo "$(grep -c '| yes |$' "$WORK/table") passed, $failed failed, $absent skipped"
[ "$failed" = 0 ]
