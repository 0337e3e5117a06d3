# What the suites on Kubernetes share: checks that are counted, kubectl, ways into the nodes and pods of the test cluster
# with tools that are not ours, load in a pod's network, and a watch on the wire between the nodes. The cluster is there
# already (tests/kube/run.sh). Source it; call `finish` last. shellcheck shell=bash
set -uo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
KUBE=$ROOT/tests/kube
SUITE=$(basename "${BASH_SOURCE[1]:-suite}" .sh)
source "$ROOT/tests/needs.sh"
# shellcheck disable=SC2046
needs curl jq nft ss tcpdump $(sed -n 's/^# needs: //p' "${BASH_SOURCE[-1]}" 2>/dev/null)
source "$KUBE/cluster/common.sh"
set +e
in_run "$(the_name)"
export KUBE_NAME=$NAME
passed=0 failed=0 skipped=0
if ! pid_of "$RUN/init.pid" >/dev/null; then
  echo "not ok - no cluster '$NAME' runs: start one with tests/kube/up.sh, or run tests/kube/run.sh $SUITE"
  echo "0 passed, 1 failed, 0 skipped"
  exit 1
fi
source "$RUN/addresses"
WORK=$(mktemp -d)

# Commands mean the cluster: without this they take a mesh of this machine, and other tests run such meshes beside these.
export LATEEN_ENGINE=kubernetes

k() { "$KUBE/k" "$@"; }
# lateen ARGUMENTS...: the command line, where the API server can be reached.
lateen() { in_fabric env KUBECONFIG="$RUN/kubeconfig" "$ROOT/bin/lateen" "$@"; }

ok() { passed=$((passed + 1)); echo "ok - $*"; }
not_ok() { failed=$((failed + 1)); echo "not ok - $*"; }
# check DESCRIPTION COMMAND...: the command succeeds. Its output is shown only when it does not.
check() {
  local what=$1 out; shift
  if out=$("$@" 2>&1); then ok "$what"; else not_ok "$what"; printf '%s\n' "$out" | tail -20 | sed 's/^/    /'; fi
}
# check_not DESCRIPTION COMMAND...: the command fails.
check_not() {
  local what=$1 out; shift
  if out=$("$@" 2>&1); then not_ok "$what"; printf '%s\n' "$out" | tail -20 | sed 's/^/    /'; else ok "$what"; fi
}
# equal DESCRIPTION WANT GOT
equal() { if [ "$2" = "$3" ]; then ok "$1"; else not_ok "$1: want '$2', got '$3'"; fi; }
# eventually SECONDS COMMAND...: retries until the command succeeds; its last output is kept on failure.
eventually() {
  local deadline=$((SECONDS + $1)) out; shift
  while true; do
    if out=$("$@" 2>&1); then printf '%s\n' "$out"; return 0; fi
    if [ $SECONDS -ge $deadline ]; then printf '%s\n' "$out"; return 1; fi
    sleep 0.2
  done
}
# found GREP-ARGUMENTS...: grep -q for a pipe; it reads to the end, so that who still writes is not killed.
found() { grep "$@" | cat >/dev/null; }

# in_fabric COMMAND...: in the network between the nodes, where the API server is. The files are the host's.
in_fabric() { nsenter -t "$(pid_of "$RUN/init.pid")" -n -- "$@"; }
# on_node NODE COMMAND...: as a process of the node, in all its namespaces.
on_node() { nsenter -t "$(pid_of "$RUN/$1.pid")" -m -n -p -u -i -C -- env PATH=/opt/kube/bin:/usr/sbin:/usr/bin:/sbin:/bin "${@:2}"; }
# in_node NODE COMMAND...: in the node's network, with the host's files.
in_node() { nsenter -t "$(pid_of "$RUN/$1.pid")" -n -- "${@:2}"; }
node_files() { echo "$RUN/nodes/$1/rootfs"; }

# pods [NAMESPACE] SELECTOR: names of the pods that are not about to go.
pods() {
  local ns=default; [ $# = 1 ] || { ns=$1; shift; }
  k -n "$ns" get pods -l "$1" -o json | jq -r '.items[] | select(.metadata.deletionTimestamp == null) | .metadata.name'
}
field() { k -n "$1" get pod "$2" -o jsonpath="{$3}"; } # NAMESPACE POD PATH
pod_ip() { field "$1" "$2" .status.podIP; }
pod_node() { field "$1" "$2" .spec.nodeName; }
# pod_on NAMESPACE SELECTOR NODE: the first pod of the selector on that node that is not about to go.
pod_on() { k -n "$1" get pods -l "$2" --field-selector "spec.nodeName=$3" -o json | jq -re '[.items[] | select(.metadata.deletionTimestamp == null)][0].metadata.name // empty'; }
# pod_netns NAMESPACE POD: a path, on the host, of the pod's network namespace.
pod_netns() {
  local node container path
  read -r node container <<<"$(field "$1" "$2" '.spec.nodeName} {.status.containerStatuses[0].containerID')"
  path=$(on_node "$node" ctr -n k8s.io containers info "${container#containerd://}" | jq -r '.Spec.linux.namespaces[] | select(.type == "network") | .path')
  [ -n "$path" ] || return 1
  # A symbolic link in the middle would lead out of the node's files.
  echo "/proc/$(pid_of "$RUN/$node.pid")/root/${path/#\/var\/run//run}"
}
# in_pod NAMESPACE/POD COMMAND...: in the pod's network, with the host's files (so: addresses, no cluster names).
in_pod() {
  local ns
  ns=$(pod_netns "${1%/*}" "${1#*/}") || { echo "no network namespace of pod $1" >&2; return 1; }
  nsenter --net="$ns" -- "${@:2}"
}
# none_open NAMESPACE/POD PORT: the pod has no TCP connection open to that port.
none_open() {
  local open
  open=$(in_pod "$1" ss -Htn state connected exclude time-wait "dport = :$2") || return 1
  [ -z "$open" ] || { echo "$open"; return 1; }
}
# some_open NAMESPACE/POD PORT COUNT: the pod has at least so many TCP connections open to that port.
some_open() {
  local open
  open=$(in_pod "$1" ss -Htn state established "dport = :$2") || return 1
  [ "$(grep -c . <<<"$open")" -ge "$3" ] || { echo "$open"; return 1; }
}
# rules_of NAMESPACE/POD: rules that somebody has put into the pod's network, of nftables and of routing. What cannot be read is not nothing.
rules_of() {
  local tables routes
  tables=$(in_pod "$1" nft list ruleset) && routes=$(in_pod "$1" ip rule) && found '32766:' <<<"$routes" || { echo "the rules of pod $1 cannot be read"; return 1; }
  { printf '%s\n' "$tables"; grep -vE '^(0|32766|32767):' <<<"$routes"; } | grep . || true
}
# no_rules NAMESPACE/POD: there are none, and they can be read.
no_rules() { local r; r=$(rules_of "$1"); [ -z "$r" ] || { echo "$r"; return 1; }; }
# in_netns PATH COMMAND...: the same by the path alone, which needs no API server.
in_netns() { nsenter --net="$1" -- "${@:2}"; }
# get NAMESPACE/POD URL: what a client inside the pod gets, by the pod's own resolver.
get() { k -n "${1%/*}" exec "${1#*/}" -- wget -qO- "$2"; }
# code NAMESPACE/POD URL CURL-OPTIONS...: the status that a client in the pod's network gets; 000 is no answer.
code() { in_pod "$1" curl -s -o /dev/null -w '%{http_code}' --max-time 30 "${@:3}" "$2"; }
service_ip() { k -n "$1" get service "$2" -o jsonpath='{.spec.clusterIP}'; }

# echo_in NAMESPACE LABEL...: a namespace with the echo servers and clients of manifests/echo.yaml, ready.
echo_in() {
  local ns=$1; shift
  k create namespace "$ns" --dry-run=client -o yaml | k apply -f - &&
    { [ $# = 0 ] || k label namespace "$ns" "$@" --overwrite; } &&
    k -n "$ns" apply -f "$KUBE/manifests/echo.yaml" &&
    k -n "$ns" rollout status deployment/echo --timeout=120s &&
    k -n "$ns" wait --for=condition=Ready pod/client1 pod/client2 --timeout=120s
}

# inventory: what an installation might leave behind in the cluster and on its nodes.
inventory() {
  local n
  k get customresourcedefinitions,clusterroles,clusterrolebindings,validatingadmissionpolicies,validatingadmissionpolicybindings,validatingwebhookconfigurations,mutatingwebhookconfigurations,priorityclasses,apiservices -o name
  k get namespaces -o name | grep -E '/(default|kube-.*|lateen-.*|istio-.*)$'
  for n in default kube-system; do k -n $n get configmaps,secrets,roles,rolebindings -o name | sed "s|^|$n |"; done
  for n in node1 node2; do
    (cd "$(node_files $n)" && sha256sum etc/cni/net.d/* && find opt/cni/bin var/lib -maxdepth 1) | sed "s|^|$n |"
    on_node $n sh -c 'ls -A /run/lateen 2>/dev/null; nft list tables; ip rule; ip -br link show type dummy' | sed "s|^|$n |"
    k get node $n -o json | jq -r '.metadata | .labels, .annotations | keys[] | select(test("lateen|istio"))' | sed "s|^|$n |"
  done
}

# load_images ARCHIVE...: into the container runtime of both nodes.
load_images() {
  local archive node
  for archive in "$@"; do
    for node in node1 node2; do
      on_node "$node" ctr -n k8s.io images import - <"$archive" >/dev/null || { echo "$archive cannot be imported on $node"; return 1; }
    done
  done
}

# load NAMESPACE/POD LATEEN-LOAD-ARGUMENTS...: a run of the load generator in the pod's network (addresses, no names).
load() { local pod=$1; shift; in_pod "$pod" "$ROOT/bin/lateen-load" run "$@"; }
# load_begin NAME NAMESPACE/POD LATEEN-LOAD-ARGUMENTS...: load until load_end, which checks that it asked and that nothing failed.
declare -A LOADS=()
load_begin() {
  local name=$1 ns
  ns=$(pod_netns "${2%/*}" "${2#*/}") || { not_ok "load $name: no network of $2"; return 1; }
  # Straight from this shell, so that the job is the generator itself.
  nsenter --net="$ns" -- "$ROOT/bin/lateen-load" run --warmup 0s --duration 3600s --timeout 30s --json - "${@:3}" >"$WORK/$name.json" 2>"$WORK/$name.err" &
  LOADS[$name]=$!
}
load_end() {
  kill -TERM "${LOADS[$1]}" 2>/dev/null
  wait "${LOADS[$1]}"
  unset "LOADS[$1]"
  local answered lost # not "failed", which not_ok counts in
  read -r answered lost <<<"$(jq -r '.counts | "\(.ok) \(.failed)"' "$WORK/$1.json")"
  if [ "${answered:-0}" -gt 0 ] && [ "$lost" = 0 ]; then ok "load $1: none of $answered requests failed"
  else
    not_ok "load $1: ${answered:-no} answers, ${lost:-?} failed"
    { jq -c .errors "$WORK/$1.json"; tail -5 "$WORK/$1.err"; } | sed 's/^/    /'
  fi
}

# A watch on the wire: everything that crosses the fabric, from the first line of watch_wire to unwatch_wire.
watch_wire() {
  # Not by in_fabric: the job would be a shell, and tcpdump would outlive its end.
  nsenter -t "$(pid_of "$RUN/init.pid")" -n -- tcpdump -i br0 -B 65536 -s 0 -U -w "$WORK/wire.pcap" "$@" 2>"$WORK/tcpdump.log" &
  WATCH=$!
  eventually 60 grep -q 'listening on' "$WORK/tcpdump.log" >/dev/null || not_ok "tcpdump listens on the fabric: $(cat "$WORK/tcpdump.log")"
}
unwatch_wire() {
  # It ends when it has written all that the kernel has taken for it up to now, and says so if that had no room for some.
  local before lost
  read -r _ before _ <<<"$(wire_counts)"
  caught() { local n; read -r n _ <<<"$(wire_counts)"; [ "$n" -ge "$before" ]; }
  eventually 60 caught >/dev/null || not_ok "tcpdump writes what was taken: $(tail -1 "$WORK/tcpdump.log")"
  read -r _ _ lost <<<"$(wire_counts)"
  [ "$lost" = 0 ] || not_ok "the watch on the wire has seen everything: $lost packets were lost"
  kill "$WATCH" 2>/dev/null
  wait "$WATCH" 2>/dev/null
  WATCH=
}
# wire_counts: packets that tcpdump has dealt with (written, or lost to a full buffer), those that passed its filter, those lost.
wire_counts() {
  local before
  before=$(wc -l <"$WORK/tcpdump.log")
  kill -USR1 "$WATCH"
  told() { [ "$(wc -l <"$WORK/tcpdump.log")" -gt "$before" ]; }
  eventually 60 told >/dev/null
  tail -1 "$WORK/tcpdump.log" | sed -nE 's/.* ([0-9]+) packets? captured, ([0-9]+) packets? received by filter, ([0-9]+) packets? dropped.*/\1 \2 \3/p' |
    awk '{print $1 + $3, $2, $3}'
}
# on_wire FILTER...: how many of the watched packets match tcpdump's expression.
on_wire() { tcpdump -r "$WORK/wire.pcap" -nn "$@" 2>/dev/null | wc -l || echo "tcpdump cannot read what was watched"; }
# in_clear TEXT: how many of the watched packets show it.
in_clear() { grep -c -a -F -- "$1" "$WORK/wire.pcap"; }
# seen_in_clear TEXT: a packet has shown it; the watch may go on.
seen_in_clear() { [ "$(in_clear "$1")" -gt 0 ]; }

cleanup() { [ -z "${WATCH:-}" ] || kill "$WATCH" 2>/dev/null; [ ${#LOADS[@]} = 0 ] || kill "${LOADS[@]}" 2>/dev/null; rm -rf "$WORK"; }
trap cleanup EXIT
trap 'exit 130' INT TERM

finish() {
  echo "$passed passed, $failed failed, $skipped skipped"
  [ "$failed" = 0 ] || exit 1
  exit 0
}
