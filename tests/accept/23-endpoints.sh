#!/usr/bin/env bash
# What a service's endpoints do to the connections to it: one that refuses or answers nothing costs no request, is left
# out for a while and comes back; halves that leak are ended by name; a policy in dry run is told of and not enforced.
# needs: nft python3 ss
source "$(dirname "$0")/lib.sh"

check "up, with short time-outs" lateen up --nodes 2 --proxy-env LATEEN_IDLE_TIMEOUT=6s --proxy-env LATEEN_HALF_CLOSE_TIMEOUT=2s
check "apply echo and client" lateen apply -f "$ROOT/samples/echo/echo.yaml"
# Its pod is ready all the time; whether an application listens there, a file decides.
check "an endpoint of the same service whose application is down" lateen apply -f - <<'Y'
apiVersion: apps/v1
kind: Deployment
metadata: {name: flaky, namespace: default}
spec:
  selector: {matchLabels: {app: echo, which: flaky}}
  template:
    metadata: {labels: {app: echo, which: flaky}}
    spec:
      serviceAccountName: echo
      terminationGracePeriodSeconds: 1
      nodeSelector: {kubernetes.io/hostname: n2}
      containers:
        - name: main
          image: lateen/load:1
          command: [sh, -c, "until [ -e /tmp/listen ]; do sleep 0.2; done; exec lateen-load serve --listen 0.0.0.0:8080"]
Y
# Servers of a few lines: one that never says anything, one that never closes its half.
check "a server that keeps its half open" lateen apply -f - <<'Y'
apiVersion: v1
kind: Service
metadata: {name: mute}
spec: {selector: {app: mute}, ports: [{name: tcp, port: 7000}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: mute}
spec:
  selector: {matchLabels: {app: mute}}
  template:
    metadata: {labels: {app: mute}}
    spec:
      serviceAccountName: echo
      terminationGracePeriodSeconds: 1
      nodeSelector: {kubernetes.io/hostname: n2}
      containers:
        - name: main
          image: none
          command:
            - python3
            - -c
            - |
              import socket
              held = []
              server = socket.create_server(("0.0.0.0", 7000))
              while True:
                  held.append(server.accept())
Y
check "enrol" lateen label ns default istio.io/dataplane-mode=ambient
check "ready, captured" lateen wait deployment/echo deployment/client deployment/flaky deployment/mute
check "known to every proxy" lateen wait

retries() { proxy_metrics n1 | sed -n 's/^lateen_connect_retries_total //p'; }
ejected() { proxy_metrics n1 | sed -n 's/^lateen_endpoints_ejected //p'; }
is_ejected() { [ "$(ejected)" = "$1" ]; }
load() { # SECONDS ARGUMENT...: failed, unsent, unanswered
  local seconds=$1; shift
  lateen exec deploy/client -- lateen-load run --url "http://echo:8080/?size=9" --no-keepalive --warmup 0s --timeout 15s --duration "$seconds" --json - "$@" 2>/dev/null |
    jq -r '"\(.counts.failed) \(.counts.unsent) \(.counts.unanswered) \(.counts.ok > 20)"'
}
flaky=$(pod_of flaky)

equal "with an endpoint whose application refuses, no request fails" "0 0 0 true" "$(load 1s --qps 50 --connections 4)"
retried=$(retries)
# It is left out for ten seconds, and longer each time that it goes on failing. A round counts if it ended within the time that was left
# when it began.
left() { jq --arg flaky "$flaky" '[.ejectedEndpoints[]? | select(.workload | contains($flaky)) | .secondsLeft] | max // 0' "$WORK/dump"; }
counts=
for round in 1 2 3; do
  [ $round = 1 ] || load 1s --qps 50 --connections 4 >/dev/null
  began=$(date +%s%N)
  proxy_page n1 /config_dump -f >"$WORK/dump"
  out=$(ejected) tried=$(retries)
  meanwhile=$(load 1s --qps 50 --connections 4)
  now=$(retries) took=$((($(date +%s%N) - began) / 1000000))
  awk -v left="$(left)" -v took="$took" 'BEGIN {exit !(left * 1000 > took)}' && { counts=yes; break; }
done
[ -n "$counts" ] || not_ok "no round ended while it was left out"
again=$(left)
# It was left out up to three times by now, each time for longer.
check "for tens of seconds at most: $again" awk -v left="$again" 'BEGIN {exit !(left > 0 && left <= 40)}'
check "another endpoint was tried in its place ($retried times)" [ "$retried" -gt 0 ]
check "it was left out after three failures, not many" [ "$retried" -lt 10 ]
equal "the metric says that it is left out" 1 "$out"
check "the log names it" eventually 15 bash -c "grep 'left out: connections keep failing' '$RUN/nodes/n1/proxy.log' | grep 'seconds=10' | grep -q '$flaky'"
dumped() { jq -e --arg flaky "$flaky" '.ejectedEndpoints[] | select(.workload | contains($flaky)) | .port == 8080' "$WORK/dump"; }
check "the dump names it" dumped
equal "while it is left out" "0 0 0 true" "$meanwhile"
equal "nobody tries it" "$tried" "$now"

check "its application comes up" lateen exec "$flaky" -- touch /tmp/listen
listening() { [ -n "$(in_netns "$(pod_uid flaky)" ss -Htln 'sport = :8080')" ]; }
eventually 30 listening >/dev/null || not_ok "its application does not listen"
# Meanwhile, what stands still. A client that ends its half and reads, and one that says nothing.
lateen exec deploy/client -- python3 -c '
import socket, time
start = time.monotonic()
half, idle = (socket.create_connection(("mute", 7000)) for _ in range(2))
half.shutdown(socket.SHUT_WR)
for name, one in ("half-closed", half), ("idle", idle):
    one.settimeout(20)
    try:
        one.recv(1)
        print(name, "ended")
    except ConnectionResetError:
        print(name, "reset")
    print(name, "early" if time.monotonic() - start < {"half-closed": 1.5, "idle": 4.5}[name] else "in time")
' >"$WORK/halves" 2>&1
equal "a half-closed and an idle connection are ended, each by its own time-out" "half-closed reset half-closed in time idle reset idle in time" "$(tr '\n' ' ' <"$WORK/halves" | sed 's/ $//')"
# Either node's proxy may be first.
named() { cat "$RUN"/nodes/*/proxy.log | grep 'error=' | grep 'dst.service="mute' | found "$1"; }
check "the log names the setting that ended the half" eventually 30 named LATEEN_HALF_CLOSE_TIMEOUT
check "and the one that ended the idle one" eventually 30 named LATEEN_IDLE_TIMEOUT
left_sockets() { [ "$(nsenter --net="/proc/$(engine_pid)/root$RUN/netns/$(lateen get pods -o json | jq -r '.items[] | select(.metadata.name | startswith("client")) | .metadata.uid')" -- ss -Htan state close-wait state fin-wait-2 | wc -l)" = 0 ]; }
check "no half is left in the client's pod" eventually 30 left_sockets

check "what is left out is tried again when its time is over" eventually $((${again%.*} + 5)) is_ejected 0
equal "and serves" "0 0 0 true" "$(load 1s --qps 100 --connections 4)"
served() { grep 'direction="outbound"' "$RUN/nodes/n1/proxy.log" | grep "dst.workload=\"$flaky\"" | found -v 'error='; }
check "as the access log shows" eventually 30 served
equal "nothing more was retried" "$tried" "$(retries)"

# Packets to one endpoint's tunnel port disappear: what is there is ended by the kernel or not at all, what is new hangs.
nsenter --net="/proc/$(engine_pid)/root$RUN/netns/$(lateen get pods -o json | jq -r --arg p "$flaky" '.items[] | select(.metadata.name == $p) | .metadata.uid')" -- \
  nft -f - <<'N'
table inet hole { chain in { type filter hook input priority -500; tcp dport 15008 drop; }; }
N
check "a new client" lateen apply -f - <<'Y'
apiVersion: v1
kind: ServiceAccount
metadata: {name: late}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: late}
spec:
  selector: {matchLabels: {app: late}}
  template:
    metadata: {labels: {app: late}}
    spec:
      serviceAccountName: late
      terminationGracePeriodSeconds: 1
      nodeSelector: {kubernetes.io/hostname: n1}
      containers: [{name: main, image: none, command: [sleep, infinity]}]
Y
check "is there" lateen wait deployment/late
check "is known" lateen wait
check "a policy in dry run that would deny it" lateen apply -f - <<'Y'
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: rehearsed, namespace: default, annotations: {istio.io/dry-run: "true"}}
spec:
  selector: {matchLabels: {app: echo}}
  action: DENY
  rules: [{from: [{source: {principals: ["cluster.local/ns/default/sa/late"]}}]}]
Y
check "is known" lateen wait authorizationpolicy/rehearsed
lateen exec deploy/late -- lateen-load run --url "http://echo:8080/?size=9" --no-keepalive --warmup 0s --timeout 20s --duration 12s --qps 5 --connections 60 --json - 2>/dev/null |
  jq -r '"\(.counts.failed) \(.counts.unsent) \(.counts.unanswered) \(.counts.ok > 20)"' >"$WORK/silent" & SILENT=$!
# It is in use again ten seconds after it was left out: that is to be seen while the load goes on.
out=0; eventually 40 is_ejected 1 >/dev/null && out=1
wait $SILENT
equal "with an endpoint that answers nothing, no request fails" "0 0 0 true" "$(cat "$WORK/silent")"
equal "it is left out" 1 "$out"

rehearsed() { proxy_metrics n2 | awk '/^lateen_policy_dry_run_total\{/ && /rehearsed/ && /deny/ {n += $NF} END {exit !(n > 0)}'; }
check "the metric tells of the policy in dry run" eventually 30 rehearsed
check "and so does the access log" eventually 15 bash -c "grep 'direction=\"inbound\"' '$RUN/nodes/n2/proxy.log' | grep 'sa/late' | grep -q 'policy.dry_run=\"deny by default/rehearsed\"'"
check_not "it denied nobody" grep -q 'policy rejection' "$RUN/nodes/n1/proxy.log" "$RUN/nodes/n2/proxy.log"
finish
