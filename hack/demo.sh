#!/usr/bin/env bash
# make demo: says what it is about to install and change, installs what is missing, builds, and runs `lateen demo`.
# KEEP=1 keeps the mesh at the end; arguments go to lateen demo.
set -euo pipefail
cd "$(dirname "$0")/.."

bold() { if [ -t 1 ] && [ -z "${NO_COLOR:-}" ]; then printf '\033[1m%s\033[0m\n' "$*"; else printf '%s\n' "$*"; fi; }
fail() { printf 'error: %s\n  fix: %s\n' "$1" "$2" >&2; exit 1; }

[ "$(uname -s)" = Linux ] || fail "the demo needs Linux, this is $(uname -s)" "run it in a Linux virtual machine"
hack/toolchain.sh --languages
[ "$(id -u)" = 0 ] || fail "the demo needs root: it makes network namespaces and packet rules" "run: sudo -E env PATH=\"\$PATH\" make demo"

# The program itself checks versions (lateen check --for demo). Only absent packages are installed here.
# shellcheck disable=SC2207
missing=($(hack/packages.sh --missing demo))

bold "What this is about to do"
if [ ${#missing[@]} -eq 0 ]; then
  echo "  install     nothing: all packages of hack/packages.list are there"
elif command -v apt-get >/dev/null; then
  echo "  install     with apt-get: ${missing[*]}"
else
  echo "  install     nothing: there is no apt-get here; without Python, Node.js, a JDK or Ruby the compiled echo service stands in for Bookinfo"
fi
echo "  build       release binaries into $(pwd)/bin, with cargo and go (their caches and target/ grow)"
echo "  run         a mesh of two nodes in network, mount and PID namespaces of its own; files in /run/lateen/demo"
echo "  change      nothing else: no address, route, rule, sysctl or mount of this machine"
if [ "${KEEP:-}" = 1 ]; then
  echo "  afterwards  the mesh stays (KEEP=1); bin/lateen down --name demo ends it"
else
  echo "  afterwards  the mesh is taken down; packages and bin/ stay"
fi
echo

if [ ${#missing[@]} -gt 0 ]; then
  hack/packages.sh demo
  echo
fi

bold "Building"
make --no-print-directory build
echo

args=()
[ "${KEEP:-}" = 1 ] && args+=(--keep)
exec bin/lateen demo ${args[@]+"${args[@]}"} "$@"
