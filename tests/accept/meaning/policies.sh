#!/usr/bin/env bash
# Trust domains in policies, between two nodes: clients that they admit or deny, and the conditions that their authors read.
# 38-meaning.sh sources this file in a mesh that is up, with a client in namespaces a and b and the server web in namespace
# shop, all enrolled. Run by itself it starts such a mesh first.
# shellcheck shell=bash

policies_mesh() {
  check "up" lateen up --nodes 2
  sed -e 's/: echo$/: web/' -e 's/http:\/\/echo/http:\/\/web/' "$ROOT/samples/echo/echo.yaml" >"$WORK/web.yaml"
  local ns
  for ns in shop a b; do
    check "namespace $ns" lateen apply -f - <<Y
apiVersion: v1
kind: Namespace
metadata: {name: $ns, labels: {istio.io/dataplane-mode: ambient}}
Y
    check "pods of $ns" lateen apply -n "$ns" -f "$WORK/web.yaml"
  done
  check "ready, captured" lateen wait -n shop deployment/web
  check "clients, too" bash -c "'$LATEEN' --name $MESH wait -n a deployment/client && '$LATEEN' --name $MESH wait -n b deployment/client"
  check "known to every proxy" lateen wait
}

# policies_code NAMESPACE: what the client there gets of web, 000 if it is refused.
policies_code() { lateen exec -n "$1" deploy/client -- curl -sS --max-time 20 http://web.shop:8080/ -o /dev/null -w '%{http_code}' 2>/dev/null || true; }
# policies_plain: the same of a client outside the mesh, which has no identity.
policies_plain() { in_node n1 curl -sS --max-time 20 "http://$(pod_ip web shop):8080/" -o /dev/null -w '%{http_code}' 2>/dev/null || true; }
# policies_said, policies_told TEXT: what the author of the policy is told.
policies_said() { lateen get authorizationpolicy meaning -n shop -o json | jq -r '[.. | .conditions? // empty | .[]? | .message // ""] | join(" ")'; }

policies_told() { [[ $(policies_said) == *"$1"* ]]; }

# policies_meaning DESCRIPTION FROM-A FROM-B PLAIN: reads the rest of a policy's spec, and holds it to who is served then.
policies_meaning() {
  local what=$1 a=$2 b=$3 plain=$4
  {
    printf 'apiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\nmetadata: {name: meaning, namespace: shop}\nspec:\n'
    sed 's/^/  /'
  } >"$WORK/meaning.yaml"
  check "apply: $what" lateen apply -f "$WORK/meaning.yaml"
  check "every proxy has it" lateen wait -n shop authorizationpolicy/meaning
  equal "$what: from a" "$a" "$(policies_code a)"
  equal "$what: from b" "$b" "$(policies_code b)"
  equal "$what: without identity" "$plain" "$(policies_plain)"
}

policies_checks() {
  equal "without a policy a is served" 200 "$(policies_code a)"
  equal "and b" 200 "$(policies_code b)"
  equal "and who has no identity" 200 "$(policies_plain)"

  policies_meaning "ALLOW of another trust domain admits nobody" 000 000 000 <<'Y'
rules: [{from: [{source: {trustDomains: [other.example], namespaces: [b]}}]}]
Y
  policies_meaning "ALLOW of the mesh's trust domain and a namespace" 000 200 000 <<'Y'
rules: [{from: [{source: {trustDomains: [cluster.local], namespaces: [b]}}]}]
Y
  check "is accepted as it is written" eventually 10 policies_told "as it is written"
  policies_meaning "ALLOW but of the mesh's trust domain admits who has none" 000 000 200 <<'Y'
rules: [{when: [{key: source.trustDomain, notValues: [cluster.local]}]}]
Y
  policies_meaning "ALLOW of any trust domain" 200 200 000 <<'Y'
rules: [{when: [{key: source.trustDomain, values: ["*"]}]}]
Y
  policies_meaning "DENY of other trust domains denies nobody of the mesh" 200 200 000 <<'Y'
action: DENY
rules: [{from: [{source: {notTrustDomains: [cluster.local]}}]}]
Y
  policies_meaning "the same as a condition" 200 200 000 <<'Y'
action: DENY
rules: [{when: [{key: source.trustDomain, notValues: [cluster.local]}]}]
Y
  policies_meaning "DENY of a trust domain and a namespace" 200 000 200 <<'Y'
action: DENY
rules: [{from: [{source: {trustDomains: [cluster.local], namespaces: [b]}}]}]
Y
  policies_meaning "DENY of how a trust domain begins" 200 000 200 <<'Y'
action: DENY
rules: [{from: [{source: {namespaces: [b]}}], when: [{key: source.trustDomain, values: ["cluster*"]}]}]
Y
  policies_meaning "trust domains beside principals, in several sources" 000 200 000 <<'Y'
rules:
- to: [{operation: {ports: ["8080"]}}]
  from:
  - source: {trustDomains: [other.example], principals: ["*/ns/a/sa/client"]}
  - source: {trustDomains: ["clust*"], principals: ["*/ns/b/sa/client"]}
Y
  policies_meaning "ALLOW of how a trust domain ends cannot be judged and admits nobody" 000 000 000 <<'Y'
rules: [{from: [{source: {trustDomains: ["*.local"], namespaces: [b]}}]}]
Y
  check "and says so" eventually 10 policies_told 'cannot judge trustDomains "*.local"; rules of this ALLOW policy that use them are dropped'
  policies_meaning "DENY of that denies by the rest" 200 000 200 <<'Y'
action: DENY
rules: [{from: [{source: {trustDomains: ["*.local"], namespaces: [b]}}]}]
Y
  check "and says that it denies more" eventually 10 policies_told "deny more than written"
  policies_meaning "DENY of nothing else denies nobody" 200 200 200 <<'Y'
action: DENY
rules: [{when: [{key: source.trustDomain, values: ["*.local"]}]}]
Y
  check "and says that, too" eventually 10 policies_told "denies nothing"

  printf 'apiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\nmetadata: {name: meaning, namespace: shop}\nspec: {rules: [{from: [{source: {trustDomain: [cluster.local]}}]}]}\n' >"$WORK/meaning.yaml"
  check_not "a field that nobody knows is refused" lateen apply -f "$WORK/meaning.yaml"
  equal "and the version before it goes on" 200 "$(policies_code b)"
  check "delete the policy" lateen delete authorizationpolicy meaning -n shop
  check "and wait" lateen wait
}

if [ "${BASH_SOURCE[0]}" = "$0" ]; then
  # shellcheck source=../lib.sh
  source "$(dirname "$0")/../lib.sh"
  policies_mesh
  policies_checks
  finish
fi
policies_checks
