#!/usr/bin/env bash
# CPU per request, added latency and memory of a pair of lateen-proxies against a pair of unmodified ztunnels and against no
# mesh, at a fixed rate, in one run: three meshes side by side, blocks interleaved, so that drift of the machine hits all alike.
#   ZTUNNEL=/path/to/ztunnel [ROUNDS=6] [SECONDS_EACH=8] [QPS=1000] [CONNECTIONS=16] [WORKERS=""] tests/bench/compare-ztunnel.sh
# Writes a Markdown table to standard output. Indicative on a shared machine; ratios travel better than absolute numbers.
set -uo pipefail
ROOT=$(cd "$(dirname "$0")/../.." && pwd)
LATEEN=$ROOT/bin/lateen
ROUNDS=${ROUNDS:-6} SECONDS_EACH=${SECONDS_EACH:-8} QPS=${QPS:-1000} CONNECTIONS=${CONNECTIONS:-16} SIZE=${SIZE:-1024}
[ -x "${ZTUNNEL:-}" ] || { echo "set ZTUNNEL to the path of an unmodified ztunnel binary" >&2; exit 64; }
[ "$(id -u)" = 0 ] || { echo "needs root: the meshes are made of network namespaces" >&2; exit 1; }
WORK=$(mktemp -d)
MESHES=(cmp-none-$$ cmp-lateen-$$ cmp-ztunnel-$$)
cleanup() { for m in "${MESHES[@]}"; do [ -d "/run/lateen/$m" ] && "$LATEEN" --name "$m" down >/dev/null 2>&1; done; rm -rf "$WORK"; }
trap cleanup EXIT
trap 'exit 130' INT TERM

bring_up() { # MESH EXTRA...
  local m=$1; shift
  "$LATEEN" --name "$m" up --nodes 2 "$@" >&2 || exit 1
  "$LATEEN" --name "$m" apply -f "$ROOT/samples/echo/echo.yaml" >&2 || exit 1
  until "$LATEEN" --name "$m" exec deploy/client -- curl -sf --max-time 2 http://echo:8080/health >/dev/null 2>&1; do sleep 0.3; done
}
bring_up "${MESHES[0]}"
bring_up "${MESHES[1]}"
bring_up "${MESHES[2]}" --node-proxy "n1=$ZTUNNEL" --node-proxy "n2=$ZTUNNEL"
for m in "${MESHES[@]:1}"; do
  "$LATEEN" --name "$m" label ns default istio.io/dataplane-mode=ambient >&2 || exit 1
  until "$LATEEN" --name "$m" get pods -o json | jq -e '[.items[] | select(.metadata.annotations["ambient.istio.io/redirection"] == "enabled")] | length >= 2' >/dev/null; do sleep 0.3; done
done
sleep 2

proxies() { "$LATEEN" --name "$1" status -o json | jq -r '[.nodes[].proxy.pid] | .[]'; }
# Run time of all threads in ns (schedstat), and user and system ticks.
cpu() {
  local total=0 user=0 sys=0 pid t
  for pid in $1; do
    for t in /proc/"$pid"/task/*/schedstat; do read -r ns _ <"$t" && total=$((total + ns)); done
    read -r u s < <(awk '{print $14, $15}' "/proc/$pid/stat"); user=$((user + u)); sys=$((sys + s))
  done
  echo "$total $user $sys"
}
pss() { local kb=0 p; for p in $1; do kb=$((kb + $(awk '/^Pss:/ {print $2}' "/proc/$p/smaps_rollup"))); done; echo "$kb"; }
rss() { local kb=0 p; for p in $1; do kb=$((kb + $(awk '/^Rss:/ {print $2}' "/proc/$p/smaps_rollup"))); done; echo "$kb"; }

block() { # MESH ROUND
  local m=$1 pids before after
  pids=$(proxies "$m")
  read -r t0 u0 s0 < <(cpu "$pids")
  "$LATEEN" --name "$m" exec deploy/client -- lateen-load run --url "http://echo:8080/?size=$SIZE" --qps "$QPS" --connections "$CONNECTIONS" --duration "${SECONDS_EACH}s" --all-percentiles --json - >"$WORK/out.json" 2>>"$WORK/err" || { cat "$WORK/err" >&2; exit 1; }
  read -r t1 u1 s1 < <(cpu "$pids")
  jq -c --arg mesh "${m#cmp-}" --argjson round "$2" --argjson ns $((t1 - t0)) --argjson user $((u1 - u0)) --argjson sys $((s1 - s0)) --argjson pss "$(pss "$pids")" --argjson rss "$(rss "$pids")" \
    '{mesh: ($mesh | sub("-[0-9]+$"; "")), round: $round, requests: .counts.ok, failed: .counts.failed, p50: .response_time.p50, p90: .response_time.p90, p99: .response_time.p99, ns: $ns, user: $user, sys: $sys, pss: $pss, rss: $rss}' "$WORK/out.json" >>"$WORK/blocks"
}
for r in $(seq "$ROUNDS"); do
  order=("${MESHES[@]}"); [ $((r % 2)) = 0 ] && order=("${MESHES[2]}" "${MESHES[1]}" "${MESHES[0]}")
  for m in "${order[@]}"; do echo "round $r/$ROUNDS ${m#cmp-}" >&2; block "$m" "$r"; done
done
[ -n "${OUT:-}" ] && cp "$WORK/blocks" "$OUT"
jq -rs --arg q "$QPS" --arg c "$CONNECTIONS" '
  def median: sort | if length == 0 then 0 elif length % 2 == 1 then .[length/2|floor] else (.[length/2-1] + .[length/2]) / 2 end;
  def f(d): . * pow(10; d) | round / pow(10; d);
  . as $b | (["none","lateen","ztunnel"] | map({key: ., value: (. as $m | $b | map(select(.mesh == $m)))}) | from_entries) as $g
  | ($g.none | map(.p50) | median) as $n50 | ($g.none | map(.p99) | median) as $n99
  | "\($q) requests/s over \($c) connections, medians of \($g.none | length) interleaved rounds; indicative, not a claim\n",
    "| | p50 ms | p99 ms | added p50 | added p99 | CPU of both proxies, µs/request (user + system share) | PSS of both, MB | RSS of both, MB |",
    "|---|---|---|---|---|---|---|---|",
    (["none","lateen","ztunnel"][] as $m | $g[$m] as $x | ($x | map(.ns / .requests / 1000) | median) as $cpu
      | "| \($m) | \($x | map(.p50) | median | f(3)) | \($x | map(.p99) | median | f(3)) | \(($x | map(.p50) | median) - $n50 | f(3)) | \(($x | map(.p99) | median) - $n99 | f(3)) | \($cpu | f(1)) (\(($x | map(.user) | add) as $u | ($x | map(.sys) | add) as $s | if $u + $s == 0 then "-" else "\(100 * $u / ($u + $s) | round) % user" end)) | \($x | map(.pss) | median / 1024 | f(1)) | \($x | map(.rss) | median / 1024 | f(1)) |"),
    "",
    ([range(0; $g.lateen | length) as $i | ($g.lateen[$i].ns / $g.lateen[$i].requests) / ($g.ztunnel[$i].ns / $g.ztunnel[$i].requests)] as $r
      | "CPU per request, lateen / ztunnel: median \($r | median | f(2)), from \($r | min | f(2)) to \($r | max | f(2)) over the rounds.")
' "$WORK/blocks"
