#!/usr/bin/env bash
# The same traffic through both proxies: what their access logs and their metrics say of it, field by field and label by label.
source "$(dirname "$0")/lib.sh"
begin
check "a policy that refuses strangers" lateen apply -f - <<'Y'
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: no-strangers, namespace: default}
spec: {selector: {matchLabels: {kind: server}}, action: DENY, rules: [{from: [{source: {namespaces: [foreign]}}]}]}
Y
check "known to every proxy" lateen wait
remember client-ours client-ztunnel stranger-ours stranger-ztunnel
declare -A IP; for p in server-ours server-ztunnel client-ours client-ztunnel stranger-ours stranger-ztunnel; do IP[$p]=$(ip_of $p); done

# plain_line: an access line without what belongs to one connection (times, ports, names of pods and nodes' addresses).
plain_line() {
  sed -E 's/\x1b\[[0-9;]*m//g; s/^[^\t ]+[\t ]+//; s/(pod|deploy)?(client|server|stranger)-(ours|ztunnel)(-[a-z0-9]+-[a-z0-9]+)?/\2/g; s/10\.(243|244|96)\.[0-9]+\.[0-9]+:(8080|8081|15008)/ADDR:\2/g; s/10\.(243|244|96)\.[0-9]+\.[0-9]+(:[0-9]+)?/ADDR/g; s/duration="[^"]*"/duration/; s/error="(http status: 401 Unauthorized|peer refused the connection:[^"]*401:[^"]*)"/REFUSED BY THE PEER/; s/ (trace|span)[._a-z]*=[^ ]*//g; s/[0-9a-f]{32}/TRACE/g' |
    tr -s '\t ' '\n' | sed '/^$/d'
}
# How a refusal by the peer is worded differs on purpose: ours says what the status means.
# compare WHAT OURS ZTUNNEL: lines of text, as sets; the documented differences have been taken out by the caller.
compare() {
  if [ -s "$2" ] && diff -u <(sort "$3") <(sort "$2") >"$WORK/diff"; then ok "$1 ($(wc -l <"$2") values)"; else not_ok "$1: (-ztunnel +ours)"; grep '^[-+]' "$WORK/diff"; fi
}
# access NODE DIRECTION TEXT: the last line of the kind; one without an error begins with "!".
access() { proxy_log "$1" | grep "direction=\"$2\"" | if [[ $3 = !* ]]; then grep -v 'error=' | grep -F "${3#!}"; else grep -F "$3"; fi | tail -1; }
# The lines of one request: at the client's proxy and at the server's, with ours in place and with ztunnel.
lines() { # WHAT DIRECTION CLIENT-OF-OURS CLIENT-OF-ZTUNNEL: by a server (inbound) or a client (outbound) of each
  local what=$1 direction=$2 ours=$3 ztunnel=$4; shift 4
  access "$ours" "$direction" "$1" | plain_line >"$WORK/ours.line"
  access "$ztunnel" "$direction" "$1" | plain_line >"$WORK/ztunnel.line"
  # 1.30 does not log the clusters of source and destination: ours alone has them.
  if [ $RELEASE = 1.30 ]; then sed -i -E '/^(src|dst)\.cluster=/d' "$WORK/ours.line"; fi
  compare "$what" "$WORK/ours.line" "$WORK/ztunnel.line"
}
# by SIDE PAIR-OF: one request from CLIENT to the server of SIDE
for i in 1 2 3; do for pair in "${PAIRS[@]}"; do set -- $pair; call "client-$1" "http://server-$2:8080/?size=100" -H 'user-agent: x' -H "host: server" >/dev/null; done; done
for pair in "${PAIRS[@]}"; do set -- $pair; call "stranger-$1" "http://server-$2.default:8080/?size=100" -H 'user-agent: x' -H "host: server" >/dev/null; done
for s in ours ztunnel; do in_node n1 curl -s -o /dev/null --max-time 3 -A x -H host: "http://${IP[server-$s]}:8080/?size=100"; done
sleep 1
# Across nodes, so that both proxies see a tunnel: each one's peer is of the other kind, and again of its own kind.
lines "a served request at the client's proxy" outbound n1 n3 '!sa/server"'
lines "a served request at the server's proxy" inbound n2 n4 '!sa/client"'
lines "a refused request at the server's proxy" inbound n2 n4 'no-strangers'
lines "a refused request at the client's proxy" outbound n1 n3 'src.namespace="foreign"'
lines "a request in clear at the server's proxy" inbound n2 n4 'src.addr=10.243.0.11'

# Metrics: names and labels of all series about traffic, and their values.
series() { # NODE: name{labels sorted} value
  proxy_metrics "$1" | grep -E '^istio_(tcp|dns)_' | sed -E 's/(client|server|stranger)-(ours|ztunnel)(-[a-z0-9]+)?/\1/g; s/local-n[0-9]/ZONE/g' |
    awk '{ i = index($0, "{"); j = index($0, "}"); print substr($0, 1, i - 1), substr($0, j + 2), substr($0, i + 1, j - i - 1) }' |
    while read -r name value labels; do printf '%s %s %s\n' "$name" "$value" "$(tr ',' '\n' <<<"$labels" | sort | paste -sd,)"; done
}
for n in n1 n2 n3 n4; do series $n | grep -E '^istio_tcp_connections_(opened|closed)_total' | grep -v 'reporter="source".*unknown' >"$WORK/$n.series"; done
names() { proxy_metrics "$1" | awk '/^# TYPE istio_/ {print $3, $4}' | sort -u; }
names n2 >"$WORK/ours.names"; names n4 >"$WORK/ztunnel.names"
missing=$(comm -13 "$WORK/ours.names" "$WORK/ztunnel.names" | paste -sd';')
equal "no metric of ztunnel is missing" "" "$missing"
labels() { awk '{print $3}' "$1" | tr ',' '\n' | cut -d= -f1 | sort -u; }
labels "$WORK/n2.series" >"$WORK/ours.labels"; labels "$WORK/n4.series" >"$WORK/ztunnel.labels"
compare "the labels of a server's series" "$WORK/ours.labels" "$WORK/ztunnel.labels"
# What each server's proxy counted of the same requests: three served from each side, one refused from each, one in clear.
served() { grep 'reporter="destination"' "$WORK/$1.series" | sed -E 's/^(\S+) \S+ /\1 /' | sort -u; }
served n2 >"$WORK/ours.set"; served n4 >"$WORK/ztunnel.set"
compare "the series at the server's proxy" "$WORK/ours.set" "$WORK/ztunnel.set"
asked() { grep 'reporter="source"' "$WORK/$1.series" | sed -E 's/^(\S+) \S+ /\1 /' | sort -u; }
asked n1 >"$WORK/ours.set"; asked n3 >"$WORK/ztunnel.set"
compare "the series at the client's proxy" "$WORK/ours.set" "$WORK/ztunnel.set"
# A policy whose selector was edited has another name on the wire. What people read of ours has the author's.
check "one in dry run" lateen apply -f - <<'Y'
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: rehearsal, namespace: default, annotations: {"istio.io/dry-run": "true"}}
spec: {selector: {matchLabels: {kind: server}}, action: DENY, rules: [{from: [{source: {namespaces: [foreign]}}]}]}
Y
check "known" lateen wait
check "both come to select by another label" lateen apply -f - <<'Y'
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: no-strangers, namespace: default}
spec: {selector: {matchLabels: {app: server-ours}}, action: DENY, rules: [{from: [{source: {namespaces: [foreign]}}], to: [{operation: {ports: ["8080"]}}]}]}
---
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: rehearsal, namespace: default, annotations: {"istio.io/dry-run": "true"}}
spec: {selector: {matchLabels: {app: server-ours}}, action: DENY, rules: [{from: [{source: {namespaces: [foreign]}}]}]}
---
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: let-in, namespace: default}
spec: {selector: {matchLabels: {app: server-ztunnel}}, action: ALLOW, rules: [{}]}
Y
check "known to every proxy" lateen wait
check "one comes to select another workload" lateen apply -f - <<'Y'
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: let-in, namespace: default}
spec: {selector: {matchLabels: {app: server-ours}}, action: ALLOW, rules: [{}]}
Y
check "known to every proxy" lateen wait
check "ztunnel shows the name on the wire ($(proxy_page n4 /config_dump -f | grep -oE '(no-strangers|rehearsal|let-in)~[0-9a-f]{8}' | sort -u | paste -sd' '))" bash -c "[ -n '$(proxy_page n4 /config_dump -f | grep -oE '(no-strangers|rehearsal|let-in)~[0-9a-f]{8}' | sort -u | paste -sd' ')' ]"
before=$(proxy_log n2 | wc -l)
lateen tap -o json >"$WORK/tap" 2>/dev/null & TAP=$!
sleep 1
call stranger-ztunnel "http://${IP[server-ours]}:8080/" >/dev/null
call stranger-ztunnel "http://${IP[server-ours]}:8081/" >/dev/null
call client-ztunnel "http://${IP[server-ours]}:8080/" >/dev/null
since() { proxy_log n2 | tail -n +$((before + 1)); }
logged() { since | grep -F "$1" >/dev/null; }
check "ours names it in the access log as its author" eventually 10 logged 'explicitly denied by: default/no-strangers"'
check "and the one in dry run" eventually 10 logged 'policy.dry_run="deny by default/rehearsal"'
tapped() { grep 'default/no-strangers[^~]' "$WORK/tap" >/dev/null; }
check "tap does" eventually 10 tapped
end_behind $TAP
counted() { proxy_metrics n2 | grep -F 'policy="default/rehearsal"' | grep -v ' 0$' >/dev/null; }
check "the metric does" eventually 10 counted
page() { proxy_page n2 /config_dump -f | jq -e '[.policies[].name] | sort == ["let-in", "no-strangers", "rehearsal"]'; }
check "the page of its configuration does" page
listed() { proxy_page n2 /config_dump -f | jq -e '[.workloads[] | select(.workloadName == "server-ours") | .authorizationPolicies[]] | sort == ["default/let-in", "default/no-strangers", "default/rehearsal"]'; }
check "and so do the workloads there" listed
equal "nothing that ours shows has the mark of the wire" "" "$({ since; cat "$WORK/tap"; proxy_metrics n2; proxy_page n2 /config_dump -f; lateen status -o json; lateen get authorizationpolicies -A -o json; lateen proxy config n2; } | grep -oE '[a-z-]+~[0-9a-f]{8}' | sort -u | paste -sd' ')"
finish
