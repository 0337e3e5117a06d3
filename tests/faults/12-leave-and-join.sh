#!/usr/bin/env bash
# A namespace leaves the mesh and joins it again, CYCLES times (20), while its services are asked over new and over kept
# connections: no request fails. Bookinfo's four servers, in four languages, each with an idle time-out of its own, answer.
# The kept connections are opened in the moment in which every pod has left and none is plain yet: the rules that go then
# must not be needed by anybody.
#
# PORTS (600) is from how many ports connections are opened, in every pod: in so few, those of the proxy and those of
# clients meet in each cycle. PORTS=all leaves the pods as they are. LABEL=off changes no label: the services by themselves.
# CYCLES=1000 takes two hours; run.sh does not wait so long for a script.
# bites: let `Settle` in internal/agent/redirect/tracked.go answer 0 at once: resets in the second in which the rules go. Seen red so.
source "$(dirname "$0")/lib.sh"
CYCLES=${CYCLES:-20} PORTS=${PORTS:-600} LABEL=${LABEL:-on}
# Not what reviews asks ratings for: its client keeps that connection for minutes, and for so long the release waits.
SERVERS=(details:/details/0 ratings:/ratings/0 reviews:/health productpage:/api/v1/products)

join() { [ "$LABEL" = off ] || lateen label ns default istio.io/dataplane-mode=ambient 2>/dev/null; }
leave() { [ "$LABEL" = off ] || lateen label ns default istio.io/dataplane-mode- 2>/dev/null; }
# in_state JQ: all pods are as JQ says, and there are some.
in_state() { lateen status -o json | jq -e "[.pods[] | select(.namespace == \"default\") | $1] | length > 0 and all" >/dev/null; }
all_plain() { in_state '.mesh == "plain"'; }
none_captured() { in_state '.redirection | not'; }
# asks NAME PATH KIND SECONDS FLAGS...: asks a server from the client's network; the counts go to a file of their own.
asked=0 asking=()
asks() {
  local name=$1 path=$2 kind=$3 seconds=$4 file; shift 4
  asked=$((asked + 1)); file=$WORK/asked/$kind.$name.$asked
  in_netns "$CLIENT" "$TOOLS/asker" -target "$(service_ip "$name"):9080" -path "$path" -mode "$kind" \
    -duration "${seconds}s" -failures "$file.failures" "$@" >"$file" &
  asking+=("$!")
}
declare -A ADDRESS
service_ip() { echo "${ADDRESS[$1]}"; }

check "up" lateen up --nodes 2
check "apply Bookinfo" lateen apply -f "$ROOT/samples/bookinfo/bookinfo.yaml"
check "apply a client" lateen apply -f "$ROOT/samples/echo/echo.yaml"
check "ready" lateen wait --timeout 5m
mkdir "$WORK/asked"
CLIENT=$(pod_uid client-)
while read -r name address; do ADDRESS[$name]=$address; done < <(lateen get services -o json | jq -r '.items[] | .metadata.name + " " + .spec.clusterIP')
mapfile -t PODS < <(lateen get pods -o json | jq -r '.items[] | .metadata.uid + " " + .metadata.name')
SNIFFERS=()
for pod in "${PODS[@]}"; do
  read -r uid name <<<"$pod"
  [ "$PORTS" = all ] || in_netns "$uid" sh -c "echo 32768 $((32767 + PORTS)) >/proc/sys/net/ipv4/ip_local_port_range" || not_ok "ports of $name"
  # Each line names the end that sent a reset.
  nsenter --net="/proc/$(engine_pid)/root$RUN/netns/$uid" -- tcpdump -i eth0 -n -tt -l --immediate-mode 'tcp[tcpflags] & tcp-rst != 0' >"$WORK/resets.$name" 2>/dev/null & SNIFFERS+=("$!")
done

# Of a cycle that goes wrong, the rest are no better.
whole=0
for ((cycle = 1; cycle <= CYCLES; cycle++)); do
  began=$(date +%s%3N)
  join >/dev/null && lateen wait >/dev/null 2>&1 || break
  # Meshed connections, which the proxy delivers from the client's address.
  jobs=()
  for server in "${SERVERS[@]}"; do asks "${server%%:*}" "${server#*:}" new 1 -workers 1 -rate 25; jobs+=("$!"); done
  wait "${jobs[@]}"
  leave >/dev/null || break
  [ "$LABEL" = off ] || eventually 60 none_captured >/dev/null || break
  for server in "${SERVERS[@]}"; do
    asks "${server%%:*}" "${server#*:}" new 3 -workers 1 -rate 5
    asks "${server%%:*}" "${server#*:}" keep 4 -workers 8 -rate 40
  done
  if [ "$LABEL" = off ]; then sleep 3; else eventually 120 all_plain >/dev/null || break; fi
  # Some go on into the next cycle, as connections that are older than their capture.
  echo "$began $(date +%s%3N) $cycle" >>"$WORK/cycles"
  whole=$cycle
done
# An asker of an earlier cycle may still ask.
[ ${#asking[@]} = 0 ] || wait "${asking[@]}" 2>/dev/null
kill "${SNIFFERS[@]}" 2>/dev/null
wait "${SNIFFERS[@]}" 2>/dev/null

equal "cycles that came to their end" "$CYCLES" "$whole"
# counted KIND NAME JQ: a sum over all that was asked so.
counted() { jq -s "map($3) | add // 0" $(ls "$WORK"/asked/"$1.$2".* | grep -v 'failures$'); }
for server in "${SERVERS[@]}"; do
  name=${server%%:*}
  for kind in new keep; do
    equal "$name: none of $(counted "$kind" "$name" '.counts | add') requests on $(counted "$kind" "$name" .connections) $kind connections failed" \
      0 "$(counted "$kind" "$name" .failed)"
  done
done
if [ -n "$(cat "$WORK"/asked/*.failures)" ]; then
  echo "    failures (time, kind, which request, error), and the resets that a pod saw:"
  grep -H . "$WORK"/asked/*.failures | sed "s|^$WORK/asked/||; s|^|    |" | head -40
  grep -hE "$(grep -ho '[0-9.]*:[0-9]*->' "$WORK"/asked/*.failures | sed -E 's/.*:([0-9]+)->/[.]\1[ :]/' | sort -u | paste -sd'|' || echo NONE)" "$WORK"/resets.* /dev/null | sed 's/^/    /' | head -40
  [ -z "${KEEP_LOGS:-}" ] || { mkdir -p "$KEEP_LOGS" && cp -r "$WORK"/asked "$WORK"/resets.* "$WORK/cycles" "$KEEP_LOGS/"; }
fi
finish
