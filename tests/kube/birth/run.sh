#!/usr/bin/env bash
# run.sh [BIRTHS]: how long pods take to be born with and without the mesh, on a cluster of its own (needs root, `make build images`;
# five minutes): BIRTHS (50) of each kind, interleaved, with the agent on one node, and as many with it on the other. Then what the
# control plane says of how late the node proxies of both nodes had the changes meanwhile. No part of `make test-kube`.
export KUBE_NAME=${KUBE_NAME:-birth}
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
"$here/../up.sh" --name "$KUBE_NAME" || exit 1
source "$here/../lib.sh"
trap '"$KUBE/down.sh" --name "$KUBE_NAME"; rm -rf "$WORK"' EXIT

(cd "$ROOT" && CGO_ENABLED=0 go build -o "$RUN/birth" ./tests/kube/birth) || exit 1
load_images "$ROOT"/bin/images/{control,agent,proxy}.tar || exit 1
for with in 1 2; do
  on='kubernetes\.io/hostname'
  lateen install --set image.pullPolicy=Never --set "agent.nodeSelector.$on=node$with" --set "node.nodeSelector.$on=node$with" >/dev/null || exit 1
  in_fabric "$RUN/birth" -kubeconfig "$RUN/kubeconfig" -with node$with -without node$((3 - with)) -rounds "${1:-50}" -samples "$WORK/samples" || exit 1
  # Each replica counts for the proxies that are connected to it.
  for ip in $(k -n lateen-system get pods -l app=lateen-control -o jsonpath='{.items[*].status.podIP}'); do
    in_fabric curl -s "http://$ip:15014/metrics" | grep -E '^(pilot_proxy_convergence_time|lateen_control_event_seconds)_(bucket|count)'
  done >>"$WORK/metrics"
  lateen uninstall >/dev/null || exit 1
done
"$RUN/birth" -report "$WORK/samples"
status=$?
# within METRIC SECONDS: the share of what was observed.
awk '{name = $1; sub(/_bucket.*|_count.*/, "", name)} /_count/ {all[name] += $2} /le="0.05"/ {within[name] += $2}
  END {for (n in all) printf "%s: %.2f %% of %d within 50 ms\n", n, 100 * within[n] / all[n], all[n]}' "$WORK/metrics"
exit $status
