# What the acceptance scripts share: one mesh per script under a name of its own, checks that are counted, and a way to
# look into the mesh from outside with tools that are not ours (nsenter, tcpdump, ip, nft).
# Source it; call `finish` last. shellcheck shell=bash
set -uo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
LATEEN=$ROOT/bin/lateen
SCRIPT=$(basename "${BASH_SOURCE[-1]:-script}" .sh)
MESH=${MESH:-acc-$SCRIPT-$$}
RUN=/run/lateen/$MESH
source "$ROOT/tests/needs.sh"
# shellcheck disable=SC2046
needs curl jq $(sed -n 's/^# needs: //p' "${BASH_SOURCE[-1]}" 2>/dev/null)
WORK=$(mktemp -d)
passed=0 failed=0 skipped=0

if [ "$(id -u)" != 0 ]; then
  echo "not ok - needs root: network namespaces cannot be made without it"
  echo "0 passed, 1 failed, 0 skipped"
  exit 1
fi
if [ ! -x "$LATEEN" ]; then
  echo "not ok - $LATEEN is missing: run 'make build' first"
  echo "0 passed, 1 failed, 0 skipped"
  exit 1
fi

# ZTUNNEL_NODES (n1, or "n1 n2") run the unmodified ztunnel that ZTUNNEL names in place of lateen-proxy: tests/interop/sides.sh runs
# scripts of this folder and of tests/faults so.
lateen() {
  local node others=()
  if [ "${1:-}" = up ]; then for node in ${ZTUNNEL_NODES:-}; do others+=(--node-proxy "$node=$ZTUNNEL"); done; fi
  # `lateen waypoint` takes --name for a waypoint's, and the mesh from the environment: other scripts have meshes beside this one.
  LATEEN_NAME=$MESH "$LATEEN" --name "$MESH" "$@" ${others[@]+"${others[@]}"}
}

ok() { passed=$((passed + 1)); echo "ok - $*"; }
not_ok() { failed=$((failed + 1)); echo "not ok - $*"; }

# check DESCRIPTION COMMAND...: the command succeeds. Its output is shown only when it does not.
check() {
  local what=$1; shift
  local out
  if out=$("$@" 2>&1); then ok "$what"; else not_ok "$what"; printf '%s\n' "$out" | tail -20 | sed 's/^/    /'; fi
}

# check_not DESCRIPTION COMMAND...: the command fails.
check_not() {
  local what=$1; shift
  local out
  if out=$("$@" 2>&1); then not_ok "$what"; printf '%s\n' "$out" | tail -20 | sed 's/^/    /'; else ok "$what"; fi
}

# equal DESCRIPTION WANT GOT
equal() {
  if [ "$2" = "$3" ]; then ok "$1"; else not_ok "$1: want '$2', got '$3'"; fi
}

# eventually SECONDS COMMAND...: retries until the command succeeds; its last output is kept on failure.
eventually() {
  local deadline=$((SECONDS + $1)); shift
  local out
  while true; do
    if out=$("$@" 2>&1); then printf '%s\n' "$out"; return 0; fi
    if [ $SECONDS -ge $deadline ]; then printf '%s\n' "$out"; return 1; fi
    sleep 0.2
  done
}

# found GREP-ARGUMENTS...: grep -q for a pipe. It reads to the end: one that leaves early kills who still writes, and by
# pipefail that is a failure of the whole, the surer the more there is to find. internal/archtest sees to its use.
found() { grep "$@" | cat >/dev/null; }

# jq, whose 1.6 is content with -e when there was no input at all: that must not pass for an answer.
jq() {
  if [ "${1:-}" != -e ]; then command jq "$@"; return; fi
  local out
  out=$(command jq "$@") || return
  printf '%s\n' "$out"
  [ -n "$out" ]
}

# Scripts that watch a wire give tcpdump -B 32768 -s 2048: room for 16,000 packets. Its own default has room for eight, and a busy
# machine then loses the packets that a check looks for.

# in_fabric COMMAND...: a tool of the host in the mesh's fabric network namespace.
in_fabric() { nsenter -t "$(engine_pid)" -n -- "$@"; }
# in_node NODE COMMAND...
in_node() { local n=$1; shift; nsenter --net="/proc/$(engine_pid)/root$RUN/netns/$n" -- "$@"; }
engine_pid() { jq -r .pid "$RUN/engine.json"; }

node_of() { lateen get pods -n "${2:-default}" -o json | jq -r --arg p "$1" '.items[] | select(.metadata.name | startswith($p)) | .spec.nodeName' | head -1; }
pod_of() { lateen get pods -n "${2:-default}" -o json | jq -r --arg p "$1" '.items[] | select(.metadata.name | startswith($p)) | .metadata.name' | head -1; }
pod_uid() { lateen get pods -n "${2:-default}" -o json | jq -r --arg p "$1" '[.items[] | select(.metadata.name | startswith($p)) | select(.metadata.deletionTimestamp == null)][0].metadata.uid'; }
pod_ip() { lateen get pods -n "${2:-default}" -o json | jq -r --arg p "$1" '[.items[] | select(.metadata.name | startswith($p)) | select(.metadata.deletionTimestamp == null)][0].status.podIP'; }
# in_netns NAME COMMAND...: in the network of a pod (its uid) or a node.
in_netns() { local ns=$1; shift; nsenter --net="/proc/$(engine_pid)/root$RUN/netns/$ns" -- "$@"; }
# Nothing is printed while none runs: 0 would mean every process of the script's own group to `kill`.
proxy_pid() { lateen status -o json | jq -r --arg n "$1" '.nodes[] | select(.name == $n) | .proxy.pid // 0 | select(. > 1)'; }
proxy_log() { cat "$RUN/nodes/$1/proxy.log"; }
# proxy_page NODE PATH CURL-OPTIONS...: a page of a node's proxy, on its private socket; ztunnel has ports alone.
proxy_page() {
  local socket=$RUN/nodes/$1/admin.sock node=$1 path=$2; shift 2
  if [ -S "$socket" ]; then curl -s --unix-socket "$socket" "$@" "http://proxy$path"; else in_node "$node" curl -s "$@" "http://127.0.0.1:15000$path"; fi
}
proxy_metrics() { in_node "$1" curl -sf http://127.0.0.1:15020/metrics; }

# with_echo FILE: an echo service and a client, captured and known to every proxy of a mesh that is up.
with_echo() {
  check "apply echo and client" lateen apply -f "$1"
  check "enrol" lateen label ns default istio.io/dataplane-mode=ambient
  check "ready, captured" lateen wait deployment/echo deployment/client
  check "known to every proxy" lateen wait
}
# on_one_node FLAGS...: a mesh of one node, the service and its client on it. In such a mesh:
# in_pod APP COMMAND..., and what a metric without labels says.
on_one_node() {
  sed 's/lateen.dev\/node-index: "2"/lateen.dev\/node-index: "1"/' "$ROOT/samples/echo/echo.yaml" >"$WORK/echo.yaml"
  check "up $*" lateen up --nodes 1 "$@"
  with_echo "$WORK/echo.yaml"
}
in_pod() { local app=$1; shift; in_netns "$(pod_uid "$app-")" "$@"; }
value() { proxy_metrics n1 | awk -v m="$1" '$1 == m { print $2 + 0 }'; }

# client_has_open N: the client's pod has so many connections open to port 8080.
client_has_open() { [ "$(in_netns "$(pod_uid client)" awk '$3 ~ /:1F90$/ && $4 == "01"' /proc/self/net/tcp | wc -l)" -ge "$1" ]; }
# has_tunnelled: a node proxy has logged a connection through a tunnel.
has_tunnelled() { grep -q 'dst.hbone_addr=' "$RUN"/nodes/*/proxy.log; }

cleanup() {
  [ -d "$RUN" ] && "$LATEEN" --name "$MESH" down >/dev/null 2>&1
  rm -rf "$WORK"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

finish() {
  if [ "$failed" != 0 ] && [ -n "${KEEP_LOGS:-}" ]; then
    mkdir -p "$KEEP_LOGS/$SCRIPT" && cp -r "$RUN"/nodes "$RUN"/pods "$RUN"/*.log "$KEEP_LOGS/$SCRIPT/" 2>/dev/null
  fi
  echo "$passed passed, $failed failed, $skipped skipped"
  [ "$failed" = 0 ] || exit 1
  exit 0
}
