#!/usr/bin/env bash
# Enrolment and release under load: no process restarts, no request fails, connections opened before go on untouched and
# are listed, connections opened under the mesh finish after the release.
# needs: nft
source "$(dirname "$0")/lib.sh"

check "up" lateen up --nodes 2
check "apply echo and client" lateen apply -f "$ROOT/samples/echo/echo.yaml"
ready() { lateen get pods -o json | jq -e '[.items[] | select(.status.conditions[]? | select(.type=="Ready" and .status=="True"))] | length >= 2'; }
check "ready" eventually 60 ready
client_node=$(node_of client)
# A ready pod comes to its service's name and address a moment later than to the list of pods.
answers() { lateen exec deploy/client -- curl -sf --max-time 15 http://echo:8080/ -o /dev/null; }
eventually 30 answers >/dev/null || not_ok "the service does not answer before there is a load"

# The pods' processes as their own PID namespaces number them, with start times.
pids() { for d in echo client; do lateen exec "deploy/$d" -- sh -c 'for f in /proc/[0-9]*/stat; do awk "\$4 <= 1 || \$1 == 1 {print \$1, \$2, \$22}" "$f"; done' | grep -v '(sh)\|(awk)'; done | sort; }
before=$(pids)
check "the echo service runs" [ -n "$before" ]

# Long-lived keep-alive connections opened before, and a new connection per request all the while.
# The first load must last until status has listed its connections.
lateen exec deploy/client -- lateen-load run --url http://echo:8080/ --qps 100 --connections 4 --duration 30s --json - >"$WORK/keep.json" 2>"$WORK/keep.err" & KEEP_PID=$!
eventually 30 client_has_open 4 >/dev/null || not_ok "the load over old connections does not begin"
lateen exec deploy/client -- lateen-load run --url http://echo:8080/ --qps 50 --connections 2 --duration 30s --no-keepalive --json - >"$WORK/new.json" 2>"$WORK/new.err" & NEW_PID=$!
sleep 2
check "enrol under load" lateen label ns default istio.io/dataplane-mode=ambient
enrolled() { lateen get pods -o json | jq -e '[.items[] | select(.metadata.annotations["ambient.istio.io/redirection"] == "enabled")] | length >= 2'; }
check "captured" eventually 30 enrolled
listed() { lateen status -o json | jq -e '[.. | .unmeshedConnections? // empty | .[]?] | length >= 4'; }
check "status lists the connections opened before" eventually 30 listed
meshed() { grep -q 'dst.hbone_addr=' "$RUN/nodes/$client_node/proxy.log"; }
eventually 20 meshed >/dev/null
sleep 2
check "release under load" lateen label ns default istio.io/dataplane-mode-
wait "$KEEP_PID"; equal "load over old connections ends well" 0 $?
wait "$NEW_PID"; equal "load over new connections ends well" 0 $?
equal "no request failed on connections opened before" 0 "$(jq '.errors | if type=="object" then ([.[]] | add // 0) else . end' "$WORK/keep.json")"
equal "no request failed on new connections" 0 "$(jq '.errors | if type=="object" then ([.[]] | add // 0) else . end' "$WORK/new.json")"
check "some of the new connections were meshed" eventually 15 meshed
equal "no process was restarted" "$before" "$(pids)"

# A meshed connection outlives the release.
check "enrol again" lateen label ns default istio.io/dataplane-mode=ambient
check "captured again" eventually 30 enrolled
lateen wait >/dev/null || not_ok "not every proxy knows of it"
lateen exec deploy/client -- lateen-load run --url http://echo:8080/ --qps 50 --connections 2 --duration 12s --json - >"$WORK/meshed.json" 2>"$WORK/meshed.err" & MESHED=$!
eventually 30 client_has_open 2 >/dev/null || not_ok "the load over meshed connections does not begin"
sleep 1
check "release again" lateen label ns default istio.io/dataplane-mode-
wait "$MESHED"; equal "load over meshed connections ends well" 0 $?
equal "no request failed on connections that were meshed when released" 0 "$(jq '.errors | if type=="object" then ([.[]] | add // 0) else . end' "$WORK/meshed.json")"

# Nothing of ours stays in the pods.
left() {
  local engine; engine=$(engine_pid)
  local uids; uids=$(lateen get pods -o json | jq -r '.items[].metadata.uid')
  [ -n "$uids" ] || echo "no pod is listed"
  for uid in $uids; do
    nsenter --net="/proc/$engine/root$RUN/netns/$uid" nft list ruleset
    nsenter --net="/proc/$engine/root$RUN/netns/$uid" ip rule | grep -vE '^(0|32766|32767):'
    nsenter --net="/proc/$engine/root$RUN/netns/$uid" ip route show table 100 2>/dev/null
  done
}
nothing_left() { local l; l=$(left); [ -z "$l" ] || { echo "$l"; return 1; }; }
check "a released pod has no rule and no route of ours" eventually 30 nothing_left
finish
