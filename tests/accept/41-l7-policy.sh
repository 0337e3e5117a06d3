#!/usr/bin/env bash
# A waypoint of the mesh's own on the local engine: a Gateway becomes pods, a service is bound to it, requests pass it, and policies by
# targetRefs decide on methods, paths and headers.
source "$(dirname "$0")/lib.sh"

check "up" lateen up --nodes 2
with_echo "$ROOT/samples/echo/echo.yaml"
echo_ip=$(pod_ip echo-)
call() { lateen exec deploy/client -- curl -s -o /dev/null -w '%{http_code}' --max-time 20 "$@"; }
answers() { [ "$(call "${@:2}")" = "$1" ]; }
body() { lateen exec deploy/client -- curl -s --max-time 20 "$@"; }
way_log() { lateen logs deployment/way 2>&1; }

equal "before the waypoint a request goes straight" 200 "$(call http://echo:8080/)"
check "a waypoint" lateen waypoint apply --name way --for service
check "its pods run" lateen wait deployment/way
check "the service asks for it" lateen label svc echo istio.io/use-waypoint=way
through() { call http://echo:8080/ >/dev/null; way_log | found 'echo.default'; }
check "requests pass it" eventually 30 through
equal "a GET passes" 200 "$(call http://echo:8080/reviews)"

policy() { lateen apply -f - <<Y
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: $1}
spec:
  targetRefs: [{group: "", kind: Service, name: echo}]
  action: $2
  rules: $3
Y
}
check "a policy that allows GET of /reviews" policy readers ALLOW '[{to: [{operation: {methods: [GET], paths: [/reviews, "/reviews/*"]}}]}]'
check "is known to the waypoint" lateen wait
check "a DELETE is refused" eventually 15 answers 403 -X DELETE http://echo:8080/reviews
equal "with Istio's words" "RBAC: access denied" "$(body -X DELETE http://echo:8080/reviews)"
equal "a GET passes" 200 "$(call http://echo:8080/reviews)"
equal "a GET below it passes" 200 "$(call http://echo:8080/reviews/1)"
equal "another path is refused" 403 "$(call http://echo:8080/ratings)"
equal "a path that only looks allowed is refused" 403 "$(call --path-as-is http://echo:8080/reviews/../ratings)"
equal "another Host selects no other policy" 403 "$(call -H 'Host: other' http://echo:8080/ratings)"
equal "HTTP/2 is judged alike" 403 "$(call --http2-prior-knowledge -X DELETE http://echo:8080/reviews)"
check "a DENY by a header" policy hush DENY '[{when: [{key: "request.headers[x-hush]", values: ["1"]}]}]'
check "refuses" eventually 15 answers 403 -H 'x-hush: 1' http://echo:8080/reviews
equal "and nothing else" 200 "$(call http://echo:8080/reviews)"
names() { way_log | found "default/$1"; }
check "the log names the policy" eventually 15 names hush
check "policies go" lateen delete authorizationpolicy readers hush
check "and everything passes again" eventually 15 answers 200 -X DELETE http://echo:8080/ratings
check "a service with a port without a protocol" lateen apply -f - <<'Y'
apiVersion: v1
kind: Service
metadata: {name: cache, labels: {istio.io/use-waypoint: way}}
spec: {selector: {app: echo}, ports: [{port: 6379}]}
Y
tokens() { lateen apply -f - <<'Y'
apiVersion: security.istio.io/v1
kind: RequestAuthentication
metadata: {name: tokens}
spec: {targetRefs: [{group: "", kind: Service, name: cache}], jwtRules: [{issuer: "https://issuer.example"}]}
Y
}
check "who asks for tokens there hears of it" found 'port 6379 of Service default/cache has no protocol' <(tokens 2>&1)
check "and of the cure" found 'appProtocol' <(lateen describe requestauthentication tokens)
check "it goes" lateen delete requestauthentication tokens
equal "the pod's own address is not behind it" 200 "$(call "http://$echo_ip:8080/")"
finish
