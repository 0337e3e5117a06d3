#!/usr/bin/env bash
# Every command that README and the guide show for a cluster is run, in order, on a cluster without a mesh, and succeeds: checks, installation, Bookinfo in the mesh,
# a policy, looking, an upgrade, and the removal, after which nothing of the mesh is left.
source "$(dirname "$0")/lib.sh"

tools=$WORK/bin
mkdir -p "$tools"
ln -s "$ROOT/bin/lateen" "$tools/lateen"
ln -s "$SET/bin/kubectl" "$tools/kubectl"
reader() { (cd "$ROOT" && in_fabric env PATH="$tools:$PATH" KUBECONFIG="$RUN/kubeconfig" timeout "${1}" bash -c "$2"); }

check "the images are on the nodes" load_images "$ROOT"/bin/images/*.tar
for page in README.md docs/guide/kubernetes.md; do
  count=0
  while IFS= read -r command; do
    count=$((count + 1))
    check "$page: $command" reader 300 "$command"
  done < <(awk '/^```console cluster$/ {in_block = 1; next} /^```/ {in_block = 0} in_block && sub(/^\$ /, "")' "$ROOT/$page")
  check "$page shows commands" [ $count -gt 3 ]
done

left() { k get namespaces,clusterroles,clusterrolebindings,configmaps -A -o name -l app.kubernetes.io/part-of=lateen; }
nothing_left() { local rest; rest=$(left) && [ -z "$rest" ] || { echo "$rest"; return 1; }; }
check "nothing of the mesh is left" eventually 60 nothing_left
nodes_are_clean() {
  local n
  for n in node1 node2; do
    on_node $n true && ! on_node $n sh -c 'grep -l lateen /etc/cni/net.d/* 2>/dev/null; ls /opt/cni/bin/lateen-cni 2>/dev/null' | grep . || return 1
  done
}
check "the nodes are as they were" nodes_are_clean
finish
