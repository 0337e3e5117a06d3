#!/usr/bin/env bash
# Configuration as both proxies take it from this control plane: asked for one thing at a time, and again after a reconnect with
# what they kept.
source "$(dirname "$0")/lib.sh"
DEMAND=$(with demand XDS_ON_DEMAND=true ISTIO_META_DNS_CAPTURE=false -- "$ZTUNNEL")
OURDEMAND=$(with our-demand XDS_ON_DEMAND=true ISTIO_META_DNS_CAPTURE=false -- "$OURS" node)
check "up: both proxies on demand" lateen up --nodes 4 --node-proxy "n1=$OURDEMAND" --node-proxy "n2=$OURDEMAND" --node-proxy "n3=$DEMAND" --node-proxy "n4=$DEMAND"
# Without the DNS proxy, which on demand does not know the names: the pods ask the resolver themselves.
check "clients and servers behind each" lateen apply -f - < <(ANNOTATIONS='"ambient.istio.io/dns-capture": "false"' people)
check "enrol" lateen label ns default istio.io/dataplane-mode=ambient
check "captured" lateen wait
clients() { in_fabric curl -sf http://127.0.0.1:15014/debug/clients; }
# The pods are reached by their names, which the engine's resolver answers.
for pair in "${PAIRS[@]}"; do
  set -- $pair
  served() { [ "$(call "client-$1" "http://server-$2:8080/")" = 200 ]; }
  check "on demand, $1 to $2" eventually 20 served "$1" "$2"
  check "through the tunnel" eventually 5 line "${NODE[server-$2]}" 'direction="inbound"' 'sa/client"' 'dst.workload="server'
done
held() { proxy_page "$1" /config_dump -f | jq -r '[.workloads[]? | .name] | sort | join(" ")'; }
check "ztunnel has its own node's pods although nobody asked for them" bash -c "[[ '$(held n4)' = *server-ztunnel* ]]"
lacks() { ! held "$1" | found "$2"; }
check "and not the pods of nodes that it never met" lacks n4 stranger-ours
check "a policy reaches who asks for one thing at a time" lateen apply -f - <<'Y'
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: no-clients, namespace: default}
spec: {selector: {matchLabels: {kind: server}}, action: DENY, rules: [{from: [{source: {principals: ["cluster.local/ns/default/sa/client"]}}]}]}
Y
for pair in "${PAIRS[@]}"; do
  set -- $pair
  refused() { [ "$(call "client-$1" "http://server-$2:8080/")" != 200 ]; }
  check "$1 is refused by $2" eventually 10 refused "$1" "$2"
done
check "a pod is born" lateen apply -f - < <(deployment late default client n4 "kind: late" '[lateen-load, serve, --listen, 0.0.0.0:8080]')
check "captured, behind ztunnel" lateen wait
late() { [ "$(call client-ours "http://$(ip_of late):8080/")$(call client-ztunnel "http://$(ip_of late):8080/")" = 200200 ]; }
check "and served at once" eventually 10 late
check "down" lateen down

# Reconnect: what a proxy kept it is not sent again. ztunnel of 1.30 says what it has by name and without versions: it is sent all.
begin
resources() { in_fabric curl -sf http://127.0.0.1:15014/metrics | awk '/^lateen_control_push_resources_total/ {n += $NF} END {print n + 0}'; }
mesh_size() { proxy_page n1 /config_dump -f | jq '[.workloads, .services, .policies | length] | add'; }
sent() { in_fabric curl -sf http://127.0.0.1:15014/metrics | awk '/^lateen_control_push_bytes_total/ {n += $NF} END {print n + 0}'; }
in_fabric curl -sf http://127.0.0.1:15014/metrics | grep lateen_control_push_bytes_total >"$WORK/metric" || not_ok "no metric counts what is sent"
check "many services" bash -c "for i in \$(seq 1 150); do printf -- '---\napiVersion: v1\nkind: Service\nmetadata: {name: many-%s, namespace: default}\nspec: {selector: {app: nobody}, ports: [{port: 80}]}\n' \$i; done | '$LATEEN' --name $MESH apply -f -"
check "known to every proxy" lateen wait
connected() { clients | jq -e '[.clients[] | select(.types | length == 2 and all(.outstanding == false and .ackedGeneration > 0))] | length == 4'; }
before=$(sent)
control_pid=$(lateen status -o json | jq -r '.control.pid')
check "the control plane restarts" kill -TERM "$control_pid"
check "all are back" eventually 30 connected
check "and say what they have" lateen wait
after=$(sent)
if [ $RELEASE = 1.30 ]; then
  equal "a restart sent each ztunnel everything again, and ours nothing" $((2 * $(mesh_size))) "$(resources)"
else
  check "a restart sent less than a hundredth of the mesh again ($before bytes before, $after since)" [ "$after" -lt $((before / 100 + 400)) ]
fi
check "the mesh goes on" eventually 10 answering

finish
