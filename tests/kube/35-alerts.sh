#!/usr/bin/env bash
# What docs/guide/alerts.md tells an operator to run works as it is written: every command of every alert's section runs, without an error and
# with an answer, with the name of a node in the place of NODE. What is said on standard error is no answer.
source "$(dirname "$0")/lib.sh"

tools=$WORK/bin
mkdir -p "$tools"
ln -s "$ROOT/bin/lateen" "$tools/lateen"
ln -s "$SET/bin/kubectl" "$tools/kubectl"
# There is something to be found: a policy refuses somebody, and a pod's sandbox could not be made.
check "echo servers and clients in the mesh" echo_in alerts istio.io/dataplane-mode=ambient
IP2=$(pod_ip alerts "$(pod_on alerts app=echo node2)")
since=$(date -u +%FT%TZ)
check "a policy" k apply -f - <<'Y'
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: nobody, namespace: alerts}
spec: {}
Y
refused() { [ "$(code alerts/client1 "http://$IP2:8080/")" = 000 ]; }
check "refuses somebody" eventually 60 refused
logged() { k -n lateen-system logs -l app=lateen-node --tail=-1 --since-time="$since" | found 'policy rejection'; }
check "and a log tells of it" eventually 60 logged

check "a pod whose sandbox could not be made" k create -f - <<'Y'
apiVersion: v1
kind: Event
metadata: {name: no-sandbox, namespace: alerts}
involvedObject: {apiVersion: v1, kind: Pod, namespace: alerts, name: no-sandbox}
type: Warning
reason: FailedCreatePodSandBox
message: "the event that the commands look for"
Y

# Blocks are kept apart by a line of their own; the same one is run once.
blocks=$WORK/blocks
mkdir "$blocks"
awk -v dir="$blocks" '/^```sh$/ {file = sprintf("%s/%03d", dir, ++n); next} /^```/ {file = ""} file {gsub(/NODE/, "node1"); print > file}' "$ROOT/docs/guide/alerts.md"
check "the page shows commands" [ "$(find "$blocks" -type f | wc -l)" -gt 20 ]
# by_reader FILE: as somebody would paste it. Every line answers, but for one that goes on in the background; the first that fails ends it.
by_reader() {
  local out
  out=$(cd "$ROOT" && in_fabric env PATH="$tools:$PATH" KUBECONFIG="$RUN/kubeconfig" COMPLAINTS="$WORK/complaints" timeout 120 bash -c '
    # The next block listens on the same port.
    trap "jobs -p | xargs -r kill; wait" EXIT
    exec 3>&1
    while IFS= read -r line; do
      case $line in
      *\&) eval "${line%&} >/dev/null 2>&1 &" ;;
      *)
        answer=$(eval "$line" 2>"$COMPLAINTS" </dev/null) || { echo "$line: ended with $?: $answer $(cat "$COMPLAINTS")"; exit 1; }
        [ -n "$answer" ] || { echo "$line: no answer: $(cat "$COMPLAINTS")"; exit 1; }
        ;;
      esac
    done' <"$1" 2>&1) || { echo "$out"; return 1; }
}
check "lateen check finds nothing wrong" eventually 60 lateen check
declare -A done_already=()
for block in "$blocks"/*; do
  text=$(cat "$block")
  [ -z "${done_already[$text]:-}" ] || continue
  done_already[$text]=1
  case $text in *rotate*) continue ;; esac # 60-rotation.sh does that
  check "runs: $(tr '\n' ';' <<<"$text")" by_reader "$block"
done
k delete namespace alerts --wait=false >/dev/null
finish
