#!/usr/bin/env bash
# The tests of crates/hbone and of this folder once more, with the HTTP/2 that is not the default (LATEEN_HTTP2, `own` if it is
# not set) at our ends of the tunnels.
set -uo pipefail
cd "$(dirname "$0")/../.."
export LATEEN_HTTP2=${LATEEN_HTTP2:-own}
passed=0 failed=0
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
# Built with the whole workspace, as the tests themselves are: nothing is compiled twice.
if ! cargo test --workspace --locked --quiet --no-run --message-format=json >"$scratch/built" 2>"$scratch/errors"; then
  cat "$scratch/errors"; echo "not ok - the tests build"; echo "0 passed, 1 failed, 0 skipped"; exit 1
fi
run() { # NAME COMMAND...
  local name=$1; shift
  if "$@" >"$scratch/log" 2>&1; then passed=$((passed + 1)); echo "ok - $name ($LATEEN_HTTP2)"
  else failed=$((failed + 1)); grep -E 'panicked|FAILED|FAIL|left:|right:' -A3 "$scratch/log" | tail -60; echo "not ok - $name ($LATEEN_HTTP2)"; fi
}
while read -r name binary; do
  run "hbone $name" env -C crates/hbone "$binary"
done < <(jq -r 'select(.executable and .profile.test and (.package_id | test("/crates/hbone#"))) | "\(.target.name) \(.executable)"' "$scratch/built")
[ "$passed" -gt 10 ] || [ "$failed" -gt 0 ] || { failed=1; echo "not ok - there are tests"; }
run "tests/wire" go test -count=1 ./tests/wire/
echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" = 0 ]
