# What the scripts of this folder share, on top of what acceptance scripts share: a mesh in which each of the two node
# proxies is there as a client and as a server, so that every check can be made for all four pairs of them.
# ZTUNNEL names an unmodified ztunnel, which you build from its own sources. Source this file. shellcheck shell=bash
ZTUNNEL=${ZTUNNEL:-}
MESH=${MESH:-int-$(basename "$0" .sh)-$$}
if [ ! -x "$ZTUNNEL" ]; then
  echo "not ok - set ZTUNNEL to the path of an unmodified ztunnel binary: make interop ZTUNNEL=/path/to/ztunnel"
  echo "0 passed, 1 failed, 0 skipped"
  exit 1
fi
source "$(dirname "${BASH_SOURCE[0]}")/../accept/lib.sh"
SCRIPT=$(basename "$0" .sh)
source "$(dirname "${BASH_SOURCE[0]}")/release.sh"
OURS=$ROOT/bin/lateen-proxy
# In names and variables "ours" is lateen-proxy and "ztunnel" the ztunnel. Clients and servers have a node each.
PAIRS=("ours ours" "ours ztunnel" "ztunnel ours" "ztunnel ztunnel")

# with FILE VARIABLE=VALUE... -- COMMAND...: a program that runs another with more in its environment.
with() {
  local file=$WORK/$1; shift
  { echo "#!/bin/sh"; while [ "$1" != -- ]; do printf 'export %q\n' "$1"; shift; done; shift; printf 'exec %s "$@"\n' "$*"; } >"$file"
  chmod +x "$file"
  echo "$file"
}

# mixed FLAGS...: n1 and n2 run lateen-proxy, n3 and n4 ztunnel; client-* on n1 and n3, server-* on n2 and n4. All clients
# have one identity, and so have all servers; stranger-* are in another namespace.
declare -A NODE=([client-ours]=n1 [server-ours]=n2 [client-ztunnel]=n3 [server-ztunnel]=n4 [stranger-ours]=n1 [stranger-ztunnel]=n3)
mixed() { lateen up --nodes 4 --node-proxy "n3=$ZTUNNEL" --node-proxy "n4=$ZTUNNEL" "$@"; }

account() { printf -- '---\napiVersion: v1\nkind: ServiceAccount\nmetadata: {name: %s, namespace: %s}\n' "$1" "$2"; }
# deployment NAME NAMESPACE ACCOUNT NODE LABELS COMMAND-JSON [ANNOTATIONS]
deployment() {
  cat <<Y
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: $1, namespace: $2}
spec:
  replicas: 1
  selector: {matchLabels: {app: $1}}
  template:
    metadata: {labels: {app: $1${5:+, $5}}, annotations: {${7:-}}}
    spec:
      serviceAccountName: $3
      terminationGracePeriodSeconds: 1
      nodeSelector: {kubernetes.io/hostname: $4}
      containers: [{name: main, image: lateen/load:1, command: $6}]
Y
}
service() { # NAME [MORE-OF-SPEC]
  printf -- '---\napiVersion: v1\nkind: Service\nmetadata: {name: %s, namespace: default}\nspec: {selector: {app: %s}, ports: [{name: http, port: 8080}, {name: other, port: 8081}]%s}\n' "$1" "$1" "${2:+, $2}"
}
people() { # the pods of a mixed mesh; $1 is where servers listen
  local any=${1:-0.0.0.0} side
  printf 'apiVersion: v1\nkind: Namespace\nmetadata: {name: foreign, labels: {istio.io/dataplane-mode: ambient}}\n'
  account client default; account server default; account stranger foreign
  for side in ours ztunnel; do
    deployment "client-$side" default client "${NODE[client-$side]}" "kind: client" '[sleep, infinity]' "${ANNOTATIONS:-}"
    deployment "stranger-$side" foreign stranger "${NODE[stranger-$side]}" "kind: stranger" '[sleep, infinity]' "${ANNOTATIONS:-}"
    deployment "server-$side" default server "${NODE[server-$side]}" "kind: server" \
      "[sh, -c, 'lateen-load serve --listen $any:8081 & exec lateen-load serve --listen $any:8080']"
    service "server-$side" "${2:-}"
  done
}
# begin: the mixed mesh, its pods enrolled and known to every proxy.
begin() { # FLAGS...
  check "up: lateen-proxy on two nodes, ztunnel on two" mixed "$@"
  check "clients and servers behind each" lateen apply -f - < <(people)
  check "enrol" lateen label ns default istio.io/dataplane-mode=ambient
  check "captured and known to every proxy" lateen wait
  check "servers answer" eventually 20 answering
}
answering() { local c s; for c in ours ztunnel; do for s in ours ztunnel; do [ "$(call "client-$c" "http://server-$s:8080/")" = 200 ] || return 1; done; done; }

pod_json() { lateen get pods -A -o json | jq -c --arg p "$1" '[.items[] | select(.metadata.name | startswith($p))][0]'; }
ip_of() { pod_json "$1" | jq -r .status.podIP; }
netns_of() { echo "/proc/$(engine_pid)/root$RUN/netns/$(pod_json "$1" | jq -r .metadata.uid)"; }
declare -A NETNS=()
# in_pod POD-PREFIX COMMAND...: a program of the machine in the pod's network.
in_pod() { local p=$1; shift; nsenter --net="${NETNS[$p]:=$(netns_of "$p")}" -- "$@"; }
remember() { local p; for p in "$@"; do NETNS[$p]=$(netns_of "$p"); done; } # before subshells look them up one by one
# call POD-PREFIX URL [CURL-FLAGS...]: the status, asked with the pod's own resolver.
call() { local p=$1 url=$2; shift 2; lateen exec -n "$(namespace_of "$p")" "deploy/$p" -- curl -sS --max-time 5 "$@" "$url" -o /dev/null -w '%{http_code}' 2>/dev/null; }
namespace_of() { case $1 in stranger-*) echo foreign ;; *) echo default ;; esac; }
# line NODE FIELD=VALUE...: the last access line of a node's proxy that has all of these texts.
line() {
  local node=$1 text; shift
  local out; out=$(proxy_log "$node" | grep -E 'connection (complete|failed|closed)')
  for text in "$@"; do out=$(grep -F -- "$text" <<<"$out"); done
  [ -n "$out" ] && tail -1 <<<"$out"
}
# end_behind PID...: ends what functions of this library started in the background: a shell, and the program that is its child. One
# left over outlives the mesh, and where it has the runner's pipe the runner waits for it for ever.
end_behind() { local p; for p in "$@"; do pkill -P "$p"; kill "$p" 2>/dev/null; done; }
