#!/usr/bin/env bash
# Latency between nodes, added in user space: a mesh works over links that take their time, a round trip takes what was asked
# for, pods of one node are not slowed down, and the lab labels what it measured so.
# alone: it measures
# bites: without the delay in internal/engine/local/delay (frames delivered at once) round trips take less than 1 ms.
source "$(dirname "$0")/lib.sh"
refused() { # DESCRIPTION TEXT ARGS...
  local what=$1 text=$2; shift 2
  local out code; out=$("$LATEEN" "$@" 2>&1); code=$?
  if [ $code = 64 ] && grep -q -- "$text" <<<"$out"; then ok "$what"; else not_ok "$what: exit code $code: $out"; fi
}
refused "a latency below zero" "use 0s to 2s" --name "$MESH" up --latency -1ms
refused "one that no link takes" "use 0s to 2s" --name "$MESH" up --latency 1h
refused "one for a network that is not the lab's" "use it with planes" lab run aa-null --latency 1ms --target a=http://127.0.0.1:1

check "up with 40 ms between nodes" lateen up --nodes 2 --latency 40ms
equal "status says so" 1 "$(lateen status | grep -c '^40ms added to every round trip between nodes, in user space$')"
check "apply echo and client" lateen apply -f "$ROOT/samples/echo/echo.yaml"
ready() { lateen get pods -o json | jq -e '[.items[] | select(.status.conditions[]? | select(.type=="Ready" and .status=="True"))] | length >= 2'; }
check "echo and client are ready" eventually 60 ready
check "enrol the namespace" lateen label ns default istio.io/dataplane-mode=ambient
enrolled() { lateen get pods -o json | jq -e '[.items[] | select(.metadata.annotations["ambient.istio.io/redirection"] == "enabled")] | length >= 2'; }
check "both pods are captured" eventually 30 enrolled
fetch() { lateen exec deploy/client -- lateen-load run --url "http://echo:8080/?size=$1" --qps 10 --connections 1 --duration 3s --warmup 2s --all-percentiles --json - 2>/dev/null; }
through() { proxy_log n2 | grep 'connection complete' | grep 'direction="inbound"' | found 'src.identity="spiffe://cluster.local/ns/default/sa/client"'; }
check "a request goes through the mesh" eventually 30 bash -c "'$LATEEN' --name '$MESH' exec deploy/client -- curl -sS --max-time 5 -o /dev/null 'http://echo:8080/?size=64'"
check "and is one of the tunnel's" eventually 20 through
p50=$(fetch 64 | jq .service_time.p50)
check "over a kept connection it takes the latency once: $p50 ms" jq -ne --argjson v "$p50" '$v >= 40 and $v < 79'
check "a megabyte arrives whole" eventually 30 bash -c "[ \$('$LATEEN' --name '$MESH' exec deploy/client -- curl -sS --max-time 20 'http://echo:8080/?size=1048576' | wc -c) = 1048576 ]"
pod=$(lateen get pods -o json | jq -r '[.items[] | select(.metadata.name | startswith("echo"))][0].status.podIP')
near() { nsenter -t "$(engine_pid)" -n -- nsenter --net="/proc/$(engine_pid)/root$RUN/netns/n2" -- curl -s --max-time 5 -o /dev/null -w '%{time_connect}' "http://$pod:8080/?size=1"; }
# The least of some: that the machine has other things to do is not latency of the network.
took=$(for _ in 1 2 3 4 5; do near; echo; done | sort -g | head -1)
check "a node reaches its own pod without it: $took s" jq -ne --argjson v "${took:-9}" '$v > 0 and $v < 0.02'
lateen down >/dev/null 2>&1

cd "$WORK" || exit 1
cat >far.yaml <<'Y'
title: Far
does: A kept connection, asked again as soon as it has answered.
world: [client, echo]
rounds: 1
seconds: 2
metrics: [service_p50_ms]
load: {url: "http://echo:8080/?size=64", connections: 4, qps: 20}
cells: [{name: far, saturates: true}]
Y
check "the lab runs over such a network" "$LATEEN" lab run ./far.yaml --planes none --latency 20ms --gate other_cpu=1 --gate steal=1 --gate lateness=1000 --out far
check "its document says so" jq -e '.scenarios[0].not_valid | any(contains("20ms were added to every round trip between nodes"))' far/results.json
equal "as a number too, for comparisons" 20 "$(jq .added_latency_ms far/results.json)"
check "and the report" grep -q '20ms were added' far/report.md
finish
