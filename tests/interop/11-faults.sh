#!/usr/bin/env bash
# What goes wrong with ztunnel on one side and ours on the other: a proxy is killed, the control plane is killed, certificates run
# out, a policy is edited while somebody hammers what it denies, a proxy drains. Nothing is in clear at any time, nothing hangs, and
# nothing fails but what must.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/../faults/lib.sh"
NODES=(n1 n2 n3 n4)
MIXED=("ours ztunnel" "ztunnel ours")
begin
remember client-ours client-ztunnel
declare -A UID_OF TARGET
places() { local s; for s in ours ztunnel; do UID_OF[$s]=$(pod_uid "client-$s"); TARGET[$s]=$(service_ip "server-$s"):8080; done; }
places
MARKED=(-path "/?size=77&marker=in-the-clear")
# asks CLIENT SERVER SECONDS FILE FLAGS...
asks() { local c=$1 s=$2 t=$3 f=$4; shift 4; CLIENT=${UID_OF[$c]} ECHO=${TARGET[$s]} ask "$t" "$f" "$@"; }
# both SECONDS NAME [FLAGS]: each pair of the two kinds is asked, on connections that are kept and on new ones.
JOBS=()
both() {
  local seconds=$1 pair c s; shift
  JOBS=()
  for pair in "${MIXED[@]}"; do
    read -r c s <<<"$pair"
    asks $c $s $seconds "$WORK/keep-$c" -mode keep -workers 3 -rate 60 "$@" & JOBS+=($!)
    asks $c $s $seconds "$WORK/new-$c" -mode new -workers 4 -rate 100 "$@" & JOBS+=($!)
  done
}
of() { jq -c .counts "$1"; }
mixed_answer() { local c s; for c in ours ztunnel; do s=$([ $c = ours ] && echo ztunnel || echo ours); [ "$(call "client-$c" "http://server-$s:8080/")" = 200 ] || return 1; done; }

echo "# a proxy is killed"
# The clients' proxies, then the servers': of each pair the one that lives is of the other kind.
for side in "clients' n1 n3" "servers' n4 n2"; do
  read -r whose first second <<<"$side"
  watch_wire
  both 7 "${MARKED[@]}"
  sleep 1.5
  a=$(proxy_pid $first) b=$(proxy_pid $second)
  kill -KILL "$a" "$b"
  back() { local n=$1 now; now=$(proxy_pid "$n"); [ -n "$now" ] && [ "$now" != "$2" ] && in_node "$n" curl -sf --max-time 1 http://127.0.0.1:15021/healthz/ready; }
  check "the $whose proxies are killed: another is ready on $first" eventually 20 back $first "$a"
  check "and on $second" eventually 20 back $second "$b"
  wait "${JOBS[@]}"
  unwatch_wire
  for c in ours ztunnel; do
    lines="client behind $c, $whose proxy killed"
    if [ "$whose" = "clients'" ]; then
      check "$lines: new connections were refused ($(of "$WORK/new-$c"))" [ "$(count "$WORK/new-$c" refused)" -ge 1 ]
    else
      check "$lines: new connections failed ($(of "$WORK/new-$c"))" [ "$(failed "$WORK/new-$c")" -ge 1 ]
    fi
    equal "$lines: none hung" "0 0" "$(count "$WORK/new-$c" timeout) $(count "$WORK/keep-$c" timeout)"
    check "$lines: what was open was lost ($(of "$WORK/keep-$c"))" [ "$(failed "$WORK/keep-$c")" -ge 1 ]
  done
  equal "the $whose proxies killed: nothing crossed in clear" 0 "$(in_clear 'marker=in-the-clear')"
  check "while the tunnels were in use" bash -c "tcpdump -r '$WORK/fabric.pcap' -n tcp port 15008 2>/dev/null | head -1 | grep -q ."
  check "all are served again" eventually 20 answering
done

echo "# the control plane is killed, and stays away"
both 12
sleep 1
control=$(away control_pid)
check "it is away" [ -n "$control" ]
sleep 5
kill -KILL "$control"
check "a policy takes effect as soon as it is back" eventually 20 lateen apply -f - <<'Y'
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: other-port, namespace: default}
spec: {selector: {matchLabels: {kind: server}}, action: DENY, rules: [{to: [{operation: {ports: ["8081"]}}]}]}
Y
closed() { local pair; for pair in "${PAIRS[@]}"; do set -- $pair; [ "$(call "client-$1" "http://server-$2:8081/")" != 200 ] || return 1; done; }
check "at both kinds of server, for both kinds of client" eventually 20 closed
wait "${JOBS[@]}"
for c in ours ztunnel; do
  equal "client behind $c: no request on established connections failed ($(of "$WORK/keep-$c"))" "0 3" "$(failed "$WORK/keep-$c") $(jq .connections "$WORK/keep-$c")"
  equal "client behind $c: nor on new ones ($(of "$WORK/new-$c"))" 0 "$(failed "$WORK/new-$c")"
done
check "without that policy" lateen delete authorizationpolicy other-port -n default
check "everything is known again" lateen wait

echo "# a proxy drains"
# drained NODE PROGRAM...: `replace` under load, from the clients of both pairs.
drained() { # WHAT NODE FLAGS...
  local what=$1 node=$2; shift 2
  both 9
  sleep 1
  check "$what is replaced" lateen proxy replace "$node" "$@" --wait
  wait "${JOBS[@]}"
}
drained "ours, of ztunnel's server," n2 --drain 15s
for c in ours ztunnel; do
  equal "client behind $c: no new connection failed ($(of "$WORK/new-$c"))" 0 "$(failed "$WORK/new-$c")"
  equal "client behind $c: and none that was open ($(of "$WORK/keep-$c"))" "0 3" "$(failed "$WORK/keep-$c") $(jq .connections "$WORK/keep-$c")"
done
check "ztunnel, of our client's server, is replaced by one that was told to drain for long" lateen proxy replace n4 --ztunnel "$ZTUNNEL" --drain 20s --wait
settled() { lateen status -o json | jq -e '.nodes[] | select(.name == "n4") | .proxy | (.draining // []) | length == 0'; }
check "the former has drained" eventually 30 settled
drained "and once more, under load: it" n4 --drain 20s
for c in ours ztunnel; do
  equal "client behind $c: no new connection failed ($(of "$WORK/new-$c"))" 0 "$(failed "$WORK/new-$c")"
  equal "client behind $c: and none that was open ($(of "$WORK/keep-$c"))" "0 3" "$(failed "$WORK/keep-$c") $(jq .connections "$WORK/keep-$c")"
done

echo "# policies are edited while somebody hammers what they deny"
# Each state of the walk denies the clients at the servers. ztunnel applies a response resource by resource: what it admits in
# between is told, and not asserted.
guard() {
  lateen apply -f - >>"$WORK/edits" 2>&1 <<'Y'
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: guard-0, namespace: default}
spec: {action: DENY, rules: [{from: [{source: {principals: ["cluster.local/ns/default/sa/client"]}}]}]}
Y
}
edits=0
edits_for() { # COUNT: ends with the policy that the next walk begins with
  local line name
  while read -r line; do
    for name in $(jq -r '.[] | .delete // empty' <<<"$line"); do lateen delete authorizationpolicy "$name" >/dev/null 2>&1; done
    if jq -e '.[] | select(.delete == null)' <<<"$line" >/dev/null; then jq -c '.[] | select(.delete == null)' <<<"$line" | sed 's/^/---\n/' | lateen apply -f - >>"$WORK/edits" 2>&1; fi
    edits=$((edits + 1))
  done < <("$TOOLS/policyedits" -seed $((SEED + edits)) -steps "$1" | head -"$1" | sed 's/"app":"echo"/"kind":"server"/g')
  guard
}
SEED=${FAULT_SEED:-$RANDOM}
echo "   seed $SEED"
guard
denied() { local pair; for pair in "${PAIRS[@]}"; do set -- $pair; [ "$(call "client-$1" "http://server-$2:8080/")" != 200 ] || return 1; done; }
check "all are denied" eventually 20 denied
lateen wait >/dev/null 2>&1
HAMMERS=()
for pair in "${PAIRS[@]}"; do read -r c s <<<"$pair"; asks $c $s 250 "$WORK/hammer-$c-$s" -workers 4 -rate 120 -timeout 2s & HAMMERS+=($!); done
restarted() { local pid; pid=$("$@"); kill -KILL "$pid" && another "$pid" "$@"; }
while_editing() { # WHAT COMMAND...
  local what=$1 step; shift
  "$@" >"$WORK/step" 2>&1 & step=$!
  edits_for 4
  wait $step && ok "$what, amid edits" || { not_ok "$what, amid edits"; tail -5 "$WORK/step" | sed 's/^/    /'; }
}
edits_for 6
while_editing "our server's proxy is killed" restarted proxy_pid n2
while_editing "ztunnel's client's proxy is killed" restarted proxy_pid n3
while_editing "the control plane is killed" restarted control_pid
while_editing "our server's proxy is replaced" lateen proxy replace n2 --drain 2s
edits_for 2
end "${HAMMERS[@]}"
for c in ours ztunnel; do
  f=$WORK/hammer-$c-ours
  equal "client behind $c, $edits edits: ours admitted nobody whom every state denies ($(of "$f"))" 0 $(($(count "$f" served) + $(count "$f" partial)))
  check "client behind $c: they were many" [ "$(jq '[.counts[]] | add' "$f")" -gt 200 ]
  f=$WORK/hammer-$c-ztunnel
  echo "   client behind $c: ztunnel admitted $(($(count "$f" served) + $(count "$f" partial))) ($(of "$f"))"
done
check "no edit was refused" bash -c "! grep -iE '^error' '$WORK/edits'"
lateen get authorizationpolicies -o json | jq -r '.items[].metadata.name' | while read -r name; do lateen delete authorizationpolicy "$name" >/dev/null; done
check "without the policies all are served: it was they that denied" eventually 20 answering
check "down" lateen down

echo "# the control plane stays away for longer than certificates live"
begin --cert-ttl 12s
NETNS=(); remember client-ours client-ztunnel; places
both 4
wait "${JOBS[@]}"
for c in ours ztunnel; do equal "client behind $c: certificates of twelve seconds cost nothing ($(of "$WORK/new-$c"))" "0 0" "$(failed "$WORK/keep-$c") $(failed "$WORK/new-$c")"; done
check "it is out of reach" in_fabric nft 'add table inet away; add chain inet away in { type filter hook input priority 0; }; add rule inet away in tcp dport 15012 reject with tcp reset'
gone=$(date +%s%3N)
watch_wire
both 26 "${MARKED[@]}"
wait "${JOBS[@]}"
unwatch_wire
equal "nothing crossed in clear" 0 "$(in_clear 'marker=in-the-clear')"
for c in ours ztunnel; do
  check "client behind $c: requests failed instead ($(of "$WORK/new-$c"))" [ "$(failed "$WORK/new-$c")" -ge 1 ]
  first=$(awk 'NR == 1 {print $1}' "$WORK/new-$c.failures")
  check "client behind $c: none in the first 5 s ($((${first:-$gone} - gone)) ms)" [ $((${first:-$gone} - gone)) -ge 5000 ]
  equal "client behind $c: none hung" 0 "$(count "$WORK/new-$c" timeout)"
  echo "   client behind $c, connections that were open: $(of "$WORK/keep-$c")"
done
check "it is in reach again" in_fabric nft delete table inet away
check "all heal by themselves" eventually 40 answering
finish
