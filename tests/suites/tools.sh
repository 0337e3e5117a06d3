#!/usr/bin/env bash
# Builds programs of others, which tests/accept/55-suites.sh runs through a waypoint, into bin/suites: h2spec, the client and server of
# gRPC's interop tests, and the Connect conformance suite. go.mod of this folder has their versions, and those of all that they import; nothing
# of ours depends on it. Needs the Go module proxy, or its cache. What was built of the same go.mod is not built again.
# With --autobahn it also puts Autobahn's suite of WebSockets there, from PyPI. That is a program for Python 2.7, which PYTHON2 names, or
# which is found on PATH or among pyenv's versions.
# Ends with 0 if all is there, 3 if all but Autobahn's suite is, 4 if modules of Go cannot be downloaded, and 1 if a program cannot be built.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1
TOOLS=$PWD/bin/suites
AUTOBAHN=25.10.1
mkdir -p "$TOOLS"
scratch=$(mktemp -d "$TOOLS/making.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
# Another run may be at it.
exec 9>"$TOOLS/lock" && flock 9

# program NAME PACKAGE
VERSION=$(cat tests/suites/go.mod tests/suites/go.sum | sha256sum | cut -c1-12)
program() {
  local there=$TOOLS/$1@$VERSION
  [ -x "$there" ] || {
    CGO_ENABLED=0 go -C tests/suites build -mod=readonly -trimpath -o "$scratch/$1" "$2" 2>"$scratch/said" || {
      cat "$scratch/said"
      go -C tests/suites mod download >/dev/null 2>&1 || { echo "the modules of $1 cannot be downloaded"; return 4; }
      echo "error: $1 cannot be built"
      return 1
    }
    rm -f "$TOOLS/$1"@*
    mv "$scratch/$1" "$there"
  }
  ln -sfn "$1@$VERSION" "$TOOLS/$1"
}

python2() {
  local p
  for p in ${PYTHON2:+"$PYTHON2"} "$(type -P python2.7)" "${PYENV_ROOT:-$HOME/.pyenv}"/versions/2.7.*/bin/python2.7; do
    [ -n "$p" ] && "$p" -c 'import sys; sys.exit(sys.version_info[:2] != (2, 7))' 2>/dev/null && { echo "$p"; return; }
  done
  return 1
}
# autobahn: the suite and what it imports, each in the version that it asks for.
autobahn() {
  local python there=$TOOLS/autobahn@$AUTOBAHN
  python=$(python2) || { echo "Autobahn's suite needs Python 2.7 (PYTHON2=/path/to/python2.7)"; return 3; }
  [ -d "$there" ] || {
    "$python" -m pip install --disable-pip-version-check --no-deps --target "$scratch/autobahn" "autobahntestsuite==$AUTOBAHN" autobahn==0.10.9 txaio==2.1.0 \
      Twisted==19.10.0 zope.interface==4.6.0 constantly==15.1.0 incremental==16.10.1 Automat==22.10.0 attrs==21.4.0 hyperlink==21.0.0 idna==2.10 typing==3.10.0.0 \
      six==1.16.0 pyOpenSSL==19.1.0 cryptography==3.3.2 cffi==1.15.1 pycparser==2.21 enum34==1.1.10 ipaddress==1.0.23 service_identity==18.1.0 pyasn1==0.5.1 \
      pyasn1-modules==0.3.0 Jinja2==2.11.3 MarkupSafe==1.1.1 unittest2==1.1.0 traceback2==1.4.0 linecache2==1.0.0 argparse==1.4.0 setuptools==44.0.0 >"$scratch/said" 2>&1 ||
      { tail -5 "$scratch/said"; echo "Autobahn's suite cannot be installed"; return 3; }
    # It is compiled. Without it the cases with much content take hours.
    "$python" -m pip install --disable-pip-version-check --no-deps --target "$scratch/autobahn" wsaccel==0.6.2 >"$scratch/said" 2>&1 || echo "Autobahn's accelerator cannot be built: its suite is slow"
    mv "$scratch/autobahn" "$there"
  }
  # PYTHONPATH would do, but for packages whose folders only a file of the folder's own joins.
  printf '#!/bin/sh\nexec %q -W ignore -c '\''import site, sys; site.addsitedir(sys.argv.pop(1)); from autobahntestsuite import wstest; wstest.run()'\'' %q "$@"\n' "$python" "$there" >"$TOOLS/wstest"
  chmod +x "$TOOLS/wstest"
}

program h2spec github.com/summerwind/h2spec/cmd/h2spec || exit
# Two packages with common names: they are told apart by ours.
program grpc-client google.golang.org/grpc/interop/client || exit
program grpc-server google.golang.org/grpc/interop/server || exit
for name in connectconformance referenceclient referenceserver grpcclient grpcserver; do
  program "$name" "connectrpc.com/conformance/cmd/$name" || exit
done
[ "${1:-}" != --autobahn ] || autobahn
