#!/usr/bin/env bash
# Measures the resident memory of a waypoint: after 1000 requests, with SERVICES services of ten workloads each known, and with
# CONNECTIONS idle keep-alive connections of one client. It shows MiB of all pages (Rss of /proc/PID/smaps_rollup) and of private ones.
# A node proxy lets a pod have a quarter of its descriptors, and a connection takes two: CONNECTIONS stays below 2500 where a process may
# open 20,000 files.
#   [SERVICES=1000] [CONNECTIONS=2000] tests/bench/waypoint-memory.sh
# needs: ss python3
source "$(dirname "$0")/../accept/lib.sh"
SERVICES=${SERVICES:-1000} CONNECTIONS=${CONNECTIONS:-2000}

check "up" lateen up --nodes 2
with_echo "$ROOT/samples/echo/echo.yaml"
waypoint() { LATEEN_NAME=$MESH "$LATEEN" waypoint "$@"; }
check "a waypoint" waypoint apply --name way --for service --wait
check "the service asks for it" lateen label svc echo istio.io/use-waypoint=way
bound() { lateen get svc echo -o json | jq -e '[.status.conditions[]?, .conditions[]?] | any(.type == "WaypointBound" and .status == "True")'; }
check "and is bound" eventually 20 bound
WAY=$(pod_uid way-) CLIENT=$(pod_uid client-) VIP=$(lateen get svc echo -o json | jq -r .spec.clusterIP)
PID=$(in_netns "$WAY" ss -ltnpH 'sport = :15008' | grep -o 'pid=[0-9]*' | head -1 | cut -d= -f2)
load() { in_netns "$CLIENT" "$ROOT/bin/lateen-load" run --url "http://$VIP:8080/?size=1024" "$@" --json -; }
# kib FIELD: a sum of the waypoint's pages, in KiB.
kib() { awk -v f="$1:" '$1 == f {n += $2} END {print n + 0}' "/proc/$PID/smaps_rollup"; }
private() { echo $(($(kib Private_Clean) + $(kib Private_Dirty))); }
mib() { awk -v k="$1" 'BEGIN {printf "%.1f", k / 1024}'; }
show() { echo "   $1: $(mib "$(kib Rss)") MiB resident, $(mib "$(private)") private"; }

check "requests pass" load -n 1000 --qps 500 -c 16
sleep 5
show "after 1000 requests"

# A Service's selector chooses WorkloadEntries, as it chooses pods.
objects() {
  awk -v n="$SERVICES" 'BEGIN {
    print "apiVersion: v1\nkind: Namespace\nmetadata: {name: many, labels: {istio.io/dataplane-mode: ambient}}"
    for (s = 0; s < n; s++) {
      printf "---\napiVersion: v1\nkind: Service\nmetadata: {name: s%d, namespace: many}\nspec: {selector: {app: a%d}, ports: [{name: http, port: 80, targetPort: 8080}]}\n", s, s
      for (w = 0; w < 10; w++) {
        i = s * 10 + w
        printf "---\napiVersion: networking.istio.io/v1\nkind: WorkloadEntry\nmetadata: {name: w%d, namespace: many}\nspec: {address: 172.%d.%d.%d, labels: {app: a%d}, serviceAccount: a%d}\n", i, 20 + int(i / 62500), int(i / 250) % 250, 1 + i % 250, s, s
      }
    }
  }'
}
objects >"$WORK/many.yaml"
check "$SERVICES services with $((SERVICES * 10)) workloads" lateen apply -f "$WORK/many.yaml"
# The dump, which shows what is known, needs memory of its own: it comes last.
arrived() { local n; n=$(in_netns "$WAY" curl -s http://127.0.0.1:15020/metrics | awk '/^istio_xds_message_bytes_total.*workload.Address/ {print $2}'); [ "${n%.*}" -ge $((SERVICES * 1000)) ] || { echo "$n bytes"; return 1; }; }
check "which the waypoint receives" eventually 120 arrived
check "every proxy has them" lateen wait
check "requests pass" load -n 1000 --qps 500 -c 16
sleep 15
show "with $SERVICES services and $((SERVICES * 10)) workloads"
# Each connection has had one answer, and stays open.
rm -f "$WORK/go"; mkfifo "$WORK/go"
in_netns "$CLIENT" python3 - "$VIP" "$CONNECTIONS" "$WORK/go" >"$WORK/opened" 2>&1 <<'P' &
import resource, socket, sys

address, count, go = sys.argv[1], int(sys.argv[2]), sys.argv[3]
resource.setrlimit(resource.RLIMIT_NOFILE, (count + 100, count + 100))
kept = []
for n in range(count):
    one = socket.create_connection((address, 8080), timeout=20)
    one.sendall(b"GET /?size=1024 HTTP/1.1\r\nhost: echo:8080\r\n\r\n")
    answer = b""
    while len(answer.partition(b"\r\n\r\n")[2]) < 1024:
        try:
            piece = one.recv(65536)
        except OSError as error:
            sys.exit(f"connection {n + 1}: {error}")
        if not piece:
            sys.exit(f"connection {n + 1} was closed: {answer!r}")
        answer += piece
    kept.append(one)
print("opened", flush=True)
open(go).read()
P
client=$!
before=$(private)
opened() { [ "$(cat "$WORK/opened")" = opened ] || { cat "$WORK/opened"; return 1; }; }
check "$CONNECTIONS connections with one answer each" eventually 120 opened
sleep 15
after=$(private)
show "with $CONNECTIONS idle connections"
echo "   a connection: $(((after - before) * 1024 / CONNECTIONS)) bytes"
# Both ways, so that it does not wait for a reader that has ended.
: 1<>"$WORK/go"
wait "$client"
known() { local n; n=$(in_netns "$WAY" curl -s http://127.0.0.1:15000/config_dump | jq '.workloads | length'); [ "$n" -ge $((SERVICES * 10)) ] || { echo "$n workloads"; return 1; }; }
check "the waypoint knows them" known
finish
