#!/usr/bin/env bash
# up.sh [--name NAME] [--api-only]: starts a real Kubernetes cluster of two nodes in namespaces of its own (needs root), or
# only etcd and the API server on the loopback address (any user). PROXY_MODE=nftables|iptables chooses kube-proxy's mode,
# IP_FAMILIES=dual gives nodes and pods an IPv6 address besides, and Services one if they ask for it.
# tests/kube/k is kubectl for it, tests/kube/down.sh ends it. All its files are below ${KUBE_RUN:-~/.cache/lateen/kube/run}.
source "$(dirname "$0")/cluster/common.sh"
name=${KUBE_NAME:-kube} MODE=nodes PROXY_MODE=${PROXY_MODE:-nftables} IP_FAMILIES=${IP_FAMILIES:-ipv4}
while [ $# -gt 0 ]; do
  case $1 in
  --name) name=${2:?--name needs a name}; shift 2 ;;
  --name=*) name=${1#*=}; shift ;;
  --api-only) MODE=api; shift ;;
  *) echo "usage: up.sh [--name NAME] [--api-only]" >&2; exit 64 ;;
  esac
done
in_run "$name"
case $PROXY_MODE in nftables | iptables) ;; *) echo "error: PROXY_MODE=$PROXY_MODE: want nftables or iptables" >&2; exit 64 ;; esac
case $IP_FAMILIES in ipv4 | dual) ;; *) echo "error: IP_FAMILIES=$IP_FAMILIES: want ipv4 or dual" >&2; exit 64 ;; esac
if [ $MODE = nodes ] && [ "$(id -u)" != 0 ]; then
  echo "error: a cluster with nodes needs root: it makes network and mount namespaces; --api-only does not" >&2
  exit 1
fi
if pid_of "$RUN/init.pid" >/dev/null; then
  echo "error: the cluster '$name' runs already: end it with tests/kube/down.sh --name $name, or choose another --name" >&2
  exit 1
fi
SET=$("$CLUSTER/build.sh")
BEGAN=${EPOCHREALTIME/./}
# What a crash left of a former one.
[ ! -d "$RUN" ] || "$(dirname "$0")/down.sh" --name "$name"

# free_port [OTHER...]: one that nobody listens on, and none of those.
free_port() {
  local p
  # Below the ports that the kernel hands out by itself.
  for _ in {1..200}; do
    p=$((20000 + RANDOM % 12000))
    [[ " $* " != *" $p "* ]] || continue
    (exec 3<>"/dev/tcp/127.0.0.1/$p") 2>/dev/null || { echo "$p"; return; }
  done
  echo "error: no free port below 32000" >&2
  return 1
}

# One that does not come up goes again (KEEP=1: stays for a look at it).
trap '[ $? = 0 ] || [ -n "${KEEP:-}" ] || "$(dirname "$0")/down.sh" --name "$name"' EXIT
trap 'exit 130' INT TERM
mkdir -p "$RUN/log"
API_ADDRESS=10.200.0.1 API_PORT=6443 ETCD_PORT=2379 PEER_PORT=2380
nodes=(node1=10.200.0.11 node2=10.200.0.12)
if [ $MODE = api ]; then API_ADDRESS=127.0.0.1 API_PORT=$(free_port) ETCD_PORT=$(free_port "$API_PORT") PEER_PORT=$(free_port "$API_PORT" "$ETCD_PORT") nodes=(); fi
printf '%s\n' "MODE=$MODE" "SET=$SET" "PROXY_MODE=$PROXY_MODE" "IP_FAMILIES=$IP_FAMILIES" "API_ADDRESS=$API_ADDRESS" "API_PORT=$API_PORT" "ETCD_PORT=$ETCD_PORT" "PEER_PORT=$PEER_PORT" >"$RUN/addresses"
"$CLUSTER/certs.sh" "$RUN/pki" "https://$API_ADDRESS:$API_PORT" "$API_ADDRESS" ${nodes[@]+"${nodes[@]}"} 2>"$RUN/log/certs.log" || failed certs "the certificates cannot be made"
cp "$RUN/pki/admin.kubeconfig" "$RUN/kubeconfig"
progress certificates

apart=()
[ $MODE = api ] || apart=(unshare --mount --net --pid --fork --kill-child=KILL)
(
  # The caller's open files, a lock perhaps, are not the cluster's.
  for fd in /proc/self/fd/*; do fd=${fd##*/}; [ "$fd" -le 2 ] || eval "exec $fd>&-"; done
  exec setsid ${apart[@]+"${apart[@]}"} "$CLUSTER/init.sh" "$name" "$SET" $MODE
) >"$RUN/log/init.log" 2>&1 </dev/null &
within 120 pid_of "$RUN/init.pid" || failed init "the cluster's first process does not start"

k() { KUBE_NAME=$name "$(dirname "$0")/k" "$@"; }
# A component that ends is not waited for. One that has not begun yet is: it notes itself when it is its turn to run.
dead() { [ -s "$RUN/$1.pid" ] && ! pid_of "$RUN/$1.pid"; }
up_or_dead() { k get --raw=/readyz || dead kube-apiserver || dead etcd; }
within 120 test -s "$RUN/etcd.pid" || failed init "etcd is not started"
within 120 pid_of "$RUN/kube-apiserver.pid" || failed init "the API server is not started"
within 120 up_or_dead || failed kube-apiserver "the API server is not ready after 120 s"
for c in etcd kube-apiserver; do pid_of "$RUN/$c.pid" >/dev/null || failed $c "$c ended"; done
progress "API server"
if [ $MODE = api ]; then
  echo "export KUBECONFIG=$RUN/kubeconfig"
  exit 0
fi
for c in kube-controller-manager kube-scheduler; do echo $c >"$RUN/start"; done

registered_or_dead() { [ "$(k get nodes -o name | wc -l)" = 2 ] || dead node1-start || dead node2-start; }
within 120 registered_or_dead || failed kubelet "the nodes do not register"
for n in node1 node2; do pid_of "$RUN/$n.pid" >/dev/null || failed $n-start "$n does not start"; done
k wait --for=condition=Ready node/node1 node/node2 --timeout=120s >/dev/null 2>&1 || failed kubelet "the nodes are not Ready after 120 s"
progress "both nodes Ready"
working_or_dead() { k -n kube-system get serviceaccount default || dead kube-controller-manager; }
within 120 working_or_dead || failed kube-controller-manager "the controllers make no service account"
for c in kube-controller-manager kube-scheduler; do within 60 pid_of "$RUN/$c.pid" || failed $c "$c ended"; done
k apply -f "$CLUSTER/manifests/dns.yaml" >/dev/null
k -n kube-system rollout status deployment/coredns --timeout=120s >/dev/null || { k -n kube-system describe pods >&2; failed kubelet "CoreDNS is not ready after 120 s"; }
progress "DNS; kubectl is tests/kube/k"
