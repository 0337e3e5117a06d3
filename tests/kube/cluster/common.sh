# What the scripts of the test cluster share: where things are, which process is whose, and how a failure is told. It
# starts nothing. Source it. shellcheck shell=bash
set -euo pipefail
CLUSTER=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
CACHE=${XDG_CACHE_HOME:-$HOME/.cache}/lateen/kube
RUNS=${KUBE_RUN:-$CACHE/run}

# in_run NAME: all that belongs to the cluster NAME is below RUN.
in_run() {
  [[ $1 =~ ^[a-z0-9][a-z0-9-]{0,30}$ ]] || { echo "error: cluster name '$1': want at most 31 of a-z, 0-9 and -" >&2; exit 64; }
  NAME=$1 RUN=$RUNS/$1
}

# the_name: KUBE_NAME, or the name of the only cluster there is, or the default.
the_name() {
  [ -z "${KUBE_NAME:-}" ] || { echo "$KUBE_NAME"; return; }
  local all=("$RUNS"/*/)
  if [ ${#all[@]} = 1 ] && [ -d "${all[0]}" ]; then basename "${all[0]}"; else echo kube; fi
}

# A process is known by its pid and the time of its start: the number alone may be another's by now.
# record FILE: this very process, with the pid that the host knows it by (also in a PID namespace, while /proc is the host's).
record() {
  local line fields
  read -r line </proc/self/stat
  read -ra fields <<<"${line##*) }"
  echo "${line%% *} ${fields[19]}" >"$1"
}
# pid_of FILE: prints the pid of the recorded process if it still runs.
pid_of() {
  local pid start line fields
  [ -e "$1" ] && read -r pid start <"$1" 2>/dev/null || return 1
  { read -r line <"/proc/$pid/stat"; } 2>/dev/null || return 1
  read -ra fields <<<"${line##*) }"
  [ "${fields[19]}" = "$start" ] && [ "${fields[0]}" != Z ] && echo "$pid"
}

# progress TEXT: with the seconds since the script began.
BEGAN=${EPOCHREALTIME/./}
progress() { local t=$(((${EPOCHREALTIME/./} - BEGAN) / 10000)); printf '%5d.%02d s  %s\n' $((t / 100)) $((t % 100)) "$*" >&2; }

# failed COMPONENT TEXT: says what failed and shows the end of the component's log.
failed() {
  local component=$1 log; shift
  echo "error: $*" >&2
  for log in "$RUN/log/$component.log" "$RUN"/nodes/*/rootfs/var/log/"$component.log"; do
    [ -s "$log" ] || continue
    echo "  the end of $log:" >&2
    tail -n 15 "$log" | cut -c1-400 | sed 's/^/    /' >&2
  done
  exit 1
}

# within SECONDS COMMAND...: retries until the command succeeds.
within() {
  local deadline=$((SECONDS + $1)); shift
  until "$@" >/dev/null 2>&1; do
    [ $SECONDS -lt $deadline ] || return 1
    sleep 0.1
  done
}

# stop NAME: ends a component or a node. A component is asked first and killed after a second, for its data is disposable;
# a node dies as by a power cut. Not for within the cluster's PID namespace, where its processes have other numbers.
stop() {
  local pid
  pid=$(pid_of "$RUN/$1.pid") || return 0
  case $1 in node*) ;; *) kill "$pid" 2>/dev/null || true; ! within 1 ended "$1" || return 0 ;; esac
  kill -KILL "$pid" 2>/dev/null || true
  within 60 ended "$1"
}
ended() { ! pid_of "$RUN/$1.pid"; }
