#!/usr/bin/env bash
# The command line as a new user meets it: what commands say, and how it looks at 80, 100 and 160 columns. Each file of
# command-line/ is sourced in turn in a mesh of two nodes with samples/echo in the namespace default, enrolled. It makes its
# checks and leaves the mesh as it was. PARTS="meshes verbs" sources only those files.
# needs: openssl python3 ss
source "$(dirname "$0")/lib.sh"

# in_terminal COLUMNS COMMAND...: the lines that a person finds in the scrollback of a terminal of that width.
in_terminal() { local columns=$1; shift; "$ROOT/tests/accept/terminal.py" --columns "$columns" --screen -- "$@"; }

# too_wide COLUMNS COMMAND...: what a command writes to a terminal of that width and is wider. Scrollback has no such lines.
too_wide() {
  local columns=$1; shift
  "$ROOT/tests/accept/terminal.py" --columns "$columns" -- "$@" | python3 -c 'import re, sys
text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", sys.stdin.read().replace("\r", "\n"))
print("\n".join(line for line in text.split("\n") if len(line) > int(sys.argv[1])))' "$columns"
}

check "up" lateen up --nodes 2
with_echo "$ROOT/samples/echo/echo.yaml"

for part in ${PARTS:-$(cd "$ROOT/tests/accept/command-line" && ls ./*.sh)}; do
  # shellcheck disable=SC1090
  source "$ROOT/tests/accept/command-line/$(basename "$part" .sh).sh"
done
finish
