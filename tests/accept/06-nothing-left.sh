#!/usr/bin/env bash
# alone: it compares the whole machine before and after.
# `lateen down`, and killing the engine with SIGKILL, leave no namespace, rule, route, mount or process.
# needs: nft
source "$(dirname "$0")/lib.sh"

host_state() {
  ip -o link | sed 's/@.*//; s/mtu.*//' | awk '{print $2}' | sort
  ip route; ip rule; nft -s list ruleset 2>/dev/null # counters are left out: they change by themselves
  awk '{print $5}' /proc/self/mountinfo | sort
  ip netns list
  lsns -t net -n -o NS,PID 2>/dev/null | awk '{print $1}' | sort -u | wc -l
}
# Matched by the run directory or the mesh's name in the command line: only what this script started.
processes() { pgrep -af "$RUN|--name $MESH( |$)" | grep -v pgrep | grep -v "$SCRIPT.sh"; }

start() {
  check "up" lateen up --nodes 2
  check "apply echo and client" lateen apply -f "$ROOT/samples/echo/echo.yaml"
  check "enrol" lateen label ns default istio.io/dataplane-mode=ambient
  enrolled() { lateen get pods -o json | jq -e '[.items[] | select(.metadata.annotations["ambient.istio.io/redirection"] == "enabled")] | length >= 2'; }
  check "captured" eventually 60 enrolled
}
clean() {
  local now; now=$(host_state)
  [ "$now" = "$before" ] || { diff <(echo "$before") <(echo "$now"); return 1; }
  local p; p=$(processes); [ -z "$p" ] || { echo "$p"; return 1; }
}

# Other meshes that ended just now may still be taken down by the kernel: the machine must stand still before it is compared.
still() { local was; was=$(host_state); sleep 3; [ "$(host_state)" = "$was" ]; }
eventually 60 still >/dev/null
before=$(host_state)
start
check "while it runs the host's links, routes, rules and mounts are untouched" [ "$(host_state | head -n -1)" = "$(head -n -1 <<<"$before")" ]
check "down" lateen down
check "down leaves nothing" eventually 30 clean
check_not "the run directory is gone" test -e "$RUN"

start
kill -KILL "$(engine_pid)"
check "SIGKILL leaves nothing" eventually 30 clean
check "up again over what the killed mesh left in its run directory" lateen up --nodes 2
check "down" lateen down
check "and nothing is left again" eventually 30 clean
finish
