#!/usr/bin/env bash
# `lateen lab serve`: a session recorded with Fortio gets the same answers with a real generator and a real target, runs are stored
# where `fortio report` finds them, nobody but the one who should can start load, and no generator outlives its server.
# bites: without Pdeathsig in internal/lab/rest/generator.go a generator outlives a killed server.
source "$(dirname "$0")/lib.sh"
LOAD=$ROOT/bin/lateen-load
pids=()
trap 'for p in "${pids[@]}"; do kill "$p" 2>/dev/null; wait "$p" 2>/dev/null; done; cleanup' EXIT
cd "$WORK" || exit 1
export TMPDIR=$WORK # a server that is killed leaves the directories of its runs

"$LOAD" serve --listen 127.0.0.1:0 2>echo.log & pids+=($!)
check "an echo service listens" eventually 20 grep -q 'listening on' echo.log
TARGET=http://$(sed -n 's/.*listening on \([0-9.:]*\).*/\1/p' echo.log | head -1)

# begin NAME FLAGS...: a server; SERVER is its process, BASE its address.
begin() {
  local name=$1; shift
  "$LATEEN" lab serve --listen 127.0.0.1:0 --results "$name" --lab-results labs "$@" >"$name.log" 2>&1 & SERVER=$!
  pids+=("$SERVER")
  eventually 30 grep -q 'serving on' "$name.log" >/dev/null
  BASE=$(sed -n 's#.*serving on \(http://[^/]*\)/.*#\1#p' "$name.log")
}
generators() { pgrep -P "$1" | tr '\n' ' '; }
run() { [ "$(generators "$SERVER" | wc -w)" = "$1" ]; }
gone() { for p in $1; do [ ! -e "/proc/$p" ] || return 1; done; }

refuses() { # DESCRIPTION TEXT FLAGS...: exit code 64, and the reason says TEXT
  local what=$1 text=$2; shift 2
  local out code; out=$(timeout 60 "$LATEEN" lab serve "$@" 2>&1); code=$?
  if [ $code = 64 ] && grep -q -- "$text" <<<"$out"; then ok "$what"; else not_ok "$what: exit code $code: $out"; fi
}
refuses "an address that others reach is refused" "add --allow-remote" --listen 0.0.0.0:0
refuses "and without a token even when it is asked for" "needs --token-file" --listen 0.0.0.0:0 --allow-remote
refuses "so are bounds that let nothing through" "at least 1" --max-runs 0
equal "none of which has left anything" "echo.log" "$(ls)"

begin runs
"$ROOT/internal/lab/rest/testdata/fortio/script.sh" "$BASE" "$TARGET" >session.txt 2>session.err
check "a session recorded with Fortio gets the same answers" diff "$ROOT/internal/lab/rest/testdata/fortio/expected.txt" session.txt
equal "without a complaint of its tools" "" "$(cat session.err)"
equal "what was to be stored is, as Fortio has it" 3 "$(find runs -maxdepth 1 -name '*.json' | wc -l)"
equal "and as the generator has it, with histograms" 3 "$(jq -s '[.[] | select(.format == "lateen-load/1" and .response_time.histogram != "")] | length' runs/lateen/*.json)"
ids=$(curl -s "$BASE/api/runs" | jq -r '.runs[].id')
equal "two of them compare" 2 "$(curl -s "$BASE/api/compare?$(head -2 <<<"$ids" | sed 's/^/id=/' | paste -sd '&')" | jq '.runs | length')"
check "a page comes" found 'src="page/app.js"' <(curl -s "$BASE/")
for p in app.js charts.js page.css report.css; do check "and its $p" curl -sf -o /dev/null "$BASE/page/$p"; done

check "the session's generators have ended" eventually 20 run 0
status() { curl -s -o /dev/null -w '%{http_code}' "$@"; }
RUN="$BASE/fortio/rest/run?url=$TARGET/&qps=20&c=1&t=10m&async=on&save=on"
equal "a name that leads here by rebinding is refused" 403 "$(status -H 'Host: evil.example' "$RUN")"
equal "so is an address that leads to every machine, of which browsers hide who asks" 403 "$(status "${RUN/127.0.0.1/0.0.0.0}")"
equal "and loopback written as IPv6" 403 "$(status -H 'Host: [::ffff:127.0.0.1]' "$RUN")"
equal "a browser's run from no page that it names is refused" 403 "$(status -A 'Mozilla/5.0 (X11; Linux x86_64)' "$RUN")"
equal "so is another site's page" 403 "$(status -H 'Origin: http://evil.example' "$RUN")"
equal "and its picture" 403 "$(status -H 'Sec-Fetch-Site: cross-site' -H 'Sec-Fetch-Mode: no-cors' "$RUN")"
for target in file:///etc/passwd udp://127.0.0.1:1 http:///x; do
  equal "$target is no target" 400 "$(status -G --data-urlencode "url=$target" "$BASE/fortio/rest/run")"
done
equal "nothing of that has begun" "" "$(generators "$SERVER")"

for _ in 1 2 3 4; do curl -s -o /dev/null "$RUN"; done
equal "the fifth at a time is refused" 429 "$(status "$RUN")"
check "four generators run" eventually 20 run 4
started=$(generators "$SERVER")
check "and say how they go" eventually 20 bash -c "[ \"\$(curl -s '$BASE/api/active' | jq '[.active[] | select(.progress.answers_total > 0)] | length')\" = 4 ]"
equal "one is stopped by its number" 1 "$(curl -s "$BASE/fortio/rest/stop?runid=$(curl -s "$BASE/api/active" | jq '.active[0].runid')&wait=on" | jq .Count)"
check "and its process is gone" eventually 10 run 3
kill -TERM "$SERVER"; wait "$SERVER"; code=$?
equal "told to end, the server ends" 0 "$code"
check "with its generators" gone "$started"
equal "and stores what they found" 7 "$(find runs -maxdepth 1 -name '*.json' | wc -l)"

begin again
RUN="$BASE/fortio/rest/run?url=$TARGET/&qps=20&c=1&t=on&async=on"
curl -s -o /dev/null "$RUN"; curl -s -o /dev/null "$RUN"
check "two generators run" eventually 20 run 2
started=$(generators "$SERVER")
{ kill -KILL "$SERVER"; wait "$SERVER"; } 2>/dev/null
check "the server is killed: no generator outlives it" eventually 20 bash -c 'for p in '"$started"'; do [ ! -e "/proc/$p" ] || exit 1; done'

begin guarded --token-file token
equal "a token that is made is its owner's alone" 600 "$(stat -c %a token)"
check_not "and is not told" grep -q "$(cat token)" guarded.log
equal "without it there is no answer" 401 "$(status "$BASE/fortio/rest/status")"
equal "with another there is none" 401 "$(status -H 'Authorization: Bearer 0123456789abcdef0123' "$BASE/api/runs")"
equal "with it there is" 200 "$(status -H "Authorization: Bearer $(cat token)" "$BASE/fortio/rest/status")"
out=$(timeout 60 "$LATEEN" lab serve --listen "${BASE#http://}" --results other 2>&1); code=$?
check "a port in use is said at once" bash -c "[ $code = 1 ] && grep -q 'address already in use' <<<'$out'"
finish
