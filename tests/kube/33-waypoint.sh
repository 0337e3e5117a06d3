#!/usr/bin/env bash
# Waypoints on Kubernetes: the deployer makes the objects of a Gateway, in a namespace of the level restricted, and removes them with it;
# it touches nothing that others made, says in the Gateway's condition what is wrong, and has no more rights than it needs.
source "$(dirname "$0")/lib.sh"
check "a namespace of the level restricted" bash -c "'$KUBE/k' create namespace ways --dry-run=client -o yaml | '$KUBE/k' apply -f - && '$KUBE/k' label namespace ways --overwrite pod-security.kubernetes.io/enforce=restricted"
condition() { k -n ways get gateway "$1" -o json | jq -r ".status.conditions[]? | select(.type == \"lateen.dev/Deployed\") | .$2"; }
says() { local got; got=$(condition "$1" reason); [ "$got" = "$2" ] || { echo "$1: $got: $(condition "$1" message)"; return 1; }; }
told() { condition "$1" message | found "$2" || { condition "$1" message; return 1; }; }

check "a Gateway, as the command prints it" bash -c "'$ROOT/bin/lateen' waypoint generate -n ways | '$KUBE/k' apply -f -"
check "it has a Deployment" eventually 60 k -n ways get deployment waypoint
check "a Service and an account" eventually 60 k -n ways get service/waypoint serviceaccount/waypoint
check "its pods are admitted, and run" k -n ways rollout status deployment/waypoint --timeout=120s
check "the condition says so" eventually 60 says waypoint Deployed
check "and the command" lateen waypoint apply -n ways --wait
listed() { lateen waypoint list -n ways -o json | jq -e '.[0] | .name == "waypoint" and .programmed == "True" and .ready == 1'; }
check "which lists it" eventually 60 listed
uncaptured() { [ -z "$(k -n ways get pods -l gateway.networking.k8s.io/gateway-name=waypoint -o json | jq -r '.items[].metadata.annotations["ambient.istio.io/redirection"] // empty')" ]; }
check "its pods are not captured" uncaptured

check "replicas are whoever's who scales" k -n ways scale deployment waypoint --replicas=2
sleep 3
equal "the deployer leaves them" 2 "$(k -n ways get deployment waypoint -o jsonpath='{.spec.replicas}')"
check "a Service that goes comes again" bash -c "'$KUBE/k' -n ways delete service waypoint"
check "within its next look" eventually 60 k -n ways get service waypoint

check "parameters that do not parse" k apply -f - <<'Y'
apiVersion: v1
kind: ConfigMap
metadata: {name: options, namespace: ways}
data: {deployment: "spec: {replicsa: 2}"}
Y
check "are named by a Gateway" k -n ways patch gateway waypoint --type=merge -p '{"spec":{"infrastructure":{"parametersRef":{"group":"","kind":"ConfigMap","name":"options"}}}}'
check "the condition names ConfigMap, key and field" eventually 60 told waypoint 'ConfigMap ways/options: key deployment: .*replicsa'
check "the pods go on" k -n ways rollout status deployment/waypoint --timeout=60s
check "parameters with a budget" k -n ways patch configmap options --type=merge -p '{"data":{"deployment":"spec: {minReadySeconds: 1}","podDisruptionBudget":"spec: {maxUnavailable: 1}"}}'
check "which is made" eventually 90 k -n ways get poddisruptionbudget waypoint
scaled() { local got; got=$(k -n ways get deployment waypoint -o jsonpath='{.spec.minReadySeconds} {.spec.replicas}'); [ "$got" = "1 2" ] || { echo "$got"; return 1; }; }
check "the Deployment is written as well, and its replicas stay" eventually 90 scaled
check "pods of more rights" k -n ways patch configmap options --type=merge -p '{"data":{"deployment":"spec: {template: {spec: {hostNetwork: true}}}"}}'
check "are refused" eventually 90 told waypoint 'hostNetwork'

check "a Service of somebody else's" bash -c "'$KUBE/k' -n ways create service clusterip taken --tcp=80"
check "and a Gateway of its name" bash -c "'$ROOT/bin/lateen' waypoint generate -n ways --name taken | '$KUBE/k' apply -f -"
check "which is told so" eventually 60 says taken Taken
equal "the Service is as it was" "80" "$(k -n ways get service taken -o jsonpath='{.spec.ports[*].port}')"
check_not "and no Deployment was made" k -n ways get deployment taken

check "a Gateway of Istio's class" bash -c "'$ROOT/bin/lateen' waypoint generate -n ways --name moved | sed s/lateen-waypoint/istio-waypoint/ | '$KUBE/k' apply -f -"
uid=$(k -n ways get gateway moved -o jsonpath='{.metadata.uid}')
check "and what Istio's controller made for it" k apply --server-side --field-manager=istio.io/gateway-controller -f - <<Y
apiVersion: apps/v1
kind: Deployment
metadata:
  {namespace: ways, name: moved, labels: {gateway.istio.io/managed: istio.io-mesh-controller}, ownerReferences: [{apiVersion: gateway.networking.k8s.io/v1, kind: Gateway, name: moved, uid: "$uid"}]}
spec:
  selector: {matchLabels: {gateway.networking.k8s.io/gateway-name: moved}}
  template:
    metadata: {labels: {gateway.networking.k8s.io/gateway-name: moved}}
    spec:
      containers: [{name: istio-proxy, image: istio.invalid/proxy, env: [{name: CA_ADDR, value: istiod.istio-system.svc}], volumeMounts: [{name: istio-envoy, mountPath: /etc/istio/proxy}]}]
      volumes: [{name: istio-envoy, emptyDir: {}}]
Y
check_not "the deployer leaves it alone" says moved Deployed
check "its owner moves it to this mesh" k -n ways patch gateway moved --type=merge -p '{"spec":{"gatewayClassName":"lateen-waypoint"}}'
check "the deployer adopts it" eventually 90 says moved Deployed
equal "nothing of Istio's proxy is left in its pods" "" "$(k -n ways get deployment moved -o json | jq -r '.spec.template.spec | .containers[].env[].name, .volumes[].name' | grep -xE 'CA_ADDR|istio-envoy')"
equal "and no field is Istio's" "" "$(k -n ways get deployment moved --show-managed-fields -o json | jq -r '.metadata.managedFields[].manager' | grep -x istio.io/gateway-controller)"

may() { k auth can-i "$@" --as=system:serviceaccount:lateen-system:lateen-deployer; }
check_not "the deployer may not read Secrets" may get secrets -n ways
check_not "nor make pods by itself" may create pods -n ways
check_not "nor list ConfigMaps of others" may list configmaps -n ways
check_not "the control plane may not make Deployments" k auth can-i create deployments -n ways --as=system:serviceaccount:lateen-system:lateen-control

check "the Gateways go" k -n ways delete gateway --all
gone() { ! k -n ways get deployment waypoint && ! k -n ways get serviceaccount waypoint; }
check "and with them what was made for them" eventually 120 gone
check "what others made stays" k -n ways get service taken
check "the namespace goes" k delete namespace ways --wait=false
finish
