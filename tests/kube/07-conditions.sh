#!/usr/bin/env bash
# What objects say of themselves, on an API server of its own: conditions by two replicas of the control plane, with proxies that lag, a
# replica that ends, and another one that leads after it.
source "$(dirname "$0")/lib.sh"

API=$NAME-status
check "an API server starts" "$KUBE/up.sh" --api-only --name "$API"
trap '"$KUBE/down.sh" --name "$API" >/dev/null 2>&1; rm -rf "$WORK"' EXIT
config=$(dirname "$RUN")/$API/kubeconfig

status_tests() {
  cd "$ROOT" && go build -o "$WORK/lateen-control" ./cmd/lateen-control &&
    CONTROL=$WORK/lateen-control KUBECONFIG=$config go test -tags kube -count=1 ./tests/kube/conditions
}
check "objects say whether the proxies of all replicas have them" status_tests

finish
