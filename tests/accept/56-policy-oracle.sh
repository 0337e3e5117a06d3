#!/usr/bin/env bash
# Random policies and requests, decided by the waypoint's engine and by Envoy's RBAC as istiod configures it; tests/oracle says what must
# be alike. hack/envoy.sh has the Envoy, and ENVOY names another one; without any this is skipped. Each of ROUNDS (1) draws CASES (400) by a
# seed of its own, the first of them SEED (1). The requests go through a network namespace.
# bites: let `fields_pass` in crates/policy/src/request/check.rs need all fields whatever the action: a dozen decisions differ.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
passed=0 failed=0
ends() { echo "$passed passed, $failed failed, 0 skipped"; [ "$failed" = 0 ] || exit 1; exit 0; }
[ "$(id -u)" = 0 ] || { echo "not ok - needs root: network namespaces cannot be made without it"; failed=1; ends; }
check() { # DESCRIPTION COMMAND...
  if "${@:2}" >"$scratch/out" 2>&1; then passed=$((passed + 1)); echo "ok - $1"
  else failed=$((failed + 1)); echo "not ok - $1"; tail -60 "$scratch/out"; fi
}

envoy=$(hack/envoy.sh 2>"$scratch/why") || {
  echo "skip - there is no Envoy to compare with: $(cat "$scratch/why")"
  echo "0 passed, 0 failed, 1 skipped"
  exit 0
}
check "there is an Envoy" "$envoy" --version
# The whole workspace is named so that dependencies have the features with which `cargo test` has built them.
check "the engine's example is built" cargo build --locked --quiet --workspace --example request_decisions
check "the comparison is built" go test -tags envoy -c -o "$scratch/oracle.test" ./tests/oracle
[ "$failed" = 0 ] || ends

# decide SEED: in a namespace with the addresses of clients and destinations that tests/oracle draws.
decide() {
  LATEEN_ORACLE_ENVOY=$envoy LATEEN_ORACLE_SEED=$1 LATEEN_ORACLE_CASES=${CASES:-400} unshare --net bash -c '
    ip link set lo up &&
      for a in 10.96.0.1/32 10.96.0.2/32 10.244.1.7/32 10.244.2.9/32 fd00:96::1/128 fd00:244::7/128 fd00:244:1::9/128; do
        ip addr add "$a" dev lo || exit
      done
    cd tests/oracle && exec "$0" -test.v -test.run TestEnvoy' "$scratch/oracle.test"
}
for seed in $(seq "${SEED:-1}" $((${SEED:-1} + ${ROUNDS:-1} - 1))); do
  check "Envoy and the engine decide alike, but for known departures (seed $seed)" decide "$seed"
  grep -oE '[0-9]+ decisions, .*' "$scratch/out"
done
ends
