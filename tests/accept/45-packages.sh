#!/usr/bin/env bash
# hack/packages.list against a bare Debian 12: its packages exist there, are missing there, and bring the commands that
# they are listed for. Nothing is installed on this machine.
source "$(dirname "$0")/lib.sh"
cd "$ROOT" || exit 1
check "the tool that makes roots" go build -o "$WORK/debianroot" ./internal/tools/debianroot
root() { # FOLDER PACKAGE...
  local dir=$WORK/$1; shift
  mkdir -p "$dir" && "$WORK/debianroot" "$@" | tar -x -C "$dir" && mkdir -p "$dir/tree/hack" "$dir/dev" &&
    cp hack/packages.sh hack/packages.list hack/toolchain.sh "$dir/tree/hack/" && : >"$dir/dev/null" || return
  # The scripts of maintainers make these, which are not run: links of update-alternatives, and the file of all authorities.
  ln -sf mawk "$dir/usr/bin/awk"
  [ ! -e "$dir/usr/bin/gcc" ] || ln -sf gcc "$dir/usr/bin/cc"
  [ ! -e "$dir/usr/bin/g++" ] || ln -sf g++ "$dir/usr/bin/c++"
  [ ! -d "$dir/usr/lib/jvm" ] || ln -sf "$(cd "$dir" && ls -d usr/lib/jvm/java-17-openjdk-*/bin/javac | sed 's|^|/|')" "$dir/usr/bin/javac"
  [ ! -d "$dir/usr/share/ca-certificates" ] || { mkdir -p "$dir/etc/ssl/certs" && cat "$dir"/usr/share/ca-certificates/mozilla/*.crt >"$dir/etc/ssl/certs/ca-certificates.crt"; }
}
in_root() { local dir=$WORK/$1; shift; chroot "$dir" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin "$@"; }
all=$(sed -e '/^#/d' -e '/| test-long |/d' -e 's/ .*//' hack/packages.list)

check "a bare Debian 12" root bare
equal "every listed package is missing there, but for the keys that apt brings" "$(grep -vx debian-archive-keyring <<<"$all")" "$(in_root bare /tree/hack/packages.sh --missing test)"
equal "make demo lacks what builds and Bookinfo need, and no more" \
  "gcc libc6-dev cmake make git ca-certificates python3 nodejs openjdk-17-jdk-headless ruby ruby-webrick curl procps iproute2" \
  "$(in_root bare /tree/hack/packages.sh --missing demo | xargs)"
check "languages come first: without Rust and Go nothing is installed" bash -c "! chroot '$WORK/bare' /tree/hack/toolchain.sh --languages"
# shellcheck disable=SC2086
check "the same with the packages of the list" root full $all
equal "nothing is missing then" "asked" "$(in_root full bash -c '/tree/hack/packages.sh --missing test && echo asked')"
equal "and make test says so" "packages: nothing to install for make test" "$(in_root full /tree/hack/packages.sh test)"

# A script whose tool is missing says so in one line.
mkdir "$WORK/path"
for tool in bash dirname basename sed awk id curl jq; do ln -s "$(type -P $tool)" "$WORK/path/"; done
equal "a script without its tool is skipped, and names the package" \
  "skip - tcpdump is not installed: apt-get install tcpdump 0 passed, 0 failed, 1 skipped" \
  "$(PATH=$WORK/path bash tests/accept/01-cross-node.sh 2>&1 | xargs)"
finish
