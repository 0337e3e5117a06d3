#!/usr/bin/env bash
# Instructions per run of the pure cores (crates/testkit/examples/cores.rs), counted by callgrind and compared with
# tests/bench/instructions.txt. More than 3 % above it fails: find the reason, or say it in the commit that raises the line.
#   tests/bench/instructions.sh           compare
#   tests/bench/instructions.sh --update  write the baseline
set -uo pipefail
cd "$(dirname "$0")/../.."
BASELINE=tests/bench/instructions.txt
command -v valgrind >/dev/null || { echo "valgrind is missing: apt-get install valgrind"; echo "0 passed, 1 failed, 0 skipped"; exit 1; }
cargo build --quiet --release --locked -p lateen-testkit --example cores || { echo "0 passed, 1 failed, 0 skipped"; exit 1; }
binary=${CARGO_TARGET_DIR:-target}/release/examples/cores
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

count() { # CORE: instructions inside its measured function, everything it calls included
  # A seed of its own would make each hash table different: callgrind sees the same addresses and inputs every time.
  setarch -R valgrind --tool=callgrind --callgrind-out-file="$scratch/$1" --toggle-collect="*measured_$1*" "$binary" "$1" >/dev/null 2>"$scratch/$1.log" || return 1
  awk '/^summary:|^totals:/ {print $2; exit}' "$scratch/$1"
}
passed=0 failed=0
for core in parse route policy head; do
  now=$(count $core)
  if [ -z "$now" ] || [ "$now" = 0 ]; then
    failed=$((failed + 1)); echo "not ok - $core: callgrind counted nothing"; tail -3 "$scratch/$core.log"; continue
  fi
  if [ "${1:-}" = --update ]; then echo "$core $now" >>"$scratch/new"; fi
  was=$(awk -v c=$core '$1 == c {print $2}' $BASELINE 2>/dev/null)
  if [ "${1:-}" = --update ]; then passed=$((passed + 1)); echo "ok - $core: $now (was ${was:-nothing})"
  elif [ -z "$was" ]; then failed=$((failed + 1)); echo "not ok - $core: no baseline; run with --update"
  elif awk -v n="$now" -v w="$was" 'BEGIN {exit !(n <= w * 1.03)}'; then passed=$((passed + 1)); echo "ok - $core: $now instructions, baseline $was ($(awk -v n="$now" -v w="$was" 'BEGIN {printf "%+.1f %%", 100 * (n - w) / w}'))"
  else failed=$((failed + 1)); echo "not ok - $core: $now instructions, baseline $was ($(awk -v n="$now" -v w="$was" 'BEGIN {printf "%+.1f %%", 100 * (n - w) / w}'))"; fi
done
[ "${1:-}" = --update ] && mv "$scratch/new" $BASELINE
echo "$passed passed, $failed failed, 0 skipped"
[ $failed = 0 ]
