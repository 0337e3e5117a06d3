#!/usr/bin/env bash
# What a waypoint counts and logs of requests: Istio's metrics with Istio's labels, the access log in Istio's text and JSON formats and in one of the user's own, and trace
# context that is passed on.
# bites: count requests of `record.rs` without their code: the sum of each code is missing.
source "$(dirname "$0")/lib.sh"

check "up" lateen up --nodes 2
with_echo "$ROOT/samples/echo/echo.yaml"
CLIENT=$(pod_uid client-)
VIP=$(lateen get svc echo -o json | jq -r .spec.clusterIP)
check "a waypoint" lateen waypoint apply --name way --for service --wait
check "the service asks for it" lateen label svc echo istio.io/use-waypoint=way
bound() { lateen get svc echo -o json | jq -e 'any(.status.conditions[]?; .type == "WaypointBound" and .status == "True")' >/dev/null; }
check "and is bound" eventually 20 bound
call() { in_netns "$CLIENT" curl -s -o /dev/null -w '%{http_code}' --max-time 20 "$@"; }
WAY=$(pod_uid way-)
page() { in_netns "$WAY" curl -s "http://127.0.0.1:15020/metrics"; }
# The service is bound before the client's node proxy knows it. Requests with a status of their own show when it does; no check counts them.
passes() { call "http://$VIP:8080/?status=418" >/dev/null; page | found '^istio_requests_total{.*response_code="418"'; }
eventually 30 passes >/dev/null || not_ok "requests pass the waypoint"
metrics() { page | grep -vF 'response_code="418"'; }
# value NAME LABEL...: the sum of the series that have all of these labels.
value() {
  local name=$1; shift
  local series; series=$(metrics | grep "^$name{")
  for label in "$@"; do series=$(grep -F -- "$label" <<<"$series"); done
  awk '{s += $NF} END {printf "%d", s}' <<<"$series"
}
for i in 1 2 3; do call "http://$VIP:8080/?size=1000" >/dev/null; done
call "http://$VIP:8080/?status=404" >/dev/null
counted() { [ "$(value istio_requests_total "response_code=\"$1\"")" = "$2" ]; }
check "three requests are counted" eventually 15 counted 200 3
check "and one of another code" eventually 15 counted 404 1
labels=('reporter="waypoint"' 'source_workload="client"' 'source_principal="spiffe://cluster.local/ns/default/sa/client"' 'destination_service="echo.default.svc.cluster.local"' 'destination_service_name="echo"'
  'destination_service_namespace="default"' 'destination_workload="echo"' 'destination_principal="spiffe://cluster.local/ns/default/sa/echo"' 'request_protocol="http"' 'connection_security_policy="mutual_tls"' 'response_flags="-"')
for label in "${labels[@]}"; do equal "with $label" 4 "$(value istio_requests_total "$label")"; done
equal "durations have as many" 4 "$(value istio_request_duration_milliseconds_count 'reporter="waypoint"')"
check "sizes of answers are those of their bytes" [ "$(value istio_response_bytes_sum 'response_code="200"')" -gt 3000 ]
equal "node proxies count no requests" 0 "$(proxy_metrics n1 | grep -c '^istio_requests_total{')"
check "calls of gRPC" in_netns "$CLIENT" "$ROOT/bin/lateen-load" run --url "grpc://$VIP:8080" -n 5 --qps 0 -c 1
grpc() { [ "$(value istio_requests_total 'request_protocol="grpc"' 'grpc_response_status="0"')" = 5 ]; }
check "are counted with their status" eventually 15 grpc

log_in() { lateen apply -f - <<Y
apiVersion: v1
kind: ConfigMap
metadata: {name: istio, namespace: istio-system}
data:
  mesh: |
$(sed 's/^/    /' <<<"$1")
Y
}
way_log() { lateen logs deployment/way; }
logged() { call -H "user-agent: $1" "http://$VIP:8080/a?b=c" >/dev/null; way_log | found -E -- "$2"; }
check "the namespace of the mesh" lateen apply -f - <<'Y'
apiVersion: v1
kind: Namespace
metadata: {name: istio-system}
Y
check "Istio's text format" log_in 'accessLogFile: /dev/stdout'
check "is written" eventually 20 logged text-agent '^\[20[0-9-]+T[0-9:.]+Z\] "GET /a\?b=c HTTP/1\.1" 200 - via_upstream - "-" 0 [0-9]+ [0-9]+ [0-9]+ "-" "text-agent" "[0-9a-f-]{36}" "'"$VIP"':8080" "'
check "Istio's JSON format" log_in $'accessLogFile: /dev/stdout\naccessLogEncoding: JSON'
json() { call -H "user-agent: json-agent" "http://$VIP:8080/a?b=c" >/dev/null; way_log | grep -F json-agent | tail -1 | jq -e '.method == "GET" and .path == "/a?b=c" and .response_code == 200 and .user_agent == "json-agent" and .protocol == "HTTP/1.1"' >/dev/null; }
check "is one object a line" eventually 20 json
check "a format of one's own" log_in $'accessLogFile: /dev/stdout\naccessLogFormat: "mine %REQ(USER-AGENT)% %RESPONSE_CODE% %PROTOCOL%"'
check "is written as it says" eventually 20 logged own-agent '^mine own-agent 200 HTTP/1\.1$'
call -A $'a\tb"' "http://$VIP:8080/" >/dev/null
forged() { way_log | found '^mine a'; }
eventually 15 forged >/dev/null || not_ok "a value that would forge a line is logged"
equal "a value that would forge a line is refused or escaped" 1 "$(way_log | grep -c '^mine a')"
finish
