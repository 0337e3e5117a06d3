#!/usr/bin/env bash
# `cargo build --release` with what hack/profile.py recorded of a serving lateen-proxy: the compiler then knows which branches and calls
# are frequent. A recording fits the rustc that made it. With another one, or where the environment or a target's settings in Cargo's
# configuration give flags of rustc, the build is an ordinary one. Where this script knows, it says so.
#   hack/cargo-release.sh [ARGUMENT OF cargo build...]
#   hack/cargo-release.sh profile   prints the path of the profile that a build here uses, or fails and says why there is none
set -euo pipefail
cd "$(dirname "$0")/.."
# Another rustc of the same release, such as a distribution's, gives functions other names.
rustc=$("${RUSTC:-rustc}" -vV | awk '$1 == "release:" {release = $2} $1 == "commit-hash:" {commit = substr($2, 1, 9)} $1 == "host:" {host = $2} END {print release "-" commit "-" host}')
recorded=crates/proxy/rustc-$rustc.profdata.gz
why=
if [ -n "${RUSTFLAGS+set}${CARGO_ENCODED_RUSTFLAGS+set}" ] || [ -n "$(compgen -e | grep -E '^CARGO_TARGET_.*_RUSTFLAGS$')" ]; then
  why="the environment has flags of rustc"
elif [ ! -e "$recorded" ]; then
  why="there is no $recorded; hack/profile.py records it on x86_64"
fi
if [ "${1:-}" = profile ]; then
  [ -z "$why" ] || { echo "$why" >&2; exit 1; }
  echo "$recorded"
  exit
fi
profile=()
if [ -n "$why" ]; then
  echo "note: lateen-proxy is built without its recorded profile and uses some 20 % more CPU: $why" >&2
else
  # Cargo builds anew if a flag changes, and does not look into files that flags name: the name changes with the content.
  folder=$(mkdir -p "${CARGO_TARGET_DIR:-target}" && cd "${CARGO_TARGET_DIR:-target}" && pwd)
  file=$folder/$(sha256sum "$recorded" | cut -c 1-16).profdata
  if [ ! -e "$file" ]; then
    trap 'rm -f "$file.$$"' EXIT
    gzip -dc "$recorded" >"$file.$$"
    mv "$file.$$" "$file"
  fi
  # A setting of its own, and not RUSTFLAGS: Cargo adds it to the flags that the user's configuration has for all builds.
  quoted=${file//\\/\\\\}
  profile=(--config "build.rustflags = [\"-Cprofile-use=${quoted//\"/\\\"}\"]")
fi
exec cargo build --release ${profile[@]+"${profile[@]}"} "$@"
