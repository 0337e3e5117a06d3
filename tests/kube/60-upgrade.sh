#!/usr/bin/env bash
# Every part is upgraded under load, twice: by `lateen upgrade` to other images, part after part; and all parts at the same time,
# as Helm does it. No new connection fails, established ones go on where they are, pods that are born meanwhile are served
# from their first packet on, and nothing crosses in clear.
# bites: a DaemonSet judged by its status (spread in internal/install/wait.go): `lateen upgrade` gives up while the proxies that
# were replaced still carry connections. Seen red so.
# lane: faults
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/faults.sh"
stage

VERSION=$(k -n lateen-system get daemonset lateen-node -o jsonpath='{.spec.template.spec.containers[0].image}') VERSION=${VERSION##*:}
TAG=$VERSION-next
tag() { # the images under another name: for the cluster, another version
  local node i
  for node in node1 node2; do
    for i in control agent proxy; do on_node $node ctr -n k8s.io images tag --force "docker.io/lateen/$i:$VERSION" "docker.io/lateen/$i:$TAG" || return 1; done
  done
}
check "there is another version of the images" tag
images() { k -n lateen-system get pods -o json | jq -r '[.items[] | select(.metadata.deletionTimestamp == null) | .spec.containers[].image | split(":")[-1]] | unique | join(" ")'; }
generation() { k -n lateen-system get pods -o json | jq -r '.items[] | select(.metadata.deletionTimestamp == null) | .metadata.uid' | sort; }
first=$(generation)
births() { # COUNT: of a deployment whose pods die of a first request that fails
  k -n faults get deployment births >/dev/null 2>&1 || k -n faults create -f - <<Y
apiVersion: apps/v1
kind: Deployment
metadata: {name: births}
spec:
  replicas: 0
  selector: {matchLabels: {app: births}}
  template:
    metadata: {labels: {app: births}}
    spec:
      serviceAccountName: client
      terminationGracePeriodSeconds: 0
      containers: [{name: client, image: docker.io/local/echo:1, imagePullPolicy: Never, command: [sh, -c, "wget -qO- http://$VIP/marker-upgrade && exec sleep 1000000"]}]
Y
  k -n faults scale deployment/births --replicas="$1"
}

watch_wire tcp and not port 6443
load_all -path /marker-upgrade
sleep 2
began=$SECONDS
( sleep 8; births 4 ) >/dev/null 2>&1 & BORN=$!
check "lateen upgrade to other images, under load" lateen upgrade --set image.tag=$TAG --timeout 5m
wait $BORN
echo "   upgraded in $((SECONDS - began)) s"
equal "every part runs the other image" "$TAG" "$(images)"
check "every part is ready" eventually 60 parts_ready
for n in "${ALL[@]}"; do equal "so far nothing has failed: $n" 0 "$(wc -l <"$WORK/$n.failures")"; done

second=$(generation)
began=$SECONDS
check "all parts are replaced at the same time" k -n lateen-system rollout restart deployment/lateen-control deployment/lateen-deployer daemonset/lateen-agent daemonset/lateen-node
check "while pods are born" births 10
replaced() { parts_ready && [ -z "$(comm -12 <(printf '%s\n' "$first" "$second" | sort -u) <(generation))" ]; }
check "every part is another one, and ready" eventually 90 replaced
check "the pods are there" k -n faults rollout status deployment/births --timeout=120s
echo "   replaced in $((SECONDS - began)) s"
check "those born meanwhile are captured" eventually 60 captured faults 14
equal "and were served at once" 0 "$(k -n faults get pods -l app=births -o json | jq '[.items[].status.containerStatuses[0].restartCount] | add')"
sleep 2
unharmed "${ALL[@]}"
unwatch_wire
check "packets of the tunnel's port cross the fabric" [ "$(on_wire tcp port 15008)" -gt 0 ]
equal "none shows what was asked" 0 "$(in_clear marker-upgrade)"
only_new() { [ "$(k -n lateen-system get pods -o name | wc -l)" = 7 ]; }
check "the proxies that were replaced end with their last connections" eventually 60 only_new
check "nothing has changed in the pods outside" untouched
k -n faults delete deployment births --wait=false >/dev/null
finish
