#!/usr/bin/env bash
# Runs the fault tests (all, or those named) one after the other and adds their counts up. The tools are built once.
set -uo pipefail
cd "$(dirname "$0")"
FAULT_TOOLS=$(mktemp -d)
trap 'rm -rf "$FAULT_TOOLS"' EXIT
(cd ../.. && CGO_ENABLED=0 go build -o "$FAULT_TOOLS/" ./tests/mesh/...) || { echo "not ok - the tools build"; echo "0 passed, 1 failed, 0 skipped"; exit 1; }
export FAULT_TOOLS
passed=0 failed=0 skipped=0
scripts=("$@")
[ ${#scripts[@]} -gt 0 ] || scripts=([0-9]*.sh)
for s in "${scripts[@]}"; do
  s=${s%.sh}.sh
  echo "== $s"
  began=$SECONDS
  # To a file: what a script leaves behind must not keep this one waiting.
  timeout -k 10 $((120 + 2 * ${FAULT_SECONDS:-0})) bash "./$s" >"$FAULT_TOOLS/out" 2>&1 </dev/null
  code=$?
  counts=$(grep -E '^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$' "$FAULT_TOOLS/out" | tail -1)
  if [ -z "$counts" ]; then
    counts="0 passed, 1 failed, 0 skipped"
    tail -30 "$FAULT_TOOLS/out"
    echo "not ok - $s ended with code $code and no counts"
  else
    grep -vE '^[0-9]+ passed, ' "$FAULT_TOOLS/out"
  fi
  read -r p _ f _ k _ <<<"${counts//,/}"
  passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + k))
  echo "   $((SECONDS - began)) s"
done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
