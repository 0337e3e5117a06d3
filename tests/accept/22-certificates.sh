#!/usr/bin/env bash
# Certificates that live seconds are renewed, and the root is replaced, under load: not one request fails. A plugged-in CA is
# used and followed. A revoked workload loses its connections and gets no others. Peers that insist on post-quantum key
# exchange talk to each other and to nobody else. The chains are checked by openssl, which also makes the revocation lists.
# No grep -q behind a pipe: it leaves at the first match, and what writes into the pipe fails.
# needs: openssl
source "$(dirname "$0")/lib.sh"
lateen_load() { lateen exec deploy/client -- lateen-load run --url "http://echo:8080/?size=77" --warmup 0s --timeout 15s "$@"; }
start() { # the mesh, with an echo service and its client in it; ARGUMENTS of up
  check "up $*" lateen up --nodes 2 "$@"
  check "apply echo and client" lateen apply -f "$ROOT/samples/echo/echo.yaml"
  check "enrol" lateen label ns default istio.io/dataplane-mode=ambient
  check "ready, captured" lateen wait deployment/echo deployment/client
  check "known to every proxy" lateen wait
}
client=spiffe://cluster.local/ns/default/sa/client
dump() { proxy_page n1 /config_dump -f | jq --arg id $client '.certificates[] | select(.identity == $id)'; }
serial() { dump | jq -r '.certChain[0].serialNumber'; }
issued() { proxy_metrics n1 | awk '/^lateen_certificate_requests_total.*success/ { n += $2 } END { print n + 0 }'; }
counts() { jq -r '"\(.counts.failed) \(.counts.unsent) \(.counts.unanswered)"' "$1"; }

# Certificates are renewed at half of their life. The other half is longer than a part of a busy machine stands still.
echo "# certificates of ten seconds, and another root"
start --cert-ttl 10s
check "a waypoint that nobody uses" lateen waypoint apply --name idle --wait
old_root=$(cat "/proc/$(engine_pid)/root$RUN/pki/root-cert.pem")
lateen_load --qps 100 --connections 8 --duration 30s --json - >"$WORK/kept.json" 2>/dev/null & KEPT=$!
lateen_load --qps 50 --connections 4 --no-keepalive --duration 30s --json - >"$WORK/new.json" 2>/dev/null & NEW=$!
first=$(serial)
check "the root is replaced" lateen ca rotate --wait --timeout 80s
check "in all stages" eventually 15 bash -c "grep -o 'stage=[a-z]*' '$RUN/control.log' | tr '\n' ' ' | grep 'stage=publishing stage=dropping stage=steady'"
bundle() { cat "/proc/$(engine_pid)/root$RUN/pki/root-cert.pem"; }
published() { local now; now=$(bundle); [ "$(grep -c BEGIN <<<"$now")" = 1 ] && [ "$now" != "$old_root" ]; }
check "one root is published, and it is another one" eventually 15 published
forgotten() { [ -z "$(ls "$RUN"/control/root-key.pem "$RUN"/control/root-cert.pem 2>/dev/null)" ]; }
check "nothing of the old root is left on disk" eventually 15 forgotten
only_new() { dump | jq -e --arg new "$(bundle | base64 -w0)" '(.rootCerts | length) == 1' >/dev/null; }
check "proxies trust the new root alone" eventually 30 only_new
wait $KEPT $NEW
idle=$(in_netns "$(pod_uid idle-)" curl -s --max-time 5 http://127.0.0.1:15020/metrics | grep '^lateen_certificates{state="valid"}')
equal "the waypoint has its certificate after $SECONDS s without a tunnel" 'lateen_certificates{state="valid"} 1' "$idle"
check "certificates were renewed meanwhile" [ "$(serial)" != "$first" ]
equal "kept connections: no request failed, was unsent or unanswered" "0 0 0" "$(counts "$WORK/kept.json")"
equal "new connections: no request failed, was unsent or unanswered" "0 0 0" "$(counts "$WORK/new.json")"
check "they were many ($(jq .counts.ok "$WORK/kept.json"), $(jq .counts.ok "$WORK/new.json"))" [ "$(jq .counts.ok "$WORK/kept.json")" -gt 1500 -a "$(jq .counts.ok "$WORK/new.json")" -gt 700 ]
check "down" lateen down

echo "# a CA that is plugged in, revocation, post-quantum key exchange"
ca=$WORK/cacerts; mkdir "$ca"
ossl() { openssl "$@" >/dev/null 2>>"$WORK/openssl.log"; }
key=(-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes)
intermediate() { # NAME: below the root, in the directory NAME
  mkdir -p "$WORK/$1"
  ossl req "${key[@]}" -keyout "$WORK/$1/ca-key.pem" -out "$WORK/$1.csr" -subj "/O=example/CN=$1" &&
    ossl x509 -req -in "$WORK/$1.csr" -CA "$WORK/root.pem" -CAkey "$WORK/root-key.pem" -days 5 -extfile "$WORK/ext" -out "$WORK/$1/ca-cert.pem" &&
    cp "$WORK/$1/ca-cert.pem" "$WORK/$1/cert-chain.pem" && cp "$WORK/root.pem" "$WORK/$1/root-cert.pem"
}
printf 'basicConstraints=critical,CA:TRUE,pathlen:0\nkeyUsage=critical,keyCertSign,cRLSign\nsubjectKeyIdentifier=hash\n' >"$WORK/ext"
check "a corporate root" ossl req -x509 "${key[@]}" -keyout "$WORK/root-key.pem" -out "$WORK/root.pem" -days 10 -subj "/O=example/CN=root" \
  -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign,cRLSign
check "an intermediate" intermediate one
check "another one" intermediate two
cp "$WORK"/one/* "$ca/"
crl=$WORK/crl.pem; : >"$crl"
start --ca-dir "$ca" --proxy-env "CRL_PATH=$crl" --proxy-env COMPLIANCE_POLICY=pqc

links() { # splits what the client's proxy presents
  local n; n=$(dump | jq '.certChain | length')
  for i in $(seq 0 $((n - 1))); do dump | jq -r ".certChain[$i].pem" | base64 -d >"$WORK/link-$i.pem"; done
  cat "$WORK"/link-[1-9].pem >"$WORK/above.pem"
}
verifies() { links && openssl verify -CAfile "$WORK/root.pem" -untrusted "$WORK/above.pem" -purpose sslclient "$WORK/link-0.pem" && openssl x509 -in "$WORK/link-0.pem" -noout -issuer | grep "$1"; }
check "openssl verifies the chain up to the corporate root" eventually 15 verifies one
get() { lateen exec deploy/client -- curl -sSf -m 15 -o /dev/null http://echo:8080/?size=16; }
check "a pair that insists on post-quantum key exchange talks" get
check "rotating is refused with the fix" bash -c "'$LATEEN' --name '$MESH' ca rotate 2>&1 | grep 'put the new root into'"
cp "$WORK/two/ca-key.pem" "$ca/"
trouble() { lateen ca status -o json | jq -e '(.trouble // "" | contains("is not the key of")) and (.signing | contains("one"))'; }
check "half of another CA leaves the old one in force, and the status says so" eventually 30 trouble
cp "$WORK"/two/* "$ca/"
followed() { lateen ca status -o json | jq -e '(.trouble // "") == "" and (.signing | contains("two"))'; }
check "the whole of it is taken" eventually 30 followed
cp "$WORK"/one/* "$ca/"

# The client's certificate, on a list of the authority that issued it.
printf 'R\t301231000000Z\t260101000000Z\t%s\tunknown\t/CN=client\n' "$(openssl x509 -in "$WORK/link-0.pem" -noout -serial | cut -d= -f2)" >"$WORK/index.txt"
echo 01 >"$WORK/number"
printf '[ca]\ndefault_ca=c\n[c]\ndatabase=%s\ndefault_md=sha256\ndefault_crl_days=1\ncrlnumber=%s\ncrl_extensions=x\n[x]\nauthorityKeyIdentifier=keyid\n' "$WORK/index.txt" "$WORK/number" >"$WORK/ca.cnf"
check "a revocation list" ossl ca -gencrl -config "$WORK/ca.cnf" -cert "$WORK/one/ca-cert.pem" -keyfile "$WORK/one/ca-key.pem" -out "$WORK/list.pem"
# A line of progress a second: the list comes when several have told of answers, and well before the end.
lateen_load --qps 20 --connections 2 --duration 20s --progress=json --json - >"$WORK/cut.json" 2>"$WORK/cut.progress" & CUT=$!
answered() { grep '^{' "$WORK/cut.progress" | tail -1 | jq -e '.answers_total > 5'; }
eventually 30 answered >/dev/null || not_ok "the load that is to be cut has no answers"
cp "$WORK/list.pem" "$crl.new" && mv "$crl.new" "$crl"
in_force() { proxy_metrics n2 | grep '^lateen_revoked_certificates 1$'; }
check "the list is in force" eventually 30 in_force
check "a revoked workload gets no connection" eventually 30 bash -c "! '$LATEEN' --name '$MESH' exec deploy/client -- curl -sSf -m 15 -o /dev/null http://echo:8080/"
wait $CUT
check "its live connections were cut ($(jq -c .counts "$WORK/cut.json"))" jq -e '.counts.ok > 5 and .counts.failed > 5' "$WORK/cut.json"
log_names() { proxy_log n2 | grep -F 'direction="inbound"' | grep "$1"; }
check "the log names the revocation of a live connection" eventually 15 log_names "src.identity=\"$client\".*error=\"connection closed because the peer's certificate was revoked"
check "and the refusal of a new one" eventually 30 log_names 'error=.*revoked.*CRL_PATH'
metric() { proxy_metrics n2 | grep "^istio_tcp_connections_$1_total" | grep 'CERT_REVOKED'; }
check "CERT_REVOKED is counted for connections that were cut" eventually 15 metric closed
check "and for those that were refused" eventually 15 metric failed
: >"$crl"
said() { proxy_log n2 | found 'revocation lists are missing'; }
check "an emptied file is told of" eventually 30 said
check_not "and takes nothing back" get
: >"$WORK/index.txt"
check "a list with nothing on it" ossl ca -gencrl -config "$WORK/ca.cnf" -cert "$WORK/one/ca-cert.pem" -keyfile "$WORK/one/ca-key.pem" -out "$WORK/list.pem"
cp "$WORK/list.pem" "$crl.new" && mv "$crl.new" "$crl"
check "taken off the list it is served again" eventually 30 get

echo '#!/bin/sh
COMPLIANCE_POLICY=classical exec "$(dirname "$0")/lateen-proxy" "$@"' >"$WORK/classical"
sed -i "s|\$(dirname \"\$0\")|$ROOT/bin|" "$WORK/classical"; chmod +x "$WORK/classical"
check "n2 gets a proxy with classical key exchange" lateen proxy replace n2 --binary "$WORK/classical" --drain 0s --wait
check_not "a mixed pair refuses" get
named() { { proxy_log n1; proxy_log n2; } | grep 'COMPLIANCE_POLICY'; }
check "and names the reason" eventually 30 named
finish
