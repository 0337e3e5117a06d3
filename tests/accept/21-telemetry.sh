#!/usr/bin/env bash
# What a mesh tells of connections: series that expire and show the labels that somebody reads, and log records and spans
# that reach a collector. The collector is not there at first, and nobody waits for it.
source "$(dirname "$0")/lib.sh"
(cd "$ROOT" && go build -o "$WORK/" ./tests/mesh/otlpsink) || not_ok "the collector builds"

lateen up --nodes 1 --proxy-env LATEEN_METRICS_DROP_LABELS=pod >"$WORK/refused" 2>&1 && not_ok "a label that does not exist was taken"
check "a label that does not exist is refused by name" grep -q 'LATEEN_METRICS_DROP_LABELS="pod": "pod" is no label' "$WORK/refused"
lateen down >/dev/null 2>&1
check "up" lateen up --nodes 2 --proxy-env LATEEN_METRICS_IDLE=2s --proxy-env LATEEN_METRICS_DROP_LABELS=source_app,destination_version \
  --proxy-env OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4317 --proxy-env OTEL_TRACES_SAMPLER=parentbased_always_on
check "apply echo and client" lateen apply -f "$ROOT/samples/echo/echo.yaml"
check "enrol" lateen label ns default istio.io/dataplane-mode=ambient
check "ready, captured" lateen wait
client_node=$(node_of client)

get() { lateen exec deploy/client -- lateen-load run --url http://echo:8080/ --qps 20 --connections 1 --no-keepalive --warmup 0s --timeout 15s --duration 1s --json - >"$WORK/load.json" 2>/dev/null; }
served() { get && [ "$(jq '.counts.failed' "$WORK/load.json")" = 0 ]; }
check "served, although no collector is there" served

opened() { proxy_metrics "$client_node" | grep '^istio_tcp_connections_opened_total{reporter="source".*destination_service="echo.default'; }
# A series is gone two seconds after its last connection: each look makes new ones, and what it found is what is judged.
looked() { get; opened >"$WORK/opened"; }
check "connections are counted" eventually 30 looked
check_not "without the labels that were dropped" grep -E 'source_app|destination_version' "$WORK/opened"
check "and with the others" grep -E 'source_version=.*destination_app=' "$WORK/opened"
gone() { ! opened && proxy_metrics "$client_node" | grep -E '^lateen_metric_series_expired_total [1-9]'; }
check "nobody connects: the series expire" eventually 30 gone

SINKS=()
trap 'kill "${SINKS[@]}" 2>/dev/null; cleanup' EXIT
for node in n1 n2; do
  # Not by in_node: the pid must be the collector's.
  nsenter --net="/proc/$(engine_pid)/root$RUN/netns/$node" -- "$WORK/otlpsink" >"$WORK/$node.jsonl" 2>"$WORK/$node.err" & SINKS+=($!)
done
# A proxy that finds no collector there waits for a while before it tries again.
listening() { in_node n1 bash -c ': </dev/tcp/127.0.0.1/4317' && in_node n2 bash -c ': </dev/tcp/127.0.0.1/4317'; }
eventually 30 listening >/dev/null || not_ok "the collectors do not listen"
check "served again" served
check "the series is back" eventually 30 looked
got() { cat "$WORK"/n?.jsonl | jq -es "$1"; }
check "log records arrive, from both sides" eventually 30 got 'map(select(.kind == "log" and .attributes["dst.service"] == "echo.default.svc.cluster.local")) | map(.attributes.direction) | unique == ["inbound", "outbound"]'
check "with the node that they are from" eventually 15 got 'map(.resource["k8s.node.name"]) | unique - ["n1", "n2"] == []'
check "spans of both sides are joined" eventually 30 got '(map(select(.kind == "span" and .side == "client"))) as $out | [.[] | select(.kind == "span" and .side == "server") | . as $in | $out[] | select(.trace == $in.trace and .span == $in.parent)] | length > 0'
check "a log record names its span" eventually 15 got 'map(select(.kind == "span") | .span) as $spans | map(select(.kind == "log" and (.span | IN($spans[])))) | length > 0'
finish
