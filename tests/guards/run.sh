#!/usr/bin/env bash
# Removes one guard after the other from a copy of the last commit, and expects the guard's test to fail. guards.txt has the rows, and
# docs/reference/attack-classes.md says which attack each guard keeps out.
#   tests/guards/run.sh [ROW...]   all rows, or those named
# Before the first row, and after the last, the tests of these rows run with every guard in place. A row fails if
#   - the text that its edit replaces is not in one place of the file,
#   - the tree does not compile without the guard,
#   - the test does not run, or passes, or fails for another reason than the row says.
# Cargo names the artifacts of a workspace by paths within it, and judges them by the times of files. So a copy must not share a target
# directory with the tree: the tree would run code without guards. Copies have one of their own, GUARDS_TARGET_DIR
# (CARGO_TARGET_DIR/guards), which takes some gigabytes and serves one run at a time.
set -uo pipefail
cd "$(dirname "$0")/../.."
export LC_ALL=C CARGO_TERM_COLOR=never
ROWS=tests/guards/guards.txt
target=${GUARDS_TARGET_DIR:-${CARGO_TARGET_DIR:-target}/guards}
mkdir -p "$target" && target=$(cd "$target" && pwd) || exit 1

declare -A of=() # "ROW KEY": the text
all=() rows=()
row=
while IFS= read -r line; do
  case $line in
    '' | '#'*) ;;
    '['*']') row=${line:1:-1}; all+=("$row") ;;
    *' '*) of["$row ${line%% *}"]=${line#* } ;;
    *) of["$row $line"]= ;;
  esac
done <"$ROWS"
for row in "${all[@]}"; do
  for key in crate target test file old new; do
    [ -n "${of["$row $key"]+set}" ] || { echo "$ROWS: the row $row has no $key" >&2; exit 64; }
  done
  [ $# = 0 ] || [[ " $* " = *" $row "* ]] || continue
  rows+=("$row")
done
for row; do
  [[ " ${all[*]} " = *" $row "* ]] || { echo "$ROWS has no row $row" >&2; exit 64; }
done

exec 9>"$target/lock"
flock -n 9 || { echo "not ok - another run of this script uses $target"; echo "0 passed, 1 failed, 0 skipped"; exit 1; }
scratch=$(mktemp -d "${TMPDIR:-/tmp}/guards-XXXXXX")
trap 'rm -rf "$scratch"' EXIT
trap 'exit 130' INT TERM
copy=$scratch/copy
# Files have the time of this run, so that nothing is taken for older than an artifact of an earlier one.
mkdir "$copy" && git archive HEAD | tar -x -m -C "$copy" || { echo "not ok - the last commit cannot be copied"; echo "0 passed, 1 failed, 0 skipped"; exit 1; }

passed=0 failed=0
ok() { passed=$((passed + 1)); echo "ok - $1"; }
not_ok() { failed=$((failed + 1)); echo "not ok - $1"; [ -z "${2:-}" ] || tail -"${3:-25}" "$2" | sed 's/^/    /'; }

# in_copy LOG COMMAND...: runs a command in the copy.
in_copy() {
  local log=$1; shift
  (cd "$copy" && CARGO_TARGET_DIR=$target "$@") >"$log" 2>&1 9>&-
}
# compiled ROW: compiles the tests of a row's target.
compiled() {
  # shellcheck disable=SC2086 # a target is one word or two
  in_copy "$scratch/build" cargo test --locked -p "${of["$1 crate"]}" ${of["$1 target"]} --no-run
}
# tested ROW TEST...: runs tests of the row's target.
tested() {
  local row=$1; shift
  # shellcheck disable=SC2086
  in_copy "$scratch/tests" timeout -k 10 600 cargo test --locked -p "${of["$row crate"]}" ${of["$row target"]} -- --exact "$@"
}
# replaced FILE OLD NEW: replaces the one place of OLD. Without exactly one place it changes nothing and fails.
replaced() {
  local text before after
  text=$(cat "$1"; echo x)
  text=${text%x}
  [[ $text = *"$2"* ]] || return 1
  before=${text%%"$2"*}
  after=${text#*"$2"}
  [[ $after != *"$2"* ]] || return 1
  printf '%s%s%s' "$before" "$3" "$after" >"$1"
}
# whole: says whether all tests of the rows pass with every guard in place. Those that do not are in `bad`.
whole() {
  local row other name names seen=" "
  bad=
  for row in "${rows[@]}"; do
    [[ $seen != *" ${of["$row crate"]} ${of["$row target"]}; "* ]] || continue
    seen+="${of["$row crate"]} ${of["$row target"]}; "
    names=()
    for other in "${rows[@]}"; do
      [ "${of["$other crate"]} ${of["$other target"]}" = "${of["$row crate"]} ${of["$row target"]}" ] || continue
      [[ " ${names[*]} " = *" ${of["$other test"]} "* ]] || names+=("${of["$other test"]}")
    done
    compiled "$row" || { bad+=" ${of["$row crate"]}"; cat "$scratch/build" >>"$scratch/bad"; continue; }
    tested "$row" "${names[@]}"
    for name in "${names[@]}"; do
      grep -qxF "test $name ... ok" "$scratch/tests" || { bad+=" $name"; cat "$scratch/tests" >>"$scratch/bad"; }
    done
  done
  [ -z "$bad" ]
}
# without ROW: removes the guard of a row, and expects its test to fail.
without() {
  local row=$1 name=${of["$1 test"]} says=${of["$1 says"]:-} file=$copy/${of["$1 file"]}
  cp "$file" "$scratch/saved" || { not_ok "$row: ${of["$row file"]} is not there"; return; }
  if ! replaced "$file" "${of["$row old"]}" "${of["$row new"]}"; then
    not_ok "$row: the text that the edit replaces is not in exactly one place of ${of["$row file"]}"
    return
  fi
  if ! compiled "$row"; then
    not_ok "$row: the tree does not compile without the guard: mend the edit" "$scratch/build" 40
  else
    tested "$row" "$name"
    if grep -qxF "test $name ... ok" "$scratch/tests"; then
      not_ok "$row: $name passes without the guard" "$scratch/tests"
    elif ! grep -qxF "test $name ... FAILED" "$scratch/tests" || ! grep -q '^test result: FAILED\. 0 passed; 1 failed;' "$scratch/tests"; then
      not_ok "$row: $name did not run to its end" "$scratch/tests"
    elif [ -n "$says" ] && ! grep -qF -- "$says" "$scratch/tests"; then
      not_ok "$row: $name fails, and does not say \"$says\"" "$scratch/tests"
    else
      ok "$row: $name fails without the guard of ${of["$row file"]}"
    fi
  fi
  # The file has the time of now, so the artifacts without the guard are older.
  cat "$scratch/saved" >"$file"
}

if ! whole; then
  not_ok "with every guard in place these do not pass, so no guard is removed:$bad" "$scratch/bad" 60
else
  ok "the tests of ${#rows[@]} rows pass with every guard in place"
  for row in "${rows[@]}"; do without "$row"; done
  : >"$scratch/bad"
  if whole; then ok "they pass again after the last row"
  else not_ok "after the last row these do not pass:$bad" "$scratch/bad" 60; fi
fi
echo "$passed passed, $failed failed, 0 skipped"
[ $failed = 0 ]
