#!/usr/bin/env bash
# Runs the fault tests (all, or those named), LANES (2) of them at a time, and adds their counts up. The tools are built once.
set -uo pipefail
cd "$(dirname "$0")"
OUT=$(mktemp -d)
trap 'rm -rf "$OUT"' EXIT
export FAULT_TOOLS=$OUT/tools
(cd ../.. && CGO_ENABLED=0 go build -o "$FAULT_TOOLS/" ./tests/mesh/...) || { echo "not ok - the tools build"; echo "0 passed, 1 failed, 0 skipped"; exit 1; }
scripts=("$@")
[ ${#scripts[@]} -gt 0 ] || scripts=([0-9]*.sh)
run() { # SCRIPT
  local began=$SECONDS
  # To a file: what a script leaves behind must not keep this one waiting.
  timeout -k 10 $((600 + 2 * ${FAULT_SECONDS:-0})) bash "./$1" >"$OUT/$1" 2>&1 </dev/null
  echo "$? $((SECONDS - began))" >"$OUT/$1.end"
}
for s in "${scripts[@]}"; do
  # Most of the time they wait: for a process to come back, for a certificate to run out.
  while [ "$(jobs -rp | wc -l)" -ge "${LANES:-2}" ]; do wait -n; done
  run "${s%.sh}.sh" &
done
wait
passed=0 failed=0 skipped=0 names=
for s in "${scripts[@]}"; do
  s=${s%.sh}.sh
  read -r code seconds <"$OUT/$s.end"
  echo "== $s"
  counts=$(grep -E '^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$' "$OUT/$s" | tail -1)
  if [ -z "$counts" ]; then
    counts="0 passed, 1 failed, 0 skipped"
    tail -30 "$OUT/$s"
    echo "not ok - $s ended with code $code and no counts"
  else
    grep -vE '^[0-9]+ passed, ' "$OUT/$s"
    # A script that counts no failure and does not end well has not said everything.
    if [ "$code" != 0 ] && [[ $counts == *", 0 failed,"* ]]; then
      counts=${counts/, 0 failed,/, 1 failed,}
      echo "not ok - $s ended with code $code and counted no failure" | tee -a "$OUT/$s"
    fi
  fi
  names+=$(grep -hs '^not ok - ' "$OUT/$s" | sed "s|^not ok - |--- FAIL: $s: |")$'\n'
  read -r p _ f _ k _ <<<"${counts//,/}"
  passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + k))
  echo "   $seconds s"
done
# Once more at the end: what failed is what a reader looks for.
grep . <<<"$names"
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
