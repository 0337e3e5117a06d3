#!/usr/bin/env bash
# The images of `make images`: made twice they are the same, nothing in them is writable for all or runs as somebody else,
# and each starts as its own user on its own files alone. They are unpacked with jq and tar, not with what wrote them.
# bites: without a library in internal/tools/images/programs.go lateen-proxy does not start; without Merged() nothing
# that is linked does.
# needs: python3
source "$(dirname "$0")/lib.sh"
cd "$ROOT" || exit 1
VERSION=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)
ALL=(control agent proxy load bookinfo-productpage bookinfo-details bookinfo-ratings bookinfo-reviews)
holder=
trap '[ -z "$holder" ] || kill -KILL "$holder" 2>/dev/null; wait 2>/dev/null; cleanup' EXIT

images() { go run ./internal/tools/images -version "$VERSION" -out "$1" "${@:2}"; } # of what is in bin/, as `make build` left it
make_all() { images "$WORK/one" >"$WORK/table" 2>"$WORK/said" || { cat "$WORK/said"; return 1; }; }
check "every image is made" make_all
equal "a row for each says its name and digest" ${#ALL[@]} "$(grep -cE "^docker.io/lateen/[a-z-]+:$VERSION +[0-9.]+ +[0-9.]+ +sha256:[0-9a-f]{64}$" "$WORK/table")"
check "the table ends with the next step" grep -q 'ctr -n k8s.io images import' "$WORK/table"
equal "none is larger than meant" "" "$(grep 'meant to stay below' "$WORK/said")"
grep 'drop it from the catalogue' "$WORK/said" # of interest to who keeps the list, and no fault of this checkout
touch -r "$WORK/one/load.tar" "$WORK/before" && images "$WORK/one" load >/dev/null 2>&1
check_not "what has not changed is not made again" test "$WORK/one/load.tar" -nt "$WORK/before"
images "$WORK/two" control proxy bookinfo-productpage >/dev/null 2>&1
for i in control proxy bookinfo-productpage; do check "made again, $i is the same to the byte" cmp "$WORK/one/$i.tar" "$WORK/two/$i.tar"; done

# unpack IMAGE: its files into $WORK/files/IMAGE, its configuration into $WORK/IMAGE.json
unpack() {
  local dir=$WORK/layout/$1 manifest
  mkdir -p "$dir" "$WORK/files/$1" && tar -xf "$WORK/one/$1.tar" -C "$dir" || return
  blob() { echo "$dir/blobs/$(tr : / <<<"$1")"; }
  manifest=$(blob "$(jq -r '.manifests[0].digest' "$dir/index.json")")
  (cd "$dir/blobs/sha256" && for f in *; do echo "$f  $f"; done | sha256sum --quiet -c) || return
  cp "$(blob "$(jq -r .config.digest "$manifest")")" "$WORK/$1.json" || return
  for layer in $(jq -r '.layers[].digest' "$manifest"); do tar -xpzf "$(blob "$layer")" -C "$WORK/files/$1" || return; done
  rm -rf "$dir/blobs"
}
config() { jq -r "$2" "$WORK/$1.json"; }
for i in "${ALL[@]}"; do
  check "$i: every blob is what its name says" unpack "$i"
  equal "$i: containerd finds its name" "docker.io/lateen/$i:$VERSION" "$(jq -r '.manifests[0].annotations["io.containerd.image.name"]' "$WORK/layout/$i/index.json")"
  equal "$i: nothing runs as somebody else, is a device or is for all to write" "" \
    "$(find "$WORK/files/$i" \( -perm /6000 -o -type b -o -type c -o -type f -perm -o+w -o -type d -perm -o+w ! -perm -1000 -o ! -uid 0 -o ! -gid 0 \) -printf '%M %u %P\n')"
  equal "$i: it says version, licence and source" "$VERSION" \
    "$(config "$i" '.config.Labels | select(."org.opencontainers.image.licenses" and ."org.opencontainers.image.source" and ."org.opencontainers.image.title")["org.opencontainers.image.version"]')"
  equal "$i: no shell" "" "$(cd "$WORK/files/$i" && ls usr/bin/sh usr/bin/bash usr/bin/dash usr/bin/busybox 2>/dev/null)"
done
equal "root is the user of those that enter namespaces" "agent proxy" \
  "$(for i in "${ALL[@]}"; do [ "$(config "$i" .config.User)" != 0:0 ] || echo "$i"; done | sort | paste -sd' ')"

# A machine without anything: namespaces of its own, from which no address but loopback is reached.
unshare --mount --net --pid --fork --kill-child=KILL --mount-proc sleep infinity & holder=$!
check "a bare machine stands" eventually 15 pgrep -P "$holder" sleep
inner=$(pgrep -P "$holder" sleep)
bare() { nsenter -t "$inner" -m -n -p -- "$@"; }
bare ip link set lo up
for i in "${ALL[@]}"; do
  bare mount --bind "$WORK/files/$i" "$WORK/files/$i" # read-only, as in samples/bookinfo/kubernetes
  bare mount -o remount,bind,ro "$WORK/files/$i"
  bare mount --rbind /dev "$WORK/files/$i/dev" && bare mount -t proc proc "$WORK/files/$i/proc"
done
# start IMAGE ENV... [-- ARGUMENTS...]: what the image starts, with its environment, as its user and with no rights to gain
start() {
  local i=$1 user env=() entry=(); shift
  mapfile -t env < <(config "$i" '.config.Env[]')
  mapfile -t entry < <(config "$i" '.config.Entrypoint[]')
  user=$(config "$i" .config.User)
  while [ $# -gt 0 ]; do [ "$1" != -- ] || { shift; break; }; env+=("$1"); shift; done
  bare env -i "${env[@]}" /usr/bin/setpriv --no-new-privs "$(command -v chroot)" --userspec="$user" --groups= "$WORK/files/$i" "${entry[@]}" "$@"
}
equal "the control plane starts" "lateen-control version" "$(start control -- --version 2>&1 | grep -o '^lateen-control version')"
equal "the agent starts" "Usage of lateen-agent:" "$(start agent -- -h 2>&1 | head -1)"
check "the CNI plugin says which versions it speaks" found supportedVersions \
  <(bare env CNI_COMMAND=VERSION "$(command -v chroot)" "$WORK/files/agent" /opt/lateen/bin/lateen-cni <<<'{"cniVersion":"1.0.0"}')
equal "the proxy starts" "lateen-proxy $VERSION" "$(start proxy -- --version 2>&1)"
start load -- serve --listen 127.0.0.1:9090 2>"$WORK/load.log" &
check "the echo service answers" eventually 30 bare curl -sf -o /dev/null http://127.0.0.1:9090/

page=() port=9081
for s in details reviews ratings; do
  case $s in reviews) more=(ENABLE_RATINGS=true STAR_COLOR=red RATINGS_HOSTNAME=127.0.0.1 RATINGS_SERVICE_PORT=9083 POD_NAME=one) ;; *) more=() ;; esac
  start "bookinfo-$s" PORT=$port "${more[@]}" 2>"$WORK/$s.log" &
  page+=("${s^^}_HOSTNAME=127.0.0.1" "${s^^}_SERVICE_PORT=$port")
  port=$((port + 1))
done
start bookinfo-productpage "${page[@]}" 2>"$WORK/productpage.log" &
answers() { local out; out=$(bare curl -sf "http://127.0.0.1:$1") && grep -q "$2" <<<"$out" || { cat "$WORK/$3.log"; return 1; }; }
check "details answers (Ruby)" eventually 60 answers 9081/details/0 'William Shakespeare' details
check "ratings answers (Node.js)" eventually 60 answers 9083/ratings/0 Reviewer1 ratings
check "reviews answers with the stars of ratings (Java)" eventually 90 answers 9082/reviews/0 '"color": "red"' reviews
check "the page answers (Python)" eventually 60 answers 9080/health healthy productpage
check "with what details says" eventually 30 answers '9080/productpage?u=normal' paperback productpage
check "and reviews" eventually 30 answers '9080/productpage?u=normal' Reviewer2 productpage
equal "each as nobody" "65532 65532 65532 65532" "$(for s in 'python3 /opt' 'ruby /opt' 'node /opt' 'java -XX'; do bare ps -eo uid=,args= | awk -v s="/usr/bin/$s" 'index($0, s) {print $1; exit}'; done | paste -sd' ')"
finish
