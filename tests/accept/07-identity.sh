#!/usr/bin/env bash
# Certificates: a node gets none for identities of other nodes; a peer of another trust domain, an expired certificate, no
# certificate and a certificate of another root are refused; a good foreign peer is served. The peer is Go's TLS and HTTP/2.
# needs: openssl
source "$(dirname "$0")/lib.sh"
(cd "$ROOT" && go build -o "$WORK/" ./tests/mesh/...) || not_ok "the peers build"

check "up" lateen up --nodes 2
check "apply echo and client" lateen apply -f "$ROOT/samples/echo/echo.yaml"
check "enrol" lateen label ns default istio.io/dataplane-mode=ambient
enrolled() { lateen get pods -o json | jq -e '[.items[] | select(.metadata.annotations["ambient.istio.io/redirection"] == "enabled") | select(.status.conditions[]? | select(.type=="Ready" and .status=="True"))] | length >= 2'; }
known() { enrolled && lateen wait; }
check "captured" eventually 60 known
client_node=$(node_of client) echo_node=$(node_of echo)
echo_ip=$(lateen get pods -o json | jq -r '.items[] | select(.metadata.name | startswith("echo")) | .status.podIP')
cp "/proc/$(engine_pid)/root$RUN/pki/root-cert.pem" "$WORK/root.pem"

ask() { in_fabric "$WORK/askcert" -root "$WORK/root.pem" "$@"; }
client=spiffe://cluster.local/ns/default/sa/client echo=spiffe://cluster.local/ns/default/sa/echo
check "a node gets the identity of its own pod" ask -token-file "$RUN/nodes/$client_node/token" -identity $client
check_not "a node gets no identity of a pod on another node" ask -token-file "$RUN/nodes/$client_node/token" -identity $echo
why=$(ask -token-file "$RUN/nodes/$client_node/token" -identity $echo 2>&1)
if grep -q PermissionDenied <<<"$why" && grep -q "$client_node" <<<"$why"; then ok "the refusal names the node: $why"; else not_ok "the refusal names the node: $why"; fi
check_not "a node proxy gets no certificate in its own name" ask -own -token-file "$RUN/nodes/$client_node/token" -identity spiffe://cluster.local/ns/istio-system/sa/ztunnel
check_not "no token, no certificate" ask -identity $client
sed 's/..$/xx/' "$RUN/nodes/$client_node/token" >"$WORK/forged"
check_not "a forged token gets no certificate" ask -token-file "$WORK/forged" -identity $client
refusals() { in_fabric curl -sf http://127.0.0.1:15014/metrics | grep -E '^lateen_control_[a-z_]*(certificate|cert|ca)[a-z_]*total' | found -iE 'refus|denied|error|unauth'; }
check "refusals are counted" eventually 15 refusals

CA_CERT=$(ls "$RUN"/control/ca/*cert*.pem "$RUN"/control/*cert*.pem 2>/dev/null | head -1)
CA_KEY=$(ls "$RUN"/control/ca/*key*.pem "$RUN"/control/*key*.pem 2>/dev/null | head -1)
peer() { in_node "$client_node" "$WORK/hbonepeer" -ca-cert "$CA_CERT" -ca-key "$CA_KEY" -connect "$echo_ip:15008" -authority "$echo_ip:8080" "$@"; }
check "a good foreign peer is served, through a half-close" peer -identity spiffe://cluster.local/ns/default/sa/client
check "and sees the server's identity" bash -c "$(declare -f peer in_node engine_pid); RUN='$RUN' WORK='$WORK' client_node='$client_node' CA_CERT='$CA_CERT' CA_KEY='$CA_KEY' echo_ip='$echo_ip'; peer -identity $client | grep -q '$echo'"
logs() { proxy_log "$echo_node" | grep -iE "$1"; }
check_not "a peer of another trust domain is refused" peer -identity spiffe://elsewhere.example/ns/default/sa/client
check "and the log says so" eventually 30 logs 'elsewhere\.example|trust domain'
check_not "an expired certificate is refused" peer -identity $client -not-before 2h -valid-for -1h
check "and the log says so" eventually 30 logs 'expired'
check_not "a peer without a certificate is refused" peer
flags() { proxy_metrics "$echo_node" | grep -E '^istio_tcp_connections_failed_total|^lateen_[a-z_]*failed' | found 'TLS_FAILURE'; }
check "failed handshakes are counted" eventually 30 flags

openssl ecparam -genkey -noout -name prime256v1 -out "$WORK/other-key.pem" 2>/dev/null
openssl req -x509 -new -key "$WORK/other-key.pem" -out "$WORK/other-cert.pem" -subj "/O=cluster.local" -days 1 2>/dev/null
CA_CERT=$WORK/other-cert.pem CA_KEY=$WORK/other-key.pem
check_not "a certificate of another root is refused" peer -server-root "$WORK/root.pem" -identity $client
check "and the log says so" eventually 30 logs 'unknown authority'

# Tokens are JWTs, whose first part is a JSON object in base64url; keys are PEM.
check "the logs are there" test -s "$RUN/nodes/$echo_node/proxy.log"
check_not "no log has a key or a token" grep -rEl --include='*.log' 'eyJ[A-Za-z0-9_-]{16,}\.eyJ|PRIVATE KEY' "$RUN"

finish
