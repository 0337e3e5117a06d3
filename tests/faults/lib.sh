# What the fault tests share beyond the acceptance scripts': load in a pod's network whose every failure has a time and a
# kind, and faults done to single processes by the pids that the engine reports. Source it; call `finish` last.
# FAULT_SECONDS prolongs what is done under load (0: as short as the promise can be tested).
# shellcheck shell=bash
MESH=${MESH:-flt-$(basename "$0" | cut -c1-2)-$$}
# tests/interop, which has a library of its own, has it by now.
declare -F finish >/dev/null || source "$(dirname "${BASH_SOURCE[0]}")/../accept/lib.sh"
source "$ROOT/tests/needs.sh"
needs tcpdump ss
EXTRA=${FAULT_SECONDS:-0}
TOOLS=${FAULT_TOOLS:-$WORK/tools}
if [ -z "${FAULT_TOOLS:-}" ]; then
  (cd "$ROOT" && CGO_ENABLED=0 go build -o "$TOOLS/" ./tests/mesh/...) || not_ok "the tools build"
fi

# mesh FLAGS...: two nodes, an echo service on n2 and a client on n1, captured and known to every proxy.
mesh() {
  check "up" lateen up --nodes 2 "$@"
  with_echo "$ROOT/samples/echo/echo.yaml"
  ECHO=$(service_ip echo):8080
  CLIENT=$(pod_uid client-)
}

service_ip() { lateen get services -n "${2:-default}" -o json | jq -r --arg s "$1" '.items[] | select(.metadata.name == $s) | .spec.clusterIP'; }
# As proxy_pid: nothing is printed while none runs.
agent_pid() { lateen status -o json | jq -r --arg n "$1" '.nodes[] | select(.name == $n) | .agent.pid // 0 | select(. > 1)'; }
control_pid() { lateen status -o json | jq -r '.control.pid // 0 | select(. > 1)'; }
# another OLD COMMAND...: waits until COMMAND names another process than OLD, and says which.
another() {
  local old=$1 now; shift
  local deadline=$((SECONDS + 30))
  while [ $SECONDS -lt $deadline ]; do
    now=$("$@")
    [ -n "$now" ] && [ "$now" != "$old" ] && { echo "$now"; return 0; }
    sleep 0.05
  done
  return 1
}
# away COMMAND...: kills the process that COMMAND names and stops the one that is started in its place: it is not there
# though it runs. Says which to kill, so that the next one is left alone.
away() {
  local now; now=$("$@")
  kill -KILL "$now" && now=$(another "$now" "$@") && freeze "$now" >/dev/null && echo "$now"
}
agent_metric() { in_node "$1" curl -s http://127.0.0.1:15014/metrics | awk -v m="$2" '$1 == m {print $2}'; }
agent_log() { cat "$RUN/nodes/$1/agent.log"; }

# freeze PID: stops a process. A thread of it that runs stops at its next turn, which on a busy machine is not at once.
frozen() { ! grep -hq '^State:[[:space:]]*[^Tt[:space:]]' "/proc/$1"/task/*/status; }
freeze() { kill -STOP "$1" && eventually 20 frozen "$1"; }
# ask SECONDS FILE FLAGS...: asks the echo service from the client's network; counts go to FILE, failures to FILE.failures.
ask() {
  local seconds=$1 file=$2; shift 2
  in_netns "$CLIENT" "$TOOLS/asker" -target "$ECHO" -duration "${seconds}s" -failures "$file.failures" "$@" >"$file"
}
# count FILE KIND: how many requests ended so.
count() { jq -r --arg k "$2" '.counts[$k] // 0' "$1"; }
failed() { jq -r .failed "$1"; }
# Most checks ask again and again, where one request that hangs must not use up the time. A look that decides by one request waits longer: on
# a busy machine everybody may stand still for some seconds.
answers() { [ "$(in_netns "$CLIENT" curl -sS --max-time "${ANSWER_SECONDS:-2}" "http://${1:-$ECHO}/" -o /dev/null -w '%{http_code}' 2>/dev/null)" = 200 ]; }
answers_once() { ANSWER_SECONDS=15 answers "$@"; }
silent() { ! answers_once "$@"; }
# open_to_echo COUNT: so many connections are open from the client to the service.
open_to_echo() { [ "$(in_netns "$CLIENT" ss -Htn state established "dport = :${ECHO##*:}" | wc -l)" -ge "$1" ]; }
# answered_on COUNT: on so many of them something has come back, which the proxies have relayed.
answered_on() { [ "$(in_netns "$CLIENT" ss -Htni state established "dport = :${ECHO##*:}" | grep -c 'bytes_received:')" -ge "$1" ]; }

# Plain text anywhere: a marker in the requests is looked for on every interface of the fabric and of both nodes, except
# behind the proxies, where the application has it.
NODES=(n1 n2)
watch_wire() {
  SNIFFERS=()
  nsenter -t "$(engine_pid)" -n -- tcpdump -B 32768 -s 2048 --immediate-mode -i any -U -w "$WORK/fabric.pcap" tcp and not port 15012 2>"$WORK/fabric.log" & SNIFFERS+=("$!")
  local node place
  for node in "${NODES[@]}"; do
    nsenter --net="/proc/$(engine_pid)/root$RUN/netns/$node" -- tcpdump -B 32768 -s 2048 --immediate-mode -i any -U -w "$WORK/$node.pcap" tcp 2>"$WORK/$node.log" & SNIFFERS+=("$!")
  done
  for place in fabric "${NODES[@]}"; do eventually 30 grep -q 'listening on' "$WORK/$place.log" >/dev/null || not_ok "watching the wire of $place"; done
}
unwatch_wire() { kill "${SNIFFERS[@]}" 2>/dev/null; wait "${SNIFFERS[@]}" 2>/dev/null; }
# in_clear TEXT: how many captured packets show it.
in_clear() { local place; for place in fabric "${NODES[@]}"; do tcpdump -r "$WORK/$place.pcap" -A 2>/dev/null; done | grep -c -- "$1"; }
# end JOB...: ends askers in the background before their time; their counts are written. An asker whose time was over before that has not
# met what came later.
end() {
  local job
  for job in "$@"; do kill -0 "$job" 2>/dev/null || not_ok "a load ended before it was told to"; done
  no_more "$@"
  wait "$@"
}
# no_more JOB...: the same without waiting: what was asked is still waited for by the asker, and nothing more is asked.
no_more() { local job; for job in "$@"; do pkill -TERM -P "$job" 2>/dev/null; done; }
# end_faults continues a stopped engine and ends the askers, before the mesh is taken down: `lateen down` waits for a stopped engine.
end_faults() {
  local p
  p=$(engine_pid 2>/dev/null) && kill -CONT "$p" 2>/dev/null
  for p in $(jobs -p); do pkill -TERM -P "$p"; kill -TERM "$p"; done 2>/dev/null
}
! declare -F cleanup >/dev/null || trap 'end_faults; cleanup' EXIT
