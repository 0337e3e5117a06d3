#!/usr/bin/env bash
# Terminals that are narrow, closed or not there: progress keeps to its line, and a command whose terminal or reader goes away
# ends, with all that it started. 39-command-line.sh sources this file.
# shellcheck shell=bash

cat >"$WORK/forever.yaml" <<'Y'
title: Forever
does: Two pods, for as long as nobody ends it.
world: [client, echo]
rounds: 100
seconds: 1
warmup: 0.5
metrics: [service_p50_ms]
load: {url: "http://echo:8080/?size=178", connections: 2, qps: 50}
cells: [{name: a setting whose name is longer than a narrow terminal is wide}]
Y
OPEN=(--gate other_cpu=1 --gate steal=1 --gate lateness=1000)
lab_meshes() { find /run/lateen -maxdepth 1 -name "lab-$1-*" 2>/dev/null; }
no_lab_mesh() { [ -z "$(lab_meshes "$1")" ]; }
gone() { [ ! -d "/proc/$1" ]; }
# as NAME COMMAND...: becomes the command, whose process id is then in $WORK/NAME.pid.
cat >"$WORK/as" <<'S'
#!/bin/sh
echo $$ >"$1.pid"; shift; exec "$@"
S
chmod 755 "$WORK/as"
as() { local name=$1; shift; "$WORK/as" "$WORK/$name" "$@"; }
pid_of() { eventually 30 grep . "$WORK/$1.pid"; } # a file that was opened may be empty
# hang_up NAME COMMAND...: runs a command in a terminal of its own in the background. closes NAME closes that terminal.
hang_up() { local name=$1; shift; "$ROOT/tests/accept/terminal.py" --seconds 300 -- "$WORK/as" "$WORK/$name" "$@" >"$WORK/$name.out" 2>&1 & echo $! >"$WORK/$name.terminal"; }
closes() { kill -9 "$(cat "$WORK/$1.terminal")"; wait "$(cat "$WORK/$1.terminal")" 2>/dev/null; }
lab=("$LATEEN" lab run "$WORK/forever.yaml" --planes none "${OPEN[@]}" --out)
measures() { jq -e '.scenarios[0].cells[0].blocks | length >= 1' "$WORK/$1/results.json"; }

# Progress in narrow terminals, of a run against the script's own service, which takes no mesh.
cat >"$WORK/server.py" <<'PY'
import http.server
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")
    def log_message(self, *a):
        pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_address[1], flush=True)
server.serve_forever()
PY
python3 "$WORK/server.py" >"$WORK/server.port" & server=$!
check "a service to measure" eventually 30 test -s "$WORK/server.port"
for columns in 40 80; do
  shown=$(in_terminal "$columns" "$LATEEN" lab run "$WORK/forever.yaml" "${OPEN[@]}" --rounds 1 --target a="http://127.0.0.1:$(cat "$WORK/server.port")" --out "$WORK/narrow$columns")
  # The frames of one activity overwrite each other: an activity that is left in the scrollback was cut too late.
  equal "at $columns columns no frame of a moving line stays behind" "" "$(grep -E '^[⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏]' <<<"$shown")"
  check "at $columns columns the round is reported" grep -q "^✓ forever: round 1 of 1" <<<"$shown"
  check "at $columns columns the run begins with the rounds that it lacks" grep -q "^warning: forever: too few rounds" <<<"$shown"
done
for columns in 80 100 160; do
  equal "at $columns columns nothing of a run is wider" "" "$(too_wide "$columns" "$LATEEN" lab run "$WORK/forever.yaml" "${OPEN[@]}" --rounds 1 --target a="http://127.0.0.1:$(cat "$WORK/server.port")" --out "$WORK/w$columns")"
done
kill "$server"; wait "$server" 2>/dev/null
cat >"$WORK/lost.yaml" <<'Y'
apiVersion: v1
kind: ConfigMap
metadata: {name: lost, namespace: defualt}
Y
for command in apply diff; do
  equal "at 40 columns the errors of $command are folded" "" "$(too_wide 40 "$LATEEN" --name "$MESH" $command -f "$WORK/lost.yaml" | grep -v /)" # a path is one word
  out=$(lateen $command -f "$WORK/lost.yaml" 2>&1)
  check "$command corrects a mistyped namespace" grep -q "^  fix: did you mean default?" <<<"$out"
done
equal "a pipe has each activity once" 1 "$(lateen wait 2>&1 | grep -c '^  wait')"

# A terminal that is closed.
hang_up closed "${lab[@]}" "$WORK/closed"
pid=$(pid_of closed)
check "a run in a terminal measures" eventually 180 measures closed
closes closed
check "its terminal is closed: the run ends" eventually 60 gone "$pid"
equal "and leaves no mesh" "" "$(lab_meshes "$pid")"
check "its document says that it was interrupted" jq -e .interrupted "$WORK/closed/results.json"
check "and has its reports" test -s "$WORK/closed/report.md"

# SIGKILL, which no program can handle.
as killed "${lab[@]}" "$WORK/killed" >"$WORK/killed.log" 2>&1 & waited=$!
pid=$(pid_of killed)
check "another run measures" eventually 180 measures killed
kill -9 "$pid"; wait "$waited" 2>/dev/null
check "the run is killed: its meshes end with it" eventually 60 no_lab_mesh "$pid"

# A reader that leaves.
as piped "${lab[@]}" "$WORK/piped" 2>&1 | head -1 >"$WORK/piped.first"; codes="${PIPESTATUS[*]}"
equal "a run whose output is read no further ends as a broken pipe does" "141 0" "$codes"
equal "and leaves no mesh" "" "$(lab_meshes "$(pid_of piped)")"
# unread COMMAND...: the exit code of a command whose output is read once and then no further. A reader that is late would find it
# ended. Its pipe has room for one write, so that it waits for its reader at the third one.
unread() {
  python3 - "$@" <<'PY'
import fcntl, os, subprocess, sys
reader, writer = os.pipe2(os.O_CLOEXEC | os.O_DIRECT)  # with O_DIRECT no two writes share a page: pipe(2)
fcntl.fcntl(writer, 1031, 4096)  # F_SETPIPE_SZ of linux/fcntl.h: one page
command = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL, stdout=writer, stderr=writer)
os.close(writer)
os.read(reader, 4096)
os.close(reader)
code = command.wait()
print(code if code >= 0 else 128 - code)
PY
}
equal "so does up" 141 "$(unread "$LATEEN" --name "$MESH-p" up --nodes 1)"
check_not "and leaves no mesh" test -e "/run/lateen/$MESH-p"
for command in "tap -o json" "logs control -f" "top"; do
  # shellcheck disable=SC2086
  timeout 60 "$LATEEN" --name "$MESH" $command 2>"$WORK/quiet" | head -1 >/dev/null; codes="${PIPESTATUS[*]}"
  check "$command ends with its reader, not at the next line (exit codes $codes)" test "${codes%% *}" != 124
  equal "and complains of nothing" "" "$(grep -v '^[0-9]* ended\|^Next:\|^      ' "$WORK/quiet")"
done

# What runs in a pod, or listens for one, ends with the terminal that it was started from.
hang_up inside "$LATEEN" --name "$MESH" exec deploy/client -- sleep "4711.$$"
check "a command runs in a pod" eventually 30 pgrep -f "^sleep 4711.$$\$"
closes inside
check "it ends with its terminal" eventually 30 bash -c "! pgrep -f '^sleep 4711.$$\$'"
hang_up forward "$LATEEN" --name "$MESH" port-forward svc/echo :8080
pid=$(pid_of forward)
listens() { ss -Hltnp | found "pid=$1,"; }
check "a port is forwarded" eventually 30 listens "$pid"
closes forward
check "it is not once its terminal is closed" eventually 30 gone "$pid"

# What the lab prints fits the terminal it is printed to, and is whole in a pipe.
for columns in 80 100 160; do
  for command in "lab list" "lab list --long"; do
    # shellcheck disable=SC2086
    equal "$command fits $columns columns" "" "$(too_wide "$columns" "$LATEEN" $command)"
  done
done
