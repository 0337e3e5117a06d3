#!/usr/bin/env bash
# Checks the compilers before anything else, so that a build never fails halfway for a version. With --languages it checks Rust and Go
# alone: hack/packages.sh installs the C compiler afterwards.
# Minimums live here, in Cargo.toml (rust-version), in go.mod (go) and in internal/check; internal/archtest keeps them in step.
set -uo pipefail
MIN_RUST=1.95
MIN_GO=1.26
fail=0

at_least() { [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -1)" = "$2" ]; }

need() { # name, version found, minimum, cure
  if [ -z "$2" ]; then echo "missing: $1 $3 or newer. $4" >&2; fail=1
  elif ! at_least "$2" "$3"; then echo "too old: $1 is $2, $3 or newer is needed. $4" >&2; fail=1; fi
}

rust=$(rustc --version 2>/dev/null | awk '{print $2}')
go=$(go env GOVERSION 2>/dev/null | sed 's/^go//')
need Rust "$rust" "$MIN_RUST" "Debian's own rustc is too old: install it with rustup (https://rustup.rs)."
need Go "$go" "$MIN_GO" "Debian's own golang is too old: install it from https://go.dev/dl."
[ "${1:-}" = --languages ] || command -v cc >/dev/null || { echo "missing: a C compiler (the TLS library is built from source). apt-get install gcc" >&2; fail=1; }
exit $fail
