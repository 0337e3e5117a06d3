# Captures of what crosses between the nodes. Scripts that need tcpdump source this file after lib.sh.
# shellcheck shell=bash

# capture FILE: tcpdump, a tool that is not ours, writes to FILE the TCP packets that cross between the nodes, until end_capture FILE.
# nsenter replaces itself by tcpdump, so that the recorded pid is tcpdump's own. What the control plane and DNS exchange is left out.
capture() {
  nsenter -t "$(engine_pid)" -n -- tcpdump -B 32768 -s 2048 --immediate-mode -i any -U -w "$1" tcp and not port 15012 and not port 53 2>"$1.log" & SNIFF=$!
  eventually 30 grep -q 'listening on' "$1.log" >/dev/null || not_ok "the capture $1 does not begin"
}
# The file has the packets in their order: once it has a marker, it has everything before the marker.
marked() { in_fabric bash -c ': </dev/tcp/127.0.0.1/9' 2>/dev/null; [ -n "$(tcpdump -r "$1" -n tcp dst port 9 2>/dev/null)" ]; }
end_capture() { eventually 30 marked "$1" >/dev/null || not_ok "the capture $1 does not come to its end"; kill "$SNIFF"; wait "$SNIFF"; } 2>/dev/null
