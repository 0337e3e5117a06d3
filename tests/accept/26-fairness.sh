#!/usr/bin/env bash
# One pod cannot take another one's part of a node proxy. 1200 connections of one pod ask as fast as they are answered; one
# connection of another pod, to another server, does the same. Counted are the answers on a connection: in one queue for
# all, every connection has as many as any other; in turns, the quiet pod's has many times more. New connections, opened
# one after the other beside a storm of them, likewise.
# alone: it measures
# bites: with one group for all pods (group_of in crates/proxy/src/worker.rs) both counts are red.
source "$(dirname "$0")/lib.sh"
LOUD=1200 STORM=400

check "up, one worker on each node" lateen up --nodes 2 --workers 1
pair() { # NAME: a server on n2, a client on n1
  cat <<Y
---
apiVersion: v1
kind: Service
metadata: {name: $1}
spec: {selector: {app: $1}, ports: [{name: http, port: 8080}]}
---
apiVersion: v1
kind: Pod
metadata: {name: $1, labels: {app: $1}}
spec:
  nodeSelector: {lateen.dev/node-index: "2"}
  terminationGracePeriodSeconds: 1
  containers: [{name: main, image: lateen/load:1, command: [lateen-load, serve, --listen, "0.0.0.0:8080"], readinessProbe: {httpGet: {path: /health, port: 8080}, periodSeconds: 1}}]
---
apiVersion: v1
kind: Pod
metadata: {name: $1-client}
spec:
  nodeSelector: {lateen.dev/node-index: "1"}
  terminationGracePeriodSeconds: 1
  containers: [{name: main, image: lateen/load:1, command: [sleep, infinity]}]
Y
}
{ pair loud; pair quiet; } >"$WORK/pods.yaml"
check "a loud pod and a quiet one, each with a server" lateen apply -f "$WORK/pods.yaml"
check "enrol" lateen label ns default istio.io/dataplane-mode=ambient
check "ready, captured" lateen wait pod/loud pod/quiet pod/loud-client pod/quiet-client
check "known to every proxy" lateen wait

# load FILE POD CONNECTIONS WARMUP SECONDS FLAGS...: without a rate, each connection asks when it is answered.
load() {
  local file=$1 pod=$2 connections=$3 warmup=$4 seconds=$5; shift 5
  lateen exec "$pod-client" -- lateen-load run --url "http://$pod:8080/?size=64" --qps 0 -c "$connections" \
    --warmup "${warmup}s" --duration "${seconds}s" --timeout 30s "$@" --json - >"$file" 2>"$file.err"
}
answers() { jq -r '.counts.ok // 0' "$1"; }
failures() { jq -r '.counts.failed // "?"' "$1"; }
# on_one FILE CONNECTIONS SECONDS: answers that a connection had in ten seconds.
on_one() { jq -r --argjson c "$2" --argjson s "$3" '10 * (.counts.ok // 0) / $c / $s * 10 | round / 10' "$1"; }
times() { jq -n --argjson a "$1" --argjson b "$2" 'if $b > 0 then $a / $b * 10 | round / 10 else 0 end'; }
at_least() { jq -ne --argjson a "$1" --argjson b "$2" '$a >= $b' >/dev/null; }

load "$WORK/alone" quiet 1 1 3
# The quiet pod is measured while the loud one is at work, all of the time.
beside() { # NAME CONNECTIONS FLAGS...
  local name=$1 connections=$2; shift 2
  load "$WORK/loud-$name" loud "$connections" 4 12 "$@" & local loud=$!
  sleep 5
  load "$WORK/quiet-$name" quiet 1 0 5 "$@"
  wait $loud
}
beside kept $LOUD
quiet=$(on_one "$WORK/quiet-kept" 1 5) loud=$(on_one "$WORK/loud-kept" $LOUD 12)
equal "the quiet pod loses nothing" 0 "$(failures "$WORK/quiet-kept")"
check "its connection has its turns: $quiet answers in 10 s ($(on_one "$WORK/alone" 1 3) alone), $loud on each of $LOUD others: $(times "$quiet" "$loud") times as many" \
  at_least "$(times "$quiet" "$loud")" 3

beside new $STORM --no-keepalive
quiet=$(on_one "$WORK/quiet-new" 1 5) loud=$(on_one "$WORK/loud-new" $STORM 12)
equal "with new connections it loses nothing either" 0 "$(failures "$WORK/quiet-new")"
check "they have their turns: $quiet one after the other in 10 s, $loud in each of $STORM other rows: $(times "$quiet" "$loud") times as many" \
  at_least "$(times "$quiet" "$loud")" 3
finish
