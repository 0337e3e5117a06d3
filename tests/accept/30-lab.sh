#!/usr/bin/env bash
# The lab: scenarios are listed and carried out on planes in turn, a server that writes in pieces is faster through the mesh
# than without, bad input is refused before anything starts, a target that dies and an interrupt leave a document that says so,
# and nothing stays behind. Environment gates are open here: this machine may be busy, and no time is judged closely.
# after: it puts a load on the machine.
# bites: without TCP_QUICKACK in crates/relay/src/socket.rs the mesh is as slow as no mesh.
source "$(dirname "$0")/lib.sh"
OPEN=(--gate other_cpu=1 --gate steal=1 --gate lateness=1000)
meshes() { find /run/lateen -maxdepth 1 -name "lab-$1-*" 2>/dev/null; }
end_lab() { for m in $(meshes "$1"); do "$LATEEN" --name "$(basename "$m")" down >/dev/null 2>&1; done; }
lab_pid= serve_pid=
trap '[ -n "$serve_pid" ] && kill "$serve_pid" 2>/dev/null; [ -n "$lab_pid" ] && { kill "$lab_pid" 2>/dev/null; wait "$lab_pid" 2>/dev/null; end_lab "$lab_pid"; }; cleanup' EXIT
cd "$WORK" || exit 1

equal "the list names every scenario once" 1 "$("$LATEEN" lab list | grep -c '^details-nagle ')"
check "and at length says what does not hold on one machine" grep -q "does not hold on one machine" <("$LATEEN" lab list --long)

refuses() { # DESCRIPTION TEXT ARGS...: exit code 64, and the reason says TEXT
  local what=$1 text=$2; shift 2
  local out code; out=$("$LATEEN" lab run "$@" 2>&1); code=$?
  if [ $code = 64 ] && grep -q -- "$text" <<<"$out"; then ok "$what"; else not_ok "$what: exit code $code: $out"; fi
}
refuses "a scenario that is not there" "lateen lab list" no-such-thing
refuses "a peer of an unknown kind" 'unknown plane "haproxy": use none, lateen' aa-null --peer haproxy=/bin/true
refuses "a peer without a path" "write ztunnel=PATH" aa-null --peer ztunnel
refuses "a peer whose program is not there" "no such file" aa-null --peer ztunnel=/nowhere/ztunnel
refuses "a gate that is not there" "no such gate" aa-null --gate moon=1
refuses "a target that is no URL" "begins with http://" aa-null --target a=file:///etc/passwd
refuses "targets and planes at once" "one or the other" aa-null --target a=http://127.0.0.1:1 --planes none
refuses "a scenario that would change a target" "cannot be run against a URL" replicas --target a=http://127.0.0.1:1
refuses "no rounds" "rounds 0" aa-null --rounds 0
equal "none of which has left anything" "" "$(ls)"

cat >pieces.yaml <<'Y'
title: Pieces
does: A server that writes head and body apart without TCP_NODELAY, asked on a connection every 30 ms.
world: [client, echo]
rounds: 2
seconds: 2
warmup: 0.5
syscalls: true
metrics: [service_p50_ms]
load: {url: "http://echo:8080/?size=178&writes=2&nodelay=0", connections: 8, qps: 266}
cells: [{name: 30 ms, saturates: true}]
Y
check "a run of two rounds" bash -c "$LATEEN lab run ./pieces.yaml ${OPEN[*]} --out pieces >pieces.log 2>&1"
check "is warned beforehand that its rounds are too few" found '^warning: pieces: too few rounds for a verdict (2); --rounds 6 is enough' <(head -1 pieces.log)
check "and the report begins with that" found '^- pieces: lateen against none, by service time P50: too few rounds (2 of 6)' <(sed -n 3p pieces/report.md)
doc() { jq -r "$1" "$WORK/$2/results.json"; }
equal "its document has the planes, with the witness of no mesh" "none none-2 lateen" "$(doc '[.planes[].name] | join(" ")' pieces)"
equal "and every block that was asked for, all counting" "6 0" "$(doc '[.scenarios[0].cells[0].blocks[]] | "\(length) \([.[] | select(.rejected)] | length)"' pieces)"
middle() { doc "[.scenarios[0].cells[0].blocks[] | select(.plane == \"$1\") | .metrics.\"$2\"] | add / length * 1000 | round / 1000" pieces; }
none=$(middle none service_p50_ms) lateen=$(middle lateen service_p50_ms)
check "without a mesh half of the requests take more than 38 ms: $none" jq -ne --argjson v "$none" '$v > 38'
check "through the mesh a quarter of that at most: $lateen" jq -ne --argjson a "$lateen" --argjson b "$none" '$a < $b / 4'
check "because no acknowledgement waits: $(middle none delayed_acks_per_request.generator) for each request without, $(middle lateen delayed_acks_per_request.app) with" \
  jq -ne --argjson a "$(middle none delayed_acks_per_request.generator)" --argjson b "$(middle lateen delayed_acks_per_request.app)" '$a > 0.8 and $b < 0.5'
check "proxies are charged with what they used: $(middle lateen cpu_us_per_request.proxies.total) µs" jq -ne --argjson v "$(middle lateen cpu_us_per_request.proxies.total)" '$v > 1'
check "handshakes are counted, and hardly any is needed on kept connections" jq -e '[.scenarios[0].cells[0].blocks[] | select(.plane == "lateen") | .metrics.handshakes_per_request] | length == 2 and all(. != null and . < 0.5)' pieces/results.json
equal "and no mesh with none" null "$(doc '[.scenarios[0].cells[0].blocks[] | select(.plane == "none")][0].metrics."cpu_us_per_request.proxies.total"' pieces)"
if command -v strace >/dev/null; then
  check "system calls were counted" jq -e '[.scenarios[0].cells[] | select(.untimed) | .blocks[] | select(.plane == "lateen") | .metrics."syscalls_per_request.proxies.all"] | length == 1 and .[0] > 1' pieces/results.json
else
  check "the document says that system calls were not counted" jq -e '.scenarios[0].notes | any(contains("no strace"))' pieces/results.json
fi
equal "two rounds are too few for a verdict, and it says so" "too few rounds" "$(doc '[.scenarios[0].cells[0].verdicts[].judgement] | unique | join(" ")' pieces)"

"$LATEEN" lab run waypoint "${OPEN[@]}" --rounds 1 --block 1s --cell '1000 requests' --cell '300 new' --out way >way.log 2>&1; code=$?
equal "a scenario brings its waypoint along" "0 none lateen lateen-2 waypoint" "$code $(doc '[.planes[].name] | join(" ")' way)"
of_way='[.scenarios[0].cells[].blocks[] | select(.plane == "waypoint") | .metrics]'
check "through which every request passes, and is charged: $(doc "$of_way"' | map("\(."cpu_us_per_request.waypoint.total" | floor) of \(."cpu_us_per_request.proxies.total" | floor) µs") | join(", ")' way)" \
  jq -e "$of_way"' | length >= 2 and all(.requests > 100 and ."cpu_us_per_request.waypoint.total" > 1 and ."cpu_us_per_request.waypoint.total" < ."cpu_us_per_request.proxies.total" and ."pss_mib.waypoint" > 1)' way/results.json
equal "which lateen alone has not" null "$(doc '[.scenarios[0].cells[0].blocks[] | select(.plane == "lateen")][0].metrics."cpu_us_per_request.waypoint.total"' way)"
check "the report has its columns" grep -q 'CPU the waypoint alone' way/report.md

"$ROOT/bin/lateen-load" serve --listen 127.0.0.1:0 2>serve.log & serve_pid=$!
check "a server outside of any mesh" eventually 15 grep -q 'listening on' serve.log
at=$(sed -n 's/.*listening on //p' serve.log)
sed -e '/^syscalls/d' -e 's/qps: 266/qps: 100/' -e 's/seconds: 2/seconds: 1/' -e 's/&writes=2&nodelay=0//' pieces.yaml >given.yaml
check "two rounds against its URL, given under two names" "$LATEEN" lab run ./given.yaml "${OPEN[@]}" --gate achieved=0 --target a="http://$at" --target b="http://$at" --out given
equal "are measured without a mesh" "a a-2 b 6" "$(doc '([.planes[].name] | join(" ")) + " \([.scenarios[0].cells[0].blocks[] | select(.metrics.requests > 50)] | length)"' given)"
sed "s/, saturates: true//" given.yaml >slow.yaml
"$LATEEN" lab run ./slow.yaml "${OPEN[@]}" --rounds 1 --target a="http://$at/?delay=500ms" --out slow >slow.log 2>&1; code=$?
equal "a service that carries a fraction of the rate is a finding" "79 1" "$code $(grep -c '^failed: .* a: the server fell behind: .* of requests started on schedule' slow.log)"
kill "$serve_pid"; wait "$serve_pid" 2>/dev/null; serve_pid=
"$LATEEN" lab run ./given.yaml --target a="http://$at" --out gone >gone.log 2>&1; code=$?
equal "with the server gone that is said at once" "79 1" "$code $(grep -c 'nobody answers' gone.log)"

sed -e 's/^rounds: .*/rounds: 100/' -e '/^syscalls/d' -e 's/seconds: 2/seconds: 1/' -e 's/&writes=2&nodelay=0//' pieces.yaml >long.yaml
# A run that goes on until it is stopped. Under job control, so that it may be interrupted: a shell has other programs in the
# background ignore that.
begin() { set -m; "$LATEEN" lab run ./long.yaml "${OPEN[@]}" --out "$1" >"$1.log" 2>&1 & lab_pid=$!; set +m; }
under_way() { eventually 120 jq -e '.scenarios[0].cells[0].blocks | length >= 3' "$1/results.json"; }
begin dies
check "a long run has written its first round" under_way dies
for m in $(meshes "$lab_pid"); do "$LATEEN" --name "$(basename "$m")" scale deploy/echo --replicas 0 >/dev/null 2>&1; done
wait "$lab_pid"; code=$?
equal "the target dies: the run ends by itself with findings" 79 "$code"
# Its process is missed, in the midst of a block or between two.
check "the document says why" jq -e '.scenarios[0].failed | test("has not come back within|without an answer")' dies/results.json
check "and the block in which it happened" jq -e '[.scenarios[0].cells[0].blocks[] | select(.failed) | .failed[]] | any(test("process ended|no request was answered"))' dies/results.json
check "and those before" jq -e '[.scenarios[0].cells[0].blocks[] | select((.failed or .rejected) | not)] | length >= 3' dies/results.json
equal "its meshes are gone" "" "$(meshes "$lab_pid")"

begin cut
check "another long run has written its first round" under_way cut
# A second interrupt comes while it cleans up: the first signals may be taken as one.
while kill -INT "$lab_pid" 2>/dev/null && ! grep -q 'still cleaning up' cut.log; do sleep 0.05; done
wait "$lab_pid"; code=$?
equal "interrupted, it ends" 130 "$code"
check "and says at the second interrupt that it cleans up" grep -q 'still cleaning up' cut.log
check "the document says so and has whole blocks" jq -e '.interrupted and ([.scenarios[0].cells[0].blocks[] | select(.metrics.requests > 0)] | length >= 3)' cut/results.json
equal "its meshes are gone as well" "" "$(meshes "$lab_pid")"
lab_pid=
finish
