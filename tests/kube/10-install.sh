#!/usr/bin/env bash
# The mesh comes from the charts, by `lateen install`: all its parts are ready, nothing of the pods that were there changes,
# and an upgrade to the same changes nothing. The suites after this one use it.
# lane: all
# needs: openssl
source "$(dirname "$0")/lib.sh"
IMAGES=$ROOT/bin/images

for i in control agent proxy; do
  [ -e "$IMAGES/$i.tar" ] || { not_ok "$IMAGES/$i.tar is missing: run 'make images' first"; finish; }
done
check "the images are loaded" load_images "$IMAGES"/{control,agent,proxy}.tar
check "echo servers and clients run before the mesh" echo_in before
pods_before=$(k -n before get pods -o json | jq -r '.items[] | [.metadata.uid, .status.containerStatuses[0].restartCount] | @tsv' | sort)
conflist=$(node_files node1)/etc/cni/net.d
cni_before=$(cat "$conflist"/*.conflist)
inventory | sort >"$RUN/inventory-before"

check "lateen check --pre finds nothing in the way" lateen check --pre
check "a plan: lateen install --dry-run" lateen install --dry-run --set image.pullPolicy=Never
check_not "which makes nothing" k get namespace lateen-system
check_not "a value that is none is refused" lateen install --dry-run --set control.replikas=3
began=$SECONDS
check "lateen install" lateen install --set image.pullPolicy=Never --timeout 5m
echo "   installed in $((SECONDS - began)) s"
check "lateen check finds nothing wrong" eventually 60 lateen check
check "the control plane is ready" k -n lateen-system rollout status deployment/lateen-control --timeout=120s
check "the agents are ready" k -n lateen-system rollout status daemonset/lateen-agent --timeout=120s
check "the node proxies are ready" k -n lateen-system rollout status daemonset/lateen-node --timeout=120s
equal "an agent on each node" "node1 node2" "$(k -n lateen-system get pods -l app=lateen-agent -o jsonpath='{.items[*].spec.nodeName}' | tr ' ' '\n' | sort | xargs)"
equal "a node proxy on each node" "node1 node2" "$(k -n lateen-system get pods -l app=lateen-node -o jsonpath='{.items[*].spec.nodeName}' | tr ' ' '\n' | sort | xargs)"
equal "no part was restarted" 0 "$(k -n lateen-system get pods -o json | jq '[.items[].status.containerStatuses[]?.restartCount] | add')"
has_root() { k -n before get configmap istio-ca-root-cert -o jsonpath='{.data.root-cert\.pem}' | openssl x509 -noout -subject; }
check "every namespace has the mesh's root certificate" eventually 60 has_root
for n in node1 node2; do
  check "the CNI plugin is chained in on $n" eventually 60 grep -rq lateen-cni "$(node_files $n)/etc/cni/net.d"
  check "and the network that was there is still the first of the chain" [ "$(jq -r '.plugins[0].type' "$(node_files $n)"/etc/cni/net.d/*.conflist | head -1)" = ptp ]
done
check_not "the configuration was another before" [ "$cni_before" = "$(cat "$conflist"/*.conflist)" ]

equal "the pods that were there go on, the same" "$pods_before" \
  "$(k -n before get pods -o json | jq -r '.items[] | [.metadata.uid, .status.containerStatuses[0].restartCount] | @tsv' | sort)"
equal "and are not captured" 0 "$(k -n before get pods -o json | jq '[.items[] | select(.metadata.annotations["ambient.istio.io/redirection"])] | length')"
equal "and are served" 200 "$(code before/client1 "http://$(service_ip before echo)/")"
versions() { k -n lateen-system get deployment,daemonset,configmap,service -o json | jq -r '.items[] | select(.metadata.name | startswith("lateen")) | [.kind, .metadata.name, .metadata.generation, .metadata.labels["app.kubernetes.io/version"]] | @tsv' | sort; }
versions_before=$(versions)
pre_warns() { lateen check --pre -o json | jq -e '.results[] | select(.code == "LAT105") | .outcome == "ok"' && ! lateen check --pre --set agent.nodeSelector.disk=none --set node.nodeSelector.disk=none -o json | jq -e '.results[] | select(.code == "LAT105") | .found | test("kept from 2 more") | not'; }
check "lateen check --pre goes by the values that are to be" pre_warns
check_not "lateen install once more says that it is there" lateen install --set image.pullPolicy=Never --timeout 5m
check "lateen upgrade to the same" lateen upgrade --set image.pullPolicy=Never --timeout 5m
equal "changes nothing" "$versions_before" "$(versions)"
check "somebody removes what keeps agents to their own nodes' pods" k delete validatingadmissionpolicybinding lateen-agent
noticed() { local said; ! said=$(lateen check) && grep -q 'LAT131.*validatingadmissionpolicybinding/lateen-agent is missing' <<<"$said" || { echo "$said"; return 1; }; }
check "lateen check names it" noticed
check "lateen upgrade makes it again" lateen upgrade --timeout 5m
check "and lateen check finds nothing wrong" eventually 60 lateen check
k delete namespace before --wait=false >/dev/null
finish
