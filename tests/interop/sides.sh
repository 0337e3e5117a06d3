#!/usr/bin/env bash
# The scripts of tests/accept and tests/faults that sides.txt lists (all, or those named), each with an unmodified ztunnel on the node of
# its client and again on that of its server. What ztunnel does otherwise is listed there with its reason: any other check that
# fails is a failure, and so is a listed one that fails no more, or one that was not made. LANES (2) of them run at a time.
set -uo pipefail
cd "$(dirname "$0")"
ROOT=$(cd ../.. && pwd)
if [ ! -x "${ZTUNNEL:-}" ]; then
  echo "not ok - set ZTUNNEL to the path of an unmodified ztunnel binary: make interop-sides ZTUNNEL=/path/to/ztunnel"
  echo "0 passed, 1 failed, 0 skipped"
  exit 1
fi
export ZTUNNEL
source ./release.sh
RESULTS=$(mktemp -d)
trap 'rm -rf "$RESULTS"' EXIT
trap 'exit 130' INT TERM
export FAULT_TOOLS=$RESULTS/tools
(cd "$ROOT" && CGO_ENABLED=0 go build -o "$FAULT_TOOLS/" ./tests/mesh/...) || { echo "not ok - the tools build"; echo "0 passed, 1 failed, 0 skipped"; exit 1; }

# expected SCRIPT SIDE: its lines of sides.txt, "must<tab>beginning of a check's name" or "may<tab>...".
expected() {
  awk -v script="$1" -v side="$2" -v release="$RELEASE" '
    /^#/ || NF == 0 { next }
    /^[^ ]/ { on = $1 == script; next }
    on {
      sub(/^ +/, ""); sub(/ *\| .*$/, "")
      how = "must"
      if (sub(/^may /, "")) how = "may"
      if (sub(/^1\.30 /, "") && release != "1.30") how = "may"
      who = $1; sub(/^[^ ]+ /, "")
      if (who == side ":" || who == "either:") print how "\t" $0
    }' sides.txt
}

# unfinished SCRIPT CODE COUNTS OUTPUT: why not all of its checks can be taken for made, a line each.
unfinished() {
  local passed failed skipped told checks
  read -r passed _ failed _ skipped _ <<<"$3"
  told=$(grep -c '^not ok - ' "$4")
  checks=$(awk -v script="$1" '$1 == script {print $2}' sides.txt)
  [ "$skipped" = 0 ] || echo "$skipped of its checks were skipped: give it what it lacks"
  [ "$2" = $((failed > 0)) ] || echo "it ended with code $2 where it counted $failed failed"
  [ "$told" = "$failed" ] || echo "it counted $failed failed and named $told"
  [ -n "$checks" ] || echo "sides.txt does not say how many checks it makes"
  [ $((passed + failed)) = "${checks:-$((passed + failed))}" ] ||
    echo "it made $((passed + failed)) checks of $checks: find what was left out, or change the number in sides.txt and docs/reference/ztunnel-compatibility.md"
}

one() { # SCRIPT SIDE NODE
  local began=$SECONDS out=$RESULTS/out.$2.${1//\//.} code counts passed skipped failed=0 line how name met
  ZTUNNEL_NODES=$3 timeout -k 10 "${SCRIPT_SECONDS:-400}" bash "$ROOT/tests/$1.sh" >"$out" 2>&1 </dev/null
  code=$?
  counts=$(grep -E '^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$' "$out" | tail -1)
  {
    echo "== $1, ztunnel behind the $2"
    read -r passed _ _ _ skipped _ <<<"${counts:-0 passed, 0 failed, 0 skipped}"
    if [ -z "$counts" ]; then
      tail -30 "$out"
      echo "not ok - it ended with code $code and no counts"
      failed=1
    else
      unfinished "$1" "$code" "$counts" "$out" >"$out.unfinished"
      sed 's/^/not ok - /' "$out.unfinished"
      failed=$(wc -l <"$out.unfinished")
    fi
    expected "$1" "$2" >"$out.expected"
    sed -n 's/^not ok - *//p' "$out" >"$out.otherwise"
    while read -r line; do
      met=
      while IFS=$'\t' read -r how name; do if [[ $line == "$name"* ]]; then met=$name; fi; done <"$out.expected"
      if [ -n "$met" ]; then
        passed=$((passed + 1))
        echo "ok - as listed, otherwise: $line"
      else
        failed=$((failed + 1))
        echo "not ok - $line"
        grep -F -A20 -- "$line" "$out" | sed '1d; /^\(not \)\?ok /,$d'
      fi
    done <"$out.otherwise"
    while IFS=$'\t' read -r how name; do
      [ "$how" = must ] && ! grep -qF -- "$name" "$out.otherwise" || continue
      failed=$((failed + 1))
      echo "not ok - it is as with lateen-proxy, and listed as otherwise: $name"
    done <"$out.expected"
    echo "   $passed passed, $failed failed in $((SECONDS - began)) s"
  } >"$out.text"
  echo "$passed $failed $skipped" >"$out.counts"
  cat "$out.text" # in one piece: the other lane prints as well
}

scripts=("$@")
[ ${#scripts[@]} -gt 0 ] || mapfile -t scripts < <(grep -oE '^(accept|faults)/[^ ]+' sides.txt)
for s in "${scripts[@]}"; do
  for side in client:n1 server:n2; do
    while [ "$(jobs -rp | wc -l)" -ge "${LANES:-2}" ]; do wait -n; done
    one "${s%.sh}" "${side%:*}" "${side#*:}" &
  done
done
wait
# Once more at the end: what failed is what a reader looks for.
for s in "$RESULTS"/out.*.text; do sed -n "s|^not ok - |--- FAIL: $(sed -n '1s/^== //p' "$s"): |p" "$s"; done
awk '{p += $1; f += $2; k += $3} END {printf "%d passed, %d failed, %d skipped\n", p, f, k; exit f > 0}' "$RESULTS"/out.*.counts
