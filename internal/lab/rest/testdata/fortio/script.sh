#!/usr/bin/env bash
# A session with Fortio's REST interface, as scripts have it: curl and jq. It prints what the answers look like: the values that
# follow from what was asked, and the types of all others. expected.txt is what it printed against Fortio 1.75.2.
#
#   script.sh BASE TARGET [GRPC]
#
# BASE is a server that was just started (http://127.0.0.1:8080), TARGET something that answers with status 200, or with that of a
# query such as ?status=503, GRPC the HOST:PORT of Fortio's Ping and the health service, that of TARGET unless given.
set -uo pipefail
BASE=$1 TARGET=$2 GRPC=${3:-${2#http://}}

read -r -d '' SHAPE <<'JQ'
def known: ["error", "message", "RunID", "Count", "ResultID", "ResultURL", "RunType", "Labels", "RequestedQPS", "RequestedDuration", "NumThreads", "Exactly",
  "Jitter", "Uniform", "NoCatchUp", "ID", "URL", "H2", "HTTPReqTimeOut", "Payload", "MethodOverride", "Resolution", "ConnReuseRange", "Insecure", "Resolve",
  "LogErrors", "SequentialWarmup", "DisableFastClient", "Destination", "Streams", "Ping", "State", "QPS", "Duration", "Percentiles", "Percentile", "RetCodes"];
def shape($name):
  if $name == "exceptionDetails" then type
  elif $name == "Data" or $name == "Sockets" then "list"
  elif $name == "IPCountMap" then type
  elif $name == "RetCodes" or $name == "ConnReuseRange" then tojson
  elif type == "object" then with_entries(.key as $k | .value |= shape($k))
  elif type == "array" then map(shape($name))
  elif $name as $n | known | index($n) then .
  else type end;
# ResponseLabel is a key for Fortio's page that its own results lack.
del(.ResponseLabel) | . as $whole | shape("")
| if .Sizes then (.Sizes.Count, .HeaderSizes.Count, .ConnectionStats.Count) |= type else . end
# Fortio times connections that failed as well; here ConnectionStats has those that were made.
| if $whole.RetCodes["-1"]? then del(.ConnectionStats.Percentiles) else . end
| if .Exactly == 0 then (.DurationHistogram.Count, .ErrorsDurationHistogram.Count) |= type | .RetCodes = ($whole.RetCodes | keys) else . end
JQ

plain() { sed -E -e "s#$BASE#BASE#g" -e "s#$TARGET#TARGET#g" -e "s#$GRPC#GRPC#g" -e 's/[0-9]{4}-[0-9]{2}-[0-9]{2}-[0-9]{6}/TIME/g'; }

# ask DESCRIPTION PATH CURL-OPTIONS...
ask() {
  local what=$1 path=$2 answer; shift 2
  answer=$(curl -s -g -w '\n%{http_code} %{content_type}' "$@" "$BASE/fortio/$path")
  echo "== $what: ${answer##*$'\n'}"
  jq -c "$SHAPE" <<<"${answer%$'\n'*}" 2>&1 | plain
}

ask "a run at a rate" "rest/run?url=$TARGET/&qps=20&c=2&t=1s&save=on&labels=a%20first%20run"
ask "its result, stored" "data/$(curl -s "$BASE/fortio/data/" | sed -n 's/.*href="\(.*_1_a_first_run\.json\)".*/\1/p')"
ask "a number of requests, as fast as possible" "rest/run?url=$TARGET/&qps=-1&c=2&n=20&p=50,99&r=0.0001"
ask "all keys of a body" rest/run -d '{"url": "'"$TARGET/"'", "runner": "http", "n": "10", "c": "1", "qps": "200", "timeout": "2s", "X": "PUT", "payload": "hello",
  "labels": "body", "jitter": "on", "log-errors": "on", "headers": ["X-One: 1", "Content-Type: text/plain"], "save": "on", "p": "75", "unknown": "passed over"}'
ask "the query comes before the body" "rest/run?n=4&c=2" -d '{"url": "'"$TARGET/"'", "n": "400", "c": "1", "qps": "-1"}'
ask "a part of the body" "rest/run?jsonPath=.metadata.load" -d '{"url": "http://nosuch.invalid/", "metadata": {"load": {"url": "'"$TARGET/"'", "n": "4", "c": "1", "qps": "-1"}}}'
ask "the other switches" "rest/run?url=$TARGET/&n=8&c=2&qps=400&uniform=on&nocatchup=on&stdclient=on&sequential-warmup=on&https-insecure=on&p=90&H=X-Two:2&H=X-Three:3"
ask "connections that are used again some times" "rest/run?url=$TARGET/&n=12&c=1&qps=-1&connection-reuse=2:3"
ask "a resolved name" "rest/run?url=$TARGET/&n=2&c=1&qps=-1&resolve=127.0.0.1"
ask "a new connection for each request" rest/run -d '{"url": "'"$TARGET/"'", "n": "6", "c": "2", "qps": "-1", "headers": ["Connection: close"]}'
ask "HTTP/2" "rest/run?url=$TARGET/&n=6&c=2&qps=-1&h2=on&stdclient=on"
ask "gRPC" "rest/run?url=$GRPC&runner=grpc&n=6&c=2&qps=-1&ping=on"
ask "its health check" "rest/run?url=$GRPC&runner=grpc&n=4&c=1&qps=-1"
ask "a target that answers with errors" "rest/run?url=$TARGET/?status=503&n=4&c=2&qps=-1"
ask "a target that is not there" "rest/run?url=http://127.0.0.1:1/&n=2&c=1&qps=-1"

ask "no URL" rest/run
ask "a time that is none" "rest/run?url=$TARGET/&t=soon"
ask "a body that is not JSON" rest/run -d '{'
ask "a path that the body has not" "rest/run?jsonPath=.metadata" -d '{"url": "x"}'
ask "a path that leads to a value" "rest/run?jsonPath=.url.more" -d '{"url": "x"}'
ask "a host that is not there" "rest/run?url=http://nosuch.invalid/&n=2&c=1&qps=-1"

ask "nothing runs" rest/status
ask "a run that nobody waits for" "rest/run?url=$TARGET/&qps=50&c=2&t=10m&async=on&save=on&labels=long"
ask "one without an end" "rest/run?url=$TARGET/&qps=50&c=1&t=on&async=on"
sleep 1
ask "both run" rest/status
run=$(curl -s "$BASE/fortio/rest/status" | jq '[.Statuses[].RunID] | min')
ask "one of them" "rest/status?runid=$run"
ask "one that is not there" "rest/status?runid=4711"
ask "the first is stopped" "rest/stop?runid=$run&wait=on"
ask "and stored" "data/$(curl -s "$BASE/fortio/data/" | sed -n 's/.*href="\(.*_long\.json\)".*/\1/p')"
ask "nothing is to be stopped" "rest/stop?runid=4711"
ask "the others are stopped" rest/stop
for _ in $(seq 100); do
  [ "$(curl -s "$BASE/fortio/rest/status" | jq '.Statuses | length')" = 0 ] && break
  sleep 0.2
done
ask "nothing runs any more" rest/status
