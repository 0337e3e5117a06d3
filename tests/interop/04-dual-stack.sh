#!/usr/bin/env bash
# Both IP families through both proxies, for all four pairs: by service and by pod, and an IPv6 block in a policy.
source "$(dirname "$0")/lib.sh"
check "up with both families" mixed --ip-families dual
check "clients and servers behind each" lateen apply -f - < <(people '[::]' 'ipFamilyPolicy: PreferDualStack')
check "enrol" lateen label ns default istio.io/dataplane-mode=ambient
check "captured and known to every proxy" lateen wait
served() { [ "$(call "client-$1" "http://server-$2:8080/" "-$3")" = 200 ]; }
from() { pod_json "client-$1" | jq -r --arg f "$2" '.status.podIPs[].ip | select(contains(":") == ($f == "6"))'; }
through() { served "$@" && line "${NODE[server-$2]}" 'direction="inbound"' 'sa/client"' "$([ "$3" = 6 ] && echo "src.addr=[$(from "$1" 6)]" || echo "src.addr=$(from "$1" 4):")"; }
for pair in "${PAIRS[@]}"; do
  for f in 4 6; do check "IPv$f, $pair: through the tunnel, from the client's own address" eventually 15 through $pair $f; done
done
check "deny a block of IPv6" lateen apply -f - <<'Y'
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: no-six, namespace: default}
spec: {selector: {matchLabels: {kind: server}}, action: DENY, rules: [{from: [{source: {ipBlocks: ["fd00:10:244::/48"]}}]}]}
Y
check "known to every proxy" lateen wait
for pair in "${PAIRS[@]}"; do
  set -- $pair
  check_not "IPv6, $pair: refused" served $pair 6
  check "IPv4, $pair: served" served $pair 4
done
finish
