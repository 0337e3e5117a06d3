#!/usr/bin/env bash
# The lab's plane of a stock Envoy in the waypoint's place, with the configuration that an istiod gives a waypoint: it answers the table of
# requests as Lateen's waypoint does, counts and logs every request, follows policies, is charged by itself and leaves nothing behind.
# hack/envoy.sh has the Envoy, and ENVOY names another one; without any this is skipped.
# alone: it measures
# bites: without the filter connect_authority in internal/lab/dataplanes/envoy/istiod/dump.json no request reaches a service.
source "$(dirname "$0")/lib.sh"
OPEN=(--gate other_cpu=1 --gate steal=1 --gate lateness=1000)
envoy=$("$ROOT/hack/envoy.sh" 2>"$WORK/why") || {
  echo "skip - there is no Envoy to compare with: $(cat "$WORK/why")"
  skipped=1
  finish
}
cd "$WORK" || exit 1
export TMPDIR=$WORK # the plane's directory is looked for here
cat >ways.yaml <<'Y'
title: Ways
does: Requests behind two waypoints, with policies and without.
world: [client, echo, echo-grpc]
rounds: 1
seconds: 1
warmup: 0.5
metrics: [qps]
planes: [waypoint]
onlyOK: true
alike:
  - {name: a kibibyte, url: "http://echo:8080/?size=1024"}
  - {name: not found, url: "http://echo:8080/?status=404", status: 404}
  - {name: a call, url: "grpc://echo-grpc:8082"}
load: {url: "http://echo:8080/?size=1024", connections: 4, qps: 100}
cells:
  - {name: plain}
  - {name: gRPC, load: {url: "grpc://echo-grpc:8082"}}
  - {name: denying, requestPolicies: {deny: 3}}
  - {name: admitting, requestPolicies: {allow: 3}}
Y
# wrong FILE: the same with a table that no plane can answer.
sed 's/, status: 404}/, status: 410}/' ways.yaml >wrong.yaml
run() { "$LATEEN" lab run "./$1.yaml" "${OPEN[@]}" --planes none --peer envoy-waypoint="$envoy" --out "$1" >"$1.log" 2>&1 & lab_pid=$!; wait "$lab_pid"; code=$?; }
doc() { jq -r "$1" "$WORK/$2/results.json"; }
blocks='[.scenarios[0].cells[].blocks[] | select(.plane == "envoy-waypoint")]'

run ways
equal "a run with an Envoy in the waypoint's place" 0 "$code"
[ "$code" = 0 ] || tail -20 ways.log
equal "all blocks count: every request was answered, counted and logged" "4 0 0" "$(doc "$blocks | \"\\(length) \\([.[] | select(.failed)] | length) \\([.[] | select(.rejected)] | length)\"" ways)"
equal "its document says what the plane is" "envoy-waypoint 86c9f01fd735fb01d8192f5bcaf0d424afb7f14c" "$(doc '.planes[] | select(.name == "envoy-waypoint") | "\(.kind) \(.settings.configuration | ltrimstr("istiod "))"' ways)"
check "and what a stock Envoy lacks" jq -e '.planes[] | select(.name == "envoy-waypoint") | .settings.without | contains("stats.PluginConfig") and contains("peer_metadata")' ways/results.json
check "the Envoy is charged by itself" jq -e "$blocks"' | all(.metrics."cpu_us_per_request.waypoint.total" > 1 and .metrics."pss_mib.waypoint" > 10)' ways/results.json
check "it is set beside Lateen's waypoint" jq -e '.scenarios[0].cells[0].verdicts | any(.plane == "waypoint" and .baseline == "envoy-waypoint")' ways/results.json
equal "no directory is left" "" "$(find "$WORK" -maxdepth 1 -name 'lateen-lab-*')"
equal "no mesh is left" "" "$(find /run/lateen -maxdepth 1 -name "lab-$lab_pid-*" 2>/dev/null)"

run wrong
check "a table that is answered otherwise ends the scenario" jq -e '.scenarios[0].failed | contains("request \"not found\" to envoy-waypoint: it was answered with \"1 status_404\"")' wrong/results.json
equal "nothing is measured then" 0 "$(doc '[.scenarios[0].cells[].blocks[]] | length' wrong)"
equal "and no directory is left" "" "$(find "$WORK" -maxdepth 1 -name 'lateen-lab-*')"
finish
