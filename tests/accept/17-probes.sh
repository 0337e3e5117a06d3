#!/usr/bin/env bash
# The node's probes pass a captured pod without opening a hole: STRICT and a policy that admits nobody leave readiness
# alone, and yet neither root on the node, plainly or with the probe's address, nor a pod that spoofs it comes in. Both
# families.
# needs: python3 tcpdump
source "$(dirname "$0")/lib.sh"

check "up with both families" lateen up --nodes 2 --ip-families dual
check "apply echo and client" bash -c "sed 's/0\.0\.0\.0:8080/[::]:8080/' '$ROOT/samples/echo/echo.yaml' | '$LATEEN' --name '$MESH' apply -f -"
ready() { lateen get pods -o json | jq -e '[.items[] | select(.status.conditions[]? | select(.type=="Ready" and .status=="True"))] | length >= 2'; }
check "ready" eventually 60 ready
check "enrol default" lateen label ns default istio.io/dataplane-mode=ambient
enrolled() { lateen get pods -o json | jq -e '[.items[] | select(.metadata.annotations["ambient.istio.io/redirection"] == "enabled")] | length >= 2'; }
known() { enrolled && lateen wait; }
check "captured" eventually 30 known
echo_node=$(node_of echo) client_node=$(node_of client)
ip4=$(lateen get pods -o json | jq -r '.items[] | select(.metadata.name | startswith("echo")) | .status.podIPs[0].ip')
ip6=$(lateen get pods -o json | jq -r '.items[] | select(.metadata.name | startswith("echo")) | .status.podIPs[1].ip')
probe4=169.254.7.127 probe6=fd16:9254:7127:1337:ffff:ffff:ffff:ffff
as_root() { in_node "$echo_node" curl -gsS -o /dev/null --max-time 10 "$@"; }

check "root on the node is served while policy allows it (IPv4)" as_root "http://$ip4:8080/"
check "root on the node is served while policy allows it (IPv6)" as_root "http://[$ip6]:8080/"

check "STRICT, and nobody is allowed" lateen apply -f - <<'Y'
apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {name: default, namespace: default}
spec: {mtls: {mode: STRICT}}
---
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: nobody, namespace: default}
spec: {}
Y
refused() { lateen wait peerauthentication/default authorizationpolicy/nobody && ! as_root "http://$ip4:8080/" && ! as_root "http://[$ip6]:8080/"; }
check "root on the node is now refused, plainly, in both families" eventually 30 refused
check "and its refusal is in the access log" eventually 30 bash -c "grep 'direction=\"inbound\"' '$RUN/nodes/$echo_node/proxy.log' | grep -q 'error=.*policy rejection'"
check_not "root bound to the probe's address is refused (IPv4)" as_root --interface "$probe4" "http://$ip4:8080/"
check_not "root bound to the probe's address is refused (IPv6)" as_root --interface "$probe6" "http://[$ip6]:8080/"

# What a pod spoofs, watched on the server's link with a tool that is not ours. The pod's own user could not even send it.
port=$(in_node "$echo_node" ip -o route get "$ip4" | sed 's/.* dev \([^ ]*\).*/\1/')
in_node "$echo_node" tcpdump -B 32768 -s 2048 --immediate-mode -n -i "$port" -U -w "$WORK/spoof.pcap" "src host $probe4 or src host $probe6" 2>"$WORK/spoof.log" & SNIFF=$!
check "watching" eventually 30 grep -q 'listening on' "$WORK/spoof.log"
client_ns=/proc/$(engine_pid)/root$RUN/netns/$(lateen get pods -o json | jq -r '.items[] | select(.metadata.name | startswith("client")) | .metadata.uid')
nsenter --net="$client_ns" python3 - "$ip4" "$ip6" "$probe4" "$probe6" <<'P'
import socket, sys
ip4, ip6, probe4, probe6 = sys.argv[1:]
for family, level, option, source, to in ((socket.AF_INET, socket.SOL_IP, 19, probe4, ip4), (socket.AF_INET6, 41, 75, probe6, ip6)):
    s = socket.socket(family)
    s.setsockopt(level, option, 1)        # IP_TRANSPARENT, IPV6_TRANSPARENT
    s.setsockopt(socket.SOL_SOCKET, 36, 0x539)  # the proxy's mark, so that the pod's own rules let it out
    s.bind((source, 4711))
    s.settimeout(1)
    try:
        s.connect((to, 8080))
        print("connected from", source)
    except OSError:
        pass
P
# Packets stand in the file in their order: with one that the prober sent from now on, all that the pod spoofed is there.
spoofed=$(date +%s.%N)
probed() { tcpdump -r "$WORK/spoof.pcap" -tt -n 'tcp and not src port 4711' 2>/dev/null | awk -v since="$spoofed" '$1 > since {n++} END {exit !n}'; }
eventually 30 probed >/dev/null || not_ok "the capture does not come to its end"
kill "$SNIFF" 2>/dev/null; wait "$SNIFF" 2>/dev/null
equal "no packet of a spoofing pod reaches the server" 0 "$(tcpdump -r "$WORK/spoof.pcap" -n 'tcp[tcpflags] & tcp-syn != 0 and src port 4711' 2>/dev/null | wc -l)"
equal "nor over IPv6" 0 "$(tcpdump -r "$WORK/spoof.pcap" -n 'ip6 and src port 4711' 2>/dev/null | wc -l)"
check "while the prober's own packets do" bash -c "tcpdump -r '$WORK/spoof.pcap' -n 2>/dev/null | grep -q ."

# One probe that is late makes a pod unready for a moment; one that is refused does so for good.
check "the pods are ready all the same" eventually 15 ready
check "a new pod becomes ready under the same policies" lateen delete pod "$(pod_of echo)"
fresh() { lateen get pods -o json | jq -e --arg old "$ip4" '[.items[] | select(.metadata.name | startswith("echo")) | select(.status.podIP != $old) | select(.status.conditions[]? | select(.type=="Ready" and .status=="True"))] | length >= 1'; }
check "it is ready" eventually 30 fresh

check "an exception that cannot be read is refused, and the pod is captured without it" lateen apply -f - <<'Y'
apiVersion: apps/v1
kind: Deployment
metadata: {name: client, namespace: default}
spec:
  selector: {matchLabels: {app: client}}
  template:
    metadata:
      labels: {app: client}
      annotations: {traffic.sidecar.istio.io/excludeInboundPorts: "9090,http", traffic.sidecar.istio.io/excludeOutboundPorts: "9091"}
    spec:
      serviceAccountName: client
      terminationGracePeriodSeconds: 1
      containers: [{name: client, image: lateen/load:1, command: [sleep, infinity]}]
Y
says() { lateen status | found 'excludeInboundPorts: "http" is no port' && lateen status | found 'outbound ports 9091'; }
check "lateen status says so, and names what does pass by the mesh" eventually 20 says
check "down" lateen down
finish
