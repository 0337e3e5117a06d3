#!/usr/bin/env bash
# Instructions per run of the pure cores, counted by callgrind. The examples are cores and request_cores (L7 policies) of
# crates/testkit, h1_cores of crates/h1, h2_cores and h2_message_cores (requests, unary calls, uploads) of crates/h2,
# tunnel_cores and tunnel_http_cores of crates/hbone, exchange_cores of crates/exchange, and waypoint_cores of crates/proxy
# (requests through a waypoint without policies, with one that matches, with a thousand that do not). They are compared with
# tests/bench/instructions.txt. More than 3 % above it fails: find the reason, or say it in the commit that raises the line.
# The examples have more features than lateen-proxy, so few of their functions have counts in the recorded profile.
# A third number of a line there is the core's target, which is shown beside the count.
#   tests/bench/instructions.sh [CORE...]           compare, all or those named
#   tests/bench/instructions.sh --update [CORE...]  write their lines of the baseline
#   tests/bench/instructions.sh --build             compile them and count nothing
set -uo pipefail
cd "$(dirname "$0")/../.."
BASELINE=tests/bench/instructions.txt
source tests/needs.sh
needs valgrind
update= only_build=
case ${1:-} in
  --update) update=1; shift ;;
  --build) only_build=1; shift ;;
esac
cores=${*:-parse route policy head h1_head h1_exchange h1_chunked h2_connect h2_relay_1k h2_relay_16k h2_single_1k h2_requests h2_unary h2_uploads_16 h2_uploads_2000 tunnel_requests tunnel_opens tunnel_bulk exchange_h1 exchange_h2 request_policy_none request_policy_many request_policy_peer waypoint_request waypoint_request_allowed waypoint_request_many}
binaries=${CARGO_TARGET_DIR:-target}/release/examples
# The whole workspace is named so that all have their dependencies with the same features, compiled once.
hack/cargo-release.sh --quiet --locked --workspace --features lateen-proxy/measured --example cores --example h1_cores --example h2_cores --example h2_message_cores --example tunnel_cores --example tunnel_http_cores --example exchange_cores --example request_cores --example waypoint_cores || { echo "0 passed, 1 failed, 0 skipped"; exit 1; }
[ -z "$only_build" ] || exit 0
# The baseline is that of builds with the recorded profile.
if ! why=$(hack/cargo-release.sh profile 2>&1 >/dev/null); then
  echo "skip - the baseline is of builds with the recorded profile, and builds here have none: $why"
  echo "0 passed, 0 failed, $(wc -w <<<"$cores") skipped"
  exit 0
fi
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

count() { # CORE: instructions inside its measured function, everything it calls included
  local binary=$binaries/cores
  case $1 in
    h1_*) binary=$binaries/h1_cores ;;
    h2_requests | h2_unary | h2_uploads_*) binary=$binaries/h2_message_cores ;;
    h2_*) binary=$binaries/h2_cores ;;
    tunnel_http* | pipe_*) binary=$binaries/tunnel_http_cores ;;
    tunnel_*) binary=$binaries/tunnel_cores ;;
    exchange_*) binary=$binaries/exchange_cores ;;
    waypoint_*) binary=$binaries/waypoint_cores ;;
    request_*) binary=$binaries/request_cores ;;
  esac
  # A seed of its own would make each hash table different: callgrind sees the same addresses and inputs every time.
  setarch -R valgrind --tool=callgrind --callgrind-out-file="$scratch/$1" --toggle-collect="*measured_$1*" "$binary" "$1" >/dev/null 2>"$scratch/$1.log" || return 1
  awk '/^summary:|^totals:/ {print $2; exit}' "$scratch/$1"
}
passed=0 failed=0
for core in $cores; do
  now=$(count $core)
  if [ -z "$now" ] || [ "$now" = 0 ]; then
    failed=$((failed + 1)); echo "not ok - $core: callgrind counted nothing"; tail -3 "$scratch/$core.log"; continue
  fi
  read -r was target < <(awk -v c=$core '$1 == c {print $2, $3}' $BASELINE 2>/dev/null)
  if [ -n "$update" ]; then echo "$core $now${target:+ $target}" >>"$scratch/new"; fi
  aim=
  [ -z "$target" ] || aim=", target $target ($(awk -v n="$now" -v t="$target" 'BEGIN {printf "%+.1f %%", 100 * (n - t) / t}'))"
  if [ -n "$update" ]; then passed=$((passed + 1)); echo "ok - $core: $now (was ${was:-nothing})$aim"
  elif [ -z "$was" ]; then failed=$((failed + 1)); echo "not ok - $core: no baseline; run with --update"
  elif awk -v n="$now" -v w="$was" 'BEGIN {exit !(n <= w * 1.03)}'; then passed=$((passed + 1)); echo "ok - $core: $now instructions, baseline $was ($(awk -v n="$now" -v w="$was" 'BEGIN {printf "%+.1f %%", 100 * (n - w) / w}'))$aim"
  else failed=$((failed + 1)); echo "not ok - $core: $now instructions, baseline $was ($(awk -v n="$now" -v w="$was" 'BEGIN {printf "%+.1f %%", 100 * (n - w) / w}'))$aim"; fi
done
if [ -n "$update" ]; then
  # The others keep their lines.
  awk 'NR == FNR {new[$1]; next} !($1 in new)' "$scratch/new" $BASELINE >"$scratch/all" && cat "$scratch/new" >>"$scratch/all" && mv "$scratch/all" $BASELINE
fi
echo "$passed passed, $failed failed, 0 skipped"
[ $failed = 0 ]
