#!/usr/bin/env bash
# init.sh NAME SET nodes|api: the first process of a cluster. With nodes it is pid 1 of a PID namespace, in a network and
# a mount namespace of its own: the network is the fabric between the nodes, and when this process ends the kernel ends
# every process, mount and interface of the cluster. It starts what is named to it through the pipe $RUN/start: etcd,
# kube-apiserver, kube-controller-manager, kube-scheduler, node1, node2.
source "$(dirname "$0")/common.sh"
in_run "$1"
SET=$2 MODE=$3
record "$RUN/init.pid"
PKI=$RUN/pki BIN=$SET/bin/kubernetes
source "$RUN/addresses"

fabric() {
  ip link set lo up
  ip link add br0 type bridge
  ip addr add "$API_ADDRESS/24" dev br0
  ip link set br0 up
  # The API server reaches webhooks through Services: by way of node1's kube-proxy. Nothing leaves this network.
  ip route add 10.96.0.0/16 via 10.200.0.11
  ip route add 10.244.1.0/24 via 10.200.0.11
  ip route add 10.244.2.0/24 via 10.200.0.12
  if [ "$IP_FAMILIES" = dual ]; then
    ip addr add fd00:10:200::1/64 dev br0 nodad
    ip route add fd00:10:96::/112 via fd00:10:200::11
    ip route add fd00:10:244:1::/64 via fd00:10:200::11
    ip route add fd00:10:244:2::/64 via fd00:10:200::12
  fi
}

# background NAME COMMAND...: its log is appended to; a restarted component continues it.
background() {
  local name=$1; shift
  (
    trap - TERM INT
    record "$RUN/$name.pid"
    exec "$@" >>"$RUN/log/$name.log" 2>&1 </dev/null 9>&-
  ) &
}

start() {
  case $1 in
  etcd)
    background etcd "$BIN" etcd --data-dir "$RUN/etcd" --unsafe-no-fsync --log-level warn \
      --listen-client-urls "http://127.0.0.1:$ETCD_PORT" --advertise-client-urls "http://127.0.0.1:$ETCD_PORT" \
      --listen-peer-urls "http://127.0.0.1:$PEER_PORT" --initial-advertise-peer-urls "http://127.0.0.1:$PEER_PORT" \
      --initial-cluster "default=http://127.0.0.1:$PEER_PORT"
    ;;
  kube-apiserver)
    local flags=(--bind-address=127.0.0.1 --endpoint-reconciler-type=none)
    local services=10.96.0.0/16
    [ "$IP_FAMILIES" != dual ] || services+=,fd00:10:96::/112
    [ "$MODE" = api ] || flags=(--allow-privileged=true
      --kubelet-client-certificate="$PKI/apiserver-kubelet-client.crt" --kubelet-client-key="$PKI/apiserver-kubelet-client.key"
      --kubelet-certificate-authority="$PKI/ca.crt" --kubelet-preferred-address-types=InternalIP)
    background kube-apiserver "$BIN" kube-apiserver --etcd-servers="http://127.0.0.1:$ETCD_PORT" --advertise-address="$API_ADDRESS" \
      --secure-port="$API_PORT" --service-cluster-ip-range="$services" --cert-dir="$RUN/apiserver" \
      --tls-cert-file="$PKI/apiserver.crt" --tls-private-key-file="$PKI/apiserver.key" --client-ca-file="$PKI/ca.crt" \
      --service-account-issuer=https://kubernetes.default.svc.cluster.local --service-account-key-file="$PKI/sa.pub" \
      --service-account-signing-key-file="$PKI/sa.key" --authorization-mode=Node,RBAC --enable-admission-plugins=NodeRestriction \
      --requestheader-client-ca-file="$PKI/front-proxy-ca.crt" --requestheader-allowed-names=front-proxy-client \
      --requestheader-extra-headers-prefix=X-Remote-Extra- --requestheader-group-headers=X-Remote-Group \
      --requestheader-username-headers=X-Remote-User --proxy-client-cert-file="$PKI/front-proxy-client.crt" \
      --proxy-client-key-file="$PKI/front-proxy-client.key" "${flags[@]}"
    ;;
  kube-controller-manager)
    background "$1" "$BIN" "$1" --kubeconfig="$PKI/$1.kubeconfig" --authentication-kubeconfig="$PKI/$1.kubeconfig" \
      --authorization-kubeconfig="$PKI/$1.kubeconfig" --root-ca-file="$PKI/ca.crt" --service-account-private-key-file="$PKI/sa.key" \
      --cluster-signing-cert-file="$PKI/ca.crt" --cluster-signing-key-file="$PKI/ca.key" --use-service-account-credentials=true \
      --allocate-node-cidrs=false --leader-elect=false --bind-address=127.0.0.1 \
      --node-monitor-grace-period=40s --node-monitor-period=2s
    ;;
  kube-scheduler)
    background "$1" "$BIN" "$1" --kubeconfig="$PKI/$1.kubeconfig" --authentication-kubeconfig="$PKI/$1.kubeconfig" \
      --authorization-kubeconfig="$PKI/$1.kubeconfig" --leader-elect=false --bind-address=127.0.0.1
    ;;
  node[12])
    background "$1-start" "$CLUSTER/node.sh" "$NAME" "$SET" "$1"
    ;;
  *) echo "init: unknown component '$1'" >&2 ;;
  esac
}

mkdir -p "$RUN/log"
[ "$MODE" = api ] || fabric
[ -p "$RUN/start" ] || mkfifo "$RUN/start"
exec 9<>"$RUN/start"
# Without a PID namespace the components are ended one by one; with one, its end is theirs.
[ "$MODE" = nodes ] || trap 'stop kube-apiserver; stop etcd; exit 0' TERM INT
start etcd
start kube-apiserver
# The controllers and the scheduler do not wait for the API server's roles: up.sh starts them when it is ready.
if [ "$MODE" = nodes ]; then
  start node1
  start node2
fi
while true; do
  # A signal (a child that ended) may interrupt the reading.
  read -r name <&9 || continue
  start "$name" || true
done
