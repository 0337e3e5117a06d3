#!/usr/bin/env bash
# Two pods of one node whose connections are joined in the kernel: bytes pass without the proxy, and all else is as without
# it: every byte counted and logged, policies that cut, ends and resets, processes that are replaced or killed. What the
# applications send is looked at with ss, which is not ours.
# needs: python3 ss
source "$(dirname "$0")/lib.sh"

joined() { value lateen_connections_joined_total; }
joins() { [ "$(joined)" -ge 1 ]; }
sum() { proxy_metrics n1 | awk -v m="$1{" -v r="reporter=\"$2\"" 'index($1, m) == 1 && index($0, r) { n += $NF } END { print n + 0 }'; }

# What the two pods run. Neither waits in its system calls but for readiness, as most servers do not.
cat >"$WORK/talk.py" <<'P'
import asyncio, hashlib, select, socket, struct, sys, time
what, address = sys.argv[1], sys.argv[2]

async def echo(reader, writer):
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.write_eof()
    except ConnectionError:
        pass
    writer.close()

async def serve():
    server = await asyncio.start_server(echo, address, 9090)
    print("serving", flush=True)
    await server.serve_forever()

async def ask(reader, writer, n):
    for i in range(n):
        said = b"%064d" % i
        writer.write(said)
        assert await reader.readexactly(64) == said

async def bulk():
    reader, writer = await asyncio.open_connection(address, 9090)
    await ask(reader, writer, 100)
    sent, got = hashlib.sha256(), hashlib.sha256()
    async def write():
        for i in range(48):
            part = bytes([i]) * 65536
            sent.update(part)
            writer.write(part)
            await writer.drain()
        writer.write_eof()
    async def read():
        while data := await reader.read(65536):
            got.update(data)
    await asyncio.gather(write(), read())
    print("same" if sent.digest() == got.digest() else "different")

async def hold():
    try:
        reader, writer = await asyncio.open_connection(address, 9090)
        n = 0
        while True:
            await ask(reader, writer, 10)
            n += 10
            print(n, flush=True)
            await asyncio.sleep(0.05)
    except (ConnectionError, asyncio.IncompleteReadError) as error:
        print("ended", type(error).__name__, flush=True)

# Waits in its calls, then does not for a while, then does again.
async def change():
    peer = socket.create_connection((address, 9090))
    asked = 0
    def ask():
        nonlocal asked
        said, heard = b"%064d" % asked, b""
        peer.sendall(said)
        while len(heard) < 64:
            try:
                part = peer.recv(64 - len(heard))
                assert part, "it ends"
                heard += part
            except BlockingIOError:
                assert not peer.getblocking(), "told to try again, though it waits"
                select.select([peer], [], [], 10)
        assert heard == said
        asked += 1
    # Tries to join it come after 1, 3 and 7 seconds. The rest is long enough for who stands still for some of it.
    for blocking, seconds in (True, 1), (False, 14), (True, 2):
        peer.setblocking(blocking)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            ask()
            time.sleep(0.005)
        # tcpi_bytes_sent of linux/tcp.h
        by_tcp = struct.unpack_from("Q", peer.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256), 200)[0]
        print("waits" if blocking else "waited-not", asked * 64, by_tcp, flush=True)
    peer.close()

asyncio.run({"serve": serve, "bulk": bulk, "hold": hold, "change": change}[what]())
P
talk() { # POD WHAT FILE: its process is $TALK
  nsenter --net="/proc/$(engine_pid)/root$RUN/netns/$(pod_uid "$1-")" -- python3 "$WORK/talk.py" "$2" "$echo" >"$3" 2>&1 & TALK=$!
}
stop() { kill "$1" 2>/dev/null; wait "$1" 2>/dev/null; }
asked() { [ "$(grep -c '^[0-9]' "$1")" -ge "$2" ]; } # FILE TENS
ended() { grep -q '^ended' "$1"; }
# What the client's own sockets to the server have sent by TCP, in bytes.
by_tcp() { in_pod client ss -Htnio state established dport = :9090 | grep -o 'bytes_sent:[0-9]*' | cut -d: -f2 | sort -n | tail -1; }

on_one_node --workers 2 --proxy-env LATEEN_ACCELERATOR=splice
client=$(pod_ip client-) echo=$(pod_ip echo-)
check "the node has the accelerator" eventually 10 found 'are joined in the kernel' "$RUN/nodes/n1/proxy.log"
talk echo serve "$WORK/serve"; SERVE=$TALK
check "a server runs" eventually 30 grep -q serving "$WORK/serve"

echo "# bytes pass in the kernel, and are counted"
talk client hold "$WORK/held"; HOLD=$TALK
check "a connection is used" eventually 15 asked "$WORK/held" 20
check "and is joined" eventually 10 joins
tcp=$(by_tcp)
check "it goes on" eventually 15 asked "$WORK/held" 60
equal "and nothing more of it goes by the client's own TCP" "$tcp" "$(by_tcp)"
check "which is less than was sent ($tcp bytes)" [ "${tcp:-0}" -lt $((600 * 64)) ]
live() { [ "$(sum istio_tcp_sent_bytes_total source)" -ge $((600 * 64)) ] && [ "$(sum istio_tcp_received_bytes_total destination)" -ge $((600 * 64)) ]; }
check "the counters have it while it is open" eventually 20 live
stop $HOLD
# A connection leaves the list after all its bytes are in the counters.
settled() { local list; list=$(lateen proxy config connections n1) && ! grep -q ':9090' <<<"$list"; }
check "it ends" eventually 20 settled
received=$(sum istio_tcp_received_bytes_total source) sent=$(sum istio_tcp_sent_bytes_total source) before=$(joined)
equal "three megabytes to and fro are the same bytes" same "$(in_pod client python3 "$WORK/talk.py" bulk "$echo")"
more() { [ "$(joined)" -gt "$before" ]; }
check "joined as well" eventually 10 more
bytes=$((6400 + 48 * 65536))
logged() { [ "$(proxy_log n1 | grep 'connection complete' | grep "direction=\"$1\"" | grep -c "bytes_sent=$bytes bytes_recv=$bytes")" = 1 ]; }
check "the way out is logged with every byte" eventually 20 logged outbound
check "the way in is, too" eventually 20 logged inbound
equal "and every byte is in the counters" "$bytes $bytes" "$(($(sum istio_tcp_received_bytes_total source) - received)) $(($(sum istio_tcp_sent_bytes_total source) - sent))"

echo "# an application that changes its ways"
before=$(joined)
talk client change "$WORK/change"; CHANGE=$TALK
check "it waits in its calls, and then in them no more" eventually 40 grep -q '^waited-not' "$WORK/change"
check "then it is joined" eventually 10 more
equal "once" $((before + 1)) "$(joined)"
wait $CHANGE
equal "it waits in them again, and is answered" 0 $?
phase() { awk -v n="$1" 'NR == n { print $2 - sent, $3 - tcp } { sent = $2; tcp = $3 }' "$WORK/change"; }
read -r sent tcp <<<"$(phase 1)"
equal "at first all went by the proxy" "$sent" "$tcp"
read -r sent tcp <<<"$(phase 2)"
check "then most went straight ($tcp of $sent bytes by TCP)" [ $((tcp * 2)) -lt "$sent" ]
read -r sent tcp <<<"$(phase 3)"
equal "and at last nothing any more" "$sent" "$tcp"
bytes=$(tail -1 "$WORK/change" | cut -d' ' -f2)
check "every byte is logged once ($bytes)" eventually 15 logged outbound

echo "# policy"
before=$(joined)
talk client hold "$WORK/cut"; HOLD=$TALK
check "a connection is open and joined" eventually 15 more
deny() { lateen apply -f - <<'Y'
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: no-client, namespace: default}
spec:
  selector: {matchLabels: {app: echo}}
  action: DENY
  rules: [{from: [{source: {principals: ["cluster.local/ns/default/sa/client"]}}]}]
Y
}
check "a policy comes that denies it" deny
check "it ends" eventually 15 ended "$WORK/cut"
check "with a reset" grep -q ConnectionResetError "$WORK/cut"
was_cut() { proxy_log n1 | grep 'direction="inbound"' | found 'closed due to policy change'; }
check "the log says why" eventually 15 was_cut
talk client hold "$WORK/refused"
check "a new one is refused" eventually 15 ended "$WORK/refused"
stop "$TALK"
check_not "before its first byte" asked "$WORK/refused" 1
check "allow again" lateen delete -n default AuthorizationPolicy/no-client
stop $HOLD
again() { in_pod client python3 "$WORK/talk.py" bulk "$echo" | found -x same; }
check "served again" eventually 20 again

echo "# a process that is replaced, one that is killed"
before=$(joined)
talk client hold "$WORK/long"; HOLD=$TALK
check "a connection is open and joined" eventually 15 more
old=$(proxy_pid n1) tcp=$(by_tcp)
check "its first bytes went by TCP, as they do" [ "${tcp:-0}" -gt 0 ]
check "replace the proxy" lateen proxy replace n1 --drain 60s
check_not "by another process" [ "$(proxy_pid n1)" = "$old" ]
tens=$(grep -c '^[0-9]' "$WORK/long")
check "the old process lets it go on" eventually 15 asked "$WORK/long" $((tens + 40))
check_not "to no end" ended "$WORK/long"
equal "as before: nothing of it goes by the client's own TCP" "$tcp" "$(by_tcp)"
check_not "nor has the new process joined it" [ "$(joined)" != 0 ]
stop $HOLD
bytes=$(($(grep -c '^[0-9]' "$WORK/long") * 640))
whole() { proxy_log n1 | grep 'connection complete' | grep -o 'bytes_sent=[0-9]*' | cut -d= -f2 | awk -v n="$bytes" '$1 >= n && $1 < n + 64000 { found = 1 } END { exit !found }'; }
check "the old process logs it with every byte ($bytes and more)" eventually 15 whole
drained() { [ ! -d "/proc/$old" ] || grep -q '^State:.*Z' "/proc/$old/status"; }
check "and ends" eventually 20 drained
check "the new process serves" eventually 20 again
check "and joins" eventually 10 joins
before=$(joined)
talk client hold "$WORK/killed"; HOLD=$TALK
check "a connection is open and joined" eventually 15 more
check "its process is killed" kill -KILL "$(proxy_pid n1)"
check "it ends" eventually 15 ended "$WORK/killed"
stop $HOLD
check "served again by the next process" eventually 30 again
stop $SERVE
check "down" lateen down

echo "# turned off"
on_one_node
echo=$(pod_ip echo-)
talk echo serve "$WORK/serve-off"; SERVE=$TALK
check "a server runs" eventually 30 grep -q serving "$WORK/serve-off"
check "the same passes" eventually 15 again
equal "by the proxy" 0 "$(joined)"
stop $SERVE
check "down" lateen down
finish
