#!/usr/bin/env bash
# `lateen proxy replace` with an unmodified ztunnel on either side or both, on the client's node and on the server's, under load: no
# connection is refused, fails or hangs.
source "$(dirname "$0")/lib.sh"
check "up with lateen-proxy on both nodes" lateen up --nodes 2
check "apply echo and client" lateen apply -f "$ROOT/samples/echo/echo.yaml"
check "enrol" lateen label ns default istio.io/dataplane-mode=ambient
check "ready, captured" lateen wait deployment/echo deployment/client
check "known to every proxy" lateen wait
load() { # SECONDS FILE
  lateen exec deploy/client -- lateen-load run --url "http://echo:8080/?size=77" --warmup 0s --timeout 5s --duration "$1s" --json - --qps 100 --connections 8 --no-keepalive >"$2" 2>/dev/null
}
kind() { lateen status -o json | jq -r --arg n "$1" '.nodes[] | select(.name == $n) | .proxy | "\(.ztunnel // false) \(.ready)"'; }
for node in n1 n2; do
  load 20 "$WORK/load-$node.json" & LOAD=$!
  sleep 1
  check "$node: ours to ztunnel" lateen proxy replace $node --ztunnel "$ZTUNNEL" --drain 3s --wait
  equal "$node: status tells of ztunnel" "true true" "$(kind $node)"
  check "$node: ztunnel to itself" lateen proxy replace $node --drain 3s --wait
  equal "$node: status tells of ztunnel again" "true true" "$(kind $node)"
  check "$node: ztunnel to ours" lateen proxy replace $node --binary "$OURS" --drain 3s --wait
  equal "$node: status tells of ours" "false true" "$(kind $node)"
  check "$node: ours to ours where it is now" lateen proxy replace $node --drain 3s --wait
  wait $LOAD
  equal "$node: no new connection was refused, failed or hung" "0 0 0" "$(jq -r '"\(.counts.failed) \(.counts.unsent) \(.counts.unanswered)"' "$WORK/load-$node.json")"
  check "$node: they were many ($(jq .counts.ok "$WORK/load-$node.json"))" [ "$(jq .counts.ok "$WORK/load-$node.json")" -gt 1000 ]
  before=$(kind $node)
  check_not "$node: what never becomes ready replaces nothing" lateen proxy replace $node --ztunnel /bin/false
  equal "$node: and the one before goes on" "$before" "$(kind $node)"
done
check_not "--ztunnel and --binary together are refused" lateen proxy replace n1 --ztunnel "$ZTUNNEL" --binary "$OURS"
finish
