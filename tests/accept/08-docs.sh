#!/usr/bin/env bash
# Every command that README and the guide show is run, in order, and succeeds. `make check` and `make test` are the tiers
# this script is part of; `make demo` has a script of its own. Blocks for a cluster (```console cluster) are run by tests/kube/95-walkthrough.sh.
source "$(dirname "$0")/lib.sh"
MESH=default RUN=/run/lateen/default # What a reader who names no mesh gets.
# Other scripts have meshes beside this one; on a reader's machine the only one that runs needs no name.
export LATEEN_NAME=default
if [ -n "$("$LATEEN" list -o json | jq -r '.[] | select(.name == "default" and .state != "stopped") | .name')" ]; then
  not_ok "the mesh default runs on this machine already: take it down first (bin/lateen down --name default)"
  MESH=none RUN=/run/lateen/none
  finish
fi
cd "$ROOT" || exit 1
rm -rf lab-results/pieces # of an earlier run of this script: lab run replaces no results
for page in README.md docs/guide/*.md; do
  case $page in docs/guide/kubernetes.md | docs/guide/alerts.md) continue ;; esac # all of it is about a cluster
  count=0
  while IFS= read -r command; do
    count=$((count + 1))
    case $command in "make check" | "make test" | "make demo") continue ;; esac
    check "$page: $command" timeout 240 bash -c "$command"
  done < <(awk '/^```console$/ {in_block = 1; next} /^```/ {in_block = 0} in_block && sub(/^\$ /, "")' "$page")
  check "$page shows commands" [ $count -gt 0 ]
done
finish
