#!/usr/bin/env bash
# Runs the scripts of this folder (all, or those named) against the unmodified ztunnel that ZTUNNEL names, and adds up.
# 15-agentgateway is among all of them where AGENTGATEWAY names an agentgateway.
set -uo pipefail
cd "$(dirname "$0")"
passed=0 failed=0 skipped=0
scripts=("$@")
if [ ${#scripts[@]} = 0 ]; then
  for s in [0-9]*.sh; do [ "$s" = 15-agentgateway.sh ] && [ -z "${AGENTGATEWAY:-}" ] || scripts+=("$s"); done
fi
for s in "${scripts[@]}"; do
  s=${s%.sh}.sh
  echo "== $s"
  began=$SECONDS
  out=$(timeout "${SCRIPT_SECONDS:-400}" bash "./$s" 2>&1)
  code=$?
  counts=$(grep -E '^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$' <<<"$out" | tail -1)
  if [ -z "$counts" ]; then
    p=0 f=1 k=0
    printf '%s\n' "$out" | tail -30
    echo "not ok - $s ended with code $code and no counts"
  else
    grep -vE '^[0-9]+ passed, ' <<<"$out"
    read -r p _ f _ k _ <<<"$counts"
    if [ "$code" != $((f > 0)) ]; then
      echo "not ok - $s ended with code $code where it counted $f failed"
      f=$((f + 1))
    fi
    # What was skipped was not compared.
    if [ "$k" != 0 ]; then
      echo "not ok - $k checks of $s were skipped: give it what it lacks"
      f=$((f + 1))
    fi
  fi
  passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + k))
  echo "   $p passed, $f failed, $k skipped in $((SECONDS - began)) s"
done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
