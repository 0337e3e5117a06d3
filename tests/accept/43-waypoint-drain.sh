#!/usr/bin/env bash
# A waypoint under load is bound, rolled out, scaled, killed, exchanged for another one, left without a pod while the control plane restarts, deleted and
# unbound. No request of a friend fails but those that were under way on a proxy that was killed. None of a stranger gets past the policy.
# bites: let `decide` in internal/compile/ties.go name the asked waypoint at once: requests fail while the waypoint starts. Let it name nothing when the
# Gateway is gone: strangers get through.
# after: it puts a load on the machine.
# needs: tcpdump
source "$(dirname "$0")/lib.sh"

check "up" lateen up --nodes 2
with_echo "$ROOT/samples/echo/echo.yaml"
CLIENT=$(pod_uid client-)
VIP=$(lateen get svc echo -o json | jq -r .spec.clusterIP)
LOADS=() RECORDER=
trap 'kill "${LOADS[@]}" $RECORDER 2>/dev/null; cleanup' EXIT
# load NAME: requests that the policy allows, and others that it denies, until `unload`. A connection lasts some requests, so that both new ones and old ones are met.
load() {
  local who
  for who in friend stranger; do
    # `exec`, so that the interrupt reaches the program, which ignores it otherwise as all that a shell has in the background.
    (exec nsenter --net="/proc/$(engine_pid)/root$RUN/netns/$CLIENT" -- env --default-signal=INT "$ROOT/bin/lateen-load" run --url "http://$VIP:8080/?size=64" -H "x-who: $who" \
      --qps 100 -c 6 --requests-per-connection 20:200 --timeout 20s -d 120s --warmup 0s --initial-errors --json "$WORK/$1.$who" >/dev/null 2>&1) & LOADS+=($!)
  done
  sleep 1
}
unload() { sleep 2; kill -INT "${LOADS[@]}"; wait "${LOADS[@]}"; LOADS=(); }
# answered NAME WHO: how many requests got through.
answered() { jq .counts.ok "$WORK/$1.$2"; }
# friends NAME [MOST]: all were answered with 200, but so many at most, and there were many. Names begin alike whatever the numbers are.
friends() {
  local f=$WORK/$1.friend most=${2:-0} lost got; lost=$(jq .counts.failed "$f") got=$(answered "$1" friend)
  check "$1: at most $most requests of friends failed ($lost did: $(jq -c '[.codes, .errors]' "$f"))" [ "$lost" -le "$most" ]
  check "$1: friends were answered ($got times)" [ "$got" -gt 50 ]
}
strangers() { # NAME
  equal "$1: none of $(jq .counts.intended "$WORK/$1.stranger") requests of strangers got through" 0 "$(answered "$1" stranger)"
}
code() { lateen exec deploy/client -- curl -s -o /dev/null -w '%{http_code}' --max-time 5 -H "x-who: $1" "http://$VIP:8080/"; }
is() { [ "$(code "$1")" = "$2" ]; }
bound() { lateen get svc echo -o json | jq -e --arg w "$1" '.status.conditions[]? | select(.type == "WaypointBound") | .status + " " + .message | startswith($w)' | found true; }
pids_of() { # POD-PREFIX: the processes in the network of a pod
  local ns; ns=$(stat -L -c %i "/proc/$(engine_pid)/root$RUN/netns/$(pod_uid "$1")") || return
  local p; for p in /proc/[0-9]*; do [ "$(stat -L -c %i "$p/ns/net" 2>/dev/null)" != "$ns" ] || echo "${p#/proc/}"; done
}
control_pid() { lateen status -o json | jq -r '.control.pid // 0 | select(. > 1)'; }

# Bound under load: what went direct goes through the waypoint, and nothing fails.
check "a policy for friends" lateen apply -f - <<'Y'
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: friends}
spec:
  targetRefs: [{group: "", kind: Service, name: echo}]
  rules: [{when: [{key: "request.headers[x-who]", values: [friend]}]}]
Y
load bind
check "the label comes before the waypoint" lateen label svc echo istio.io/use-waypoint=way
check "the service says that it goes direct" eventually 10 bound "False waypoint default/way is not there"
check "a waypoint" lateen waypoint apply --name way --for service
check "of two replicas" lateen scale deployment/way --replicas 2
check "they run" lateen wait deployment/way
check "it is bound" eventually 30 bound "True connections go through waypoint default/way"
check "strangers are refused" eventually 10 is stranger 403
unload
friends bind

# The backend's side: what reaches it, whether or not an answer comes back. nsenter becomes the program, so that the recorded pid is its own.
nsenter --net="/proc/$(engine_pid)/root$RUN/netns/$(pod_uid echo-)" -- tcpdump -B 32768 -s 2048 --immediate-mode -i any -U -w "$WORK/backend.pcap" tcp dst port 8080 2>"$WORK/backend.log" & RECORDER=$!
check "what reaches the backend is recorded" eventually 30 grep -q 'listening on' "$WORK/backend.log"
recorded() { tcpdump -r "$WORK/backend.pcap" -A 2>/dev/null | grep -ci "^x-who: $1"; } # WHO: the heads of requests

load rollout
check "rollout: the pods are replaced" lateen rollout restart deployment/way
check "rollout: to the end" lateen rollout status deployment/way
unload
friends rollout
strangers rollout

load scale
for n in 3 1 2; do
  check "scale: to $n" lateen scale deployment/way --replicas $n
  check "scale: $n run" lateen wait deployment/way
  sleep 1
done
unload
friends scale
strangers scale

# The requests that are under way on a proxy that is killed fail; each of six connections has one.
load kill
pids=$(pids_of way-)
check "kill: the processes of a replica" [ -n "$pids" ]
kill -KILL $pids
sleep 3
check "kill: both run again" lateen wait deployment/way
unload
friends kill 6
strangers kill
load healed
unload
friends healed
strangers healed

load rebind
check "rebind: another waypoint" lateen waypoint apply --name next --for service
check "rebind: the label asks for it before it runs" lateen label svc echo istio.io/use-waypoint=next --overwrite
check "rebind: it is bound" eventually 60 bound "True connections go through waypoint default/next"
sleep 3
unload
friends rebind
strangers rebind
through_next() { code friend >/dev/null; lateen logs deployment/next | found 'echo.default'; }
check "rebind: requests pass the other one" eventually 10 through_next

# Without a pod nobody gets through, also when the control plane begins anew meanwhile.
check "zero: no replica" lateen scale deployment/next --replicas 0
check "zero: friends get no answer once everybody has heard" eventually 20 is friend 000
load zero
old=$(control_pid)
kill -KILL "$old"
another() { local now; now=$(control_pid); [ -n "$now" ] && [ "$now" != "$old" ]; }
check "zero: the control plane begins anew" eventually 20 another
check "zero: everybody has its configuration" eventually 60 lateen wait
unload
equal "zero: no friend got through" 0 "$(answered zero friend)"
strangers zero
check "zero: one replica" lateen scale deployment/next --replicas 1
check "zero: friends get through again" eventually 30 is friend 200
equal "zero: strangers do not" 403 "$(code stranger)"

load only
pids=$(pids_of next-)
check "only: the processes of the replica" [ -n "$pids" ]
kill -KILL $pids
check "only: friends get through again" eventually 30 is friend 200
unload
strangers only

load gone
check "gone: the Gateway is deleted" lateen delete gateway next
check "gone: everybody knows" eventually 30 lateen wait
check "gone: the service says so" eventually 30 bound "False waypoint default/next is not there"
sleep 2
unload
strangers gone
load closed
unload
equal "gone: no friend got through" 0 "$(answered closed friend)"
strangers closed

kill -INT $RECORDER && wait $RECORDER
RECORDER=
check "recorded: requests of friends reached the backend" [ "$(recorded friend)" -gt 1000 ]
equal "recorded: none of a stranger did" 0 "$(recorded stranger)"

check "unbound: by its owner" lateen label svc echo istio.io/use-waypoint=none --overwrite
check "unbound: friends get through" eventually 20 is friend 200
check "unbound: and strangers" is stranger 200
finish
