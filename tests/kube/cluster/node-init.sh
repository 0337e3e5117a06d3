#!/usr/bin/env bash
# node-init.sh CLUSTER SET NODE: pid 1 of a node. It builds a root file system (the host's /usr, read-only, with the
# unpacked packages over it; all else the node's own), moves into it, and starts containerd, kubelet and kube-proxy.
source "$(dirname "$0")/common.sh"
in_run "$1"
SET=$2 NODE=$3 NUMBER=${3#node}
record "$RUN/$NODE.pid"
source "$RUN/addresses"
ADDRESS=10.200.0.1$NUMBER ADDRESSES=$ADDRESS PODS=10.244.0.0/16
RANGES="[{\"subnet\": \"10.244.$NUMBER.0/24\"}]" ROUTES='{"dst": "0.0.0.0/0"}'
if [ "$IP_FAMILIES" = dual ]; then
  ADDRESSES+=,fd00:10:200::1$NUMBER PODS+=,fd00:10:244::/48
  RANGES+=", [{\"subnet\": \"fd00:10:244:$NUMBER::/64\"}]" ROUTES+=', {"dst": "::/0"}'
fi
R=$RUN/nodes/$NODE/rootfs
hostname "$NODE"

mkdir -p "$R"/{usr,etc/cni/net.d,etc/containerd,etc/kubernetes,proc,sys,dev,run,tmp,var/lib/containerd,var/lib/kubelet,var/log/pods,var/log/containers,opt/cni/bin,opt/kube,root,mnt,old}
for d in bin sbin lib lib64 lib32; do [ -L "$R/$d" ] || ln -s usr/$d "$R/$d"; done
[ -L "$R/var/run" ] || ln -s /run "$R/var/run"
for f in passwd group nsswitch.conf ld.so.cache ld.so.conf ld.so.conf.d alternatives ssl protocols services ethertypes os-release localtime; do
  [ ! -e /etc/$f ] || cp -a /etc/$f "$R/etc/"
done
printf '127.0.0.1 localhost\n%s %s\n' "$ADDRESS" "$NODE" >"$R/etc/hosts"
echo "$NODE" >"$R/etc/hostname"
echo nameserver 10.96.0.10 >"$R/etc/resolv.conf"
[ -s "$R/etc/machine-id" ] || tr -d - </proc/sys/kernel/random/uuid >"$R/etc/machine-id"
cp -rT "$RUN/pki" "$R/etc/kubernetes/pki"
# What a pod chained into the configuration stays, as on a node that only started again.
[ -n "$(ls "$R/opt/cni/bin")" ] || cp "$SET"/debian/usr/lib/cni/* "$R/opt/cni/bin/"
[ -n "$(ls "$R/etc/cni/net.d")" ] || cat >"$R/etc/cni/net.d/10-kube.conflist" <<C
{"cniVersion": "1.0.0", "name": "kube", "plugins": [
  {"type": "ptp", "ipMasq": false, "mtu": 1500, "ipam": {"type": "host-local", "dataDir": "/run/cni-ipam",
    "ranges": [$RANGES], "routes": [$ROUTES]}},
  {"type": "portmap", "capabilities": {"portMappings": true}}]}
C
# restrict_oom_score_adj: where this machine may not lower a score (no CAP_SYS_RESOURCE) no container could start.
cat >"$R/etc/containerd/config.toml" <<C
version = 2
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "docker.io/local/pause:1"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/opt/cni/bin"
    conf_dir = "/etc/cni/net.d"
C
# protectKernelDefaults: the kubelet checks the kernel's settings, which are the host's, and does not write them.
# evictionHard: the disk is the host's, and how full it is says nothing about the node.
cat >"$R/etc/kubernetes/kubelet.yaml" <<C
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: $ADDRESS
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: /etc/kubernetes/pki/ca.crt}}
authorization: {mode: Webhook}
tlsCertFile: /etc/kubernetes/pki/$NODE.crt
tlsPrivateKeyFile: /etc/kubernetes/pki/$NODE.key
clusterDNS: [10.96.0.10]
clusterDomain: cluster.local
# Renewed at a quarter of it: the controller that looks for lost nodes has little patience here.
nodeLeaseDurationSeconds: 12
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
cgroupDriver: cgroupfs
failCgroupV1: false
failSwapOn: false
protectKernelDefaults: true
resolvConf: /etc/resolv.conf
serializeImagePulls: false
volumePluginDir: /var/lib/kubelet/volumeplugins
imageGCHighThresholdPercent: 100
evictionHard: {memory.available: "100Mi", nodefs.available: "0%", imagefs.available: "0%", nodefs.inodesFree: "0%", imagefs.inodesFree: "0%"}
maxPods: 60
C
# conntrack: its sizes belong to the host's kernel and cannot be set from here.
cat >"$R/etc/kubernetes/proxy.yaml" <<C
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
clientConnection: {kubeconfig: /etc/kubernetes/pki/kube-proxy.kubeconfig}
mode: $PROXY_MODE
clusterCIDR: $PODS
bindAddress: $ADDRESS
bindAddressHardFail: false
healthzBindAddress: 127.0.0.1:10256
metricsBindAddress: 127.0.0.1:10249
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
C

mount --bind "$R" "$R"
mount -t overlay -o "ro,lowerdir=$(realpath "$SET/debian")/usr:/usr" usr "$R/usr"
mount -t proc proc "$R/proc"
mount -t sysfs sysfs "$R/sys"
if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
  mount -t cgroup2 cgroup2 "$R/sys/fs/cgroup"
  # A group that has processes cannot hand controllers on: this one and its children go one level down.
  mkdir -p "$R/sys/fs/cgroup/init"
  echo 0 >"$R/sys/fs/cgroup/init/cgroup.procs"
  for c in $(cat "$R/sys/fs/cgroup/cgroup.controllers"); do echo "+$c" >"$R/sys/fs/cgroup/cgroup.subtree_control"; done
else
  mount -t tmpfs -o mode=755 cgroup "$R/sys/fs/cgroup"
  while IFS=: read -r id controllers _; do
    if [ "$id" = 0 ]; then [ -d /sys/fs/cgroup/unified ] || continue; controllers=unified; fi
    name=${controllers#name=}
    mkdir "$R/sys/fs/cgroup/$name"
    if [ "$id" = 0 ]; then mount -t cgroup2 cgroup2 "$R/sys/fs/cgroup/$name"
    elif [ "$name" = "$controllers" ]; then mount -t cgroup -o "$controllers" cgroup "$R/sys/fs/cgroup/$name"
    else mount -t cgroup -o "none,$controllers" cgroup "$R/sys/fs/cgroup/$name"; fi
    # Hierarchies of several controllers are looked for under each one's name.
    case $name in *,*) for c in ${name//,/ }; do ln -s "$name" "$R/sys/fs/cgroup/$c"; done ;; esac
  done </proc/self/cgroup
fi
mount -t bpf bpf "$R/sys/fs/bpf" 2>/dev/null || true
mount --rbind /dev "$R/dev"
mount -t tmpfs -o mode=755 run "$R/run"
mount -t tmpfs -o mode=1777 tmp "$R/tmp"
# Snapshots of images are overlays themselves, which cannot lie on one.
case $(stat -f -c %T "$R/var/lib/containerd") in overlayfs | nfs) mount -t tmpfs containerd "$R/var/lib/containerd" ;; esac
mkdir -p "$R/run/netns" "$R/run/lock" "$R/run/containerd"
# The values that the kubelet wants to find, shown to this node alone.
for kv in vm/overcommit_memory=1 vm/panic_on_oom=0 kernel/panic=10 kernel/panic_on_oops=1 kernel/keys/root_maxkeys=1000000 kernel/keys/root_maxbytes=25000000; do
  f=$R/run/sysctl.$(tr / . <<<"${kv%=*}")
  echo "${kv#*=}" >"$f"
  mount --bind "$f" "$R/proc/sys/${kv%=*}"
done
mount --bind "$SET" "$R/opt/kube"
mount -o remount,bind,ro "$R/opt/kube"
cd "$R"
pivot_root . old
umount -l /old
mount --make-rshared /
cd /

export PATH=/opt/kube/bin:/usr/sbin:/usr/bin:/sbin:/bin
unset XDG_CACHE_HOME KUBE_RUN
echo 1 >/proc/sys/net/ipv4/ip_forward
[ "$IP_FAMILIES" != dual ] || echo 1 >/proc/sys/net/ipv6/conf/all/forwarding
# Whoever supervises it starts it again when it has ended; containers go on meanwhile.
while true; do
  containerd -c /etc/containerd/config.toml >>/var/log/containerd.log 2>&1 9>&- || true
  sleep 1
done &
for _ in {1..300}; do ctr version >/dev/null 2>&1 && break; sleep 0.1; done
for i in /opt/kube/img/*.tar; do ctr -n k8s.io images import "$i"; done >>/var/log/import.log 2>&1
kubernetes kube-proxy --config=/etc/kubernetes/proxy.yaml --hostname-override="$NODE" >>/var/log/kube-proxy.log 2>&1 &
kubernetes kubelet --config=/etc/kubernetes/kubelet.yaml --kubeconfig="/etc/kubernetes/pki/$NODE.kubeconfig" --node-ip="$ADDRESSES" \
  --hostname-override="$NODE" --root-dir=/var/lib/kubelet \
  --node-labels="lateen.dev/node-index=$NUMBER,topology.kubernetes.io/region=test,topology.kubernetes.io/zone=test-$NUMBER" >>/var/log/kubelet.log 2>&1 &
# Orphans become this process's children and are reaped by it.
while true; do sleep infinity & wait $!; done
