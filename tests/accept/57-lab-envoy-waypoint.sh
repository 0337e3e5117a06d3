#!/usr/bin/env bash
# The lab's planes of a stock Envoy in the waypoint's place, with the configuration that an istiod gives a waypoint, and with one listener: they
# answer the table of requests as Lateen's waypoint does, count and log every request, follow policies, are charged by themselves and leave
# nothing behind. A block of an Envoy that answers or logs less than all requests is void.
# hack/envoy.sh has the Envoy, and ENVOY names another one; without any this is skipped.
# after: it puts a load on the machine.
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
run() { # run NAME PEER...
  local name=$1 peers=()
  shift
  for peer; do peers+=(--peer "$peer"); done
  "$LATEEN" lab run "./$name.yaml" "${OPEN[@]}" --planes none "${peers[@]}" --out "$name" >"$name.log" 2>&1 & lab_pid=$!
  wait "$lab_pid"; code=$?
}
doc() { jq -r "$1" "$WORK/$2/results.json"; }
of() { echo "[.scenarios[0].cells[].blocks[] | select(.plane == \"$1\")]"; }
blocks=$(of envoy-waypoint)
lone=$(of envoy-one-listener)

run ways envoy-waypoint="$envoy" envoy-one-listener="$envoy"
equal "a run with an Envoy in the waypoint's place" 0 "$code"
[ "$code" = 0 ] || tail -20 ways.log
equal "all blocks count: every request was answered, counted and logged" "4 0 0" "$(doc "$blocks | \"\\(length) \\([.[] | select(.failed)] | length) \\([.[] | select(.rejected)] | length)\"" ways)"
equal "its document says what the plane is" "envoy-waypoint 86c9f01fd735fb01d8192f5bcaf0d424afb7f14c" "$(doc '.planes[] | select(.name == "envoy-waypoint") | "\(.kind) \(.settings.configuration | ltrimstr("istiod "))"' ways)"
check "and what a stock Envoy lacks" jq -e '.planes[] | select(.name == "envoy-waypoint") | .settings.without | contains("stats.PluginConfig") and contains("peer_metadata")' ways/results.json
check "the Envoy is charged by itself" jq -e "$blocks"' | all(.metrics."cpu_us_per_request.waypoint.total" > 1 and .metrics."pss_mib.waypoint" > 10)' ways/results.json
check "it is set beside Lateen's waypoint" jq -e '.scenarios[0].cells[0].verdicts | any(.plane == "waypoint" and .baseline == "envoy-waypoint")' ways/results.json
equal "all blocks of the Envoy of one listener count" "4 0 0" "$(doc "$lone | \"\\(length) \\([.[] | select(.failed)] | length) \\([.[] | select(.rejected)] | length)\"" ways)"
check "its tunnels are listed among what is removed" jq -e '.planes[] | select(.name == "envoy-one-listener") | .settings | (.listeners | startswith("one,")) and (.without | contains("connect_terminate") and contains("connect_originate"))' ways/results.json
check "Lateen's waypoint is set beside it" jq -e '.scenarios[0].cells[0].verdicts | any(.plane == "waypoint" and .baseline == "envoy-one-listener")' ways/results.json
check "one page sets all waypoints side by side" "$LATEEN" lab report ways --waypoints --output ways/page.md
check "with the commit of the dump and what is given up" grep -q "86c9f01fd735fb01d8192f5bcaf0d424afb7f14c.*connect_terminate" ways/page.md
check "and says that one round is no finding" grep -q "^\*\*Too few rounds for .*: these numbers are no finding" ways/page.md
equal "no directory is left" "" "$(find "$WORK" -maxdepth 1 -name 'lateen-lab-*')"
equal "no mesh is left" "" "$(find /run/lateen -maxdepth 1 -name "lab-$lab_pid-*" 2>/dev/null)"

run wrong envoy-waypoint="$envoy"
check "a table that is answered otherwise ends the scenario" jq -e '.scenarios[0].failed | contains("request \"not found\" to envoy-waypoint: it was answered with \"1 status_404\"")' wrong/results.json
equal "nothing is measured then" 0 "$(doc '[.scenarios[0].cells[].blocks[]] | length' wrong)"
equal "and no directory is left" "" "$(find "$WORK" -maxdepth 1 -name 'lateen-lab-*')"

# A block of an Envoy that leaves work out is void. Pods have users of their own, who may not reach the cache, and a /tmp of
# their own.
whole=$(mktemp -d /var/lib/lateen-envoy-XXXXXX)
trap 'rm -rf "$whole"; cleanup' EXIT
chmod 755 "$whole"
install -m 755 "$envoy" "$whole/envoy"
# broken NAME FROM TO: an Envoy whose configuration has one text in place of another.
broken() {
  mkdir "$1"
  cat >"$1/envoy" <<X
#!/usr/bin/env bash
[ "\$1" = --version ] && exec $whole/envoy --version
config=\$(sed 's/^ *//' "\$2" | tr -d '\n' | sed 's|$2|$3|g')
shift 2
exec $whole/envoy --config-yaml "\$config" "\$@"
X
  chmod 755 "$1/envoy"
}
broken busy 'filters.http.fault.v3.HTTPFault"' '&,"abort":{"http_status":503,"percentage":{"numerator":50,"denominator":"HUNDRED"}}'
broken quiet '"access_log": \[{"name"' '"access_log":[{"filter":{"runtime_filter":{"runtime_key":"none.none","percent_sampled":{"numerator":50,"denominator":"HUNDRED"},"use_independent_randomness":true}},"name"'
sed '/^alike:/,/grpc:/d; /name: gRPC/d; /name: denying/d; /name: admitting/d' ways.yaml >void.yaml
run void envoy-waypoint:busy="$WORK/busy/envoy" envoy-one-listener:quiet="$WORK/quiet/envoy"
equal "a run with void blocks says so by its exit status" 79 "$code"
check "a block with another status is void" jq -e "$(of busy)"' | length == 1 and all(.metrics == {} and (.failed[0] | test("not every request was answered with 200: [0-9]+ status_503")))' void/results.json
check "a block with fewer log lines than requests is void" jq -e "$(of quiet)"' | length == 1 and all(.metrics == {} and (.failed[0] | test("the proxy logged [0-9]+ of [0-9]+ requests")))' void/results.json
check "the blocks of Lateen's waypoint beside them count" jq -e "$(of waypoint)"' | length == 1 and all(.metrics.qps > 0 and (.failed | not))' void/results.json
finish
