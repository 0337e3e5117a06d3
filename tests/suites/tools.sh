#!/usr/bin/env bash
# Builds programs of others, which tests/accept/55-suites.sh runs through a waypoint, into bin/suites: h2spec, the client and server of
# gRPC's interop tests, and the Connect conformance suite. Each is a Go module of its own, and nothing of ours depends on it. Needs the
# Go module proxy, or its cache. What is there in its version is not built again.
# With --autobahn it also puts Autobahn's suite of WebSockets there, from PyPI. That is a program for Python 2.7, which PYTHON2 names, or
# which is found on PATH or among pyenv's versions. Without one this ends with status 3.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1
TOOLS=$PWD/bin/suites
H2SPEC=v2.2.1+incompatible GRPC=v1.85.0 CONFORMANCE=v1.0.7 AUTOBAHN=25.10.1
mkdir -p "$TOOLS"
scratch=$(mktemp -d "$TOOLS/making.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
# Another run may be at it.
exec 9>"$TOOLS/lock" && flock 9

# program NAME PACKAGE VERSION
program() {
  local there=$TOOLS/$1@$3
  [ -x "$there" ] || {
    (cd "$scratch" && GOFLAGS=-mod=mod CGO_ENABLED=0 GOBIN=$scratch/bin go install -trimpath "$2@$3" 2>"$scratch/said") || { cat "$scratch/said"; echo "error: $1 cannot be built"; return 1; }
    mv "$scratch/bin/$(basename "$2")" "$there"
  }
  ln -sfn "$1@$3" "$TOOLS/$1"
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
  python=$(python2) || return 3
  [ -d "$there" ] || {
    "$python" -m pip install --disable-pip-version-check --no-deps --target "$scratch/autobahn" "autobahntestsuite==$AUTOBAHN" autobahn==0.10.9 txaio==2.1.0 \
      Twisted==19.10.0 zope.interface==4.6.0 constantly==15.1.0 incremental==16.10.1 Automat==22.10.0 attrs==21.4.0 hyperlink==21.0.0 idna==2.10 typing==3.10.0.0 \
      six==1.16.0 pyOpenSSL==19.1.0 cryptography==3.3.2 cffi==1.15.1 pycparser==2.21 enum34==1.1.10 ipaddress==1.0.23 service_identity==18.1.0 pyasn1==0.5.1 \
      pyasn1-modules==0.3.0 Jinja2==2.11.3 MarkupSafe==1.1.1 unittest2==1.1.0 traceback2==1.4.0 linecache2==1.0.0 argparse==1.4.0 setuptools==44.0.0 >"$scratch/said" 2>&1 ||
      { tail -5 "$scratch/said"; echo "error: Autobahn's suite cannot be installed"; return 1; }
    # It is compiled. Without it the cases with much content take hours.
    "$python" -m pip install --disable-pip-version-check --no-deps --target "$scratch/autobahn" wsaccel==0.6.2 >"$scratch/said" 2>&1 || echo "Autobahn's accelerator cannot be built: its suite is slow"
    mv "$scratch/autobahn" "$there"
  }
  # PYTHONPATH would do, but for packages whose folders only a file of the folder's own joins.
  printf '#!/bin/sh\nexec %q -W ignore -c '\''import site, sys; site.addsitedir(sys.argv.pop(1)); from autobahntestsuite import wstest; wstest.run()'\'' %q "$@"\n' "$python" "$there" >"$TOOLS/wstest"
  chmod +x "$TOOLS/wstest"
}

program h2spec github.com/summerwind/h2spec/cmd/h2spec "$H2SPEC" || exit 1
# Two packages with common names: they are told apart by ours.
program grpc-client google.golang.org/grpc/interop/client "$GRPC" || exit 1
program grpc-server google.golang.org/grpc/interop/server "$GRPC" || exit 1
for name in connectconformance referenceclient referenceserver grpcclient grpcserver; do
  program "$name" "connectrpc.com/conformance/cmd/$name" "$CONFORMANCE" || exit 1
done
[ "${1:-}" != --autobahn ] || autobahn
