#!/usr/bin/env bash
# The installation as a real API server takes it, one of its own without nodes: what the agents' rights come to once the admission policy
# narrows them, whose record counts, what keeps a namespace, and that an upgrade to the same changes nothing.
source "$(dirname "$0")/lib.sh"

API=$NAME-installer
check "an API server starts" "$KUBE/up.sh" --api-only --name "$API"
trap '"$KUBE/down.sh" --name "$API" >/dev/null 2>&1; rm -rf "$WORK"' EXIT
config=$(dirname "$RUN")/$API/kubeconfig

installer_tests() { cd "$ROOT" && KUBECONFIG=$config KUBE_NAME=$API go test -tags kube -count=1 ./tests/kube/installer; }
check "agents write two annotations of their own node's pods; a tenant's record is nothing; what is in use stays" installer_tests

finish
