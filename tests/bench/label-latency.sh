#!/usr/bin/env bash
# How long a changed label takes from the file that holds the object to both node proxies: a pod's canonical revision is
# changed ROUNDS times by writing the object the way an engine reports it, and the proxies' configuration dumps are
# watched until they show it. Prints the median, the largest and the share within 100 ms.
#   [ROUNDS=30] tests/bench/label-latency.sh
set -uo pipefail
ROOT=$(cd "$(dirname "$0")/../.." && pwd)
LATEEN=$ROOT/bin/lateen
ROUNDS=${ROUNDS:-30} MESH=label-$$ RUN=/run/lateen/label-$$
[ "$(id -u)" = 0 ] || { echo "needs root: the mesh is made of network namespaces" >&2; exit 1; }
trap '"$LATEEN" --name "$MESH" down >/dev/null 2>&1' EXIT
trap 'exit 130' INT TERM
"$LATEEN" --name "$MESH" up --nodes 2 >&2 && "$LATEEN" --name "$MESH" apply -f "$ROOT/samples/echo/echo.yaml" >&2 || exit 1
"$LATEEN" --name "$MESH" wait deployment/echo deployment/client >&2 || exit 1
pod=$("$LATEEN" --name "$MESH" get pods -o json | jq -r '.items[0].metadata.name')
engine=$(jq -r .pid "$RUN/engine.json")
python3 - "$LATEEN" "$MESH" "$RUN" "$engine" "$pod" "$ROUNDS" <<'P'
import http.client, json, os, socket, statistics, subprocess, sys, threading, time

lateen, mesh, run, engine, pod, rounds = sys.argv[1:6] + [int(sys.argv[6])]

def watch(node, revision, result):
    """Polls a proxy's dump on its private socket."""
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        connection = http.client.HTTPConnection("proxy", timeout=2)
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.connect(f"{run}/nodes/{node}/admin.sock")
        connection.request("GET", "/config_dump")
        dump = connection.getresponse().read().decode()
        connection.close()
        if f'"{revision}"' in dump:
            result[node] = time.monotonic()
            return
        time.sleep(0.001)

took = []
for i in range(rounds):
    revision, result = f"revision-{i}", {}
    watchers = [threading.Thread(target=watch, args=(n, revision, result)) for n in ("n1", "n2")]
    for w in watchers:
        w.start()
    time.sleep(0.2)
    began = time.monotonic()
    subprocess.run([lateen, "--name", mesh, "label", "--overwrite", "pod", pod, f"service.istio.io/canonical-revision={revision}"], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for w in watchers:
        w.join()
    if len(result) < 2:
        sys.exit(f"round {i}: the label did not reach every proxy within 5 s: {result}")
    took.append((max(result.values()) - began) * 1000)
took.sort()
print(f"{len(took)} changes, from the start of the command to both proxies: median {statistics.median(took):.1f} ms, "
      f"largest {took[-1]:.1f} ms, {sum(t <= 100 for t in took)} of {len(took)} within 100 ms")
P
