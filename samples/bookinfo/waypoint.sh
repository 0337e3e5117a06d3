#!/usr/bin/env bash
# Bookinfo behind a waypoint: policies about methods, paths and accounts, and what the waypoint's access log says of each request.
#
#   samples/bookinfo/waypoint.sh              on the local engine, in a mesh of its own (needs root and `make build`)
#   samples/bookinfo/waypoint.sh kubernetes   on the cluster that kubectl speaks to, in a namespace of its own
#
# All of it is removed at the end, unless KEEP=1. BOOKINFO_NAME is the name of the mesh or the namespace (bookinfo-waypoint), and KUBECTL
# is the kubectl to use.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
engine=${1:-local} name=${BOOKINFO_NAME:-bookinfo-waypoint}
fail() { printf 'error: %s\n  fix: %s\n' "$1" "$2" >&2; exit 1; }
step() { printf '%s\n' "$*"; }
work=$(mktemp -d)
ours= # set once the mesh or the namespace is this run's own
finish() {
  rm -rf "$work"
  if [ -n "$ours" ] && [ "${KEEP:-}" = 1 ]; then step "kept: to remove it, $remove"
  elif [ -n "$ours" ]; then step "remove everything" && $remove >/dev/null 2>&1 || fail "it could not be removed" "$remove"; fi
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# The two engines take the same verbs: run VERB ARGUMENTS... is one of them in Bookinfo's namespace.
case $engine in
local)
  ctl=${LATEEN:-$here/../../bin/lateen} namespace=default manifest=$here/bookinfo.yaml bound=WaypointBound
  [ "$(id -u)" = 0 ] || fail "the local engine needs root" "run it with sudo"
  [ -x "$ctl" ] || fail "$ctl is missing" "run make build"
  for program in ruby node java python3; do
    command -v "$program" >/dev/null || fail "Bookinfo needs $program" "apt-get install ruby ruby-webrick nodejs openjdk-17-jdk-headless python3"
  done
  export LATEEN_ENGINE=local LATEEN_NAME=$name
  remove="$ctl down --name $name"
  step "start the mesh $name"
  "$ctl" up --nodes 2 >"$work/out" 2>&1 || { cat "$work/out" >&2; fail "the mesh $name did not start" "$ctl down --name $name, if one of the name runs"; }
  ours=1
  pods_ready() { run wait "deployment/$1"; }
  ;;
kubernetes)
  ctl=${KUBECTL:-kubectl} namespace=$name manifest=$here/kubernetes/bookinfo.yaml bound=istio.io/WaypointBound
  remove="$ctl delete namespace $name"
  step "make the namespace $name"
  "$ctl" create namespace "$name" >"$work/out" 2>&1 || { cat "$work/out" >&2; fail "the namespace $name could not be made" "$remove, or name another one with BOOKINFO_NAME"; }
  ours=1
  pods_ready() { "$ctl" -n "$namespace" rollout status "deployment/$1" --timeout=300s; }
  ;;
*) fail "engine $engine is neither local nor kubernetes" "samples/bookinfo/waypoint.sh [local|kubernetes]" ;;
esac
run() { local verb=$1; shift; "$ctl" "$verb" -n "$namespace" "$@"; }
# quietly COMMAND...: its output is shown where it fails.
quietly() { "$@" >"$work/out" 2>&1 || { cat "$work/out" >&2; fail "failed: $*" "see the lines above; KEEP=1 leaves everything for a look"; }; }
# until_true SECONDS COMMAND...
until_true() {
  local end=$((SECONDS + $1)); shift
  until "$@"; do [ $SECONDS -lt $end ] || return 1; sleep 0.5; done
}

step "apply Bookinfo"
quietly "$ctl" label namespace "$namespace" istio.io/dataplane-mode=ambient
quietly run apply -f "$manifest"
for deployment in details-v1 ratings-v1 reviews-v1 reviews-v2 reviews-v3 productpage-v1; do quietly pods_ready $deployment; done

step "apply the waypoint, and have all services of the namespace use it"
quietly run apply -f "$here/waypoint/gateway.yaml"
quietly "$ctl" label namespace "$namespace" istio.io/use-waypoint=waypoint
is_bound() { [ "$(run get service "$1" -o "jsonpath={.status.conditions[?(@.type==\"$bound\")].status}" 2>/dev/null)" = True ]; }
for service in reviews details; do
  until_true 180 is_bound $service || fail "service $service is not behind the waypoint" "look at the conditions of the Service and of the Gateway"
done

step "apply the policies"
sed "s|/ns/default/|/ns/$namespace/|" "$here/waypoint/policy.yaml" >"$work/policy.yaml"
quietly run apply -f "$work/policy.yaml"

# ask CLIENT METHOD SERVICE PATH: the status that a pod of Bookinfo gets. The page has Python, ratings have Node.js, and no pod needs curl.
# Answers are read to their end: the log tells of a client that leaves before.
ask() {
  case $1 in
  productpage) run exec deploy/productpage-v1 -- python3 -c '
import http.client, sys
c = http.client.HTTPConnection(sys.argv[2], 9080, timeout=10)
c.request(sys.argv[1], sys.argv[3])
answer = c.getresponse()
answer.read()
print(answer.status)' "$2" "$3" "$4" ;;
  ratings) run exec deploy/ratings-v1 -- node -e '
const [method, host, path] = process.argv.slice(1)
require("http").request({method, host, path, port: 9080, agent: false}, r => { console.log(r.statusCode); r.resume() }).end()' "$2" "$3" "$4" ;;
  esac
}
# One line of the access log is of one request: each has a number in its query, which no policy looks at.
number=0
# outcome CLIENT METHOD SERVICE PATH STATUS WORDS: the client gets this status, and the log's line of the request has these words. Policies are
# in force a moment after they are applied, so that the request is repeated for some seconds.
outcome() {
  local path line= got=
  meets() {
    number=$((number + 1)) path="$4?request=$$-$number"
    got=$(ask "$1" "$2" "$3" "$path" 2>"$work/err" | tr -d '\r') || true
    logged() { line=$(run logs deploy/waypoint 2>/dev/null | grep -F "request=$$-$number" | grep "method=\"$2\"" | tail -1); [ -n "$line" ]; }
    [ "$got" = "$5" ] && until_true 10 logged "$@" && [[ $line == *"$6"* ]]
  }
  until_true 60 meets "$@" || fail "$1, $2 of $3$4: status ${got:-none}, want $5 with $6; its line of the log: ${line:-none}; $(tail -1 "$work/err")" "look at the conditions of the policies"
  printf '  %-12s %-7s %-19s %s  %s\n' "$1" "$2" "$3$4" "$got" "$(grep -oE '(^|[[:space:]])policy=[^[:space:]]+|error="[^"]*"' <<<"$line" | tr -d '\t' | paste -sd' ' | sed 's/^ *//')"
}
step "  account      method  request             status, and the policy and the error of the waypoint's access log"
outcome productpage GET reviews /reviews/0 200 'status=200'
outcome productpage GET details /details/0 200 'status=200'
outcome productpage DELETE reviews /reviews/0 403 "policy=$namespace/nobody-deletes"
outcome productpage DELETE details /details/0 403 "policy=$namespace/nobody-deletes"
outcome ratings GET reviews /reviews/0 403 "policy=$namespace/only-productpage"
outcome ratings GET details /details/0 403 "policy=$namespace/only-productpage"
outcome productpage GET reviews /health 403 'none allowed'
