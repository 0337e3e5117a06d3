#!/usr/bin/env bash
# `cargo build --release` with what hack/profile.py recorded of a serving lateen-proxy: the compiler then knows which branches and calls
# are frequent. A recording fits the release and the host of the rustc that made it. With another one, or where RUSTFLAGS is set, the
# build is an ordinary one, and this says so.
#   hack/cargo-release.sh [ARGUMENT OF cargo build...]
set -euo pipefail
cd "$(dirname "$0")/.."
rustc=$(rustc -vV | awk '$1 == "release:" {release = $2} $1 == "host:" {host = $2} END {print release "-" host}')
recorded=crates/proxy/rustc-$rustc.profdata.gz
if [ -n "${RUSTFLAGS+set}${CARGO_ENCODED_RUSTFLAGS+set}" ]; then
  echo "note: RUSTFLAGS is set, so lateen-proxy is built without its recorded profile and uses some 10 % more CPU" >&2
elif [ ! -e "$recorded" ]; then
  echo "note: there is no recorded profile of rustc $rustc, so lateen-proxy uses some 10 % more CPU; hack/profile.py records one" >&2
else
  # Cargo builds anew if a flag changes, and does not look into files that flags name: the name changes with the content.
  folder=$(mkdir -p "${CARGO_TARGET_DIR:-target}" && cd "${CARGO_TARGET_DIR:-target}" && pwd)
  profile=$folder/$(sha256sum "$recorded" | cut -c 1-16).profdata
  if [ ! -e "$profile" ]; then
    gzip -dc "$recorded" >"$profile.$$" && mv "$profile.$$" "$profile"
  fi
  export RUSTFLAGS="-Cprofile-use=$profile"
fi
exec cargo build --release "$@"
