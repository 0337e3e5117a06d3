#!/usr/bin/env bash
# A pod that is deleted leaves nobody waiting. Its network goes after the ends of its connections have left, also when the
# proxy that has to send them was held up; and where that took too long, the client's proxy finds out by itself once the
# control plane has said that the pod is gone.
# bites: without `awaitParting` (internal/engine/local/podend.go) the first client is reset seconds later instead of
# hearing the end. Seen red so.
# bites: without `doubt` in `leave_the_gone` (crates/proxy/src/worker.rs) the second waits for 20 s or more. Seen red so.
source "$(dirname "$0")/lib.sh"
mesh

# hold FILE: a connection to the service that says nothing more after its first answer; how it ended, and when, go to FILE.
hold() {
  in_netns "$CLIENT" bash -c '
    exec 3<>"/dev/tcp/${1%:*}/${1#*:}" || exit
    printf "GET / HTTP/1.1\r\nHost: echo\r\n\r\n" >&3
    IFS= read -r -t 15 line <&3 && echo "open ${line%% 200*}" >"$2"
    cat <&3 >/dev/null 2>"$2.error" && how=ended || how=reset
    echo "$how $(date +%s%3N)" >>"$2"' hold "$ECHO" "$1"
}
opened() { grep -q '^open HTTP' "$1" 2>/dev/null; }
over() { grep -qE '^(ended|reset) ' "$1"; }
how() { awk '$1 != "open" {print $1}' "$1"; }
gone() { ! lateen get pods -o json | jq -e --arg p "$1" 'any(.items[]; .metadata.name == $p)' >/dev/null; }
warned() { grep -c 'network goes before its peers have heard' "$RUN/engine.log"; }
# deleted_under_a_stopped_proxy FILE: a held connection's pod is deleted while the proxy of its node, PROXY, stands still.
deleted_under_a_stopped_proxy() {
  check "served" eventually 15 answers
  hold "$1" & HOLDER=$!
  check "a connection is held open" eventually 15 opened "$1"
  POD=$(pod_of echo-)
  NETWORK=$(in_netns "$(pod_uid echo-)" readlink /proc/self/ns/net)
  check "something runs in the pod" inhabited
  PROXY=$(proxy_pid n2)
  since=$(date +%s%3N)
  freeze "$PROXY" >/dev/null
  lateen delete pod "$POD" >/dev/null 2>&1 & DELETING=$!
}
inhabited() { [ "$(readlink /proc/[0-9]*/ns/net 2>/dev/null | grep -cxF "$NETWORK")" -gt 0 ]; }
deserted() { ! inhabited; }

# Stopped until all that ran in the pod has ended: less than the engine waits.
deleted_under_a_stopped_proxy "$WORK/first"
# The engine waits 5 s from here: nothing else comes between the end of the processes and the proxy's next step.
# Only this look counts: once the network is gone, its number may be that of another mesh's.
ended=no
for _ in {1..400}; do if deserted; then ended=yes; break; fi; sleep 0.05; done
cp "$WORK/first" "$WORK/before"
kill -CONT "$PROXY"
check "its processes have ended" [ $ended = yes ]
check "before anybody heard" bash -c "! grep -qE '^(ended|reset) ' '$WORK/before'"
check "the pod is gone" eventually 40 gone "$POD"
check "its connection is over" eventually 30 over "$WORK/first"
equal "and it ended in order" ended "$(how "$WORK/first")"
equal "nothing had to be given up" 0 "$(warned)"
wait $HOLDER $DELETING

check "another pod serves" lateen wait deployment/echo
# Stopped until the pod's network is gone: nothing of its end ever leaves.
deleted_under_a_stopped_proxy "$WORK/second"
check "the pod's network goes all the same" eventually 40 gone "$POD"
said_once() { [ "$(warned)" = 1 ]; }
check "which is said" eventually 10 said_once
check "the client's proxy ends what is open" eventually 40 over "$WORK/second"
took=$(($(awk '$1 != "open" {print $2}' "$WORK/second") - since))
# Once the pod is gone, after 6 s, a PING goes out each second and has three for its answer. Without them it takes 20 s at least from when
# the proxy stopped. What lies between is for a machine that is busy.
check "by itself, soon: $took ms after the deletion" [ "$took" -le 18000 ]
equal "not as if that had been all" reset "$(how "$WORK/second")"
kill -CONT "$PROXY"
wait $HOLDER $DELETING
check "served again" eventually 40 answers
finish
