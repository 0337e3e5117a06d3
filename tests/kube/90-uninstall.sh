#!/usr/bin/env bash
# The mesh goes: captured pods are released without a restart and without a failed request, and the cluster and its nodes
# are as they were before 10-install.
source "$(dirname "$0")/lib.sh"
captured() { [ "$(k -n leaving get pods -o json | jq '[.items[] | select(.metadata.annotations["ambient.istio.io/redirection"] == "enabled")] | length')" = "$1" ]; }
state() { k -n leaving get pods -o json | jq -r '.items[] | [.metadata.name, .metadata.uid, .status.containerStatuses[0].restartCount] | @tsv' | sort; }

check "echo servers and clients in the mesh" echo_in leaving istio.io/dataplane-mode=ambient
check "they are captured" eventually 60 captured 4
VIP=$(service_ip leaving echo)
before=$(state)

# A removal that was begun and not ended: every agent leaves its node and stays away from it.
check "agents are told to leave their nodes" k -n lateen-system annotate daemonset lateen-agent lateen.dev/uninstall=true
check "pods are released" eventually 60 captured 0
# Findings have an exit code of their own.
away() { { lateen check -o json || true; } | jq -e '.results[] | select(.code == "LAT122") | .outcome == "failure"'; }
check "lateen check says so" eventually 60 away
check "lateen upgrade takes it back" lateen upgrade --timeout 5m
check "pods are captured again" eventually 60 captured 4
equal "none was restarted in all this" "$before" "$(state)"

# What is in use stays: a policy for the whole mesh, by the name that it usually has, and a CA that somebody plugged in.
kept() { lateen uninstall --dry-run -o json | jq -r '.steps[] | select(.kind == "Namespace" and .action == "keep") | .name' | sort | xargs; }
k apply -f - >/dev/null <<Y
apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {name: default, namespace: istio-system}
spec: {mtls: {mode: PERMISSIVE}}
Y
k -n lateen-system create secret generic theirs >/dev/null
equal "namespaces in which somebody has something would stay" "istio-system lateen-system" "$(kept)"
k -n lateen-system delete secret theirs >/dev/null

load_begin leaving leaving/client1 --url "http://$VIP/" --qps 20 --connections 2 --no-keepalive
check "a plan: lateen uninstall --dry-run" lateen uninstall --crds --dry-run
check "which removes nothing" k -n lateen-system rollout status daemonset/lateen-agent --timeout=120s
began=$SECONDS
check "lateen uninstall" lateen uninstall --crds --timeout 5m
echo "   uninstalled in $((SECONDS - began)) s"
check "no pod is captured any more" eventually 60 captured 0
equal "none was restarted" "$before" "$(state)"
load_end leaving
for c in client1 client2; do
  check "no rule stays in $c" no_rules "leaving/$c"
done
k delete namespace leaving --wait=false >/dev/null
as_before() { inventory | sort | diff "$RUN/inventory-before" -; }
check "the cluster and its nodes are as before" eventually 60 as_before
check "a new pod starts" bash -c "'$KUBE/k' -n default run after --image=docker.io/local/echo:1 --image-pull-policy=Never && '$KUBE/k' -n default wait --for=condition=Ready pod/after --timeout=120s"
k -n default delete pod after --wait=false >/dev/null
finish
