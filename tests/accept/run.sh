#!/usr/bin/env bash
# Runs the acceptance scripts (all, or those named) and adds their counts up. LANES (2) of them run at a time: each has a
# mesh of its own and mostly waits. A line of a script that begins with "# after:" says that it puts a load on the machine and judges no
# time closely. It runs after the others, beside two of its kind. A line "# alone:" says that it judges times, or looks at the whole
# machine. It runs by itself at the end. PART=shared runs those without such a line, and PART=alone the rest.
set -uo pipefail
cd "$(dirname "$0")"
scripts=("$@")
[ ${#scripts[@]} -gt 0 ] || scripts=([0-9]*.sh)
results=$(mktemp -d)
trap 'rm -rf "$results"' EXIT

one() { # SCRIPT
  local began=$SECONDS code counts out=$results/$1.out
  timeout "${SCRIPT_SECONDS:-600}" bash "./$1" >"$out" 2>&1
  code=$?
  counts=$(grep -E '^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$' "$out" | tail -1)
  {
    echo "== $1"
    if [ -z "$counts" ]; then
      counts="0 passed, 1 failed, 0 skipped"
      tail -30 "$out"
      echo "not ok - $1 ended with code $code and no counts"
    else
      grep -vE '^[0-9]+ passed, ' "$out"
      # A script that counts no failure and does not end well has not said everything.
      if [ "$code" != 0 ] && [[ $counts == *", 0 failed,"* ]]; then
        counts=${counts/, 0 failed,/, 1 failed,}
        echo "not ok - $1 ended with code $code and counted no failure"
      fi
    fi
    echo "   $((SECONDS - began)) s"
  } >"$results/$1.text"
  echo "$counts" >"$results/$1.counts"
  cat "$results/$1.text" # in one piece: the other lane prints as well
}

# together LANES SCRIPT...: so many at a time.
together() {
  local s lanes=$1
  shift
  for s; do
    while [ "$(jobs -rp | wc -l)" -ge "$lanes" ]; do wait -n; done
    one "$s" &
  done
  wait
}

shared=() after=() alone=()
for s in "${scripts[@]}"; do
  s=${s%.sh}.sh
  case $(grep -oEm1 '^# (after|alone):' "$s") in
    '# after:') after+=("$s") ;;
    '# alone:') alone+=("$s") ;;
    *) shared+=("$s") ;;
  esac
done
[ "${PART:-}" = alone ] || together "${LANES:-2}" ${shared[@]+"${shared[@]}"}
if [ "${PART:-}" != shared ]; then
  together "${LANES:-3}" ${after[@]+"${after[@]}"}
  for s in ${alone[@]+"${alone[@]}"}; do one "$s"; done
fi

# Once more at the end: what failed is what a reader looks for.
for s in "$results"/*.text; do sed -n "s|^not ok - |--- FAIL: $(basename "${s%.text}"): |p" "$s"; done
awk '{p += $1; f += $3; k += $5} END {printf "%d passed, %d failed, %d skipped\n", p, f, k; exit f > 0}' "$results"/*.counts
