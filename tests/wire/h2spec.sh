#!/usr/bin/env bash
# h2spec, a foreign conformance suite for HTTP/2, against our tunnel server (crates/hbone/examples/plain.rs), against our own
# HTTP/2 core as a server of anything (crates/h2/examples/h2_plain.rs), and against an ordinary server, which answers requests
# with their content and trailers (crates/exchange/examples/echo_server.rs). What deviates is listed below with its reason, and must
# deviate: a case that begins to pass, or to fail, fails the run. Needs the Go module proxy, or its cache.
set -euo pipefail
cd "$(dirname "$0")/../.."
version=v2.2.1+incompatible

# Our server speaks CONNECT only and answers any other request at once, with 405 and no body; h2spec sends GET and POST.
# On a closed stream it then sees headers where it waits for data, and never has two requests open at a time. A frame of
# 20 KiB, which is h2spec's idea of too large, is within the 256 KiB that we announce.
expected_tunnel='Sends HEADERS frames that causes their advertised concurrent stream limit to be exceeded
Sends a PRIORITY frame on half-closed (remote) stream
Sends a WINDOW_UPDATE frame on half-closed (remote) stream
Sends a large size HEADERS frame that exceeds the SETTINGS_MAX_FRAME_SIZE'
# RFC 9113 §5.3.2 has receivers pass over the priorities of RFC 7540, which h2spec still judges.
expected_core='Sends HEADERS frame that depend on itself
Sends PRIORITY frame that depend on itself'
# Our answer, and the RST of a connection that is closed with unread bytes, race with frames that the suite is still sending;
# it loses such a race now and then, a different one each time. What deviates is what fails in each of three runs.
runs=3
# This one it loses on some machines always, on others never.
either='Sends invalid connection preface'

scratch=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill "$server" 2>/dev/null || true; rm -rf "$scratch"' EXIT
# The whole workspace is named so that dependencies have the features with which `cargo test` has built them.
cargo build --locked --quiet --workspace --example plain --example h2_plain --example echo_server
# In a module of its own: it is a tool, and nothing of ours depends on it.
installed() {
  for _ in 1 2 3; do
    # A download may fail for the network's sake alone.
    (cd "$scratch" && GOFLAGS=-mod=mod GOBIN="$scratch" go install "github.com/summerwind/h2spec/cmd/h2spec@$version" 2>"$scratch/install") && return
    sleep 5
  done
  return 1
}
installed || { cat "$scratch/install"; echo "not ok - h2spec can be built"; exit 1; }

suite() { # EXAMPLE EXPECTED [WORD...]: words for the example
  local port run name=$1
  "${CARGO_TARGET_DIR:-target}/debug/examples/$1" "${@:3}" >"$scratch/server" 2>&1 &
  server=$!
  for _ in $(seq 600); do grep -q '^listening ' "$scratch/server" && break; sleep 0.1; done
  port=$(sed -n 's/^listening 127.0.0.1://p' "$scratch/server")
  [ -n "$port" ] || { cat "$scratch/server"; echo "not ok - $name listens"; return 1; }
  # It fails when a case fails; which ones is what counts.
  { [ -z "$2" ] || sort <<<"$2"; } >"$scratch/expected"
  for run in $(seq "$runs"); do
    # Both ends have the lowest priority: the 2 s that h2spec waits of itself are soon over beside meshes.
    "$scratch/h2spec" -h 127.0.0.1 -p "$port" -o 5 >"$scratch/report" 2>&1 || true
    tail -1 "$scratch/report"
    grep -qE '^14[0-9] tests,' "$scratch/report" || { cat "$scratch/report"; echo "not ok - h2spec ran to its end against $name"; return 1; }
    sed -n '/^Failures:/,$s/^ *× [0-9]*: //p' "$scratch/report" | { grep -vxF "$either" || true; } | sort >"$scratch/failed-now"
    if [ "$run" = 1 ]; then mv "$scratch/failed-now" "$scratch/failed"
    else comm -12 "$scratch/failed" "$scratch/failed-now" >"$scratch/both" && mv "$scratch/both" "$scratch/failed"; fi
    if cmp -s "$scratch/expected" "$scratch/failed"; then
      echo "ok - h2spec: what deviates of $name is what is expected to"
      kill "$server"; server=
      return 0
    fi
  done
  sed -n '/^Failures:/,$p' "$scratch/report"
  diff "$scratch/expected" "$scratch/failed" || true
  echo "not ok - h2spec: < should deviate of $name and does not, > deviates and should not"
  kill "$server"; server=
  return 1
}
failed=0
suite plain "$expected_tunnel
$expected_core" || failed=$((failed + 1))
suite h2_plain "$expected_core" || failed=$((failed + 1))
suite echo_server "$expected_core" --h2 127.0.0.1:0 || failed=$((failed + 1))
echo "$((3 - failed)) passed, $failed failed, 0 skipped"
[ "$failed" = 0 ]
