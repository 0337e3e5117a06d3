#!/usr/bin/env bash
# The lab's plane of one Envoy per pod, with a stand-in for Envoy that relays in the open: it takes part like any plane, follows the
# number of pods, carries HTTP and TCP, is charged for what it uses and leaves nothing behind, also when it does not come up or the
# lab is killed. That the configurations make Envoy do what they should no stand-in can show. Workers share connections as the lab
# says.
# bites: without Pdeathsig in internal/lab/dataplanes/envoy/launcher.go proxies outlive a lab that was killed.
# needs: ps
source "$(dirname "$0")/lib.sh"
OPEN=(--gate other_cpu=1 --gate steal=1 --gate lateness=1000)
meshes() { find /run/lateen -maxdepth 1 -name "lab-$1-*" 2>/dev/null; }
end_lab() { for m in $(meshes "$1"); do "$LATEEN" --name "$(basename "$m")" down >/dev/null 2>&1; done; }
lab_pid=
STAND=$(mktemp -d) # the proxies' own user has to reach it
chmod 755 "$STAND"
end_proxies() { for p in $(proxies); do kill -9 "$p"; done; } # those of this script alone: their program is in its own directory
trap '[ -n "$lab_pid" ] && { kill -9 "$lab_pid" 2>/dev/null; wait "$lab_pid" 2>/dev/null; end_lab "$lab_pid"; }; end_proxies; rm -rf "$STAND"; cleanup' EXIT
cd "$WORK" || exit 1
export TMPDIR=$STAND # the proxies' directories are looked for here

cat >"$STAND/envoy" <<'PY'
#!/usr/bin/python3
import asyncio, json, os, socket, struct, sys

if "--version" in sys.argv:
    print("\nenvoy  version: 0/0.0.1/stand-in/none/none")
    sys.exit()
if os.path.exists(os.path.join(os.path.dirname(sys.argv[0]), "refuse")):
    sys.exit("the stand-in refuses to come up")
config = json.load(open(sys.argv[sys.argv.index("--config-path") + 1]))
seen = {"http.inbound.rbac.allowed": 0, "inbound_tcp.rbac.allowed": 0}
listeners = {l["traffic_direction"]: l for l in config["static_resources"]["listeners"]}
matches = lambda direction: [c.get("filter_chain_match", {}) for c in listeners[direction].get("filter_chains", [])]
meshed = {(m["prefix_ranges"][0]["address_prefix"], m["destination_port"]) for m in matches("OUTBOUND")}
bytes_at = {m["destination_port"] for m in matches("INBOUND") if m}

async def pump(reader, writer):
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    writer.close()

def relay(inbound):
    async def handle(reader, writer):
        port, address = struct.unpack_from("!2xH4s", writer.get_extra_info("socket").getsockopt(socket.SOL_IP, 80, 16))
        if inbound:
            seen["inbound_tcp.rbac.allowed" if port in bytes_at else "http.inbound.rbac.allowed"] += 1
        elif (socket.inet_ntoa(address), port) not in meshed:
            writer.close() # Envoy would pass it on in the open, and the other one would not take it
            return
        try:
            there, back = await asyncio.open_connection(socket.inet_ntoa(address), port)
        except OSError:
            writer.close()
            return
        await asyncio.gather(pump(reader, back), pump(there, writer))
    return handle

async def admin(reader, writer):
    path = (await reader.readline()).split()[1]
    while (await reader.readline()).strip():
        pass
    body = "LIVE\n" if path == b"/ready" else "".join(f"{name}: {n}\n" for name, n in seen.items())
    writer.write(f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n{body}".encode())
    writer.close()

async def main():
    for direction, listener in listeners.items():
        where = listener["address"]["socket_address"]
        await asyncio.start_server(relay(direction == "INBOUND"), where["address"], where["port_value"])
    server = await asyncio.start_unix_server(admin, config["admin"]["address"]["pipe"]["path"])
    await server.serve_forever()

asyncio.run(main())
PY
chmod 755 "$STAND/envoy"
proxies() { pgrep -f "^/usr/bin/python3 $STAND/envoy"; }
nothing_left() { # WHAT PID
  equal "$1: no proxy is left" "" "$(eventually 15 bash -c "! pgrep -f '^/usr/bin/python3 $STAND/envoy'")"
  equal "$1: no directory is left" "" "$(find "$STAND" -mindepth 1 -maxdepth 1 -name 'lateen-lab-*')"
  equal "$1: no mesh is left" "" "$(meshes "$2")"
}
ended() { wait "$lab_pid"; code=$? pid=$lab_pid lab_pid=; } # once waited for, the number may be another process's
doc() { jq -r "$1" "$WORK/$2/results.json"; }

out=$("$LATEEN" lab run aa-null --peer envoy=/bin/true 2>&1); code=$?
equal "a program that is no Envoy is refused" 64 "$code"
check "with the reason" grep -q "/bin/true is no Envoy" <<<"$out"
out=$("$LATEEN" lab run aa-null --peer haproxy=/bin/true 2>&1)
check "a peer of an unknown kind is told which there are" grep -q "use none, lateen, waypoint, or one of ztunnel, ztunnel-one, envoy, envoy-http1, envoy-balanced, envoy-waypoint, envoy-one-listener with =PATH" <<<"$out"

cat >pair.yaml <<'Y'
title: Pair
does: Two pods and then three, with a proxy in each.
world: [client, echo]
rounds: 1
seconds: 1
warmup: 0.5
metrics: [response_p50_ms]
load: {url: "http://echo:8080/?size=1024", connections: 4, qps: 100}
cells:
  - {name: one, scale: {echo: 1}}
  - {name: two, scale: {echo: 2}}
  - {name: bytes, scale: {echo: 2}, load: {url: "tcp://echo-tcp:9090", flags: [--payload-size, "64"]}}
Y
"$LATEEN" lab run ./pair.yaml "${OPEN[@]}" --planes none --peer envoy="$STAND/envoy" --out pair >pair.log 2>&1 & lab_pid=$!
check "one proxy in each of two pods runs while it measures" eventually 90 bash -c "[ \$(pgrep -fc '^/usr/bin/python3 $STAND/envoy') = 2 ]"
equal "as the proxies' own user" 1337 "$(ps -o uid= -p "$(proxies | head -1)" | tr -d ' ')"
check "and when there is one pod more, one proxy more" eventually 90 bash -c "[ \$(pgrep -fc '^/usr/bin/python3 $STAND/envoy') = 3 ]"
ended
equal "a run with a proxy in each pod" 0 "$code"
nothing_left "after it" "$pid"
equal "its document says what the plane is" "envoy 0.0.1 HTTP/2+mTLS" "$(doc '.planes[] | select(.name == "envoy") | "\(.kind) \(.version) \(.settings.between_proxies)"' pair)"
equal "all blocks count, the plane's too: its proxies carried them, HTTP and TCP" "9 0" "$(doc '[.scenarios[0].cells[].blocks[]] | "\(length) \([.[] | select(.rejected)] | length)"' pair)"
check "the proxies are charged with what they used" jq -e '[.scenarios[0].cells[].blocks[] | select(.plane == "envoy") | .metrics."cpu_us_per_request.proxies.total"] | length == 3 and all(. > 1)' pair/results.json
check "and have memory, more with three" jq -e '[.scenarios[0].cells[].blocks[] | select(.plane == "envoy") | .metrics."pss_mib.proxies"] | .[0] > 1 and .[1] > .[0]' pair/results.json
equal "no mesh is charged with none" null "$(doc '[.scenarios[0].cells[].blocks[] | select(.plane == "none")][0].metrics."cpu_us_per_request.proxies.total"' pair)"

touch "$STAND/refuse"
"$LATEEN" lab run ./pair.yaml "${OPEN[@]}" --planes none --peer envoy="$STAND/envoy" --out refused >refused.log 2>&1 & lab_pid=$!
ended
rm "$STAND/refuse"
equal "one that does not come up is a finding" 79 "$code"
check "it does not end the run" jq -e '[.scenarios[0].cells[].blocks[] | select(.plane == "none")] | length > 0' refused/results.json
check "the document has its last words" jq -e '.scenarios[0].failures | any(contains("envoy could not be started") and contains("the stand-in refuses to come up"))' refused/results.json
nothing_left "after that" "$pid"

sed -e 's/^rounds: .*/rounds: 100/' pair.yaml >long.yaml
"$LATEEN" lab run ./long.yaml "${OPEN[@]}" --planes none --peer envoy="$STAND/envoy" --out killed >killed.log 2>&1 & lab_pid=$!
check "a long run has written its first round" eventually 120 jq -e '.scenarios[0].cells[0].blocks | length >= 3' killed/results.json
check "its proxies run" proxies
kill -9 "$lab_pid"; ended 2>/dev/null
check "the lab is killed: its proxies end with it" eventually 15 bash -c "! pgrep -f '^/usr/bin/python3 $STAND/envoy'"
no_meshes() { [ -z "$(meshes "$pid")" ]; }
check "and its meshes" eventually 30 no_meshes

sed -e '/^cells/,$d' -e 's/qps: 100/qps: 100/; s/connections: 4/connections: 8/' pair.yaml >workers.yaml
printf 'workers: 2\ncells: [{name: workers}]\n' >>workers.yaml
"$LATEEN" lab run ./workers.yaml "${OPEN[@]}" --out workers >workers.log 2>&1 & lab_pid=$!
ended
equal "a run that asks for workers" 0 "$code"
shares() { doc "[.scenarios[0].cells[0].blocks[] | select(.plane == \"lateen\") | .metrics.\"worker_$1.$2\"][0]" workers; }
equal "lateen ran two at the client" 2 "$(shares threads outbound)"
equal "which had its eight connections" 8 "$(shares connections outbound)"
check "shared out evenly: the fullest had $(shares max_over_mean outbound) times the mean" jq -ne --argjson v "$(shares max_over_mean outbound)" '$v <= 1.25'
check "at the server there were connections as well" jq -ne --argjson v "$(shares connections inbound)" '$v >= 1'
equal "no mesh has no workers" null "$(doc '[.scenarios[0].cells[0].blocks[] | select(.plane == "none")][0].metrics."worker_threads.outbound"' workers)"
check "the table of them is in the report" grep -q "Connections over the proxies' workers" workers/report.md
finish
