#!/usr/bin/env bash
# What a policy comes to, in the same words in apply, its dry run, get and status. 39-command-line.sh sources this file.
# shellcheck shell=bash

policy() { printf -- '---\napiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\nmetadata: {name: %s%s}\nspec: %s\n' "$1" "${3:-}" "$2"; }
{
  policy scheme '{selector: {matchLabels: {app: echo}}, action: DENY, rules: [{from: [{source: {principals: ["spiffe://cluster.local/ns/default/sa/client"]}}]}]}'
  policy methods '{selector: {matchLabels: {app: echo}}, rules: [{to: [{operation: {methods: [GET]}}]}]}'
  policy selector '{selector: {matchLabels: {app: ecko}}, rules: [{}]}'
  policy account '{selector: {matchLabels: {app: client}}, action: DENY, rules: [{from: [{source: {serviceAccounts: [cleint]}}]}]}'
  policy rehearsal '{selector: {matchLabels: {app: echo}}, action: DENY, rules: [{}]}' ', annotations: {istio.io/dry-run: "true"}'
  printf -- '---\napiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: packets}\nspec: {}\n'
  printf -- '---\napiVersion: batch/v1\nkind: Job\nmetadata: {name: migrate}\nspec: {}\n'
} >"$WORK/analyse.yaml"
# fetched: the client gets an answer of the echo service.
fetched() { lateen exec deploy/client -- curl -sf -m 20 -o /dev/null 'http://echo:8080/?size=16'; }
# judged TEXT: what was said, without the order of objects and without hints.
judged() { grep -E '^(warning|note):|^  fix:' <<<"$1" | sort; }

dry=$(lateen apply -f "$WORK/analyse.yaml" --dry-run 2>&1)
equal "a dry run stores nothing" "" "$(lateen get authorizationpolicies -o name 2>/dev/null)"
real=$(lateen apply -f "$WORK/analyse.yaml" 2>&1)
equal "apply says what its dry run said" "$(judged "$dry")" "$(judged "$real")"
for said in \
  'authorizationpolicy/scheme: denies nothing: no rule of it matches an identity of the mesh' \
  'leave out spiffe://: write cluster.local/ns/default/sa/client' \
  "authorizationpolicy/methods: refuses ALL connections to 1 pod ($(pod_of echo-)): node proxies cannot judge methods" \
  'selects 0 pods: none in namespace default has the labels app=ecko' \
  'did you mean app: echo?' \
  '"cleint" matches no identity: namespace default has no service account "cleint"' \
  'did you mean client?' \
  'authorizationpolicy/rehearsal: dry run only: not enforced'; do
  if grep -qF -- "$said" <<<"$dry"; then ok "said: $said"; else not_ok "said: $said"; sed 's/^/    /' <<<"$dry"; fi
done

printf -- '---\napiVersion: v1\nkind: Namespace\nmetadata: {name: fresh}\n---\napiVersion: v1\nkind: ServiceAccount\nmetadata: {name: a, namespace: fresh}\n' >"$WORK/fresh.yaml"
check "a dry run takes objects of a namespace that comes with them" lateen apply -f "$WORK/fresh.yaml" --dry-run
check_not "and makes neither" lateen get namespace fresh

check "every proxy has the policies" lateen wait
check_not "the policy whose only rule is dropped refuses everybody" fetched
states=$(lateen get authorizationpolicies 2>/dev/null | awk 'NR > 1 { print $1, $2 }')
equal "STATE says what each comes to" 'account ineffective
methods refuses-all
rehearsal dry-run
scheme ineffective
selector ineffective' "$states"
equal "a NetworkPolicy can be listed, and is ignored" "packets ignored" "$(lateen get networkpolicies 2>/dev/null | awk 'NR > 1 { print $1, $2 }')"
check "a Job says why" bash -c "'$LATEEN' --name '$MESH' get job migrate -o wide | grep -cF 'stored but ignored: local meshes cannot run Jobs'"

status=$(lateen status)
for object in default/scheme default/methods default/selector default/account default/packets default/migrate; do
  equal "status has one line for $object" 1 "$(grep -cF -- " $object: " <<<"$status")"
done
equal "status names no file of the engine" "" "$(grep -F /run/lateen <<<"$status")"
equal "problems come before nodes" "Needs attention" "$(grep -E '^(Needs attention|Nodes)$' <<<"$status" | head -1)"
check "of another namespace there is nothing to say" bash -c "! '$LATEEN' --name '$MESH' status -n kube-system | grep -F default/"
equal "-l chooses pods" 1 "$(lateen status -l app=echo | grep -cE '^ +default +')"
# wider COLUMNS: the lines that are wider than that, counted in characters.
wider() { python3 -c 'import sys
for line in sys.stdin:
    if len(line.rstrip("\n")) > int(sys.argv[1]): sys.stdout.write(line)' "$1"; }
for columns in 80 100 160; do
  for command in "status" "get authorizationpolicies -o wide"; do
    # shellcheck disable=SC2086
    equal "$command fits $columns columns" "" "$(in_terminal "$columns" "$LATEEN" --name "$MESH" $command | wider "$columns")"
  done
done

lateen apply -f - >/dev/null 2>&1 <<<'{apiVersion: v1, kind: Namespace, metadata: {name: wrong, labels: {istio.io/dataplane-mode: ambeint}}}'
equal "a mode without meaning is shown as invalid" "invalid (ambeint)" "$(lateen get namespace wrong | awk 'NR == 2 { print $3, $4 }')"
said=$(lateen label namespace wrong istio-injection=enabled 2>&1)
check "a namespace that asks for sidecars is told" grep -F 'this mesh injects no sidecars' <<<"$said"

check "cleaned up" lateen delete -f "$WORK/analyse.yaml"
check "the namespace, too" lateen delete namespace wrong
check "known to every proxy" lateen wait
check "everybody is admitted again" fetched
