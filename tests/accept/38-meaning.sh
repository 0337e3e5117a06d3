#!/usr/bin/env bash
# The meaning of objects, end to end: a mesh of two nodes with a client in each of the namespaces a and b, and the server web in
# namespace shop. Each file of meaning/ is sourced there in turn, makes its checks, and leaves the mesh as it was.
source "$(dirname "$0")/lib.sh"

sed -e 's/: echo$/: web/' -e 's/http:\/\/echo/http:\/\/web/' "$ROOT/samples/echo/echo.yaml" >"$WORK/web.yaml"
# Objects are put down by documents: a ServiceAccount, a Service and a Deployment of the server, then two of the client.
part() { awk -v first="$1" -v last="$2" 'BEGIN { n = 1 } /^---$/ { n++ } n >= first && n <= last && !/^---$/ || n > first && n <= last' "$WORK/web.yaml"; }
part 1 3 >"$WORK/server.yaml"
part 4 5 >"$WORK/client.yaml"

check "up" lateen up --nodes 2
for ns in shop a b; do
  check "namespace $ns" lateen apply -f - <<Y
apiVersion: v1
kind: Namespace
metadata: {name: $ns, labels: {istio.io/dataplane-mode: ambient}}
Y
done
check "the server" lateen apply -n shop -f "$WORK/server.yaml"
check "a client in a" lateen apply -n a -f "$WORK/client.yaml"
check "a client in b" lateen apply -n b -f "$WORK/client.yaml"
check "the server is ready, captured" lateen wait -n shop deployment/web
check "and so is the client in a" lateen wait -n a deployment/client
check "and in b" lateen wait -n b deployment/client
check "known to every proxy" lateen wait

for meaning in "$ROOT"/tests/accept/meaning/*.sh; do
  # shellcheck disable=SC1090
  source "$meaning"
done
finish
