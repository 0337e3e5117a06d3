#!/usr/bin/env bash
# Starts a cluster, runs the suites that are named on it in their order, ends it and adds the counts up. The order matters:
# later suites use the mesh that an earlier one installs. Without names all suites run, in lanes beside each other, each of
# which has a cluster of its own, for most of what suites do is wait: those whose head says "# lane: NAME" in the lane NAME,
# after those that say "# lane: all"; the others in one more. With --installed, suites that say
# "# lane: all" run before those that are named. KEEP=1 keeps the clusters; KEEP_LOGS=FOLDER keeps their logs when something failed.
set -uo pipefail
cd "$(dirname "$0")"
if [ "$(id -u)" != 0 ]; then
  echo "not ok - needs root: a cluster's nodes are namespaces, which cannot be made without it"
  echo "0 passed, 1 failed, 0 skipped"
  exit 1
fi
KUBE_NAME=${KUBE_NAME:-test-$$}
if [ "${1:-}" = --installed ]; then
  shift
  [ $# = 0 ] || set -- $(grep -lx '# lane: all' [0-9]*.sh | grep -vxF "$(printf '%s\n' "${@/%.sh/}" | sed 's/$/.sh/')") "$@"
fi
results=$(mktemp -d)
# running: what has to end before this does.
running=()
ending() {
  [ ${#running[@]} = 0 ] || { kill "${running[@]}"; wait "${running[@]}"; } 2>/dev/null
  [ -n "${KEEP:-}" ] || [ -z "${KUBE_MARK:-}" ] || ./down.sh --name "$KUBE_NAME" 2>/dev/null
  rm -rf "$results"
}
trap ending EXIT
trap 'exit 130' INT TERM
# total: once more at the end what failed, for it is what a reader looks for, and the sum.
total() {
  cat "$results/failed" 2>/dev/null
  awk '{p += $1; f += $3; k += $5} END {printf "%d passed, %d failed, %d skipped\n", p, f, k; exit f > 0}' "$results/counts"
}
# broken WHERE TEXT: a failure that is none of a suite's checks.
broken() {
  echo "not ok - $2"
  echo "--- FAIL: $1: $2" >>"$results/failed"
  echo "0 passed, 1 failed, 0 skipped" >>"$results/counts"
}
COUNTS='^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$'

if [ $# = 0 ]; then
  lanes=("" $(sed -n 's/^# lane: //p' [0-9]*.sh | grep -vx all | sort -u))
  for lane in "${lanes[@]}"; do
    suites=()
    for s in [0-9]*.sh; do
      l=$(sed -n 's/^# lane: //p' "$s")
      if [ "$l" = all ] || [ "$l" = "$lane" ]; then suites+=("$s"); fi
    done
    KUBE_NAME=$KUBE_NAME${lane:+-$lane} env --default-signal=INT,QUIT ./run.sh "${suites[@]}" >"$results/lane-$lane" 2>&1 </dev/null &
    running+=($!)
  done
  lanes_pids=("${running[@]}")
  for i in "${!lanes[@]}"; do
    wait "${lanes_pids[$i]}"
    out=$results/lane-${lanes[$i]}
    echo "== lane ${lanes[$i]:-of the others}"
    grep -vE "^--- FAIL: |$COUNTS" "$out"
    grep -E '^--- FAIL: ' "$out" >>"$results/failed"
    tail -1 "$out" | grep -E "$COUNTS" >>"$results/counts" || broken run.sh "the lane '${lanes[$i]}' ended without counts"
  done
  running=()
  total
  exit
fi

export KUBE_NAME KUBE_MARK=$$-$RANDOM$RANDOM
# In the background and waited for, so that a signal need not wait for its end.
await() { env --default-signal=INT,QUIT "$@" </dev/null & running=($!); wait "${running[0]}"; local status=$?; running=(); return $status; }
# A suite that says "# families: dual" needs addresses of both families, and so has a lane of its own: all others see what most users have.
for s in "$@"; do ! grep -qx '# families: dual' "$(basename "${s%.sh}").sh" || export IP_FAMILIES=dual; done
began=$SECONDS
if ! await ./up.sh --name "$KUBE_NAME" 2>&1; then
  broken up.sh "the cluster starts"
  total
  exit
fi
echo "   cluster: $((SECONDS - began)) s"
for s in "$@"; do
  s=$(basename "${s%.sh}").sh
  began=$SECONDS
  echo "== $s"
  await timeout -k 10 "${SUITE_SECONDS:-1200}" bash "./$s" >"$results/$s" 2>&1
  status=$?
  if grep -E "$COUNTS" "$results/$s" | tail -1 >"$results/count" && [ -s "$results/count" ]; then
    cat "$results/count" >>"$results/counts"
    grep -vE "$COUNTS" "$results/$s"
    sed -n "s|^not ok - |--- FAIL: $s: |p" "$results/$s" >>"$results/failed"
    told=$(grep -c '^not ok - ' "$results/$s")
    [ "$told" = "$(awk '{print $3}' "$results/count")" ] || broken "$s" "$s counts its failures: $told are told, and $(awk '{print $3}' "$results/count") counted"
  else
    tail -30 "$results/$s"
    broken "$s" "$s ended with status $status and no counts"
  fi
  echo "   $((SECONDS - began)) s"
done
RUN=$(source cluster/common.sh; in_run "$KUBE_NAME"; echo "$RUN")
if [ -n "${KEEP_LOGS:-}" ] && [ -s "$results/failed" ]; then
  mkdir -p "$KEEP_LOGS/$KUBE_NAME" && cp -r "$RUN/log" "$KEEP_LOGS/$KUBE_NAME/" && for n in node1 node2; do cp -r "$RUN/nodes/$n/rootfs/var/log" "$KEEP_LOGS/$KUBE_NAME/$n"; done
fi
# left: what the cluster's end does not end. Every process that was started here has the mark in its environment.
left() {
  local p
  [ ! -e "$RUN" ] || echo "$RUN"
  grep -F "$RUN/" /proc/self/mounts
  find /sys/fs/cgroup -maxdepth 2 -name "lateen-kube-$KUBE_NAME"
  for p in /proc/[0-9]*; do ! grep -qszx "KUBE_MARK=$KUBE_MARK" "$p/environ" || tr '\0' ' ' <"$p/cmdline"; done 2>/dev/null
}
# nothing_left: the process that began the cluster ends only when it has heard of its child's end, which may be a moment later.
nothing_left() {
  local deadline=$((SECONDS + 10))
  while rest=$(left); [ -n "$rest" ]; do
    [ $SECONDS -lt $deadline ] || return 1
    sleep 0.2
  done
}
if [ -z "${KEEP:-}" ]; then
  if ./down.sh --name "$KUBE_NAME" 2>&1 && nothing_left; then
    echo "ok - nothing is left of the cluster"
    echo "1 passed, 0 failed, 0 skipped" >>"$results/counts"
  else
    broken the-end "nothing is left of the cluster: ${rest:-}"
  fi
fi
total
