#!/usr/bin/env bash
# Licences, bans and sources of the Rust dependencies by cargo-deny, installed once if it is missing.
set -euo pipefail
VERSION=0.20.2
cargo deny --version 2>/dev/null | grep -q "$VERSION" || cargo install --quiet --locked cargo-deny --version "$VERSION"
exec cargo deny --log-level error check licenses bans sources
