#!/usr/bin/env bash
# Every form of an L4 policy, put in force on a server behind each proxy, and the same connections made to both: the
# verdicts must be those of the table, and the same whoever decides and whoever asks.
source "$(dirname "$0")/lib.sh"
begin

# Each connection: who, from behind which proxy, to which port; or in clear from the node. A verdict is 1 (served) or 0.
remember client-ours client-ztunnel stranger-ours stranger-ztunnel
declare -A IP; for p in server-ours server-ztunnel client-ours client-ztunnel stranger-ours stranger-ztunnel; do IP[$p]=$(ip_of $p); done
declare -A PLAIN=([ours]=n1 [ztunnel]=n3)
try() { "$@" -s -o /dev/null --max-time 4 -w '%{http_code}' "$URL" 2>/dev/null | found 200 && printf 1 || printf 0; }
verdicts() { # CLIENT-SIDE SERVER-SIDE: client:8080 client:8081 stranger:8080 stranger:8081 plain:8080 plain:8081
  local who port
  for who in client stranger; do for port in 8080 8081; do URL=http://${IP[server-$2]}:$port/ try in_pod "$who-$1" curl; done; done
  for port in 8080 8081; do URL=http://${IP[server-$2]}:$port/ try in_node "${PLAIN[$1]}" curl; done
}
all_four() {
  local pair i=0
  for pair in "${PAIRS[@]}"; do verdicts $pair >"$WORK/v$i" & i=$((i + 1)); done
  wait
  cat "$WORK"/v[0-3] | paste -sd' ' | fold -w6 | paste -sd' '
}
same() { [ "$(all_four)" = "$1 $1 $1 $1" ] || { echo "want $1 four times (ours-ours ours-ztunnel ztunnel-ours ztunnel-ztunnel), got $(all_four)"; return 1; }; }

SERVERS='selector: {matchLabels: {kind: server}}, '
policy() { # NAME ACTION RULES [NAMESPACE SELECTOR ANNOTATIONS]
  cat <<Y
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: $1, namespace: ${4:-default}, annotations: {${6:-}}}
spec: {${5-$SERVERS}action: $2, rules: $3}
Y
}
P='cluster.local/ns/default/sa/client'
prefix=${IP[client-ours]%.*}
# NAME | WANT | ACTION | RULES
table() { cat <<T
allow-nothing|000000|ALLOW|[]
allow-all|111111|ALLOW|[{}]
deny-all|000000|DENY|[{}]
deny-nothing|111111|DENY|[]
principal-exact|110000|ALLOW|[{from: [{source: {principals: ["$P"]}}]}]
principal-prefix|110000|ALLOW|[{from: [{source: {principals: ["cluster.local/ns/default/*"]}}]}]
principal-suffix|110000|ALLOW|[{from: [{source: {principals: ["*/sa/client"]}}]}]
principal-presence|111100|ALLOW|[{from: [{source: {principals: ["*"]}}]}]
principal-with-scheme|000000|ALLOW|[{from: [{source: {principals: ["spiffe://$P"]}}]}]
principal-deny|001111|DENY|[{from: [{source: {principals: ["$P"]}}]}]
principal-not|001100|ALLOW|[{from: [{source: {principals: ["*"], notPrincipals: ["$P"]}}]}]
principal-not-deny|110000|DENY|[{from: [{source: {notPrincipals: ["$P"]}}]}]
namespace-exact|110000|ALLOW|[{from: [{source: {namespaces: ["default"]}}]}]
namespace-prefix|001100|ALLOW|[{from: [{source: {namespaces: ["for*"]}}]}]
namespace-suffix|001100|ALLOW|[{from: [{source: {namespaces: ["*eign"]}}]}]
namespace-presence|111100|ALLOW|[{from: [{source: {namespaces: ["*"]}}]}]
namespace-not|110011|DENY|[{from: [{source: {namespaces: ["foreign"]}}]}]
namespace-not-deny|001100|DENY|[{from: [{source: {notNamespaces: ["foreign"]}}]}]
account-exact|110000|ALLOW|[{from: [{source: {serviceAccounts: ["default/client"]}}]}]
account-own-namespace|110000|ALLOW|[{from: [{source: {serviceAccounts: ["client"]}}]}]
account-not|001111|DENY|[{from: [{source: {serviceAccounts: ["default/client"]}}]}]
account-not-deny|110000|DENY|[{from: [{source: {notServiceAccounts: ["default/client"]}}]}]
ip-exact|110000|ALLOW|[{from: [{source: {ipBlocks: ["${IP[client-ours]}", "${IP[client-ztunnel]}"]}}]}]
ip-block|111100|ALLOW|[{from: [{source: {ipBlocks: ["10.244.0.0/16"]}}]}]
ip-block-all|111111|ALLOW|[{from: [{source: {ipBlocks: ["0.0.0.0/0"]}}]}]
ip-block-six|000000|ALLOW|[{from: [{source: {ipBlocks: ["::/0"]}}]}]
ip-not|000011|ALLOW|[{from: [{source: {ipBlocks: ["10.0.0.0/8"], notIpBlocks: ["10.244.0.0/16"]}}]}]
port|101010|ALLOW|[{to: [{operation: {ports: ["8080"]}}]}]
ports|111111|ALLOW|[{to: [{operation: {ports: ["8080", "8081"]}}]}]
port-deny|010101|DENY|[{to: [{operation: {ports: ["8080"]}}]}]
port-not|010101|ALLOW|[{to: [{operation: {notPorts: ["8080"]}}]}]
port-and-principal|100000|ALLOW|[{from: [{source: {principals: ["$P"]}}], to: [{operation: {ports: ["8080"]}}]}]
two-operations|111111|ALLOW|[{to: [{operation: {ports: ["8080"]}}, {operation: {ports: ["8081"]}}]}]
two-sources|111100|ALLOW|[{from: [{source: {principals: ["$P"]}}, {source: {namespaces: ["foreign"]}}]}]
one-source-two-fields|000000|ALLOW|[{from: [{source: {principals: ["$P"], namespaces: ["foreign"]}}]}]
two-rules|101101|ALLOW|[{from: [{source: {namespaces: ["foreign"]}}]}, {to: [{operation: {ports: ["8080"]}}], from: [{source: {principals: ["$P"]}}]}, {from: [{source: {ipBlocks: ["10.243.0.0/16"]}}], to: [{operation: {ports: ["8081"]}}]}]
when-principal|110000|ALLOW|[{when: [{key: source.principal, values: ["$P"]}]}]
when-namespace|001100|ALLOW|[{when: [{key: source.namespace, values: ["foreign"]}]}]
when-account|110000|ALLOW|[{when: [{key: source.serviceAccount, values: ["default/client"]}]}]
when-ip|111100|ALLOW|[{when: [{key: source.ip, values: ["10.244.0.0/16"]}]}]
when-not-ip|000011|ALLOW|[{when: [{key: source.ip, notValues: ["10.244.0.0/16"]}]}]
when-remote-ip|000000|ALLOW|[{when: [{key: remote.ip, values: ["10.0.0.0/8"]}]}]
when-destination-ip|111111|ALLOW|[{when: [{key: destination.ip, values: ["10.244.0.0/16"]}]}]
when-destination-port|101010|ALLOW|[{when: [{key: destination.port, values: ["8080"]}]}]
when-destination-port-not|010101|DENY|[{when: [{key: destination.port, notValues: ["8081"]}]}]
http-method-allow|000000|ALLOW|[{to: [{operation: {methods: ["GET"]}}]}]
http-method-deny|111111|DENY|[{to: [{operation: {methods: ["POST"]}}]}]
http-path-and-port-deny|010101|DENY|[{to: [{operation: {paths: ["/x"], ports: ["8080"]}}]}]
http-header-allow|000000|ALLOW|[{when: [{key: "request.headers[x]", values: ["y"]}]}]
T
}
verdict_of() { # NAME WANT ACTION RULES
  policy "$1" "$3" "$4" >"$WORK/policy.yaml"
  lateen apply -f "$WORK/policy.yaml" || return 1
  lateen wait >/dev/null || return 1
  local code=0
  eventually 3 same "$2" || code=1
  lateen delete authorizationpolicy "$1" -n default >/dev/null
  return $code
}
while IFS='|' read -r name want action rules <&3; do
  check "$name" verdict_of "$name" "$want" "$action" "$rules"
done 3< <(table)

# Scopes, dry run, and several at once.
several() { # WANT, manifest on stdin
  cat >"$WORK/several.yaml"
  lateen apply -f "$WORK/several.yaml" && lateen wait >/dev/null || return 1
  local code=0
  eventually 3 same "$1" || code=1
  lateen delete -f "$WORK/several.yaml" >/dev/null
  return $code
}
check "of the namespace" several 110000 < <(policy of-namespace ALLOW "[{from: [{source: {namespaces: [default]}}]}]" default "")
check "of the mesh" several 001111 < <(policy of-mesh DENY "[{from: [{source: {namespaces: [default]}}]}]" istio-system "")
check "deny goes before allow" several 010000 < <(policy a ALLOW "[{from: [{source: {principals: [\"$P\"]}}]}]"; echo ---; policy b DENY "[{to: [{operation: {ports: [\"8080\"]}}]}]")
check "two that allow are as one" several 111100 < <(policy a ALLOW "[{from: [{source: {principals: [\"$P\"]}}]}]"; echo ---; policy b ALLOW "[{from: [{source: {namespaces: [foreign]}}]}]")
check "one of the mesh and one of the workload" several 100000 < <(policy a ALLOW "[{from: [{source: {principals: [\"$P\"]}}]}]"; echo ---; policy b DENY "[{to: [{operation: {ports: [\"8081\"]}}]}]" istio-system "")
check "dry run denies nobody" several 111111 < <(policy dry DENY "[{}]" default "$SERVERS" '"istio.io/dry-run": "true"')
check "dry run allows nobody either" several 000000 < <(policy dry ALLOW "[{}]" default "$SERVERS" '"istio.io/dry-run": "true"'; echo ---; policy none ALLOW "[]")
peer() { printf 'apiVersion: security.istio.io/v1\nkind: PeerAuthentication\nmetadata: {name: %s, namespace: default}\nspec: {%s}\n' "$1" "$2"; }
strict() { # WANT NAME SPEC
  lateen apply -f - < <(peer "$2" "$3") && lateen wait >/dev/null || return 1
  local code=0
  eventually 3 same "$1" || code=1
  lateen delete peerauthentication "$2" -n default >/dev/null
  return $code
}
check "STRICT" strict 111100 default "mtls: {mode: STRICT}"
check "STRICT of the servers" strict 111100 servers "selector: {matchLabels: {kind: server}}, mtls: {mode: STRICT}"
check "STRICT but for a port" strict 111110 ports "selector: {matchLabels: {kind: server}}, mtls: {mode: STRICT}, portLevelMtls: {8080: {mode: PERMISSIVE}}"
check "PERMISSIVE but for a port" strict 111110 ports "selector: {matchLabels: {kind: server}}, mtls: {mode: PERMISSIVE}, portLevelMtls: {8081: {mode: STRICT}}"
check "and without any all are served again" eventually 5 same 111111

# A policy that comes cuts what it denies, whoever the client's proxy is. ztunnel looks at open connections when a policy
# comes, not when a workload comes to name it, so with one that has a selector it leaves them: not held against it here.
hold() { in_pod "client-$1" timeout 20 curl -sS --max-time 20 "http://${IP[server-$2]}:8080/?delay=8s&size=9" -o /dev/null -w '%{http_code}' >"$WORK/held-$1-$2" 2>/dev/null & }
for c in ours ztunnel; do hold $c ours; done
sleep 1.5
check "a policy comes while connections are open" lateen apply -f - < <(policy late DENY "[{from: [{source: {principals: [\"$P\"]}}]}]")
began=$SECONDS; wait
for c in ours ztunnel; do equal "an open connection of $c to ours is cut" 000 "$(cat "$WORK/held-$c-ours")"; done
check "at once" [ $((SECONDS - began)) -le 4 ]
finish
