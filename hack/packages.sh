#!/usr/bin/env bash
# Says which packages of hack/packages.list a make target lacks, and installs them with apt-get.
#   hack/packages.sh demo|test|test-kube|test-long            says what it will install, and installs it
#   hack/packages.sh --missing demo|test|test-kube|test-long  lists the missing packages, one a line, and changes nothing
#   hack/packages.sh --of TOOL                      the package with a command
# Where apt-get or root is missing, or apt-get fails, it names the packages and ends well: the target goes on without them. A test
# script whose tool is missing then counts as skipped.
set -uo pipefail
LIST=$(dirname "$0")/packages.list
bold() { if [ -t 1 ] && [ -z "${NO_COLOR:-}" ]; then printf '\033[1m%s\033[0m\n' "$*"; else printf '%s\n' "$*"; fi; }
# rows: the list without comments, its four fields separated by tabs.
rows() { sed -e '/^#/d' -e 's/ *| */\t/g' "$LIST"; }

if [ "${1:-}" = --of ]; then
  package=$(rows | awk -F'\t' -v there="command -v ${2:?name a tool}" '$2 == there { print $1 }')
  [ -n "$package" ] && echo "$package"
  exit
fi
quiet=
[ "${1:-}" != --missing ] || { quiet=1; shift; }
case ${1:-} in
  demo | test | test-kube | test-long) target=$1 ;;
  *) echo "usage: hack/packages.sh [--missing] demo|test|test-kube|test-long" >&2; exit 64 ;;
esac

list=$(rows) && [ -n "$list" ] || { echo "error: cannot read $LIST" >&2; exit 1; }
missing=() reasons=()
while IFS=$'\t' read -r package there targets why; do
  [ "$targets" = build ] || [[ " $targets " == *" $target "* ]] || { [ "$target" = test-long ] && [[ " $targets " == *" test "* ]]; } || continue
  bash -c "$there" >/dev/null 2>&1 || { missing+=("$package"); reasons+=("$why"); }
done <<<"$list"

if [ -n "$quiet" ]; then
  [ ${#missing[@]} = 0 ] || printf '%s\n' "${missing[@]}"
  exit 0
fi
if [ ${#missing[@]} = 0 ]; then
  echo "packages: nothing to install for make $target"
  exit 0
fi
bold "make $target needs packages that are not installed"
for i in "${!missing[@]}"; do printf '  %-26s %s\n' "${missing[$i]}" "${reasons[$i]}"; done
without() { echo "warning: $1; make $target goes on without: ${missing[*]}" >&2; exit 0; }
command -v apt-get >/dev/null || without "there is no apt-get here"
[ "$(id -u)" = 0 ] || without "apt-get needs root"
bold "Installing them with apt-get"
# Tests run these servers by themselves. Debian would start them as well, nginx on port 80 of every address, and again at each boot.
servers=()
for package in nginx haproxy; do [[ " ${missing[*]} " != *" $package "* ]] || servers+=("$package"); done
POLICY=/usr/sbin/policy-rc.d
booted() { [ -d /run/systemd/system ] && command -v systemctl >/dev/null; }
keep_down() {
  if booted; then
    systemctl mask --runtime "${servers[@]}"
  else
    [ ! -e $POLICY ] || mv $POLICY "$POLICY.$$"
    printf '#!/bin/sh\nexit 101\n' >$POLICY && chmod 755 $POLICY
  fi
}
# let_go: what kept them down goes, and they stay disabled.
let_go() {
  if booted; then
    systemctl unmask --runtime "${servers[@]}"
    systemctl disable "${servers[@]}"
  else
    rm -f $POLICY
    [ ! -e "$POLICY.$$" ] || mv "$POLICY.$$" $POLICY
    if command -v systemctl >/dev/null; then systemctl --root=/ disable "${servers[@]}"
    else for package in "${servers[@]}"; do update-rc.d "$package" disable; done; fi
  fi
} >/dev/null 2>&1
if [ ${#servers[@]} -gt 0 ]; then
  trap let_go EXIT
  trap 'exit 130' INT TERM
  keep_down >/dev/null 2>&1
fi
# Some machines keep apt-get busy when they start: it waits a minute for its lock.
apt_get() { DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=60 "$@" </dev/null; }
install() { apt_get install -y --no-install-recommends "${missing[@]}"; }
install || { apt_get update && install; } || without "apt-get could not install all packages"
