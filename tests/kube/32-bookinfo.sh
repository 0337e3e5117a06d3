#!/usr/bin/env bash
# Bookinfo as people know it, of the images and manifests that are here: the page shows what four services say, each of which
# proves who it is to the next one, nothing of it is in clear between the nodes, and a policy admits who may ask and nobody else.
source "$(dirname "$0")/lib.sh"
check "the images are on the nodes" load_images "$ROOT"/bin/images/bookinfo-*.tar
# Who asks whom is on the other node: the page and ratings on one, details and reviews between them.
spread() {
  k create namespace bookinfo && k label namespace bookinfo istio.io/dataplane-mode=ambient &&
    k -n bookinfo create --dry-run=client -o json -f "$ROOT/samples/bookinfo/kubernetes/bookinfo.yaml" |
    jq 'select(.kind == "Deployment").spec.template.spec.nodeSelector = {"lateen.dev/node-index": (if .metadata.name == "productpage-v1" or .metadata.name == "ratings-v1" then "1" else "2" end)}' |
      k -n bookinfo apply -f -
}
check "Bookinfo comes into the mesh" spread
check "and becomes available" k -n bookinfo wait --for=condition=Available deployment --all --timeout=300s
check "who looks at it" k -n bookinfo apply -f - <<'Y'
apiVersion: v1
kind: Pod
metadata: {name: reader}
spec:
  terminationGracePeriodSeconds: 0
  nodeSelector: {lateen.dev/node-index: "1"}
  containers: [{name: reader, image: docker.io/local/echo:1, imagePullPolicy: Never, command: [sleep, "1000000"]}]
Y
check "is there" k -n bookinfo wait --for=condition=Ready pod/reader --timeout=120s
captured() { [ "$(k -n bookinfo get pods -o json | jq '[.items[] | select(.metadata.annotations["ambient.istio.io/redirection"] == "enabled")] | length')" = 7 ]; }
check "all seven pods are captured" eventually 60 captured

PAGE=$(service_ip bookinfo productpage) DETAILS=$(service_ip bookinfo details) RATINGS=$(service_ip bookinfo ratings)
page() { in_pod bookinfo/reader curl -s --max-time 30 "http://$PAGE:9080/productpage?u=normal"; }
# whole: of every service something. Of three versions of reviews two ask for ratings.
whole() {
  local out; out=$(page)
  grep -q '<dt>Publisher</dt>' <<<"$out" && grep -q 'Reviewer2' <<<"$out" && grep -q 'aria-label="[1-5] of 5 stars"' <<<"$out" || { echo "$out"; return 1; }
}
watch_wire tcp
check "the page shows details, reviews and stars" eventually 60 whole
unwatch_wire
check "packets of the tunnel's port cross the fabric" [ "$(on_wire tcp port 15008)" -gt 0 ]
for m in Publisher Reviewer2; do equal "no packet shows $m" 0 "$(in_clear $m)"; done
equal "none is for the services' port" 0 "$(on_wire tcp port 9080)"
# says FROM TO NODE: the node proxy of the server tells of a connection from one account to a pod of the other's. It does so when the
# connection ends, and some keep theirs for as long as they are asked.
says() {
  k -n lateen-system logs "$(pod_on lateen-system app=lateen-node "$3")" --tail=4000 | grep 'direction="inbound"' |
    grep "src.identity=\"spiffe://cluster.local/ns/bookinfo/sa/$1\"" | found "dst.identity=\"spiffe://cluster.local/ns/bookinfo/sa/$2\""
}
check "the page proves to reviews who it is" eventually 120 says bookinfo-productpage bookinfo-reviews node2
check "and to details" eventually 120 says bookinfo-productpage bookinfo-details node2
check "reviews to ratings" eventually 120 says bookinfo-reviews bookinfo-ratings node1

asks() { [ "$(code bookinfo/reader "$1")" = 200 ]; }
check "without a policy anybody may ask details" eventually 60 asks "http://$DETAILS:9080/details/0"
policies() { sed 's|/ns/default/|/ns/bookinfo/|' "$ROOT/samples/bookinfo/policy/allow.yaml"; }
check "who may ask whom is told" k -n bookinfo apply -f - < <(policies)
refused() { [ "$(code bookinfo/reader "$1")" = 000 ]; }
check "then the reader gets no details" eventually 60 refused "http://$DETAILS:9080/details/0"
check "and no ratings" eventually 60 refused "http://$RATINGS:9080/ratings/0"
check "while the page is whole still" eventually 60 whole
# The sample makes a namespace of its own and removes it.
sample() { KUBECTL=$KUBE/k BOOKINFO_NAME=bookinfo-waypoint timeout 600 "$ROOT/samples/bookinfo/waypoint.sh" kubernetes; }
check "Bookinfo behind a waypoint: each request has the outcome of its policy, which the access log names" sample
k delete namespace bookinfo --wait=false >/dev/null
finish
