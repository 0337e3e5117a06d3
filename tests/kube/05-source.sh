#!/usr/bin/env bash
# The control plane's view of a cluster, on an API server of its own that nothing else writes to: rights that are missing, definitions that
# come and go, objects that make no sense, a server that is away; and what it costs with a thousand pods.
source "$(dirname "$0")/lib.sh"

API=$NAME-api
check "an API server starts" "$KUBE/up.sh" --api-only --name "$API"
trap '"$KUBE/down.sh" --name "$API" >/dev/null 2>&1; rm -rf "$WORK"' EXIT
config=$(dirname "$RUN")/$API/kubeconfig

source_tests() { cd "$ROOT" && KUBECONFIG=$config KUBE_NAME=$API go test -tags kube -count=1 ./tests/kube/source; }
check "the source reads, waits, refuses and recovers" source_tests

# Figures are those of docs/reference/kubernetes.md; here it is that all of it works together, tokens of the API server included.
small() { cd "$ROOT" && go run ./tests/kube/scale -kubeconfig "$config" -control bin/lateen-control -pods 300 -services 30 -proxies 5 -rest 5 -seconds 5; }
check "lateen-control follows it, and node proxies acknowledge every change" small

finish
