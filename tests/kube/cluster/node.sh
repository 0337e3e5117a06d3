#!/usr/bin/env bash
# node.sh CLUSTER SET NODE: starts a node inside the cluster's namespaces: its link to the fabric, its control group, and
# namespaces of its own for everything else. What a former life of the node left on its disk is kept.
source "$(dirname "$0")/common.sh"
in_run "$1"
SET=$2 NODE=$3 NUMBER=${3#node}
source "$RUN/addresses"
NETNS=$RUN/netns/$NODE

# Seen in the cluster's mount namespace only.
mkdir -p "$RUN/netns"
umount "$NETNS" 2>/dev/null || true
ip link del "v-$NODE" 2>/dev/null || true
touch "$NETNS"
# By /proc/self: /proc is the host's here and knows no pid of this namespace.
unshare --net mount --bind /proc/self/ns/net "$NETNS"
in_node() { nsenter --net="$NETNS" "$@"; }
ip link add "v-$NODE" type veth peer name eth0 netns "$NETNS"
ip link set "v-$NODE" master br0 up
in_node ip addr add "10.200.0.1$NUMBER/24" dev eth0
in_node ip link set lo up
in_node ip link set eth0 up
in_node ip route add default via "$API_ADDRESS"
other=$((3 - NUMBER))
in_node ip route add "10.244.$other.0/24" via "10.200.0.1$other"
if [ "$IP_FAMILIES" = dual ]; then
  in_node ip addr add "fd00:10:200::1$NUMBER/64" dev eth0 nodad
  in_node ip route add default via fd00:10:200::1
  in_node ip route add "fd00:10:244:$other::/64" via "fd00:10:200::1$other"
fi

# The node's control group; the cgroup namespace makes it the root of the hierarchy for what runs there.
group=lateen-kube-$NAME
# To the scheduler a group is as much as one process, unless it is told otherwise: beside compilers a cluster would starve.
SHARES=20480 WEIGHT=2000
# Those of a former life are empty, as nothing is left of one after a power cut; a kubelet that finds them asks for the
# containers of each one after the other, for seconds.
find /sys/fs/cgroup/"$group/$NODE" /sys/fs/cgroup/*/"$group/$NODE" -mindepth 1 -depth -type d -exec rmdir {} + 2>/dev/null || true
if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
  mkdir -p "/sys/fs/cgroup/$group/$NODE"
  for g in "/sys/fs/cgroup" "/sys/fs/cgroup/$group"; do
    # One at a time: a controller that is not there does not keep the others away.
    for c in cpuset cpu io memory hugetlb pids; do echo "+$c" >"$g/cgroup.subtree_control" 2>/dev/null || true; done
  done
  [ ! -e "/sys/fs/cgroup/$group/cpu.weight" ] || echo $WEIGHT >"/sys/fs/cgroup/$group/cpu.weight"
  echo $$ >"/sys/fs/cgroup/$group/$NODE/cgroup.procs"
else
  for h in /sys/fs/cgroup/*/; do
    [ -e "$h/cgroup.procs" ] || continue
    mkdir -p "$h/$group/$NODE"
    [ ! -e "$h/$group/cpu.shares" ] || echo $SHARES >"$h/$group/cpu.shares"
    # A new cpuset has no processors, and no process may enter it before it has.
    if [ -e "$h/cpuset.cpus" ]; then
      for g in "$group" "$group/$NODE"; do
        for f in cpus mems; do cat "$h/cpuset.$f" >"$h/$g/cpuset.$f"; done
        echo 1 >"$h/$g/cgroup.clone_children"
      done
    fi
    echo $$ >"$h/$group/$NODE/cgroup.procs"
  done
fi
exec nsenter --net="$NETNS" unshare --mount --uts --ipc --pid --cgroup --fork --kill-child=KILL "$CLUSTER/node-init.sh" "$NAME" "$SET" "$NODE"
