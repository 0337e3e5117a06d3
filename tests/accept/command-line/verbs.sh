#!/usr/bin/env bash
# kubectl's habits in a local mesh: dry runs, describe, diff, edit, annotate, rollout, watches, jsonpath, delete and logs by
# labels. 39-command-line.sh sources this file.
# shellcheck shell=bash

cat >"$WORK/verbs.yaml" <<'YAML'
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: verbs-deny, labels: {part: verbs}}
spec:
  selector: {matchLabels: {app: echo}}
  action: DENY
  rules: [{from: [{source: {principals: [cluster.local/ns/default/sa/nobody]}}], to: [{operation: {ports: ["9"]}}]}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: verbs-settings, labels: {part: verbs}}
data: {colour: red, shape: round}
YAML
verbs_names() { lateen get authorizationpolicies,configmaps -l part=verbs -o name | tr '\n' ' '; }

# Dry runs.
equal "a client's dry run needs no mesh" "default/authorizationpolicy/verbs-deny valid (client dry run)" \
  "$("$LATEEN" --name no-such-mesh apply -f "$WORK/verbs.yaml" --dry-run=client 2>/dev/null | head -1)"
check "a server's dry run" lateen apply -f "$WORK/verbs.yaml" --dry-run=server
equal "nothing came of the dry runs" "" "$(verbs_names 2>/dev/null)"
out=$(lateen apply -f "$WORK/verbs.yaml" --dry-run=maybe 2>&1)
equal "another value is a usage error" 64 $?
check "it names the values" found "use server, client, none" <<<"$out"

# diff: 1 for what would be made or changed, 0 for nothing, above 1 for what cannot be compared.
lateen diff -f "$WORK/verbs.yaml" >"$WORK/diff" 2>&1
equal "diff of new objects" 1 $?
check "apply" lateen apply -f "$WORK/verbs.yaml"
lateen diff -f "$WORK/verbs.yaml" >"$WORK/diff" 2>&1
equal "diff of what is applied" "0 0" "$? $(wc -c <"$WORK/diff")"
sed 's/colour: red, shape: round/colour: blue, shape: round/' "$WORK/verbs.yaml" | lateen diff -f - >"$WORK/diff" 2>&1
equal "diff of a change" "1 -  colour: red +  colour: blue" "${PIPESTATUS[1]} $(grep '^[-+] ' "$WORK/diff" | tr '\n' ' ' | sed 's/ $//')"
lateen diff -f "$WORK/absent.yaml" >"$WORK/diff" 2>&1
equal "diff without a file" 2 $?

# annotate and describe.
check "annotate" lateen annotate authorizationpolicy verbs-deny istio.io/dry-run=true
check "the policy is in place" lateen wait authorizationpolicy/verbs-deny
lateen describe authorizationpolicy verbs-deny >"$WORK/description"
check "describe tells the rule in words" found "from principal cluster.local/ns/default/sa/nobody; to port 9" "$WORK/description"
check "describe tells the dry run" found '^State: *dry-run' "$WORK/description"
check "describe tells the selected pod" found '^  default .*echo-' "$WORK/description"
pod=$(pod_of echo-)
lateen describe pod "$pod" >"$WORK/description"
check "a pod's identity" found '^Identity: *spiffe://cluster.local/ns/default/sa/echo$' "$WORK/description"
check "a pod's policies" found '^  verbs-deny .* DENY  *dry-run$' "$WORK/description"
lateen_jq() { local test=$1; shift; lateen "$@" | jq -e "$test"; }
check "a service's endpoints" lateen_jq '.service.ports[0].endpoints[0].ready == true' describe svc/echo -o json
check "a node's pods" lateen_jq '[.node.pods[].name] | any(startswith("echo-"))' describe node "$(node_of echo-)" -o json
for columns in 80 100 160; do
  for what in "describe pod $pod" "describe ap/verbs-deny" "get pods -o wide --show-labels" "api-resources -o wide" "get ap -o wide"; do
    # shellcheck disable=SC2086
    "$ROOT/tests/accept/terminal.py" --columns "$columns" -- "$LATEEN" --name "$MESH" $what >"$WORK/screen"
    wide=$(python3 -c 'import sys; print(sum(len(l.rstrip("\r\n")) > int(sys.argv[2]) for l in open(sys.argv[1], newline="\n")))' "$WORK/screen" "$columns")
    equal "$what fits $columns columns" 0 "$wide"
  done
done

# edit: a change, a refused change, none.
check "edit" env EDITOR="sed -i s/red/green/" "$LATEEN" --name "$MESH" edit configmap verbs-settings
equal "edit changed the object, jsonpath reads it" green "$(lateen get cm verbs-settings -o jsonpath='{.data.colour}')"
cat >"$WORK/editor" <<'EDITOR'
#!/bin/sh
grep -c 'The changes were not taken' "$1" >>"$ROUNDS"
sed -i 's/action: DENY/action: NEVER/' "$1"
EDITOR
chmod +x "$WORK/editor"
ROUNDS=$WORK/rounds EDITOR=$WORK/editor lateen edit ap/verbs-deny >"$WORK/edit" 2>&1
equal "a refused edit opens again and fails when nothing better comes" "1 0 1" "$? $(tr '\n' ' ' <"$WORK/rounds" | sed 's/ $//')"
rm -f "$(sed -n 's/.*a copy of the changes is in //p' "$WORK/edit")"
equal "an edit that changes nothing" "edit cancelled, no changes made" "$(EDITOR=true lateen edit ap/verbs-deny 2>&1)"

# A watch has one heading, shows each change once, and ends when nobody reads on.
"$LATEEN" --name "$MESH" get configmaps -l part=verbs -w --show-labels >"$WORK/watch" 2>&1 &
watch=$!
check "the watch has begun" eventually 30 found verbs-settings "$WORK/watch"
check "label" lateen label cm verbs-settings seen=yes
check "the watch shows the change" eventually 30 found 'seen=yes' "$WORK/watch"
kill -INT "$watch"; wait "$watch"
equal "an interrupted watch succeeds; one heading, two lines" "0 1 2" "$? $(grep -c ^NAME "$WORK/watch") $(grep -c ^verbs "$WORK/watch")"
check "a watch ends with its reader" timeout 60 bash -c '"$0" --name "$1" get configmaps -l part=verbs -w | head -1 | cat >/dev/null' "$LATEEN" "$MESH"

# rollout and logs. The new pod has the label of the old one, and a name of its own.
uid=$(pod_uid echo-)
check "restart" lateen rollout restart deploy/echo
check "status" lateen rollout status deploy/echo
check "another pod runs" test "$(pod_uid echo-)" != "$uid"
pod=$(lateen get pods -l app=echo -o json | jq -r '[.items[] | select(.metadata.deletionTimestamp == null)][0].metadata.name')
# A pod's line comes to its log a moment after the pod has written it.
prefixed() { lateen logs -l app=echo >"$WORK/logs"; cat "$WORK/logs"; found -F "[pod/$pod/echo] " "$WORK/logs"; }
check "logs by label are prefixed" eventually 20 prefixed
stamp=$(lateen logs deploy/echo --timestamps | head -1 | cut -d' ' -f1)
check "lines have times" date -d "${stamp:-there is none}"
whole() { local all since; all=$(lateen logs deploy/echo) && since=$(lateen logs deploy/echo --since-time "$stamp") && [ -n "$all" ] && [ "$all" = "$since" ]; }
check "since then: all of them" eventually 10 whole
nothing_new() { local lines; lines=$(lateen logs deploy/echo --since 1ms) && [ -z "$lines" ]; }
check "since now: none" eventually 10 nothing_new
check_not "there is no previous run" lateen logs deploy/echo --previous

# delete.
check_not "all namespaces are not deleted" lateen delete namespaces --all
check "delete, dry run" lateen delete ap,cm -l part=verbs --dry-run
equal "both are there" "authorizationpolicy/verbs-deny configmap/verbs-settings " "$(verbs_names)"
check "delete by label" lateen delete ap,cm -l part=verbs
equal "both are gone" "" "$(verbs_names 2>/dev/null)"
check "echo is in place again" lateen wait
