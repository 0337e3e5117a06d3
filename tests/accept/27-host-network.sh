#!/usr/bin/env bash
# The node's network is shared: whoever is in it cannot quit, silence or read the node's proxy, and the operator can.
source "$(dirname "$0")/lib.sh"

check "up" lateen up --nodes 2
STRANGER=54321
# What a process of another user in the node's network namespace gets from an address or a socket.
stranger() { in_node n1 setpriv --reuid $STRANGER --regid $STRANGER --clear-groups -- curl -s --max-time 5 "$@"; }
log_level() { lateen proxy log-level n1; }
level=$(log_level)
proxy_pid() { lateen status -o json | jq -r '.nodes[] | select(.name == "n1") | .proxy.pid'; }
before=$(proxy_pid)

check "the operator reads the configuration" lateen proxy config n1
check "the operator asks for the log level" [ -n "$level" ]
check "and changes it" lateen proxy log-level n1 debug
check_not "it was changed" [ "$level" = "$(log_level)" ]
check "and changes it back" lateen proxy log-level n1 info
check_not "a level that there is not is refused" lateen proxy log-level n1 loud
level=$(log_level)
for port in 15000 15014 15020 15021; do
  for host in 127.0.0.1 10.243.0.11; do
    for page in config_dump connections pods "logging?level=trace" quitquitquit debug/pprof/ v1/status; do
      for method in GET POST; do
        got=$(stranger -f -X $method "http://$host:$port/$page" | head -c 300)
        [ -z "$got" ] || not_ok "$method $host:$port/$page tells a stranger: $got"
      done
    done
  done
done
ok "no port of the node has them"
check_not "nothing listens on 15000" in_node n1 curl -s --max-time 5 http://127.0.0.1:15000/
# Were the directory open and the mode wrong, the proxy would still know who asks.
socket=$RUN/nodes/n1/admin.sock
modes=$(stat -c %a "$RUN/nodes/n1" "$socket" | tr '\n' ' ')
equal "the socket and its directory are root's" "700 600 " "$modes"
check_not "a stranger cannot reach the socket" stranger -f --unix-socket "$socket" http://proxy/config_dump
chmod 755 "$RUN/nodes/n1"; chmod 666 "$socket"
check_not "nor when it lies open to quit the proxy" stranger -f --unix-socket "$socket" -X POST http://proxy/quitquitquit
check_not "nor to change its log level" stranger -f --unix-socket "$socket" -X POST "http://proxy/logging?level=trace"
check_not "nor to read its configuration" stranger -f --unix-socket "$socket" http://proxy/config_dump
check "while root is answered there" curl -sf --unix-socket "$socket" -o /dev/null http://proxy/config_dump
chmod 700 "$RUN/nodes/n1"; chmod 600 "$socket"
equal "the log level is as before" "$level" "$(log_level)"
equal "the proxy is as before" "$before" "$(proxy_pid)"
check "the operator quits it, and another one takes its place" lateen proxy replace n1
check "with the pages" eventually 20 lateen proxy config n1
check_not "it is another process" [ "$before" = "$(proxy_pid)" ]
check "readiness stays open to the network" in_node n2 curl -sf --max-time 15 -o /dev/null http://10.243.0.11:15021/healthz/ready
check "so do metrics" in_node n2 curl -sf --max-time 15 -o /dev/null http://10.243.0.11:15020/metrics

finish
