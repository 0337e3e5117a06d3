#!/usr/bin/env bash
# The node's network is shared: whoever is in it cannot quit, silence or read the node's proxy, and the operator can. Pods with
# hostNetwork live there: outside the mesh, in plaintext, under the node's address. And pods may have names of their own.
# needs: ss
source "$(dirname "$0")/lib.sh"

check "up" lateen up --nodes 2
STRANGER=54321
# What a process of another user in the node's network namespace gets from an address or a socket.
stranger() { in_node n1 setpriv --reuid $STRANGER --regid $STRANGER --clear-groups -- curl -s --max-time 5 "$@"; }
log_level() { lateen proxy log-level n1; }
level=$(log_level)
before=$(proxy_pid n1)

check "the operator reads the configuration" lateen proxy config n1
check "the operator asks for the log level" [ -n "$level" ]
check "and changes it" lateen proxy log-level n1 debug
check_not "it was changed" [ "$level" = "$(log_level)" ]
check "and changes it back" lateen proxy log-level n1 info
check_not "a level that there is not is refused" lateen proxy log-level n1 loud
check "in words of this command" grep -q '"loud" is not a log level; use one of' <<<"$(lateen proxy log-level n1 loud 2>&1)"
check_not "and so is a part that there is not" lateen proxy log-level n1 'a&level=debug'
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
equal "the proxy is as before" "$before" "$(proxy_pid n1)"
check "the operator quits it, and another one takes its place" lateen proxy replace n1
check "with the pages" eventually 20 lateen proxy config n1
check_not "it is another process" [ "$before" = "$(proxy_pid n1)" ]
check "readiness stays open to the network" eventually 15 in_node n2 curl -sf --max-time 15 -o /dev/null http://10.243.0.11:15021/healthz/ready
check "so do metrics" eventually 15 in_node n2 curl -sf --max-time 15 -o /dev/null http://10.243.0.11:15020/metrics

# Pods on the node's network.
check "apply echo and client" lateen apply -f "$ROOT/samples/echo/echo.yaml"
host_pod() { # NAME NODE PORT [CONTAINER-PORT]
  cat <<Y
---
apiVersion: v1
kind: Pod
metadata: {name: $1, namespace: default, labels: {app: $1}}
spec:
  hostNetwork: true
  serviceAccountName: echo
  terminationGracePeriodSeconds: 1
  nodeSelector: {kubernetes.io/hostname: $2}
  containers:
  - name: main
    image: lateen/load:1
    command: [lateen-load, serve, --listen, "[::]:$3"]
    ports: [{name: http, containerPort: ${4:-$3}}]
    readinessProbe: {tcpSocket: {port: $3}}
Y
}
service() { printf -- '---\napiVersion: v1\nkind: Service\nmetadata: {name: %s, namespace: default}\nspec: {selector: {app: %s}, ports: [{name: http, port: 80, targetPort: http}]%s}\n' "$1" "${2:-$1}" "${3:+, $3}"; }
says() { # PATTERN COMMAND...: the command fails and says so
  local want=$1 out; shift
  if out=$("$@" 2>&1); then echo "it succeeded: $out"; return 1; fi
  grep -q "$want" <<<"$out" || { echo "$out"; return 1; }
}
for port in 15000 15014 15020 15021; do
  host_pod clash n1 $port >"$WORK/clash.yaml"
  check "port $port is refused, with its owner" says "containerPort $port belongs to the node" lateen apply -f "$WORK/clash.yaml"
done
{ host_pod near n1 18080; host_pod far n2 18080; service near; service far; service hosts far "clusterIP: None"; } >"$WORK/hosts.yaml"
check "apply pods on both nodes' networks" lateen apply -f "$WORK/hosts.yaml"
check "enrol the namespace" lateen label ns default istio.io/dataplane-mode=ambient
check "all are ready" lateen wait
host_ip() { lateen get pods -o json | jq -r --arg p "$1" '.items[] | select(.metadata.name == $p) | .status.podIP + " " + (.metadata.annotations["ambient.istio.io/redirection"] // "plain")'; }
equal "the pod has the node's address and is not captured" "10.243.0.12 plain" "$(host_ip far)"
status_says() { local said; said=$(lateen status); grep -q 'default  *far .* outside ' <<<"$said" && grep -q "shares its node's network" <<<"$said"; }
check "status says that it is outside the mesh" eventually 15 status_says
described() { lateen proxy config n1 | jq -e '.workloads[] | select(.name == "far") | (.networkMode | ascii_downcase | gsub("_"; "")) == "hostnetwork" and (.protocol | ascii_downcase) == "tcp"'; }
check "the proxies know it as on its node's network, without a tunnel" eventually 20 described
get() { lateen exec "$1" -- curl -sf -o /dev/null --max-time 15 "$2"; }
for name in near far; do
  check "a captured pod reaches $name by its service" eventually 20 get deploy/client "http://$name/?size=16"
  check "and by its address" get deploy/client "http://$(host_ip $name | cut -d' ' -f1):18080/?size=16"
done
check "and by the headless service's name" eventually 20 get deploy/client "http://hosts:18080/?size=16"
client_node=$(node_of client)
plain() { proxy_log "$client_node" | grep 'direction="outbound"' | grep "10.243.0.12:18080" | tail -1 | grep -v 'dst.hbone_addr='; }
check "in plaintext, as the access log says" eventually 20 plain
check "a pod on a node's network reaches a captured one by its service" eventually 20 get pod/far http://echo.default.svc.cluster.local:8080/?size=16
check "apply STRICT" lateen apply -f - <<Y
apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {name: all, namespace: default}
spec: {mtls: {mode: STRICT}}
---
apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {name: far, namespace: default}
spec: {selector: {matchLabels: {app: far}}, mtls: {mode: STRICT}}
Y
strict() { ! get pod/far http://echo.default.svc.cluster.local:8080/?size=16; }
check "STRICT refuses what it sends" eventually 20 strict
check "and has no effect on what it receives" get deploy/client "http://far/?size=16"
condition() { grep -q "$2" <<<"$(lateen get peerauthentications "$1" -o json)"; }
check "the one that selects it alone is told so" eventually 20 condition far "it selects nothing else"
check "so is its namespace's" eventually 20 condition all "no effect on pods with hostNetwork (default/far, default/near)"
check "without them" lateen delete peerauthentication all far

host_pod third n1 18080 >"$WORK/third.yaml"
check "a second pod with a port of the same node" lateen apply -f "$WORK/third.yaml"
refused() { grep -q "port 18080 of its network belongs to pod default/near" <<<"$(lateen status)"; }
check "waits, and status says for whom" eventually 20 refused
check "the first one goes" lateen delete pod near
check "the second one takes its place" eventually 30 lateen wait --timeout 5s pod/third
check "its node's proxy is as before" lateen proxy config n1
# From inside such a pod, as whoever took it over would.
inside() { lateen exec pod/third -- curl -s --max-time 5 "$@"; }
check_not "it finds no admin page" inside -f -X POST http://127.0.0.1:15000/quitquitquit
check_not "nor the socket" lateen exec pod/third -- ls "$socket"
check_not "nor the mesh's directory" lateen exec pod/third -- ls "$RUN"
hostname_of() { lateen exec "pod/$1" -- cat /etc/hostname; }
equal "it has its node's name" n1 "$(hostname_of third)"
# An update of a Deployment that has a port of every node's network: nowhere is room for a new pod beside the old ones.
everywhere() { # VERSION [STRATEGY]
  cat <<Y
apiVersion: apps/v1
kind: Deployment
metadata: {name: everywhere, namespace: default}
spec:
  replicas: 2
  selector: {matchLabels: {app: everywhere}}${2:+
  strategy: $2}
  template:
    metadata: {labels: {app: everywhere, version: "$1"}}
    spec:
      hostNetwork: true
      serviceAccountName: echo
      terminationGracePeriodSeconds: 1
      containers:
      - {name: main, image: lateen/load:1, command: [lateen-load, serve, --listen, "[::]:18090"], ports: [{containerPort: 18090}]}
Y
}
everywhere 1 >"$WORK/everywhere.yaml"
check "a Deployment with a port of every node" lateen apply -f "$WORK/everywhere.yaml"
check "is ready" lateen wait deploy/everywhere
everywhere 2 >"$WORK/everywhere.yaml"
check "its update" lateen apply -f "$WORK/everywhere.yaml"
fix() { grep -q "maxSurge: 0, maxUnavailable: 1" <<<"$(lateen status)"; }
check "waits, and status says for what and how to go on" eventually 20 fix
everywhere 2 "{rollingUpdate: {maxSurge: 0, maxUnavailable: 1}}" >"$WORK/everywhere.yaml"
check "so told" lateen apply -f "$WORK/everywhere.yaml"
check "it is updated" lateen wait deploy/everywhere
check "without it" lateen delete deployment everywhere

# While the proxy and the agent are away their ports are anybody's: nobody is to be taken in.
# squat PORT: a stranger in the node's network takes the port as soon as it is free, and keeps it for longer than all checks take.
squat() { lateen exec pod/third -- timeout 400 sh -c "until timeout 400 lateen-load serve --listen '[::]:$1'; do sleep 0.005; done" >"$WORK/squat-$1" 2>&1 & }
squatted() { # PORT...: strangers have them all
  local port
  for port; do
    in_node n1 ss -Hltnp "sport = :$port" | found '"lateen-load"' || { echo "port $port is not the squatter's: $(in_node n1 ss -Hltnp "sport = :$port") $(tail -n 3 "$WORK/squat-$port")"; return 1; }
  done
}
# ousted KIND PORT...: the process is ended until strangers have its ports; it may be quicker than they once or twice.
ousted() {
  local kind=$1 pid; shift
  squatted "$@" && return
  # While none runs its pid is 0, which would mean this script's own group.
  pid=$(lateen status -o json | jq -r --arg k "$kind" '.nodes[] | select(.name == "n1") | .[$k].pid // 0 | select(. > 1)')
  [ -z "$pid" ] || kill -KILL "$pid"
  sleep 2
  squatted "$@"
}
for port in 15014 15020 15021; do squat $port; done
check "a stranger has the proxy's ports while it is away" eventually 60 ousted proxy 15020 15021
check "and the agent's" eventually 60 ousted agent 15014
back() { lateen proxy config n1 >/dev/null && [ "$(lateen status -o json | jq -r '.nodes[] | select(.name == "n1") | .proxy.ready and .agent.ready')" = true ]; }
check "both are back whoever has their ports" eventually 60 back
check "the stranger has them still" squatted 15014 15020 15021
check "traffic goes on" eventually 20 get deploy/client "http://echo:8080/?size=16"

# Names.
named() { printf -- '---\napiVersion: v1\nkind: Pod\nmetadata: {name: db-%s, namespace: default, labels: {app: db}}\nspec: {hostname: %s, subdomain: db, serviceAccountName: echo, terminationGracePeriodSeconds: 1, containers: [{name: main, image: lateen/load:1, command: [lateen-load, serve, --listen, "[::]:8080"], ports: [{name: http, containerPort: 8080}]}]}\n' "$1" "$1"; }
{ named zero; named one; service db db "clusterIP: None"; } >"$WORK/named.yaml"
check "apply pods with a hostname and a subdomain" lateen apply -f "$WORK/named.yaml"
check "they are ready" lateen wait
address_of() { lateen get pods -o json | jq -r --arg p "$1" '.items[] | select(.metadata.name == $p) | .status.podIP'; }
resolves() { [ "$(lateen exec "$1" -- getent ahostsv4 "$2" | awk 'NR == 1 {print $1}')" = "$3" ]; }
for name in zero one; do
  for form in db db.default db.default.svc db.default.svc.cluster.local; do
    check "a captured pod finds $name.$form" eventually 20 resolves deploy/client "$name.$form" "$(address_of db-$name)"
  done
  check "a pod on a node's network finds it" eventually 20 resolves pod/far "$name.db.default.svc.cluster.local" "$(address_of db-$name)"
  check "and it answers, through the mesh" get deploy/client "http://$name.db:8080/?size=16"
  equal "it calls itself so" "$name" "$(hostname_of db-$name)"
done
check_not "a name that no pod has" lateen exec deploy/client -- getent ahostsv4 two.db.default.svc.cluster.local
cat >"$WORK/set.yaml" <<Y
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db, namespace: default}
spec: {serviceName: db, selector: {matchLabels: {app: db}}, template: {metadata: {labels: {app: db}}, spec: {containers: [{name: main, image: x}]}}}
Y
kept() { grep -q "spec.hostname" <<<"$(lateen apply -f "$WORK/set.yaml" 2>&1)"; }
check "a StatefulSet is told what to use instead" kept

finish
