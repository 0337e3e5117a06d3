#!/usr/bin/env bash
# Runs every fuzz target for FUZZ_SECONDS (30) from its committed corpus; with arguments only those named. New inputs that
# reach new code go to a scratch folder, not into the repository; a finding is left in fuzz/artifacts/ and fails the run.
set -uo pipefail
cd "$(dirname "$0")/.."
SECONDS_EACH=${FUZZ_SECONDS:-30}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
passed=0 failed=0

report() { # NAME CODE LOG
  if [ "$2" = 0 ]; then passed=$((passed + 1)); echo "ok - $1: $(grep -oE 'cov: [0-9]+|execs: [0-9]+' "$3" | tail -1)"
  else failed=$((failed + 1)); echo "not ok - $1"; tail -25 "$3"; fi
}
wanted() { [ $# -eq 1 ] || { local n=$1; shift; printf '%s\n' "$@" | grep -qx "$n"; }; }

# Rust: libFuzzer with the instrumentation that stable rustc offers.
rust=$(sed -n 's/^name = "\(.*\)"/\1/p' fuzz/Cargo.toml | grep -v lateen-fuzz)
export RUSTFLAGS='--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares'
# An explicit target keeps the instrumentation out of build scripts and procedural macros.
triple=$(rustc -vV | sed -n "s/^host: //p")
if ! cargo build --quiet --release --locked --target "$triple" --target-dir "${FUZZ_TARGET_DIR:-fuzz/target}" --manifest-path fuzz/Cargo.toml --bins 2>"$scratch/build"; then
  cat "$scratch/build"; echo "not ok - the fuzz targets build"; echo "0 passed, 1 failed, 0 skipped"; exit 1
fi
mkdir -p fuzz/artifacts
for t in $rust; do
  wanted "$t" "$@" || continue
  mkdir -p "$scratch/$t"
  "${FUZZ_TARGET_DIR:-fuzz/target}/$triple/release/$t" -max_total_time="$SECONDS_EACH" -timeout=10 -rss_limit_mb=1024 -print_final_stats=0 \
    -artifact_prefix="fuzz/artifacts/$t-" "$scratch/$t" "fuzz/corpus/$t" >"$scratch/$t.log" 2>&1
  report "$t" $? "$scratch/$t.log"
done

# Go: one target a run, as go test wants it.
unset RUSTFLAGS
while IFS=: read -r file name; do
  wanted "$name" "$@" || continue
  go test "./$(dirname "$file")" -run '^$' -fuzz "^$name\$" -fuzztime "${SECONDS_EACH}s" >"$scratch/$name.log" 2>&1
  report "$name ($(dirname "$file"))" $? "$scratch/$name.log"
done < <(git ls-files -co --exclude-standard '*_test.go' | xargs grep -HoE '^func Fuzz[A-Za-z0-9]+' | sed 's/func //')

echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" = 0 ]
