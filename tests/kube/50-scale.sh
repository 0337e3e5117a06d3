#!/usr/bin/env bash
# Scaling under load: from 4 pods to 40 and back, on both nodes and all in the mesh, and no request fails.
source "$(dirname "$0")/lib.sh"
captured() { # COUNT
  local n; n=$(k -n scale get pods -l app=echo -o json | jq '[.items[] | select(.metadata.deletionTimestamp == null) | select(.metadata.annotations["ambient.istio.io/redirection"] == "enabled")] | length')
  [ "$n" = "$1" ] || { echo "$n of $1 pods are captured"; return 1; }
}
gone() { [ "$(k -n scale get pods -l app=echo -o name | wc -l)" = "$1" ]; }

check "echo servers and clients in the mesh" echo_in scale istio.io/dataplane-mode=ambient
# A server that is told to go serves on until all proxies have heard of it, as any that is to lose no request must.
check "servers that leave gracefully, four of them" k -n scale patch deployment/echo --type=strategic -p \
  '{"spec": {"replicas": 4, "template": {"spec": {"terminationGracePeriodSeconds": 90, "containers": [{"name": "echo", "args": ["-drain=20s"]}]}}}}'
check "are ready" k -n scale rollout status deployment/echo --timeout=120s
check "and captured" eventually 120 captured 4
VIP=$(service_ip scale echo)
for c in client1 client2; do load_begin $c scale/$c --url "http://$VIP/" --qps 20 --connections 2 --no-keepalive; done
sleep 2
began=$SECONDS
check "40 pods are asked for" k -n scale scale deployment/echo --replicas=40
check "they are ready" k -n scale rollout status deployment/echo --timeout=300s
echo "   ready after $((SECONDS - began)) s"
check "and captured" eventually 120 captured 40
equal "on both nodes" "20 20" "$(k -n scale get pods -l app=echo -o json | jq -r '[.items[] | select(.metadata.deletionTimestamp == null).spec.nodeName] | map(select(. == "node1")), map(select(. == "node2")) | length' | xargs)"
NS=$(pod_netns scale client1)
served_by() { for _ in {1..60}; do in_netns "$NS" curl -s --max-time 30 "http://$VIP/"; done | grep -o 'host=[^ ]*' | sort -u | wc -l; }
many() { local hosts; hosts=$(served_by); [ "$hosts" -ge 15 ] || { echo "$hosts"; return 1; }; }
check "requests reach many of them" eventually 60 many
began=$SECONDS
check "back to 4" k -n scale scale deployment/echo --replicas=4
check "the others are gone" eventually 300 gone 4
echo "   gone after $((SECONDS - began)) s"
for c in client1 client2; do load_end $c; done
k delete namespace scale --wait=false >/dev/null
finish
