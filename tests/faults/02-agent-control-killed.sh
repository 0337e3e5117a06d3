#!/usr/bin/env bash
# Agents and the control plane are killed and stay away: established and new connections go on; both come back and
# reconcile by themselves: a policy, a label and a pod that changed meanwhile take effect.
# bites: without its limit in statusReader.read (internal/engine/local/statusreader.go) every look at the mesh hangs with the
# control plane, and so does the script. Seen red so.
source "$(dirname "$0")/lib.sh"
mesh
check "a second service" lateen apply -f - <<'Y'
apiVersion: v1
kind: Service
metadata: {name: spare}
spec: {selector: {app: spare}, ports: [{port: 8080}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: spare}
spec:
  replicas: 1
  selector: {matchLabels: {app: spare}}
  template:
    metadata: {labels: {app: spare}}
    spec:
      terminationGracePeriodSeconds: 1
      nodeSelector: {lateen.dev/node-index: "2"}
      containers: [{name: main, image: none, command: [lateen-load, serve, --listen, "0.0.0.0:8080"], readinessProbe: {httpGet: {path: /health, port: 8080}, periodSeconds: 1}}]
Y
check "ready" lateen wait deployment/spare
check "known" lateen wait
SPARE=$(service_ip spare):8080
check "answers" eventually 30 answers "$SPARE"

# They ask until they are told to end, which is when all is back.
seconds=$((150 + EXTRA))
ask $seconds "$WORK/keep" -mode keep -workers 4 -rate 100 & KEEP=$!
eventually 20 answered_on 4 >/dev/null
ask $seconds "$WORK/new" -mode new -workers 4 -rate 150 & NEW=$!
sleep 1
a1=$(away agent_pid n1) a2=$(away agent_pid n2)
check "both agents are away" [ -n "$a1" -a -n "$a2" ]
control=$(away control_pid)
check "and so is the control plane" [ -n "$control" ]
(timeout 20 "$LATEEN" --name "$MESH" apply -f - >/dev/null 2>&1 <<'Y'
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: closed, namespace: default}
spec: {selector: {matchLabels: {app: spare}}, action: DENY, rules: [{from: [{source: {principals: ["cluster.local/ns/default/sa/client"]}}]}]}
Y
) & APPLY=$!
check "a pod more" lateen scale deployment/spare --replicas 2
# The agents are away, and the engine may be late as well: what is looked at is a pod that is there.
made() { lateen get pods -o json | jq -e '[.items[] | select(.metadata.name | startswith("spare"))] | length == 2'; }
eventually 20 made >/dev/null
sleep $((2 + EXTRA / 2))
held() { lateen get pods -o json | jq -e '[.items[] | select(.metadata.name | startswith("spare")) | select(.metadata.annotations["ambient.istio.io/redirection"] != "enabled")] | length == 1'; }
check "the new pod waits to be captured; it does not start outside the mesh" held
check "the policy is not there yet: what was decided goes on" answers_once "$SPARE"
# A process that is stopped ends like any other, and the next one is left alone.
kill -KILL "$control" "$a1" "$a2"
check "the policy takes effect" eventually 40 silent "$SPARE"
captured() { lateen get pods -o json | jq -e '[.items[] | select(.metadata.name | startswith("spare")) | select(.metadata.annotations["ambient.istio.io/redirection"] == "enabled")] | length == 2'; }
check "the new pod is captured" eventually 40 captured
sleep 5
end $KEEP $NEW
wait $APPLY
equal "no request on established connections failed ($(count "$WORK/keep" served))" 0 "$(failed "$WORK/keep")"
equal "all of them on the connections of before" 4 "$(jq .connections "$WORK/keep")"
equal "no request on new connections failed ($(count "$WORK/new" served))" 0 "$(failed "$WORK/new")"
check "everything is known again" lateen wait
check "a pod leaves the mesh" lateen label ns default istio.io/dataplane-mode-
plain() { lateen get pods -o json | jq -e '[.items[] | select(.metadata.annotations["ambient.istio.io/redirection"] == "enabled")] | length == 0'; }
check "the agents that came back still let go" eventually 40 plain
finish
