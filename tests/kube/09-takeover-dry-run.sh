#!/usr/bin/env bash
# The dry run of a take-over, on an API server of its own without nodes: an Istio as its charts
# install it means the same, differences are named with the lines that undo them, and settings that decide access refuse.
# needs: python3
source "$(dirname "$0")/lib.sh"

API=$NAME-takeover
check "an API server starts" "$KUBE/up.sh" --api-only --name "$API"
trap '"$KUBE/down.sh" --name "$API" >/dev/null 2>&1; rm -rf "$WORK"' EXIT
config=$(dirname "$RUN")/$API/kubeconfig
parts=$KUBE/manifests/istio

api() { KUBE_NAME=$API "$KUBE/k" "$@"; }
# take_over ARGUMENTS...: the command against that API server.
take_over() { KUBECONFIG=$config "$ROOT/bin/lateen" install --take-over=istio "$@"; }
definitions() { find "$ROOT/charts/lateen-crds/files" -name '*.io.yaml' ! -name 'validating*' -print0 | xargs -0 -n1 -I{} env KUBE_NAME="$API" "$KUBE/k" apply --server-side -f {}; }

check "the definitions of Istio's kinds are applied" definitions
check "the parts of an Istio are there" api apply -f "$parts/parts.yaml"
take_over --dry-run >"$WORK/same" 2>&1
check "an Istio as its charts install it means the same" grep -q "Everything means the same here" "$WORK/same"

check "the kinds are served" api wait --for=condition=Established customresourcedefinitions --all --timeout=60s
# Discovery tells clients of them a moment later.
check "objects that mean something else are applied" eventually 60 api apply -f "$parts/objects.yaml"
take_over --dry-run >"$WORK/text" 2>"$WORK/errors"
equal "the dry run succeeds" 0 $?
for object in shop/asleep shop/accounts shop/port shop/outside; do
  check "$object is named" grep -q " $object " "$WORK/text"
done
check_not "an object that means the same is not named" grep -q " shop/same " "$WORK/text"
equal "no line of it is wider than 80 columns" "" "$(sed -n '/^Some things mean/,$p' "$WORK/text" | awk 'length > 80')"

# said: severity, rule and object of each difference.
said() { python3 -c '
import json, sys
for d in json.load(open(sys.argv[1]))["meaning"]["differences"]:
    print(d["severity"], d["rule"], d["kind"], d.get("namespace", "") + "/" + d.get("name", ""))' "$1"; }
take_over --dry-run -o json >"$WORK/json" 2>"$WORK/errors"
equal "JSON says the same" "accessOpens authorization-when-service-account AuthorizationPolicy shop/accounts
accessOpens peer-disabled-port PeerAuthentication shop/port
accessCloses authorization-empty-selector AuthorizationPolicy shop/asleep
routeChanges entry-export-to ServiceEntry shop/outside
notServed kind-unserved DestinationRule /" "$(said "$WORK/json")"

# The lines that are printed for an object undo its difference.
undone() {
  python3 -c '
import json, sys
for d in json.load(open(sys.argv[1]))["meaning"]["differences"]:
    if d.get("name") == sys.argv[2]:
        print("\n".join(d["keep"]))' "$WORK/json" "$2" >"$WORK/lines" && [ -s "$WORK/lines" ] && api patch -n shop "$1" "$2" --type merge --patch-file "$WORK/lines"
}
check "the lines for a policy are taken" undone authorizationpolicy asleep
check "the lines for a PeerAuthentication are taken" undone peerauthentication port
check "the lines for an entry are taken" undone serviceentry outside
take_over --dry-run -o json >"$WORK/json" 2>"$WORK/errors"
equal "with them the differences are gone" "accessOpens authorization-when-service-account AuthorizationPolicy shop/accounts
notServed kind-unserved DestinationRule /" "$(said "$WORK/json")"

check "Istio has another trust domain" api patch -n istio-system configmap istio --type merge -p '{"data":{"mesh":"trustDomain: acme.example\nserviceEntryVisibility: {defaultVisibility: NAMESPACE}\n"}}'
take_over >"$WORK/text" 2>&1
equal "the take-over is refused" 1 $?
check "the fix is said" grep -q -- '--set mesh.trustDomain=acme.example' "$WORK/text"
check_not "nothing was made" api get namespace lateen-system
take_over --dry-run >"$WORK/text" 2>&1
equal "so is its dry run" 1 $?
check "the dry run shows what refuses" grep -q -- "--accept-difference=meshConfig.serviceEntryVisibility" "$WORK/text"
take_over --dry-run --set mesh.trustDomain=acme.example --accept-difference=meshConfig.serviceEntryVisibility >"$WORK/text" 2>&1
equal "with the value and the acceptance it is not" 0 $?

finish
