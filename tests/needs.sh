# needs TOOL...: a script whose tool is not installed is skipped with one line that says so, rather than failing its checks.
# A script names its tools in a line "# needs: TOOL...", which the libraries of tests/ read. shellcheck shell=bash
needs() {
  local tool package
  for tool in "$@"; do
    command -v "$tool" >/dev/null && continue
    package=$("$(dirname "${BASH_SOURCE[0]}")/../hack/packages.sh" --of "$tool")
    echo "skip - $tool is not installed: apt-get install ${package:-$tool}"
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
  done
}
