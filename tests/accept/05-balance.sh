#!/usr/bin/env bash
# alone: it looks at how load is shared out on quiet processors.
# Sixteen connections opened at once through the listeners of different pods spread evenly over two workers.
source "$(dirname "$0")/lib.sh"

check "up with two workers" lateen up --nodes 2 --workers 2
check "apply echo and client" lateen apply -f "$ROOT/samples/echo/echo.yaml"
check "four clients on one node" lateen apply -f - <<'Y'
apiVersion: apps/v1
kind: Deployment
metadata: {name: many, namespace: default}
spec:
  replicas: 4
  selector: {matchLabels: {app: many}}
  template:
    metadata: {labels: {app: many}}
    spec:
      serviceAccountName: client
      nodeSelector: {kubernetes.io/hostname: n1}
      containers:
        - {name: main, image: none, command: ["sleep", "infinity"]}
Y
ready() { lateen get pods -o json | jq -e '[.items[] | select(.status.conditions[]? | select(.type=="Ready" and .status=="True"))] | length >= 6'; }
check "ready" eventually 60 ready
check "enrol" lateen label ns default istio.io/dataplane-mode=ambient
enrolled() { lateen get pods -o json | jq -e '[.items[] | select(.metadata.annotations["ambient.istio.io/redirection"] == "enabled")] | length >= 6'; }
check "captured" eventually 20 enrolled
lateen wait >/dev/null || not_ok "not every proxy knows of them"
mapfile -t pods < <(lateen get pods -o json | jq -r '.items[].metadata.name | select(startswith("many"))')
workers() { proxy_metrics n1 | grep '^lateen_worker_connections' | sed 's/.*} //' | tr '\n' ' '; }
before=$(workers)
load=()
for p in "${pods[@]}"; do
  lateen exec "$p" -- lateen-load run --url http://echo:8080/ --qps 40 --connections 4 --duration 15s >/dev/null 2>&1 & load+=($!)
done
# The look that finds them is the one that is judged.
sixteen() { workers | tee "$WORK/after" | awk '{exit !($1 + $2 >= 16)}'; }
check "sixteen connections are open" eventually 30 sixteen
after=$(cat "$WORK/after")
equal "they spread evenly over the workers (before: $before, after: $after)" even "$(awk '{d = $1 - $2; print (d * d <= 1 ? "even" : "uneven")}' <<<"$after")"
wait "${load[@]}"
finish
