#!/usr/bin/env bash
# Connections as tap and top show them: byte directions, the objects that refuse, counts, widths. 39-command-line.sh sources
# this file.
# shellcheck shell=bash

connections_ip=$(pod_ip echo-)
connections_client=$(pod_ip client-)
connections_vip=$(lateen get services -o json | jq -r '.items[] | select(.metadata.name == "echo") | .spec.clusterIP')
# ask SIZE TIMES: connections of the client to the service, each for one answer of SIZE bytes.
ask() { for _ in $(seq "$2"); do in_pod client curl -s -m 5 -o /dev/null "http://$connections_vip:8080/?size=$1"; done; }
# plainly TIMES: connections from outside the mesh.
plainly() { for _ in $(seq "$1"); do in_node n1 curl -s -m 5 -o /dev/null "http://$connections_ip:8080/"; done; }

# observe FLAGS...: a tap runs; `written COMMAND` makes connections and says whether it has written a line.
observe() { : >"$WORK/tap"; "$LATEEN" --name "$MESH" tap "$@" >"$WORK/tap" 2>"$WORK/tap.err" & TAP=$!; }
written() { "$@"; [ -s "$WORK/tap" ]; }
tapped() { kill -TERM "$TAP"; wait "$TAP"; }
# knock: a connection to each pod from outside the mesh, of which one end alone tells. It says whether the tap hears both nodes.
knock() {
  in_node n1 curl -s -m 5 -o /dev/null "http://$connections_ip:8080/"
  in_node n2 curl -s -m 5 -o /dev/null "http://$connections_client:9/"
  line '^[^ ]+ +n1 +inbound ' && line '^[^ ]+ +n2 +inbound '
}
line() { found -E "$1" <"$WORK/tap"; }
lines() { grep -cE "$1" "$WORK/tap"; }
summary() { sed -n 1p "$WORK/tap.err"; }
as_many() { local n; n=$(lines "$2"); [ "$n" -ge "$1" ] && [ "$n" = "$(lines "$3")" ]; }
closed() { jq -es "[.[] | select(.event == \"closed\" and ($1))] | length > 0" "$WORK/tap" >/dev/null; }

echo "# bytes have a direction, the same in tables and JSON"
observe -o json
answered() { ask 200000 1; closed '.direction == "inbound" and .bytes.serverToClient > 200000' && closed '.direction == "outbound" and .bytes.serverToClient > 200000'; }
check "both ends tell of 200 kB from the server to the client" eventually 20 answered
check "and of a short request to the server" eventually 10 closed '.bytes.serverToClient > 200000 and .bytes.clientToServer > 0 and .bytes.clientToServer < 1000'
pairs() { jq -es '[.[] | select(.event == "closed" and .bytes.serverToClient > 200000)] | group_by(.pair) | any(length == 2 and (map(.direction) | sort) == ["inbound", "outbound"])' "$WORK/tap" >/dev/null; }
check "both ends name the connection alike" eventually 20 pairs
tapped
# It goes on until it is ended: exec makes $! its process.
(exec nsenter --net="/proc/$(engine_pid)/root$RUN/netns/$(pod_uid client-)" -- "$ROOT/bin/lateen-load" run \
  --url "http://$connections_vip:8080/?size=200000" --qps 20 --connections 1 --warmup 0s --timeout 30s --duration 300s --json - >/dev/null 2>&1) & LOAD=$!
# The rates of one look: of the pod that begins with $1, what it sent and received.
rates() { lateen top --once -o json | jq -es --arg p "$1" '.[0][] | select(.pod | startswith($p)) | .sentBytesPerSecond as $s | .receivedBytesPerSecond as $r | '"$2"; }
check "the server sent it" eventually 30 rates echo- '$s > 1e6 and $r < 1e5 and $r > 0'
check "the client received it" eventually 30 rates client- '$r > 1e6 and $s < 1e5 and $s > 0'
# A cell of the table in $WORK/top, by the name of its column: cells of a pipe have no spaces but before units.
cell() { sed 's/ \([KM]\?i\?B\)\b/\1/g' "$WORK/top" | awk -v pod="$1" -v column="$2" 'NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i } $2 ~ "^" pod { print $at[column] }'; }
table() { lateen top --once >"$WORK/top" 2>/dev/null && [[ "$(cell echo- SENT/s)" =~ MiB ]] && [[ "$(cell client- RECEIVED/s)" =~ MiB ]] && [[ ! "$(cell client- SENT/s)" =~ MiB ]] && [[ ! "$(cell echo- RECEIVED/s)" =~ MiB ]]; }
check "the table says the same" eventually 30 table
by_way() { lateen top connections --once -o json | jq -e '[.[] | select(.bytesPerSecond.serverToClient > 1e6 and .bytesPerSecond.clientToServer < 1e5)] | map(.direction) | sort == ["inbound", "outbound"]' >/dev/null; }
check "and connections say so at both ends" eventually 30 by_way

echo "# tables fit the terminal"
for width in 80 100 160; do
  for what in "top --once" "top connections --once"; do
    # A line that is too wide goes on in the next one, which then has too few cells.
    # shellcheck disable=SC2086
    uneven=$(in_terminal $width "$LATEEN" --name "$MESH" $what | sed '/^Next/,$d; s/ \([KM]\?i\?B\)\b/\1/g' | awk 'NF { if (!n) n = NF; if (NF != n) print }')
    equal "$what at $width columns" "" "$uneven"
  done
  # The two seconds of a tap may be over before it hears a node.
  named() { in_terminal $width "$LATEEN" --name "$MESH" tap --for 2s >"$WORK/wide"; cat "$WORK/wide"; found -E '\bclient +echo:8080 ' <"$WORK/wide"; }
  check "tap at $width columns: names without namespace and hash" eventually 30 named
  # Below VERDICT stands a verdict in each line.
  # shellcheck disable=SC2016
  misplaced=$(sed '/ended:/,$d' "$WORK/wide" | awk 'NR == 1 { at = index($0, "VERDICT"); next } NF && substr($0, at) !~ /^(ok|open) / { print }')
  equal "tap at $width columns: verdicts below their heading" "" "$misplaced"
done
kill -TERM $LOAD; wait $LOAD
# The end of a load's connection has one verdict or another. The next tap is to begin after it.
idle() { lateen top connections --once -o json | jq -e 'length == 0'; }
check "its connection has ended" eventually 30 idle
observe
check "lines in a pipe" eventually 20 written ask 1 1
tapped
# shellcheck disable=SC2016
check "in a pipe nothing is cut, and lines are aligned" awk 'NR == 1 { s = index($0, "SOURCE"); d = index($0, "DESTINATION"); v = index($0, "VERDICT"); next }
  substr($0, s) !~ /^default\/client-/ || substr($0, d) !~ /^(echo\.default:8080|default\/echo-[^ ]*:8080) / || substr($0, v) !~ /^(ok|open) / { exit 1 }' "$WORK/tap"

echo "# a refusal names the object that its author wrote"
strict() { lateen apply -f - <<YAML
apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {name: $1, namespace: default}
spec: $2
YAML
}
check "STRICT for the namespace" strict default '{mtls: {mode: STRICT}}'
check "in force" lateen wait
observe --denied
check "plaintext is refused" eventually 20 written plainly 1
tapped
check "the line names the PeerAuthentication" line 'denied .*plaintext refused: PeerAuthentication default/default is STRICT$'
check_not "and no policy that nobody wrote" line 'istio_converted'
check "so does the summary" grep -q 'denied: plaintext refused: PeerAuthentication default/default is STRICT$' "$WORK/tap.err"
suggested=$(sed -n 's/^Next: lateen \(.*\) --name .*/\1/p' "$WORK/tap.err")
equal "the next command shows it" "get peerauthentication default -n default" "$suggested"
# shellcheck disable=SC2086
check "and runs" lateen $suggested
check "the log keeps ztunnel's words" eventually 10 bash -c "grep -q 'explicitly denied by: istio-system/istio_converted_static_strict' '$RUN/nodes/n2/proxy.log'"
check "an object for the workload, STRICT on one port" strict echo-port '{selector: {matchLabels: {app: echo}}, mtls: {mode: PERMISSIVE}, portLevelMtls: {8080: {mode: STRICT}}}'
check "in force" lateen wait
observe --denied -o json
refused_by_port() { plainly 1; closed '.denied.by == ["default/converted_peer_authentication_echo-port"]'; }
check "plaintext is refused by it" eventually 20 refused_by_port
tapped
check "which the last line names, with its port" closed '.reason == "plaintext refused: PeerAuthentication default/echo-port is STRICT on port 8080" and .policies == [{"kind": "PeerAuthentication", "namespace": "default", "name": "echo-port"}]'
check "remove both" lateen delete -n default PeerAuthentication/default PeerAuthentication/echo-port
policy() { lateen apply -f - <<YAML
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: $1, namespace: default, annotations: {$2}}
spec: {selector: {matchLabels: {app: echo}}, action: $3, rules: [{from: [{source: {principals: ["cluster.local/ns/default/sa/$4"]}}]}]}
YAML
}
check "allow others alone" policy only-other "" ALLOW other
check "and others again" policy also-other "" ALLOW another
check "in force" lateen wait

echo "# a refused connection counts once"
observe --failed
# The tap begins to hear each node in its own time, and connections before that would have one end.
check "both nodes are heard" eventually 30 knock
ask 1 5
check "both ends are seen" eventually 20 as_many 5 '^[^ ]+ +n2 +inbound +default/.* denied ' ' outbound .* denied by peer '
tapped
# Each has one end on its way in, also those that knocked.
ended=$(lines '^[^ ]+ +n[12] +inbound ') refused=$(lines '^[^ ]+ +n[12] +inbound .* denied ')
equal "the summary counts connections" "$ended connections ended: $refused denied, $((ended - refused)) failed" "$(summary)"
check "and names the ALLOW policies of which none matches" grep -Eq "^  $refused denied: .*default/also-other, default/only-other|^  $refused denied: .*default/only-other, default/also-other" "$WORK/tap.err"
counted() { lateen top --once -o json | jq -e 'map(select(.pod | startswith("echo-") or startswith("client-"))) | length == 2 and all(.failedPerSecond == 0 and .deniedPerSecond > 0)' >/dev/null; }
touch "$WORK/asking"
(while [ -e "$WORK/asking" ]; do ask 1 1; done) & LOAD=$!
check "top counts them as denied at both ends, and as failed at none" eventually 30 counted
rm "$WORK/asking"
wait $LOAD
check "allow again" lateen delete -n default AuthorizationPolicy/only-other AuthorizationPolicy/also-other

echo "# a policy in dry run"
check "rehearse" policy rehearsal 'istio.io/dry-run: "true"' DENY client
check "in force" lateen wait
observe --direction inbound
check "served" eventually 20 written ask 1 1
ask 1 1
check "seen" eventually 20 line 'would deny '
tapped
check "it would deny" line ' would deny .*dry run: AuthorizationPolicy default/rehearsal would deny$'
rehearsed=$(lines ' would deny ')
equal "the summary counts them" "$rehearsed" "$(sed -n 's/^  \([0-9]*\) would be denied by default\/rehearsal$/\1/p' "$WORK/tap.err")"
check "end the rehearsal" lateen delete -n default AuthorizationPolicy/rehearsal
check "as before" lateen wait

echo "# a watch follows a node's proxy to its successor"
check "deny the client" policy no-client "" DENY client
check "in force" lateen wait
observe --denied --direction inbound -o json
told() { ask 1 1; closed '.node == "n2" and .denied.by == ["default/no-client"]'; }
check "the proxy of n2 tells of a denial" eventually 20 told
check "replace it" lateen proxy replace n2
refused_later() { ask 1 1; jq -es '(map(.event == "watching" and .node == "n2") | rindex(true)) as $again | (map(select(.event == "watching" and .node == "n2")) | length) > 1 and any(.[$again:][]; .event == "closed" and .node == "n2" and .denied.by == ["default/no-client"])' "$WORK/tap" >/dev/null; }
check "its successor tells of a later one" eventually 30 refused_later
tapped
check "allow again" lateen delete -n default AuthorizationPolicy/no-client
check "as before" lateen wait
