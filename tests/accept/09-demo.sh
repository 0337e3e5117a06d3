#!/usr/bin/env bash
# alone: it measures.
# `make demo`, as a newcomer runs it but for shorter rounds: it ends well, its table is complete, and nothing is left.
source "$(dirname "$0")/lib.sh"
MESH=demo RUN=/run/lateen/demo
# What a mesh left that ended with its machine is in nobody's way.
# An engine has its directory locked for as long as it lives, ready or not.
if [ -d "$RUN" ] && ! flock -n "$RUN" true; then
  not_ok "a mesh named demo runs on this machine already: take it down first (bin/lateen --name demo down)"
  MESH=none RUN=/run/lateen/none
  finish
fi
mkdir -p "$RUN"/{pods,nodes}
# No kernel gives this pid.
echo '{"pid":4194304,"startTime":0,"started":"2026-01-01T00:00:00Z","mesh":"demo","nodes":2}' >"$RUN/engine.json"
cd "$ROOT" || exit 1
began=$SECONDS
make demo DEMO_FLAGS='--rounds 2 --block 3s --warmup 1s' >"$WORK/out" 2>&1
equal "make demo succeeds" 0 $?
[ "$failed" = 0 ] || tail -40 "$WORK/out" | sed 's/^/    /'
says() { check "it says: $1" grep -qiE -- "$1" "$WORK/out"; }
says 'packages'
says 'ns/default/sa/bookinfo-productpage +ns/default/sa/bookinfo-details +yes'
says 'src.identity=spiffe://cluster.local/ns/default/sa/client dst.identity=spiffe://cluster.local/ns/default/sa/bookinfo-details'
says 'plaintext|in the clear'
says 'TLS'
says 'P50 +.*P75 +.*P90 +.*P99|p50.*p75.*p90.*p99'
says 'indicative, not a claim'
says 'denied|refused'
says '0 of [1-9][0-9]* requests failed'
says 'no process was restarted'
echo "    took $((SECONDS - began)) s with the build"
check_not "nothing is left of it" test -e "$RUN"
finish
