#!/usr/bin/env bash
# Looks for known vulnerabilities of the Rust and the Go dependencies: cargo-deny with RustSec's database, govulncheck with Go's.
# Both fetch their database. Without a network, RUST_ADVISORIES names a folder with a git checkout of RustSec's, and GOVULNDB a
# URL of Go's, which may begin with file://. Exit code 0: none is known; 1: at least one is; 2: a database could not be had.
set -uo pipefail
cd "$(dirname "$0")/.."
GOVULNCHECK=v1.9.0
DENY=0.20.2
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
worst=0
# verdict LANGUAGE CODE: 0 nothing known, 1 something is, 2 nothing was checked.
verdict() {
  case $2 in
    0) echo "ok - $1: no known vulnerability" ;;
    1) echo "not ok - $1: known vulnerabilities, see above" ;;
    2) echo "not ok - $1: nothing was checked: the database of vulnerabilities could not be had; connect to the network, or name a copy ($3)" ;;
  esac
  [ "$2" -le "$worst" ] || worst=$2
}

rust() {
  cargo deny --version 2>/dev/null | grep -q "$DENY" || cargo install --quiet --locked cargo-deny --version "$DENY" || return 2
  local config=deny.toml offline=()
  if [ -n "${RUST_ADVISORIES:-}" ]; then
    # The folder's name is what cargo-deny makes of the database's usual address.
    config=$scratch/deny.toml offline=(--offline)
    { cat deny.toml; printf '[advisories]\ndb-path = "%s"\nmaximum-db-staleness = "P10Y"\n' "$scratch/db"; } >"$config"
    mkdir -p "$scratch/db" && ln -s "$(realpath "$RUST_ADVISORIES")" "$scratch/db/advisory-db-3157b0e258782691"
  fi
  cargo deny ${offline[@]+"${offline[@]}"} --log-level error --config "$config" check advisories >"$scratch/rust" 2>&1 && return 0
  cat "$scratch/rust"
  # A finding names its advisory; a database that could not be fetched names none.
  grep -qE 'RUSTSEC-[0-9]+-[0-9]+' "$scratch/rust" && return 1
  return 2
}

go_modules() {
  local db=()
  [ -z "${GOVULNDB:-}" ] || db=(-db "$GOVULNDB")
  go run "golang.org/x/vuln/cmd/govulncheck@$GOVULNCHECK" ${db[@]+"${db[@]}"} ./... >"$scratch/go" 2>&1
  local code=$?
  grep -q '^No vulnerabilities found' "$scratch/go" && return 0
  cat "$scratch/go"
  # `go run` ends with 1 whatever the program's code was.
  [ "$code" != 0 ] && grep -qE 'GO-[0-9]+-[0-9]+' "$scratch/go" && return 1
  return 2
}

rust; verdict Rust $? "RUST_ADVISORIES=FOLDER"
go_modules; verdict Go $? "GOVULNDB=URL"
exit "$worst"
