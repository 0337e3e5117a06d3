#!/usr/bin/env bash
# Runs a command of a newcomer in a bare Debian 12 that has Rust and Go and nothing else: no packages, no caches, a clone of the last
# commit. Without arguments the command is .ci/run; `make demo` is another. The root is a debootstrap of the variant minbase in
# BARE_ROOT (a new folder below TMPDIR, removed at the end; a given one is kept), with mount and PID namespaces of its own. The
# network is this machine's.
#   tests/bare/run.sh [COMMAND...]
# Needs root, debootstrap, 30 GB of disk and an hour.
set -euo pipefail
cd "$(dirname "$0")/../.."
source tests/needs.sh
needs debootstrap git
[ "$(id -u)" = 0 ] || { echo "not ok - needs root: a root file system is entered by chroot"; echo "0 passed, 1 failed, 0 skipped"; exit 1; }
[ $# -gt 0 ] || set -- .ci/run
kept=${BARE_ROOT:-}
BARE=${kept:-$(mktemp -d "${TMPDIR:-/tmp}/bare-XXXXXX")}
mkdir -p "$BARE"
chmod 755 "$BARE" # it becomes /, which programs of other users must enter
ended() { [ -n "$kept" ] || rm -rf --one-file-system "$BARE"; }
trap ended EXIT
trap 'exit 130' INT TERM

if [ ! -e "$BARE/etc/debian_version" ]; then
  echo "making a bare Debian 12 in $BARE"
  debootstrap --variant=minbase bookworm "$BARE" "${DEBIAN_MIRROR:-http://deb.debian.org/debian}" >"$BARE.log" 2>&1 || { tail -20 "$BARE.log"; exit 1; }
  rm -f "$BARE.log"
fi
# Toolchains, where their own installers put them.
rm -rf "$BARE/usr/local/go" "$BARE/opt/rust" "$BARE/srv/lateen"
cp -a "$(go env GOROOT)" "$BARE/usr/local/go"
cp -a "$(rustc --print sysroot)" "$BARE/opt/rust"
# The way to the network: names, the authorities that this machine trusts, and apt's settings for it.
cp /etc/resolv.conf "$BARE/etc/resolv.conf"
printf '127.0.0.1 localhost\n::1 localhost\n' >"$BARE/etc/hosts"
cp "${SSL_CERT_FILE:-/etc/ssl/certs/ca-certificates.crt}" "$BARE/opt/authorities.crt"
grep -ls '^Acquire' /etc/apt/apt.conf.d/* | xargs -r cp -t "$BARE/etc/apt/apt.conf.d"
git clone -q --no-hardlinks . "$BARE/srv/lateen"

# A root of its own and no chroot: the mesh makes its mounts private and makes user namespaces, which a chroot forbids.
outside=$(cat <<'S'
bare=$1 inside=$2
shift 2
mount --bind "$bare" "$bare" && cd "$bare" || exit 125
for d in sys dev; do mount --rbind "/$d" "$bare/$d"; done
mount -t proc proc "$bare/proc" && mkdir -p "$bare/before" && pivot_root . before && cd / || exit 125
umount -l /before && rmdir /before || exit 125
for v in SSL_CERT_FILE CURL_CA_BUNDLE GIT_SSL_CAINFO CARGO_HTTP_CAINFO; do set -- "$v=/opt/authorities.crt" "$@"; done
exec /usr/bin/env -i HOME=/srv TERM=dumb LANG=C.UTF-8 CI="${CI:-}" \
  PATH=/usr/local/go/bin:/opt/rust/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "${@:1:4}" bash -c "$inside" bash "${@:5}"
S
)
inside='cd /srv/lateen || exit 125; "$@"'
echo "running $* there"
status=0
unshare --mount --pid --fork --kill-child --propagation private bash -c "$outside" bash "$BARE" "$inside" "$@" </dev/null || status=$?
if [ $status = 0 ]; then
  echo "ok - $* in a bare root"
  echo "1 passed, 0 failed, 0 skipped"
else
  echo "not ok - $* in a bare root ended with status $status"
  echo "0 passed, 1 failed, 0 skipped"
  exit 1
fi
