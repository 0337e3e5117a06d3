#!/usr/bin/env bash
# The command line as a new user meets it: what commands say, and how it looks at 80, 100 and 160 columns. Each file of
# command-line/ is sourced in turn in a mesh of two nodes with samples/echo in the namespace default, enrolled. It makes its
# checks and leaves the mesh as it was. PARTS="meshes verbs" sources only those files.
# needs: python3
source "$(dirname "$0")/lib.sh"

# in_terminal COLUMNS COMMAND...: the lines that a person finds in the scrollback of a terminal of that width.
in_terminal() { local columns=$1; shift; "$ROOT/tests/accept/terminal.py" --columns "$columns" --screen -- "$@"; }

check "up" lateen up --nodes 2
with_echo "$ROOT/samples/echo/echo.yaml"

for part in ${PARTS:-$(cd "$ROOT/tests/accept/command-line" && ls ./*.sh)}; do
  # shellcheck disable=SC1090
  source "$ROOT/tests/accept/command-line/$(basename "$part" .sh).sh"
done
finish
