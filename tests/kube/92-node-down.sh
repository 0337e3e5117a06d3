#!/usr/bin/env bash
# The mesh goes while a node is down: nobody can take it off that node, so the removal refuses before it changes anything, or goes on
# without the node by its name and says what to run there. That restores the node when it is back.
source "$(dirname "$0")/lib.sh"
captured() { [ "$(k -n stranded get pods -o json | jq '[.items[] | select(.metadata.annotations["ambient.istio.io/redirection"] == "enabled")] | length')" = "$1" ]; }

check "the images are loaded" load_images "$ROOT"/bin/images/{control,agent,proxy}.tar
check "lateen install" lateen install --set image.pullPolicy=Never --timeout 5m
check "echo servers and clients in the mesh" echo_in stranded istio.io/dataplane-mode=ambient
check "they are captured" eventually 60 captured 4

check "a node loses its power" "$KUBE/ctl" stop node2
is_down() { local is; is=$(k get node node2 -o jsonpath='{.status.conditions[?(@.type=="Ready")].status}') && [ -n "$is" ] && [ "$is" != True ]; }
check "which the cluster notices" eventually 120 is_down
refused() {
  local said
  ! said=$(lateen uninstall --timeout 5m 2>&1) && grep -q 'node node2, which is down' <<<"$said" && grep -q -e '--without-nodes=node2' <<<"$said" || { echo "$said"; return 1; }
}
check "lateen uninstall refuses, and names the node and the ways on" refused
equal "no agent was told to leave" "" "$(k -n lateen-system get daemonset lateen-agent -o jsonpath='{.metadata.annotations.lateen\.dev/uninstall}')"

without() { lateen uninstall --crds --without-nodes node2 --timeout 5m >"$WORK/said" 2>&1 || { cat "$WORK/said"; return 1; }; }
check "lateen uninstall --without-nodes" without
by_hand=$(grep -o 'kubectl debug node/node2 .*' "$WORK/said" | head -1)
check "says what to run on the node" [ -n "$by_hand" ]
no_plugin() { on_node "$1" true && ! on_node "$1" sh -c 'grep -l lateen /etc/cni/net.d/*; ls /opt/cni/bin/lateen-cni' 2>/dev/null | grep .; }
check "the other node is restored" no_plugin node1

check "the node comes back" "$KUBE/ctl" start node2
check "and is Ready" k wait --for=condition=Ready node/node2 --timeout=180s
plugin() { on_node "$1" ls /opt/cni/bin/lateen-cni; }
check "the mesh is still on it" plugin node2
mkdir "$WORK/bin" && ln -s "$SET/bin/kubectl" "$WORK/bin/kubectl"
run_it() { in_fabric env PATH="$WORK/bin:$PATH" KUBECONFIG="$RUN/kubeconfig" bash -c "$by_hand"; }
check "what it said is run" run_it
debugger() { k -n default get pods -o name | grep -m1 node-debugger-node2; }
done_well() { [ "$(k -n default get "$(debugger)" -o jsonpath='{.status.phase}')" = Succeeded ] || { k -n default describe "$(debugger)" | tail; k -n default logs "$(debugger)"; return 1; }; }
check "and ends well" eventually 120 done_well
check "the mesh is off the node" no_plugin node2
k -n default delete "$(debugger)" --wait=false >/dev/null
check "a new pod of a namespace that was in the mesh starts there" bash -c "'$KUBE/k' -n stranded run after --image=docker.io/local/echo:1 --image-pull-policy=Never --overrides='{\"spec\":{\"nodeSelector\":{\"lateen.dev/node-index\":\"2\"}}}' && '$KUBE/k' -n stranded wait --for=condition=Ready pod/after --timeout=120s"
k delete namespace stranded --wait=false >/dev/null
k delete namespace istio-system --ignore-not-found --wait=false >/dev/null
nothing_left() { local left; left=$(k get namespaces,clusterroles,clusterrolebindings,validatingadmissionpolicies,configmaps -A -o name -l app.kubernetes.io/part-of=lateen) && [ -z "$left" ] || { echo "$left"; return 1; }; }
check "nothing of the mesh is left in the cluster" eventually 60 nothing_left
finish
