#!/usr/bin/env bash
# Replays the committed corpus of every fuzz target, then fuzzes each for FUZZ_SECONDS (30); with arguments only those named.
#   hack/fuzz.sh [--tell] [TARGET...]   a Go target is named FUNCTION, or FOLDER/FUNCTION
#   hack/fuzz.sh --list                 a line for each target: its name, the seconds that it fuzzes, its parsers, and the files that it exercises
# A committed input that fails decides. A new finding is kept in FUZZ_FINDINGS (~/.cache/lateen/fuzz-findings); it fails the
# run too, unless --tell is given, which prints it as a line "--- FOUND:". New inputs that reach new code go to a scratch folder.
# The corpora of the Go targets are replayed by `go test`. With --tell the Go targets run without instrumentation for coverage, which
# would compile every package that they use once more: the few seconds serve to see that the targets still work.
# When a target ends, its checks are printed, and behind them a line "--- FUZZED: NAME, N s": N counts fuzzing that found nothing.
# With FUZZ_UNTIL (seconds since 1970) a target that would not end by then is not begun, and a line says "--- LEFT: NAME".
set -uo pipefail
cd "$(dirname "$0")/.."
SECONDS_EACH=${FUZZ_SECONDS:-30}
FINDINGS=${FUZZ_FINDINGS:-${XDG_CACHE_HOME:-$HOME/.cache}/lateen/fuzz-findings}
rust=$(sed -n 's/^name = "\(.*\)"/\1/p' fuzz/Cargo.toml | grep -v lateen-fuzz)
go_targets() { git ls-files -co --exclude-standard '*_test.go' | xargs grep -HoE '^func Fuzz[A-Za-z0-9]+' | sed 's/func //'; } # FILE:FUNCTION
# list: of a Rust target the sources of the crates that it names and what else of crates/ its header names, of a Go target the sources
# of its package, and its own file. A line "Files:" in a header gives the files instead, as pathspecs of git: without what writes, and
# what is no part of the parser. A line "Parsers:" names what several targets feed; a target without one has its own.
list() {
  local t file name folder files parsers
  local -A sources
  while read -r file; do [[ $file = *_test.go ]] || sources[${file%/*}]+=" $file"; done < <(git ls-files 'cmd/*.go' 'internal/*.go' 'tests/*.go')
  for t in $rust; do
    file=fuzz/fuzz_targets/$t.rs
    parsers=$(sed -n 's|^//! Parsers: ||p' "$file" | tr -d ' ')
    read -ra files < <(sed -n 's|^//! Files: ||p' "$file")
    if [ ${#files[@]} -gt 0 ]; then
      echo "$t $SECONDS_EACH ${parsers:-$t} $file" $(git ls-files -- "${files[@]}")
      continue
    fi
    echo "$t $SECONDS_EACH ${parsers:-$t} $file" $(grep -oE '\blateen_[a-z0-9_]+' "$file" | sort -u | sed 's/^lateen_//; s/_/-/g; s|.*|crates/&/src|') \
      $(grep '^//!' "$file" | grep -oE '\bcrates/[a-z0-9_/.-]*[a-z0-9_]' | sort -u)
  done
  while IFS=: read -r file name; do
    folder=${file%/*}
    echo "$folder/$name $SECONDS_EACH $folder/$name $file${sources[$folder]:-}"
  done < <(go_targets)
}
[ "${1:-}" != --list ] || { list; exit; }
tell= profile=release lanes=2 longest=10
[ "${1:-}" != --tell ] || { tell=1 profile=quick lanes=4 longest=60; shift; } # beside meshes a process may stand still
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# report NAME CODE LOG [CURE]: the outcome of fresh fuzzing, of which CURE says how to see a finding again.
report() {
  if [ "$2" = 0 ]; then echo "ok - $1: $(grep -oE 'cov: [0-9]+|execs: [0-9]+' "$3" | tail -1)"
  elif [ -n "$tell" ]; then tail -25 "$3"; echo "--- FOUND: $1: ${4:-}"
  else tail -25 "$3"; echo "not ok - $1: ${4:-}"; fi
}
# ended NAME CODE RESULT: prints the checks of a target in one piece; CODE is that of its fuzzing.
ended() {
  local fuzzed=0
  [ "$2" != 0 ] || fuzzed=$SECONDS_EACH
  { flock 9; cat "$3"; echo "--- FUZZED: $1, $fuzzed s"; } 9>"$scratch/lock"
}
# late: whether a target that begins now would not end by FUZZ_UNTIL.
late() { [ -n "${FUZZ_UNTIL:-}" ] && [ $(($(date +%s) + SECONDS_EACH)) -gt "$FUZZ_UNTIL" ]; }
# left NAME: says that a target was not begun.
left() {
  touch "$scratch/left"
  { flock 9; echo "--- LEFT: $1"; } 9>"$scratch/lock"
}
# wanted NAME OTHER-NAME [ARGUMENTS...]
wanted() {
  local name=$1 other=$2 asked; shift 2
  for asked in "$@"; do [ "$asked" != "$name" ] && [ "$asked" != "$other" ] || return 0; done
  [ $# = 0 ]
}

# Rust: libFuzzer with the instrumentation that stable rustc offers.
wanted_rust=()
for t in $rust; do ! wanted "$t" "$t" "$@" || wanted_rust+=("$t"); done
export RUSTFLAGS='--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares'
# An explicit target keeps the instrumentation out of build scripts and procedural macros.
triple=$(rustc -vV | sed -n "s/^host: //p")
if [ ${#wanted_rust[@]} -gt 0 ]; then
  # The same versions as everywhere else: the workspace's lock file, plus what the fuzzer itself needs.
  cp Cargo.lock fuzz/Cargo.lock
  if ! cargo build --quiet --profile $profile --target "$triple" --target-dir "${FUZZ_TARGET_DIR:-fuzz/target}" --manifest-path fuzz/Cargo.toml --bins 2>"$scratch/build"; then
    cat "$scratch/build"
    for t in "${wanted_rust[@]}"; do
      echo "not ok - $t: the fuzz targets build" >"$scratch/$t.result"
      ended "$t" 1 "$scratch/$t.result"
    done
    wanted_rust=()
  fi
fi
mkdir -p "$FINDINGS"
# libfuzzer TARGET LOG ARGUMENTS...
libfuzzer() {
  local target=$1 log=$2; shift 2
  "${FUZZ_TARGET_DIR:-fuzz/target}/$triple/$profile/$target" -timeout=$longest -rss_limit_mb=1024 -print_final_stats=0 -artifact_prefix="$FINDINGS/$target-" "$@" >"$log" 2>&1
}
fuzz_rust() { # TARGET
  local code
  ! late || { left "$1"; return; }
  mkdir -p "$scratch/$1"
  if ! libfuzzer "$1" "$scratch/$1.log" -runs=0 "fuzz/corpus/$1"; then
    { tail -25 "$scratch/$1.log"; echo "not ok - $1: an input of fuzz/corpus/$1 fails"; } >"$scratch/$1.result"
    ended "$1" 1 "$scratch/$1.result"
    return
  fi
  echo "ok - $1: the corpus" >"$scratch/$1.result"
  libfuzzer "$1" "$scratch/$1.log" -max_total_time="$SECONDS_EACH" "$scratch/$1" "fuzz/corpus/$1"
  code=$?
  report "$1" $code "$scratch/$1.log" "its input is $(grep -oE "$FINDINGS/[^ ]+" "$scratch/$1.log" | tail -1)" >>"$scratch/$1.result"
  ended "$1" $code "$scratch/$1.result"
}
# build_go FOLDER: a package is built once for all of its targets.
build_go() { go test -c -vet=off ${instrumented[@]+"${instrumented[@]}"} -o "$(program_of "$1")" "./$1" >"$(program_of "$1").log" 2>&1; }
program_of() { echo "$scratch/$(tr / - <<<"$1").test"; }
fuzz_go() { # FOLDER TARGET
  local folder=$1 target=$2 program log code input
  ! late || { left "$folder/$target"; return; }
  program=$(program_of "$folder") log=$(program_of "$folder")-$target
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
  ended "$folder/$target" $code "$log.result"
}
# timely LOG: whether the end of the time is all that failed. A worker that is busy with an input at that moment may be
# reported as "context deadline exceeded" before Go 1.27 (golang/go#75804); a finding names an input, a hang says that the
# process hung.
timely() {
  grep -qE '^ +context deadline exceeded$' "$1" && ! grep -qE 'Failing input|panic|hung or terminated|_test\.go:' "$1" &&
    [ "$(grep -oE 'elapsed: [0-9]+s, execs: [1-9]' "$1" | tail -1 | tr -dc '0-9 ' | awk '{print $1}')" -ge "$SECONDS_EACH" ]
}

# Two lanes: a target keeps one core busy. Four of them take half as long with --tell, which counts seconds and not inputs.
lane() { while [ "$(jobs -rp | wc -l)" -ge $lanes ]; do wait -n; done; }
for t in ${wanted_rust[@]+"${wanted_rust[@]}"}; do
  lane; fuzz_rust "$t" &
done
unset RUSTFLAGS
instrumented=()
[ -n "$tell" ] || instrumented=(-fuzz .)
declare -A of
while IFS=: read -r file name; do
  ! wanted "$name" "$(dirname "$file")/$name" "$@" || of[$(dirname "$file")]+=" $name"
done < <(go_targets)
for folder in "${!of[@]}"; do
  lane
  if late; then
    for t in ${of[$folder]}; do left "$folder/$t"; done
    continue
  fi
  build_go "$folder"; built=$?
  for t in ${of[$folder]}; do
    if [ $built != 0 ]; then
      { cat "$(program_of "$folder").log"; echo "not ok - $t ($folder): the fuzz targets of $folder build"; } >"$(program_of "$folder")-$t.result"
      ended "$folder/$t" 1 "$(program_of "$folder")-$t.result"
      continue
    fi
    lane; fuzz_go "$folder" "$t" &
  done
done
wait
results=$(ls "$scratch"/*.result 2>/dev/null)
[ -n "$results" ] || [ -e "$scratch/left" ] || { echo "not ok - there is no fuzz target of that name: $*"; echo "0 passed, 1 failed, 0 skipped"; exit 1; }
# Once more at the end: what failed is what a reader looks for.
cat $results /dev/null | sed -n 's/^not ok - /--- FAIL: /p'
failed=$(cat $results /dev/null | grep -c '^not ok')
echo "$(cat $results /dev/null | grep -c '^ok') passed, $failed failed, 0 skipped"
[ "$failed" = 0 ]
