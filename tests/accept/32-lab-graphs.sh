#!/usr/bin/env bash
# The lab's graphs, the control plane at scale, the scorecard: a topology of isotope is drawn and acted out by pods as it is, bad
# topologies are refused with object, field and fix; the control plane is measured with proxies that are only a stream; and the
# scorecard finds no failed request where an application joins, proxies are upgraded, certificates are replaced.
# after: it puts a load on the machine.
# bites: without `group.Go` in internal/lab/isotope/service.go what should run at the same time takes the sum of its times.
# needs: python3
source "$(dirname "$0")/lib.sh"
cd "$WORK" || exit 1
OPEN=(--gate other_cpu=1 --gate steal=1 --gate lateness=1000 --gate achieved=0.01)
end_lab() { for m in $(find /run/lateen -maxdepth 1 \( -name "lab-$1-*" -o -name "card-$1*" \) 2>/dev/null); do "$LATEEN" --name "$(basename "$m")" down >/dev/null 2>&1; done; }
lab_pid=
trap '[ -n "$lab_pid" ] && { kill "$lab_pid" 2>/dev/null; wait "$lab_pid" 2>/dev/null; end_lab "$lab_pid"; }; cleanup' EXIT

cat >shop.yaml <<'Y'
apiVersion: v1alpha1
kind: MockServiceGraph
defaults: {requestSize: 1 KB, responseSize: 2 KB, numRbacPolicies: 2}
services:
- name: front
  isEntrypoint: true
  script:
  - - call: stock
    - call: {service: price, size: 10K}
  - call: {service: seldom, probability: 1}
- {name: stock, script: [{sleep: 700ms}], numReplicas: 2}
- {name: price, script: [{sleep: 700ms}]}
- {name: seldom, errorRate: 50%}
Y
echo "# topologies"
"$LATEEN" lab isotope graph shop.yaml >shop.dot
equal "the drawing has a table for each service and an edge for each call" "4 3 1" \
  "$(grep -c '^<TABLE' shop.dot) $(grep -c -- '->' shop.dot) $(grep -c 'style=dashed, label="1%"' shop.dot)"
refuses() { # DESCRIPTION TOPOLOGY WORDS...
  local what=$1 text=$2 word out; shift 2
  if out=$(printf '%s\n' "$text" | "$LATEEN" lab isotope manifests - 2>&1); then not_ok "$what: it was taken"; return; fi
  for word; do grep -qF -- "$word" <<<"$out" || { not_ok "$what: no '$word' in: $out"; return; }; done
  ok "$what is refused: $out"
}
refuses "a call to nobody" "services: [{name: a, script: [{call: b}]}]" "service a" "script" '"b"' "services"
refuses "a share above one" "services: [{name: a, errorRate: 5}]" "service a" "errorRate" "0 to 1"
refuses "a field that nobody knows" "services: [{name: a, replicas: 5}]" "service a" "replicas" "numReplicas"
refuses "a request without an end" "services: [{name: a, script: [{call: b}]}, {name: b, script: [{call: a}]}]" "a -> b -> a" "probability"

echo "# the topology at work"
check "up" lateen up --nodes 2
check "its objects are applied as they are" lateen apply -f <("$LATEEN" lab isotope manifests shop.yaml)
check "a client beside it" lateen apply -f <(sed -n '1,/^---$/!p' "$ROOT/internal/lab/scenario/worlds/client.yaml"; printf -- '---\napiVersion: v1\nkind: ServiceAccount\nmetadata: {name: client}\n')
check "into the mesh" lateen label ns default istio.io/dataplane-mode=ambient
check "ready" lateen wait deployment/front deployment/stock deployment/price deployment/seldom deployment/client
check "known to every proxy" lateen wait
ask() { lateen exec deploy/client -- lateen-load run --url http://front:8080/ --connections 1 --qps 1 --duration 4s --warmup 0s --timeout 10s --all-percentiles --json - 2>/dev/null; }
ask >ask.json
check "requests are answered by the whole graph: $(jq -c .counts ask.json)" jq -e '.counts.ok >= 3 and .counts.failed <= 1' ask.json
check "with the size that the topology says" jq -e '.counts.content_bytes / .counts.ok == 2048' ask.json
# One after the other the two would take 1.4 s: no request could do better, however idle the machine.
check "what runs at the same time does: $(jq .service_time.p50 ask.json) ms for two pauses of 700 ms" jq -e '.service_time.p50 >= 700 and .service_time.p50 < 1400' ask.json
page() { lateen exec deploy/client -- python3 -c 'import urllib.request as u; print(u.urlopen("http://'"$1"':8080/metrics").read().decode())'; }
if command -v python3 >/dev/null; then
  page price >price.txt
  equal "the callee counts what its caller sends" "$(page front | sed -n 's/^service_outgoing_requests_total{destination_service="price:8080"} //p')" "$(sed -n 's/^service_incoming_requests_total //p' price.txt)"
  check "by isotope's names" grep -q '^service_request_duration_seconds_bucket{code="200",le="0.5"} 0$' price.txt
fi
encrypted() { { proxy_metrics n1; proxy_metrics n2; } | grep 'connection_security_policy="mutual_tls"' | found -E 'sa/front.*sa/(price|stock)'; }
check "calls between services are encrypted" eventually 15 encrypted
check "down" lateen down

doc() { jq -r "$1" "$2/results.json"; }
echo "# thirteen services as a scenario"
"$LATEEN" lab run graph-13 --planes lateen --rounds 1 --block 2s --warmup 0s "${OPEN[@]}" --out graph >graph.log 2>&1 & lab_pid=$!
wait $lab_pid; equal "it runs" 0 $?; lab_pid=
equal "every block counts" "4 0" "$(doc '[.scenarios[0].cells[].blocks[]] | "\(length) \([.[] | select(.rejected)] | length)"' graph)"
check "and none has a failed request" jq -e '[.scenarios[0].cells[].blocks[].metrics | .requests > 10 and .failed_share == 0] | all' graph/results.json

echo "# the control plane"
printf 'title: Small\ndoes: A control plane with few proxies.\nrounds: 1\nseconds: 3\ncontrol: {services: 40, pods: 80, proxies: 30, rest: 1, rates: [20]}\n' >small.yaml
"$LATEEN" lab run ./small.yaml --out scale >scale.log 2>&1 & lab_pid=$!
wait $lab_pid; equal "it is measured" 0 $?; lab_pid=
fact() { doc "[.scenarios[0].facts[] | select(.name == \"$1\" and .group == \"$2\") | .value] | first" scale; }
equal "with every change that was asked for" 60 "$(fact changes '20 changes/s')"
check "each of which reached the last proxy: in $(fact 'until the last proxy has a change, longest' '20 changes/s') ms at most" [ "$(fact 'until the last proxy has a change, longest' '20 changes/s')" != null ]
check "its memory and CPU time at rest are known" jq -ne --argjson m "$(fact 'memory (PSS)' 'at rest')" --argjson c "$(fact CPU 'at rest')" '$m > 1 and $c >= 0 and $c < 2'
check "and the report has a table of its own for it" grep -q '^| until a proxy has a change, P50 ' scale/report.md
out=$("$LATEEN" lab run aa-null --proxies 5 2>&1); code=$?
check "sizes without such a scenario are refused" [ "$code" = 64 -a -z "${out##*cp-scale alone*}" ]
equal "no control plane is left" "" "$(pgrep -f "lateen-cp-scale-" || true)"

echo "# the scorecard"
"$LATEEN" lab scorecard --load 3s -o json >card.json 2>card.log & lab_pid=$! card=$!
wait $lab_pid; code=$? lab_pid=
equal "it is filled: $(tail -1 card.log)" 0 $code
row() { jq -r --arg c "$1" '[.rows[] | select(.criterion | startswith($c)) | .value] | join(" ")' card.json; }
equal "two commands to the first encrypted request" 2 "$(row 'commands to the first encrypted request')"
equal "no request fails while the application joins" "0 0" "$(row 'requests failed while it joined')"
equal "none while proxies are upgraded" "0 0" "$(row 'requests failed while node proxies were upgraded')"
equal "none while the control plane is gone" "0 0" "$(row 'requests failed while the control plane was killed')"
equal "none while certificates are renewed and the root is replaced" "0 0" "$(row 'requests failed while certificates were renewed')"
equal "none while it leaves" "0 0" "$(row 'requests failed while it left')"
equal "nothing of the application is restarted, whatever happens" "0 0 0 0" "$(row 'processes of the application restarted')"
equal "requests were made throughout" true "$(jq '[.rows[] | select(.unit == "requests") | .of >= 100] | all and length == 14' card.json)"
equal "no mesh is left" "" "$(find /run/lateen -maxdepth 1 -name "card-$card*" 2>/dev/null)"
finish
