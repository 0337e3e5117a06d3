#!/usr/bin/env bash
# Replays the committed corpus of every fuzz target, then fuzzes each for FUZZ_SECONDS (30); with arguments only those named.
# A committed input that fails decides. A new finding is kept in FUZZ_FINDINGS (~/.cache/lateen/fuzz-findings); it fails the
# run too, unless --tell is given, which prints it as a line "--- FOUND:". New inputs that reach new code go to a scratch folder.
# The corpora of the Go targets are replayed by `go test`. With --tell the Go targets run without instrumentation for coverage, which
# would compile every package that they use once more: the few seconds serve to see that the targets still work.
set -uo pipefail
cd "$(dirname "$0")/.."
SECONDS_EACH=${FUZZ_SECONDS:-30}
FINDINGS=${FUZZ_FINDINGS:-${XDG_CACHE_HOME:-$HOME/.cache}/lateen/fuzz-findings}
tell=
[ "${1:-}" != --tell ] || { tell=1; shift; }
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# report NAME CODE LOG [CURE]: the outcome of fresh fuzzing, of which CURE says how to see a finding again.
report() {
  if [ "$2" = 0 ]; then echo "ok - $1: $(grep -oE 'cov: [0-9]+|execs: [0-9]+' "$3" | tail -1)"
  elif [ -n "$tell" ]; then tail -25 "$3"; echo "--- FOUND: $1: ${4:-}"
  else tail -25 "$3"; echo "not ok - $1: ${4:-}"; fi
}
wanted() { [ $# -eq 1 ] || { local n=$1; shift; printf '%s\n' "$@" | grep -qx "$n"; }; }

# Rust: libFuzzer with the instrumentation that stable rustc offers.
rust=$(sed -n 's/^name = "\(.*\)"/\1/p' fuzz/Cargo.toml | grep -v lateen-fuzz)
# The same versions as everywhere else: the workspace's lock file, plus what the fuzzer itself needs.
cp Cargo.lock fuzz/Cargo.lock
export RUSTFLAGS='--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares'
# An explicit target keeps the instrumentation out of build scripts and procedural macros.
triple=$(rustc -vV | sed -n "s/^host: //p")
if ! cargo build --quiet --release --target "$triple" --target-dir "${FUZZ_TARGET_DIR:-fuzz/target}" --manifest-path fuzz/Cargo.toml --bins 2>"$scratch/build"; then
  cat "$scratch/build"; echo "not ok - the fuzz targets build"; echo "0 passed, 1 failed, 0 skipped"; exit 1
fi
mkdir -p "$FINDINGS"
# libfuzzer TARGET LOG ARGUMENTS...
libfuzzer() {
  local target=$1 log=$2; shift 2
  "${FUZZ_TARGET_DIR:-fuzz/target}/$triple/release/$target" -timeout=10 -rss_limit_mb=1024 -print_final_stats=0 -artifact_prefix="$FINDINGS/$target-" "$@" >"$log" 2>&1
}
fuzz_rust() { # TARGET
  mkdir -p "$scratch/$1"
  if ! libfuzzer "$1" "$scratch/$1.log" -runs=0 "fuzz/corpus/$1"; then
    { tail -25 "$scratch/$1.log"; echo "not ok - $1: an input of fuzz/corpus/$1 fails"; } >"$scratch/$1.result"
    return
  fi
  echo "ok - $1: the corpus" >"$scratch/$1.result"
  libfuzzer "$1" "$scratch/$1.log" -max_total_time="$SECONDS_EACH" "$scratch/$1" "fuzz/corpus/$1"
  report "$1" $? "$scratch/$1.log" "its input is $(grep -oE "$FINDINGS/[^ ]+" "$scratch/$1.log" | tail -1)" >>"$scratch/$1.result"
}
# fuzz_go FOLDER TARGETS...: a package is built once for all of its targets.
fuzz_go() {
  local folder=$1 target log program code input; shift
  program=$scratch/$(tr / - <<<"$folder").test
  if ! go test -c -vet=off ${instrumented[@]+"${instrumented[@]}"} -o "$program" "./$folder" >"$program.log" 2>&1; then
    { cat "$program.log"; echo "not ok - the fuzz targets of $folder build"; } >"$program.result"
    return
  fi
  for target in "$@"; do
    log=$program-$target
    (cd "$folder" && "$program" -test.run '^$' -test.fuzz "^$target\$" -test.fuzztime "${SECONDS_EACH}s" -test.parallel 1 -test.fuzzcachedir "$scratch/go/$folder") >"$log.log" 2>&1
    code=$?
    timely "$log.log" && code=0
    # The input is a file of the tree, where later runs of `go test` would replay it and decide by it.
    input=$(grep -oE "testdata/fuzz/$target/[0-9a-f]+" "$log.log" | tail -1)
    if [ -n "$input" ] && [ -f "$folder/$input" ] && ! git ls-files --error-unmatch "$folder/$input" >/dev/null 2>&1; then
      mv "$folder/$input" "$FINDINGS/$target-$(basename "$input")"
      input="its input is $FINDINGS/$target-$(basename "$input")"
    fi
    report "$target ($folder)" $code "$log.log" "$input" >"$log.result"
  done
}
# timely LOG: whether the end of the time is all that failed. A worker that is busy with an input at that moment may be
# reported as "context deadline exceeded" before Go 1.27 (golang/go#75804); a finding names an input, a hang says that the
# process hung.
timely() {
  grep -qE '^ +context deadline exceeded$' "$1" && ! grep -qE 'Failing input|panic|hung or terminated|_test\.go:' "$1" &&
    [ "$(grep -oE 'elapsed: [0-9]+s, execs: [1-9]' "$1" | tail -1 | tr -dc '0-9 ' | awk '{print $1}')" -ge "$SECONDS_EACH" ]
}

# Two lanes: a target keeps one core busy.
lane() { while [ "$(jobs -rp | wc -l)" -ge 2 ]; do wait -n; done; }
for t in $rust; do
  wanted "$t" "$@" || continue
  lane; fuzz_rust "$t" &
done
unset RUSTFLAGS
instrumented=()
[ -n "$tell" ] || instrumented=(-fuzz .)
declare -A of
while IFS=: read -r file name; do
  ! wanted "$name" "$@" || of[$(dirname "$file")]+=" $name"
done < <(git ls-files -co --exclude-standard '*_test.go' | xargs grep -HoE '^func Fuzz[A-Za-z0-9]+' | sed 's/func //')
for folder in "${!of[@]}"; do
  lane; fuzz_go "$folder" ${of[$folder]} &
done
wait
cat "$scratch"/*.result
ls "$scratch"/*.result >/dev/null 2>&1 || { echo "not ok - there is no fuzz target of that name: $*"; echo "0 passed, 1 failed, 0 skipped"; exit 1; }
# Once more at the end: what failed is what a reader looks for.
sed -n 's/^not ok - /--- FAIL: /p' "$scratch"/*.result
failed=$(cat "$scratch"/*.result | grep -c '^not ok')
echo "$(cat "$scratch"/*.result | grep -c '^ok') passed, $failed failed, 0 skipped"
[ "$failed" = 0 ]
