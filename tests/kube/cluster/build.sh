#!/usr/bin/env bash
# Builds what the test cluster is made of and prints the folder it is in: bin/ (etcd and Kubernetes as one binary, and the
# tools), img/ (images of pause, echo and CoreDNS), debian/ (packages unpacked, not installed: containerd, runc, the CNI
# plugins, iptables, conntrack, busybox). Everything is kept in ${XDG_CACHE_HOME:-~/.cache}/lateen/kube under a hash of
# what it is made from: five minutes the first time, nothing after.
source "$(dirname "$0")/common.sh"
KUBERNETES=$(sed -n 's|^\tk8s.io/kubernetes v||p' "$CLUSTER/go.mod")
PACKAGES=(containerd runc containernetworking-plugins busybox-static conntrack
  iptables libip4tc2 libip6tc2 libxtables12 libmnl0 libnftnl11 libnfnetlink0 libnetfilter-conntrack3 libseccomp2)
export CGO_ENABLED=0 GOWORK=off GOFLAGS='-mod=readonly -buildvcs=false'

BUILDING=
trap '[ -z "$BUILDING" ] || echo "error: $BUILDING cannot be built: it comes from $(source_of "$BUILDING"), or ready from $CACHE, where a build that ended leaves it" >&2' EXIT
source_of() { case $1 in debian) echo "Debian's archive (apt-get download)" ;; cluster) echo "the other parts" ;; *) echo "the Go modules of $CLUSTER (go env GOPROXY) and a C compiler" ;; esac; }

mkdir -p "$CACHE"
exec 9>"$CACHE/lock"
flock 9

# made KIND [PATH...]: the folder of what build_KIND makes of those files; it is called if the folder is not there yet. The
# key is a hash of the files and of the function itself.
made() {
  local kind=$1 key folder; shift
  key=$({ declare -f "build_$kind"; echo "${PACKAGES[*]} ${parts[*]##*/} $KUBERNETES $(go env GOARCH)"
    [ $# = 0 ] || (cd "$CLUSTER" && find "$@" -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum); } | sha256sum | cut -c1-16)
  folder=$CACHE/$kind-$key
  if [ ! -d "$folder" ]; then
    progress "building $kind ($key)"
    rm -rf "$folder.part" && mkdir -p "$folder.part"
    BUILDING=$kind
    (cd "$folder.part" && "build_$kind") >&2
    BUILDING=
    mv "$folder.part" "$folder"
    progress "built $kind"
  fi
  touch "$folder"
  printf -v "$kind" %s "$folder"
}

build_kubernetes() {
  local out=$PWD v=k8s.io/component-base/version minor=${KUBERNETES#*.}
  echo "Kubernetes $KUBERNETES and etcd: about five minutes on two cores when Go's own cache is cold"
  (cd "$CLUSTER" && go build -trimpath -o "$out/kubernetes" \
    -ldflags "-s -w -X $v.gitVersion=v$KUBERNETES -X $v.gitMajor=${KUBERNETES%%.*} -X $v.gitMinor=${minor%.*} -X $v.gitTreeState=clean" ./cmd/kubernetes)
  # The parent of a pod's processes, as the kubelet expects it; one C file of Kubernetes itself.
  gcc -Os -static -DVERSION="$KUBERNETES" -o pause "$(cd "$CLUSTER" && go list -m -f '{{.Dir}}' k8s.io/kubernetes)/build/pause/linux/pause.c"
}
build_dns() { local out=$PWD; (cd "$CLUSTER/dns" && go build -trimpath -ldflags='-s -w' -o "$out/coredns" .); }
build_tools() { local out=$PWD; (cd "$CLUSTER" && go build -trimpath -ldflags='-s -w' -o "$out/" ./cmd/mkimage ./cmd/echo); }
build_debian() {
  command -v apt-get >/dev/null || { echo "error: apt-get is missing: the container runtime comes from Debian's packages" >&2; exit 1; }
  mkdir debs root
  (cd debs && { apt-get -qq download "${PACKAGES[@]}" || { apt-get -qq update && apt-get -qq download "${PACKAGES[@]}"; }; })
  local deb
  for deb in debs/*.deb; do dpkg-deb -x "$deb" root; done
  rm -rf debs
  # Packages may still bring /lib, /bin and /sbin; the nodes see usr alone, over the host's.
  for d in bin sbin lib; do [ ! -d root/$d ] || [ -L root/$d ] || { mkdir -p root/usr/$d && cp -a root/$d/. root/usr/$d/; }; done
  # What the packages' scripts make with update-alternatives.
  for d in iptables ip6tables; do for s in '' -save -restore; do ln -sfn "$d-nft$s" "root/usr/sbin/$d$s"; done; done
}
build_cluster() {
  mkdir bin img
  ln "$kubernetes/kubernetes" "$tools/mkimage" "$tools/echo" bin/
  ln -s kubernetes bin/kubectl
  ln -s "$debian/root" debian
  local links=() a
  for a in sh cat ls wget nc ip sleep env ps id nslookup grep cut head tail sed; do links+=(-link "/bin/$a=busybox"); done
  bin/mkimage -o img/pause.tar -name docker.io/local/pause:1 -entrypoint /pause -user 65535:65535 "$kubernetes/pause:/pause"
  bin/mkimage -o img/echo.tar -name docker.io/local/echo:1 -entrypoint /echo "${links[@]}" debian/usr/bin/busybox:/bin/busybox bin/echo:/echo
  bin/mkimage -o img/coredns.tar -name docker.io/local/coredns:1 -entrypoint /coredns "$dns/coredns:/coredns"
}

parts=()
made debian
made tools cmd/mkimage cmd/echo
made dns dns
made kubernetes go.mod go.sum cmd/kubernetes
parts=("$kubernetes" "$dns" "$tools" "$debian")
made cluster

# What no branch has used for two weeks goes.
find "$CACHE" -maxdepth 1 -type d -name '*-*' -mtime +14 -exec rm -rf {} +
echo "$cluster"
