#!/usr/bin/env bash
# Certificates that live seconds are renewed at half of their lives, and the mesh's root is replaced by command: under load, without a
# failed request, and nothing of the old root is left. The mesh is installed anew for it, since how long a root takes to be replaced
# follows from how long certificates live.
# lane: rotation
# needs: openssl
source "$(dirname "$0")/lib.sh"
captured() { # COUNT
  local n; n=$(k -n turning get pods -o json | jq '[.items[] | select(.metadata.deletionTimestamp == null) | select(.metadata.annotations["ambient.istio.io/redirection"] == "enabled")] | length')
  [ "$n" = "$1" ] || { echo "$n of $1 pods are captured"; k -n turning get pods -o wide; return 1; }
}
# A stage lasts a little longer than the kubelet takes to bring a changed ConfigMap into the files of its pods.
TTL=40
short=(--set image.pullPolicy=Never --set control.certificates.ttl=${TTL}s --set control.certificates.rotationLeastStage=100s)

check "the mesh goes" lateen uninstall --timeout 5m
check "and comes with certificates of $TTL s" lateen install "${short[@]}" --timeout 5m
check "echo servers and clients in it" echo_in turning istio.io/dataplane-mode=ambient
check "they are captured" eventually 60 captured 4
VIP=$(service_ip turning echo)
IP2=$(pod_ip turning "$(pod_on turning app=echo node2)")
for n in node1 node2; do declare "proxy_$n=$(pod_on lateen-system app=lateen-node $n)"; done
dump() { local p=proxy_$1; in_pod "lateen-system/${!p}" curl -sf --max-time 30 http://localhost:15000/config_dump; } # NODE
# certificate NODE ACCOUNT: serial number and Unix time of the end of what the node's proxy has for an account of the namespace.
certificate() { dump "$1" | jq -r --arg id "spiffe://cluster.local/ns/turning/sa/$2" '.certificates[] | select(.identity == $id) | .certChain[0] | "\(.serialNumber) \(.expirationTime | sub("\\.[0-9]+"; "") | fromdateiso8601)"'; }
root() { k -n "$1" get configmap istio-ca-root-cert -o jsonpath='{.data.root-cert\.pem}'; } # NAMESPACE
check "a request between the nodes is answered" eventually 60 in_pod turning/client1 curl -sf --max-time 30 "http://$IP2:8080/"

load_begin kept turning/client1 --url "http://$VIP/" --qps 40 --connections 4
load_begin new turning/client1 --url "http://$VIP/" --qps 20 --connections 2 --no-keepalive
load_begin across turning/client2 --url "http://$VIP/" --qps 20 --connections 2 --no-keepalive
old_root=$(root turning)
began=$SECONDS
lateen ca rotate --wait --timeout 15m >"$WORK/rotate.out" 2>&1 &
ROTATING=$!
stage() { [ "$(lateen ca status -o json | jq -r .stage)" = "$1" ]; }
check "every proxy learns to trust another root" eventually 60 stage publishing
both() { [ "$(root turning | grep -c BEGIN)" = 2 ] && [ "$(root default | grep -c BEGIN)" = 2 ]; }
check "both are in every namespace" eventually 60 both
again=$(lateen ca rotate 2>&1)
check "asked for once more, the command says that it is under way" found "rotated already" <<<"$again"

# Meanwhile certificates are renewed: each one well before the end of the one before.
read -r serial end <<<"$(certificate node1 client)"
renewed=0
for _ in {1..3}; do
  changed() { read -r next next_end <<<"$(certificate node1 client)"; [ -n "$next" ] && [ "$next" != "$serial" ]; }
  for ((i = 0; i < 300; i++)); do changed && break; sleep 0.2; done
  after=$((next_end - end))
  if [ "$next" != "$serial" ] && [ $after -ge $((TTL / 4)) ] && [ $after -lt $TTL ]; then renewed=$((renewed + 1)); else echo "   renewed after $after s"; fi
  serial=$next end=$next_end
done
equal "certificates are renewed before they end, about at half of their lives" 3 $renewed

check "a pod that starts meanwhile joins in" k -n turning scale deployment/echo --replicas=3
check "it is captured" eventually 60 captured 5
check "the next root signs" eventually 600 stage dropping
under_new() {
  dump node1 | jq -r --arg id spiffe://cluster.local/ns/turning/sa/client '.certificates[] | select(.identity == $id) | .certChain[0].pem' | base64 -d | openssl x509 -noout -issuer | grep -F 'CA 2'
}
check "and proxies get certificates below it" eventually 60 under_new
if wait $ROTATING; then ok "lateen ca rotate --wait"; else not_ok "lateen ca rotate --wait"; sed 's/^/    /' "$WORK/rotate.out"; fi
echo "   replaced in $((SECONDS - began)) s"
check "the command tells the stages" bash -c "grep -q 'every proxy learns to trust' '$WORK/rotate.out' && grep -q 'root replaced' '$WORK/rotate.out'"
# The root is written into one namespace after the other.
one_root() { local now; now=$(root turning) && [ "$(grep -c BEGIN <<<"$now")" = 1 ] && [ "$now" != "$old_root" ] || { echo "$now"; return 1; }; }
check "one root is published, and it is another one" eventually 60 one_root
only_new() { for n in node1 node2; do [ "$(dump $n | jq '[.certificates[].rootCerts | length] | max')" = 1 ] || return 1; done; }
check "proxies trust it alone" eventually 60 only_new
equal "no key of the old root is kept" '["ca.crt","ca.key","state.json"]' "$(k -n lateen-system get secret lateen-ca -o json | jq -c '.data | keys')"
for l in kept new across; do load_end $l; done
equal "no proxy was restarted" 0 "$(k -n lateen-system get pods -l app=lateen-node -o json | jq '[.items[].status.containerStatuses[0].restartCount] | add')"
steady() { local now; now=$(lateen ca status -o json | jq -r '"\(.stage) \(.trusted | length) \(.trouble // "")"'); [ "$now" = "steady 1 " ] || { echo "$now"; return 1; }; }
check "lateen ca status tells of one root, and no trouble" eventually 60 steady
k delete namespace turning --wait=false >/dev/null
check "the mesh as the other suites have it" lateen upgrade --set control.certificates.ttl=24h --set control.certificates.rotationLeastStage=2m --timeout 5m
finish
