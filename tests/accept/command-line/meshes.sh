#!/usr/bin/env bash
# Several meshes, what a node's proxy knows, waiting, and the words of other programs. 39-command-line.sh sources this file.
# shellcheck shell=bash

# alone COMMAND...: with this mesh as the only one of the machine; /run/lateen is a copy that only the command sees. In it, DIRS are
# further meshes: left (files without an engine) and twin (this mesh under another name).
alone() {
  mkdir -p "$WORK/alone"
  # shellcheck disable=SC2016
  DIRS="${DIRS:-}" LATEEN_ENGINE=local unshare -m bash -c '
    run=$1 mesh=$2 at=$3; shift 3
    mount --bind "$run" "$at" && mount -t tmpfs none /run/lateen && mkdir "/run/lateen/$mesh" && mount --bind "$at" "/run/lateen/$mesh" || exit 99
    for dir in $DIRS; do mkdir "/run/lateen/$dir"; [ "$dir" != left ] && mount --bind "$at" "/run/lateen/$dir"; done
    exec "$@"' alone "$RUN" "$MESH" "$WORK/alone" "$@"
}
said() { "$@" 2>&1; }

# Which mesh.
check "list shows this mesh" bash -c "'$LATEEN' list -o json | jq -e '.[] | select(.name == \"$MESH\") | .state == \"running\" and .nodes == 2 and .pods >= 2 and .enrolled == .pods'"
equal "a command without a name is about the only mesh" "$(lateen get pods -o name)" "$(alone "$LATEEN" get pods -o name)"
equal "LATEEN_NAME chooses one of several" "$(lateen get pods -o name)" "$(DIRS=twin LATEEN_NAME=$MESH alone "$LATEEN" get pods -o name)"
DIRS=twin said alone "$LATEEN" get pods >"$WORK/several"
equal "several meshes and no name are a usage error" 64 "$(DIRS=twin alone "$LATEEN" get pods >/dev/null 2>&1; echo $?)"
check "which names them and says how to choose" grep -q "2 run: $MESH, twin" "$WORK/several"
check "by the flag or the variable" grep -q "name one: --name $MESH, or export LATEEN_NAME=$MESH" "$WORK/several"
check "what a killed mesh left is listed as stopped" bash -c "$(declare -f alone said); $(declare -p RUN MESH WORK LATEEN); DIRS=left alone '$LATEEN' list -o json | jq -e '.[] | select(.name == \"left\") | .state == \"stopped\" and .fix == \"lateen down --name left\"'"
equal "and is not taken for a mesh that runs" "$(lateen get pods -o name)" "$(DIRS=left alone "$LATEEN" get pods -o name)"
said alone "$LATEEN" status --name nowhere >"$WORK/absent"
check "the error of a mesh that does not run names those that do" grep -q "mesh nowhere is not running; running: $MESH" "$WORK/absent"
lateen get pod no-such-pod >"$WORK/unknown" 2>&1
check "an unknown name suggests the right mesh" grep -q "lateen get pods -n default --name $MESH" "$WORK/unknown"
# Meshes of others come and go between two looks. These stay, and one has the longest name that a mesh can have.
longest=twin-0123456789-0123456789-01234
list_fits() { DIRS="left twin $longest" alone "$ROOT/tests/accept/terminal.py" --columns 80 --screen -- bash -c "'$LATEEN' list 2>/dev/null" | grep -c .; }
equal "list fits 80 columns: a heading and four meshes" 5 "$(list_fits)"
equal "check of a machine with a mesh suggests to look at it" "Next: lateen status --name $MESH" "$(lateen check --for up 2>&1 >/dev/null)"

# What a node's proxy knows.
for part in workloads services policies certificates; do
  rows=$(lateen proxy config "$part" n1 -o json | jq ".$part | length")
  for columns in 80 100 160; do
    for form in table wide; do
      [ "$rows" = 0 ] && continue # a warning stands in place of the table
      equal "$part as a $form at $columns columns: a line for each" "$((rows + 1))" "$(in_terminal $columns bash -c "'$LATEEN' --name $MESH proxy config $part n1 -o $form 2>/dev/null" | grep -c .)"
    done
  done
done
serial=$(lateen proxy config n1 | jq -r '.certificates[0].certChain[0].pem' | base64 -d | openssl x509 -noout -serial | cut -d= -f2)
equal "certificates show the serial number as openssl does" "$serial" "$(lateen proxy config certificates n1 -o json | jq -r '.certificates[0].serial')"
check_not "and never a key" bash -c "'$LATEEN' --name $MESH proxy config certificates n1 -o yaml | grep -iE 'key|pem'"
# The control plane may send something between the two looks.
generations() { jq -ne --argjson a "$(lateen status -o json | jq '.nodes[0].proxy.ackedGeneration')" --argjson b "$(lateen proxy config n1 | jq '.acknowledgedGeneration')" '[$a, $b], ($a != null and $a == $b)'; }
check "one meaning of generation" eventually 10 generations
equal "the proxy's own counter has another name" "number null" "$(lateen proxy config n1 | jq -r '"\(.appliedUpdates | type) \(.generation)"')"

# A pod that leaves is plain when wait returns; five rounds.
client=$(pod_of client)
state() { lateen status -o json | jq -r --arg p "$client" '.pods[] | select(.name == $p) | .mesh'; }
for round in 1 2 3 4 5; do
  lateen label pod "$client" istio.io/dataplane-mode=none --overwrite >/dev/null 2>&1
  check "wait for a pod that leaves, round $round" lateen wait
  equal "it is plain then, round $round" plain "$(state)"
  lateen label pod "$client" istio.io/dataplane-mode- >/dev/null 2>&1
  check "wait for it to join again, round $round" lateen wait
  equal "it is captured then, round $round" captured "$(state)"
done
equal "wait says what is ready" "ready: 2 pods, 2 deployments, 2 node proxies" "$(lateen wait 2>/dev/null)"

# A wait that fails says why.
lateen apply -f - >/dev/null 2>&1 <<'YAML'
apiVersion: apps/v1
kind: Deployment
metadata: {name: crash}
spec:
  selector: {matchLabels: {app: crash}}
  template:
    metadata: {labels: {app: crash}}
    spec: {containers: [{name: c, image: none, command: [sh, -c, "exit 3"]}]}
YAML
crashed() { lateen get pods -l app=crash -o json | jq -e '.items[0].status.containerStatuses[0].lastState.terminated.exitCode == 3'; }
check "a pod ends with code 3" eventually 30 crashed
# The last look of a wait may fall into the moment in which the container runs again.
names_the_reason() { lateen wait deploy/crash --timeout 1s >"$WORK/crash" 2>&1; cat "$WORK/crash"; grep -q 'pod/crash-.* (CrashLoopBackOff: exited with code 3)' "$WORK/crash"; }
check "wait for its deployment names the reason" eventually 20 names_the_reason
check "and the log to look at" grep -q "lateen logs crash-[a-z0-9-]* --name $MESH" "$WORK/crash"
check "it goes again" lateen delete deployment crash

# Hints and the words of others.
printf 'apiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\nmetadata: {name: hint}\nspec: {selector: {matchLabels: {app: none}}, action: DENY}\n' >"$WORK/hint.yaml"
lateen apply -f "$WORK/hint.yaml" >"$WORK/hint" 2>&1
check "after a policy the hint is to wait for it" grep -q "Next: lateen wait authorizationpolicy/hint --name $MESH" "$WORK/hint"
check "it is deleted again" lateen delete -f "$WORK/hint.yaml"
"$LATEEN" --name "$MESH" proxy-status >"$WORK/bridge" 2>&1
check "istioctl's words are answered" grep -q "istioctl's proxy-status is \`lateen status --name $MESH\` here" "$WORK/bridge"
equal "with the exit code of a usage error" 64 "$(lateen proxy-status >/dev/null 2>&1; echo $?)"
check "the help explains exit codes" bash -c "'$LATEEN' --help | grep -c '^  64 .*command line'"
