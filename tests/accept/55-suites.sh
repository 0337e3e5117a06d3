#!/usr/bin/env bash
# Suites of others, whose clients and servers have a waypoint between them: h2spec, gRPC's interop tests, the Connect conformance suite,
# WebSockets with Autobahn's suite over HTTP/1.1 and over HTTP/2 (RFC 8441), and the programs curl, nghttp, h2load and slowhttptest. This
# runs a selection of each; WHOLE=1 runs them whole, which is a part of `make test-long`. SUITES="grpc connect" runs these alone.
# docs/reference/suites.md has the counts, and what deviates for which reason.
# Without a network and a cache this is skipped. Autobahn's suite needs Python 2.7, which Debian 12 has no more: where it cannot be had, its
# checks are left out and counted as skipped by WHOLE=1 alone, since CI fails on a skip.
# needs: nghttp slowhttptest
# bites: give an empty answer of HTTP/2 the length 0 in `crates/http/src/framing.rs`: its trailers are lost, and the Connect suite says so.
source "$(dirname "$0")/lib.sh"
SUITES=${SUITES:-h2spec grpc connect websocket tools}
WHOLE=${WHOLE:-}
TOOLS=$ROOT/bin/suites
PEER=$WORK/suitepeer
SERVERS=()
ended() { [ ${#SERVERS[@]} = 0 ] || kill "${SERVERS[@]}" 2>/dev/null; cleanup; }
trap ended EXIT

"$ROOT/tests/suites/tools.sh" --autobahn >"$WORK/tools" 2>&1
built=$?
[ $built = 0 ] || cat "$WORK/tools"
if [ $built = 4 ]; then
  skipped=1
  echo "skip - the programs of others cannot be downloaded"
  finish
fi
[ $built = 0 ] || [ $built = 3 ] || not_ok "the programs of others are built"
(cd "$ROOT" && go build -o "$PEER" ./tests/mesh/suitepeer) || not_ok "our own peer builds"
[ $failed = 0 ] || finish

# Ports of the service: what a port is called decides how the waypoint speaks to the server. Those of the Connect suite are 9000 and ten
# times the HTTP version and the number of the protocol.
ports=(8080:http-echo 8081:h2c-echo 10000:grpc-interop 9011:http-connect 9013:http-web 9021:h2c-connect 9022:grpc-connect 9023:h2c-web 9100:http-reference 9200:http-ws 9201:http-fuzz)
service() {
  local port name
  for port in "${ports[@]}"; do
    name=${port#*:} port=${port%%:*}
    printf '    - {name: %s, port: %s, targetPort: %s' "$name" "$port" "${port/8081/8080}"
    [ "${name%%-*}" != h2c ] || printf ', appProtocol: kubernetes.io/h2c'
    echo '}'
  done
}
deployment() { cat <<Y
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: $1}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: $1}
spec:
  selector: {matchLabels: {app: $1}}
  template:
    metadata: {labels: {app: $1}}
    spec:
      serviceAccountName: $1
      terminationGracePeriodSeconds: 1
      nodeSelector: {lateen.dev/node-index: "$2"}
      containers: [{name: main, image: none, command: [sleep, infinity]}]
Y
}
{
  deployment client 1
  deployment server 2
  printf -- '---\napiVersion: v1\nkind: Service\nmetadata: {name: suites}\nspec:\n  selector: {app: server}\n  ports:\n'
  service
} >"$WORK/suites.yaml"
check "up" lateen up --nodes 2
check "a client, a server and their service" lateen apply -f "$WORK/suites.yaml"
check "enrol" lateen label ns default istio.io/dataplane-mode=ambient
check "ready, captured" lateen wait deployment/client deployment/server
check "a waypoint" lateen waypoint apply --name way --for service --wait
check "the service asks for it" lateen label svc suites istio.io/use-waypoint=way
bound() { lateen get svc suites -o json | jq -e 'any(.status.conditions[]?; .type == "WaypointBound" and .status == "True")' >/dev/null; }
check "and is bound" eventually 20 bound
CLIENT=$(pod_uid client-) SERVER=$(pod_uid server-) WAY=$(pod_uid way-)
VIP=$(lateen get svc suites -o json | jq -r .spec.clusterIP)
NETNS=/proc/$(engine_pid)/root$RUN/netns
in_client() { in_netns "$CLIENT" "$@"; }
# in_time POD SECONDS SECONDS-OF-WHOLE COMMAND...: in a pod's network, for so long at most. The command stays in the process group of this
# script, so that whoever ends the script ends it as well.
in_time() { in_netns "$1" timeout --foreground -k 5 "$([ -n "$WHOLE" ] && echo "$3" || echo "$2")" "${@:4}"; }

# serve POD PORT COMMAND...: a program in a pod's network until the script ends, and that it listens. `nsenter` becomes the program.
serve() {
  local pod=$1 port=$2; shift 2
  nsenter --net="$NETNS/$pod" -- "$@" >"$WORK/server-$port.log" 2>&1 &
  SERVERS+=($!)
  check "$(basename "$1") listens on port $port" eventually 30 in_netns "$pod" bash -c ": </dev/tcp/127.0.0.1/$port"
}
# requests: how many have passed the waypoint.
requests() { in_netns "$WAY" curl -s http://127.0.0.1:15020/metrics | awk '/^istio_requests_total\{.*reporter="waypoint"/ { n += $NF } END { printf "%d", n }'; }
more() { [ "$(requests)" -ge "$1" ]; }
# passed_the_waypoint LEAST: as many requests have since the last call, so that no client found a way around it.
seen=0
passed_the_waypoint() {
  check "$1 requests of $suite passed the waypoint" eventually 20 more $((seen + $1))
  seen=$(requests)
}
note() { echo "     $*"; }

# h2spec. RFC 9113 §5.3.2 has receivers pass over the priorities of RFC 7540, which it still judges.
expected_h2spec='Sends HEADERS frame that depend on itself
Sends PRIORITY frame that depend on itself'
# Its connection may be reset before it has read the answer: on some machines always, on others never.
either='Sends invalid connection preface'
# conforms PATH: what deviates is what is expected to. An answer and the end of a connection race with frames that h2spec still sends, and
# it loses such a race now and then. So a case fails that fails in each of three runs.
conforms() {
  local run
  sort <<<"$expected_h2spec" >"$WORK/expected"
  for run in 1 2 3; do
    in_client "$TOOLS/h2spec" -h "$VIP" -p 8081 -P "$1" -o 2 >"$WORK/report" 2>&1
    tail -1 "$WORK/report" >"$WORK/h2spec.counts"
    grep -qE '^14[0-9] tests,' "$WORK/h2spec.counts" || { cat "$WORK/report"; return 1; }
    sed -n '/^Failures:/,$s/^ *× [0-9]*: //p' "$WORK/report" | { grep -vxF "$either" || true; } | sort >"$WORK/deviates-now"
    if [ $run = 1 ]; then mv "$WORK/deviates-now" "$WORK/deviates"
    else comm -12 "$WORK/deviates" "$WORK/deviates-now" >"$WORK/both" && mv "$WORK/both" "$WORK/deviates"; fi
    cmp -s "$WORK/expected" "$WORK/deviates" && return 0
  done
  echo "< should deviate and does not, > deviates and should not"
  diff "$WORK/expected" "$WORK/deviates"
  return 1
}
suite_h2spec() {
  local path paths=(/hints/trailers)
  [ -z "$WHOLE" ] || paths=(/ /hints /trailers /hints/trailers)
  for path in "${paths[@]}"; do
    check "h2spec: what deviates with answers of $path is what is expected to" conforms "$path"
    note "$(cat "$WORK/h2spec.counts")"
  done
  passed_the_waypoint 50
}

# Every case of grpc-go that needs no credentials of Google's. Left out are compute_engine_creds, service_account_creds, jwt_token_creds,
# per_rpc_creds, oauth2_auth_token, google_default_credentials and compute_engine_channel_credentials, which need some, and
# pick_first_unary, which wants the server's name of a server that does not tell it.
grpc_cases=(empty_unary large_unary client_streaming server_streaming ping_pong empty_stream timeout_on_sleeping_server cancel_after_begin
  cancel_after_first_response status_code_and_message special_status_message custom_metadata unimplemented_method unimplemented_service
  orca_per_rpc orca_oob rpc_soak channel_soak)
suite_grpc() {
  local case soak=(--soak_iterations=10 --soak_overall_timeout_seconds=60)
  [ -z "$WHOLE" ] || soak=(--soak_iterations=1000 --soak_num_threads=4 --soak_overall_timeout_seconds=600)
  serve "$SERVER" 10000 "$TOOLS/grpc-server" --port 10000
  for case in "${grpc_cases[@]}"; do
    # The balancer is what the cases of ORCA look at. How long a call takes decides nothing.
    check "gRPC: $case" in_time "$CLIENT" 90 650 "$TOOLS/grpc-client" --server_host "$VIP" --server_port 10000 --test_case "$case" "${soak[@]}" \
      --soak_per_iteration_max_acceptable_latency_ms=60000 --service_config_json='{"loadBalancingConfig": [{"test_backend_metrics_load_balancer": {}}]}'
  done
  passed_the_waypoint 40
}

# The Connect conformance suite. Its servers run in the pod of the server and its clients in that of the client. In mode "server" its own
# client judges what servers answer, in mode "client" its own server judges what clients ask and answers as no honest server would.
connect_config() { # VERSIONS PROTOCOLS CODECS COMPRESSIONS
  cat <<Y
features:
  versions: [$1]
  protocols: [$2]
  codecs: [$3]
  compressions: [$4]
  supportsTls: false
  supportsHalfDuplexBidiOverHttp1: true
Y
}
# A call with too many or too few messages ends with another code in grpc-go than the suite wants, without a proxy too.
grpc_server_deviates=('**/unary/multiple-requests' '**/unary/no-request' '**/server-stream/multiple-requests' '**/server-stream/no-request')
grpc_client_deviates=('**/unary/multiple-responses' '**/unary/ok-but-no-response' '**/client-stream/multiple-responses' '**/client-stream/ok-but-no-response')
suite_connect() {
  local codecs=CODEC_PROTO compressions=COMPRESSION_IDENTITY both="HTTP_VERSION_1, HTTP_VERSION_2"
  [ -z "$WHOLE" ] || codecs+=", CODEC_JSON" compressions+=", COMPRESSION_GZIP, COMPRESSION_BR, COMPRESSION_ZSTD, COMPRESSION_DEFLATE, COMPRESSION_SNAPPY"
  connect_config "$both" "PROTOCOL_CONNECT, PROTOCOL_GRPC, PROTOCOL_GRPC_WEB" "$codecs" "$compressions" >"$WORK/all.yaml"
  connect_config HTTP_VERSION_2 PROTOCOL_GRPC CODEC_PROTO "COMPRESSION_IDENTITY, COMPRESSION_GZIP" >"$WORK/grpc.yaml"
  connect_config "$both" PROTOCOL_GRPC_WEB CODEC_PROTO "COMPRESSION_IDENTITY, COMPRESSION_GZIP" >"$WORK/web.yaml"
  local server=("$PEER" connect-server "$VIP" 9000 nsenter "--net=$NETNS/$SERVER" --) client=("$PEER" connect-client "$VIP" 9100 nsenter "--net=$NETNS/$CLIENT" --)
  connect_run "the server of connect-go" all server "${server[@]}" "$TOOLS/referenceserver"
  connect_run "the client of connect-go" all client "${client[@]}" "$TOOLS/referenceclient" -p 8
  connect_run "the server of grpc-go" grpc server "${server[@]}" "$TOOLS/grpcserver"
  connect_run "the client of grpc-go" grpc client "${client[@]}" "$TOOLS/grpcclient" -p 8
  [ -z "$WHOLE" ] || connect_run "the server of gRPC-Web" web server "${server[@]}" "$TOOLS/grpcserver"
  passed_the_waypoint 400
}
# connect_run WHAT CONFIG MODE COMMAND...
connect_run() {
  local what=$1 conf=$2 mode=$3 known=() name; shift 3
  local pod=$CLIENT options=(--mode server --parallel 8)
  [ "$mode" = server ] || { pod=$SERVER options=(--mode client --port 9100 --bind 0.0.0.0); }
  case $*:$mode in
    *grpcserver*:server) for name in "${grpc_server_deviates[@]}"; do known+=(--known-failing "$name"); done ;;
    *grpcclient*:client) for name in "${grpc_client_deviates[@]}"; do known+=(--known-failing "$name"); done ;;
  esac
  conforming() { in_time "$pod" 120 900 "$TOOLS/connectconformance" "${options[@]}" --conf "$WORK/$conf.yaml" ${known[@]+"${known[@]}"} -- "$@" >"$WORK/connect.out" 2>&1 || { tail -60 "$WORK/connect.out"; return 1; }; }
  check "Connect: $what" conforming "$@"
  note "$(grep -E '^(Total cases|[0-9]+ passed|\(Another)' "$WORK/connect.out" | xargs)"
}

# WebSockets: our own checks by a maintained library, and Autobahn's suite, over HTTP/1.1 and by extended CONNECT.
suite_websocket() {
  local way
  serve "$CLIENT" 9400 "$PEER" bridge 127.0.0.1:9400 "$VIP:8080"
  check "WebSockets over HTTP/1.1" in_client "$PEER" websocket "ws://$VIP:8080"
  check "WebSockets over HTTP/2" in_client "$PEER" websocket ws://127.0.0.1:9400
  passed_the_waypoint 60
  if [ $built = 3 ]; then
    note "Autobahn's suite did not run"
    [ -z "$WHOLE" ] || skipped=$((skipped + 1))
    return
  fi
  local cases='["1.1.*", "2.*", "4.1.*", "5.*", "7.1.*"]'
  [ -z "$WHOLE" ] || cases='["*"]'
  serve "$SERVER" 9200 "$TOOLS/wstest" -m testeeserver -w ws://0.0.0.0:9200 -u 0
  serve "$CLIENT" 9401 "$PEER" bridge 127.0.0.1:9401 "$VIP:9200"
  serve "$CLIENT" 9402 "$PEER" bridge 127.0.0.1:9402 "$VIP:9201"
  printf '{"url": "ws://0.0.0.0:9201", "outdir": "%s", "cases": %s, "exclude-cases": [], "exclude-agent-cases": {}}' "$WORK/clients" "$cases" >"$WORK/fuzz.json"
  serve "$SERVER" 9201 "$TOOLS/wstest" -m fuzzingserver -s "$WORK/fuzz.json" -u 0
  for way in "h1 $VIP 9200 $VIP 9201" "h2 127.0.0.1 9401 127.0.0.1 9402"; do
    # shellcheck disable=SC2086
    autobahn "$cases" $way
  done
  passed_the_waypoint 100
}
# autobahn CASES NAME HOST PORT HOST PORT: its client against an echo server, and an echo client against its server.
autobahn() {
  local cases=$1 name=$2
  printf '{"outdir": "%s", "servers": [{"agent": "%s", "url": "ws://%s:%s"}], "cases": %s, "exclude-cases": [], "exclude-agent-cases": {}}' "$WORK/servers-$name" "$name" "$3" "$4" "$cases" >"$WORK/$name.json"
  check "Autobahn's client runs over $name" in_time "$CLIENT" 120 1800 "$TOOLS/wstest" -m fuzzingclient -s "$WORK/$name.json"
  judge "servers-$name" "$name"
  check "Autobahn's server is asked over $name" in_time "$CLIENT" 120 1800 "$TOOLS/wstest" -m testeeclient -w "ws://$5:$6" -i "$name"
  judge clients "$name"
}
# judge FOLDER AGENT: its verdicts. What the suite calls not strict or informational is allowed by RFC 6455.
judge() {
  local index=$WORK/$1/index.json
  check "Autobahn has verdicts ($1, $2)" jq -e --arg a "$2" '.[$a] | length > 0' "$index"
  equal "Autobahn finds no fault ($1, $2)" "" "$(jq -r --arg a "$2" '.[$a] // {none: {}} | to_entries[]
    | select([.value.behavior, .value.behaviorClose] - ["OK", "NON-STRICT", "INFORMATIONAL"] != []) | "\(.key) \(.value.behavior)/\(.value.behaviorClose)"' "$index" | xargs)"
  note "$(jq -r --arg a "$2" '.[$a] | to_entries | group_by(.value.behavior) | map("\(length) \(.[0].value.behavior)") | join(", ")' "$index")"
}

# Clients of others, by hand.
says() { local pattern=$1; shift; "$@" >"$WORK/said" 2>&1; grep -Eq "$pattern" "$WORK/said" || { tail -20 "$WORK/said"; return 1; }; }
same() { local file=$1; shift; "$@" >"$WORK/echoed" && cmp "$file" "$WORK/echoed"; }
suite_tools() {
  local version curl http=http://$VIP:8080 h2c=http://$VIP:8081 many=2000
  [ -z "$WHOLE" ] || many=50000
  head -c 3000000 /dev/urandom >"$WORK/large"
  echo hello >"$WORK/small"
  for version in --http1.1 --http2-prior-knowledge; do
    curl=(in_client curl -sS --max-time 60 "$version")
    check "curl $version gets an answer" says '^no content came$' "${curl[@]}" "$http/"
    check "curl $version gets its content back" same "$WORK/small" "${curl[@]}" --data-binary @"$WORK/small" "$http/a?b"
    # Beyond a megabyte curl waits for status 100.
    check "curl $version gets 3 MB back" same "$WORK/large" "${curl[@]}" --data-binary @"$WORK/large" "$http/"
    check "curl $version gets content of unknown length back" same "$WORK/large" "${curl[@]}" -T - -X POST "$http/" <"$WORK/large"
    check "a HEAD of curl $version has no content" says '^200 0$' "${curl[@]}" -I -o /dev/null -w '%{http_code} %{size_download}' "$http/"
    check "curl $version gets early hints before its answer" says '^< HTTP/[0-9.]+ 103' "${curl[@]}" -v -o /dev/null "$http/hints"
    check "curl $version gets a trailer" says '^[Xx]-[Ee]nd: there' "${curl[@]}" -D - -H 'te: trailers' "$http/trailers"
  done
  check "curl uses a connection of HTTP/1.1 again" says '^200 1200 0$' in_client curl -sS --http1.1 -o /dev/null -o /dev/null -w '%{http_code} %{num_connects}' "$http/" "$http/"
  check "nghttp gets its content back" says '^hello$' in_client nghttp --no-dep -d "$WORK/small" "$h2c/"
  check "nghttp gets its trailers back" says 'x-sum: 7' in_client nghttp --no-dep -v --trailer 'x-sum: 7' -d "$WORK/small" "$h2c/"
  check "nghttp gets early hints" says ':status: 103' in_client nghttp --no-dep -v "$h2c/hints"
  hundred() { [ "$(in_client nghttp --no-dep -m 100 "$h2c/trailers" | grep -c '^no content came$')" = 100 ]; }
  check "nghttp gets a hundred answers on one connection" hundred
  check "h2load asks many times over HTTP/1.1" says "$many succeeded, 0 failed, 0 errored, 0 timeout" in_client h2load --h1 -n $many -c 8 "$http/"
  check "h2load opens many streams" says "$many succeeded, 0 failed, 0 errored, 0 timeout" in_client h2load -n $many -c 4 -m 50 "$h2c/"
  check "h2load sends content on many streams" says "$many succeeded, 0 failed, 0 errored, 0 timeout" in_client h2load -n $many -c 4 -m 20 -d "$WORK/small" "$h2c/trailers"
  check "all had status 2xx" found -E "^status codes: $many 2xx, 0 3xx, 0 4xx, 0 5xx" "$WORK/said"
  slow
  passed_the_waypoint $((3 * many))
}
# slow: heads, contents and readers that are slow on purpose, all at once; other clients are answered all the while.
slow() {
  local seconds=8 kind running=() asked=0 lost=0 status
  [ -z "$WHOLE" ] || seconds=60
  for kind in "-H" "-B" "-X -w 10 -y 20 -n 5 -z 32 -k 3"; do
    # shellcheck disable=SC2086
    in_time "$CLIENT" $((seconds + 60)) $((seconds + 60)) slowhttptest $kind -c 100 -r 100 -i 2 -l $seconds -p 30 -u "http://$VIP:8080/" >"$WORK/slow${kind%% *}" 2>&1 &
    running+=($!)
  done
  local until=$((SECONDS + seconds))
  while [ $SECONDS -lt $until ]; do
    for version in --http1.1 --http2-prior-knowledge; do
      asked=$((asked + 1))
      status=$(in_client curl -s -o /dev/null -w '%{http_code}' --max-time 30 "$version" "http://$VIP:8080/")
      [ "$status" = 200 ] || lost=$((lost + 1))
    done
  done
  wait "${running[@]}"
  equal "beside three hundred slow clients every other is answered" 0 $lost
  note "$asked were"
  for kind in -H -B -X; do
    check "slowhttptest $kind finds the service available" found -E 'service available:.*YES' "$WORK/slow$kind"
  done
}

serve "$SERVER" 8080 "$PEER" serve 0.0.0.0:8080
# The service is bound before the client's node proxy knows it.
through() { in_client curl -s -o /dev/null --max-time 20 "http://$VIP:8080/"; more 1; }
check "requests pass the waypoint" eventually 30 through
seen=$(requests)
for suite in $SUITES; do
  began=$SECONDS
  "suite_$suite"
  note "$suite: $((SECONDS - began)) s"
done
finish
