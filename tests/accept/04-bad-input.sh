#!/usr/bin/env bash
# Bad configuration: the error names file, line, object and fix; the rest stays live.
source "$(dirname "$0")/lib.sh"

check "up" lateen up --nodes 2
check "apply echo and client" lateen apply -f "$ROOT/samples/echo/echo.yaml"
ready() { lateen get pods -o json | jq -e '[.items[] | select(.status.conditions[]? | select(.type=="Ready" and .status=="True"))] | length >= 2'; }
check "ready" eventually 60 ready

refuses() { # DESCRIPTION FILE PATTERN...
  local what=$1 file=$2 out; shift 2
  if out=$(lateen apply -f "$file" 2>&1); then not_ok "$what: apply must fail"; return; fi
  for p in "$@"; do
    if grep -qE -- "$p" <<<"$out"; then ok "$what: says '$p'"; else not_ok "$what: does not say '$p'"; sed 's/^/    /' <<<"$out"; fi
  done
}

cat >"$WORK/broken.yaml" <<'Y'
apiVersion: v1
kind: Service
metadata:
  name: broken
 spec: {ports: [{port: 80}]}
Y
refuses "YAML that does not parse" "$WORK/broken.yaml" 'broken\.yaml' '(:|line )[45]'

cat >"$WORK/unknown.yaml" <<'Y'
apiVersion: v1
kind: ServiceAccount
metadata: {name: fine, namespace: default}
---
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: typo, namespace: default}
spec:
  action: DENY
  rulez: []
Y
refuses "an unknown field" "$WORK/unknown.yaml" 'unknown\.yaml' 'rulez' 'typo' '(:|line )(5|6|7|8|9|10)'
check "the good document beside it is applied" lateen get serviceaccount fine

# A ready pod comes to its service's name and address a moment later than to the list of pods.
answers() { lateen exec deploy/client -- curl -sf --max-time 15 http://echo:8080/ -o /dev/null; }
eventually 30 answers >/dev/null || not_ok "the first service does not answer before there are two"
ip=$(lateen get service echo -o json | jq -r '.spec.clusterIP')
cat >"$WORK/twin.yaml" <<Y
apiVersion: v1
kind: Service
metadata: {name: twin, namespace: default}
spec:
  clusterIP: $ip
  ports: [{port: 8080}]
Y
refuses "two services with one address" "$WORK/twin.yaml" 'twin' 'echo' "$ip"
fetch() { lateen exec deploy/client -- curl -sS --max-time 15 http://echo:8080/ -o /dev/null -w '%{http_code}'; }
equal "the first service stays live" 200 "$(fetch)"

# What is deleted need not be valid, or nobody could take away what a stricter version refuses.
sed '1,/^---/d' "$WORK/unknown.yaml" >"$WORK/gone.yaml"
sed 's/  rulez: .*/  rules: [{}]/' "$WORK/gone.yaml" >"$WORK/valid.yaml"
check "a policy" lateen apply -f "$WORK/valid.yaml"
refuses "the same with an unknown field" "$WORK/gone.yaml" 'rulez'
check "it is there still" lateen get authorizationpolicy typo
check "a file with an invalid spec deletes it" lateen delete -f "$WORK/gone.yaml"
check_not "it is gone" lateen get authorizationpolicy typo
printf '%s\n' 'apiVersion: v1' 'kind: ServiceAccount' 'metadata: {namespace: default}' >"$WORK/nameless.yaml"
out=$(lateen delete -f "$WORK/nameless.yaml" 2>&1); equal "a file that names nothing deletes nothing" 1 $?
check "and says so" found -E 'nameless\.yaml:.*name is missing' <<<"$out"

cat >"$WORK/later.yaml" <<'Y'
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: later, namespace: default}
spec:
  hosts: [echo]
  http: [{route: [{destination: {host: echo}}]}]
Y
out=$(lateen apply -f "$WORK/later.yaml" 2>&1); equal "a kind that is known but not implemented is kept" 0 $?
if grep -qiE 'stored but ignored' <<<"$out"; then ok "and warned about"; else not_ok "and warned about: $out"; fi
shown() { lateen status | grep -i 'later'; }
check "and shown as ineffective" eventually 30 shown
finish
