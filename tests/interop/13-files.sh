#!/usr/bin/env bash
# Files that both proxies read: a local configuration in place of a control plane, and revocation lists.
source "$(dirname "$0")/lib.sh"
begin
remember client-ours client-ztunnel stranger-ours stranger-ztunnel

dump() { proxy_page n4 /config_dump -f; }
dump >"$WORK/dump.json"
declare -A IP; for p in server-ours server-ztunnel client-ours client-ztunnel; do IP[$p]=$(ip_of $p); done
LOCAL=$WORK/local.yaml
# document FILTER: what ztunnel knew by its control plane, as a local configuration has it, and changed by a filter of jq. There
# the keys that are numbers stand without quotes, and patterns are tagged.
document() {
  jq -c '(.services | map({key: "\(.namespace)/\(.hostname)", value: .endpoints})) as $of
    | {workloads: [.workloads[] | .uid as $uid | del(.services) + {services: ([$of[] | select(.value[$uid]) | {key, value: .value[$uid].port}] | from_entries)}],
       services: [.services[] | del(.endpoints)], policies: []} | '"$1" "$WORK/dump.json" |
    sed -E 's/"([0-9]+)":/\1: /g; s/"!([A-Za-z]+) ([^"]*)"/!\1 "\2"/g' >"$LOCAL.new" && mv "$LOCAL.new" "$LOCAL"
}
document .
OURLOCAL=$(with our-local "LOCAL_XDS_PATH=$LOCAL" XDS_ADDRESS= -- "$OURS")
ZTUNNEL_LOCAL=$(with ztunnel-local "LOCAL_XDS_PATH=$LOCAL" XDS_ADDRESS= -- "$ZTUNNEL")
again() { local n; for n in n3 n4; do lateen proxy replace $n --ztunnel "$ZTUNNEL_LOCAL" --drain 1s --wait || return 1; done; }
# verdicts CLIENT SERVER: its ports by address, and the service that the file alone has, by its address and by name.
verdicts() {
  local port who out=
  for who in client stranger; do
    for port in 8080 8081; do out+=$([ "$(call "$who-$1" "http://${IP[server-$2]}:$port/")" = 200 ] && echo 1 || echo 0); done
  done
  out+=$([ "$(call "client-$1" "http://10.96.77.$([ $2 = ours ] && echo 1 || echo 2):90/")" = 200 ] && echo 1 || echo 0)
  out+=$([ "$(call "client-$1" "http://by-file-$2.default.svc.cluster.local:90/")" = 200 ] && echo 1 || echo 0)
  echo $out
}
same() { local pair got=; for pair in "${PAIRS[@]}"; do got+="$(verdicts $pair) "; done; [ "$got" = "$1 $1 $1 $1 " ] || { echo "want $1 four times (ours-ours ours-ztunnel ztunnel-ours ztunnel-ztunnel), got $got"; return 1; }; }
for n in n1 n2; do check "$n: ours with the file alone" lateen proxy replace $n --binary "$OURLOCAL" --drain 1s --wait; done
for n in n3 n4; do check "$n: ztunnel with the file alone" lateen proxy replace $n --ztunnel "$ZTUNNEL_LOCAL" --drain 1s --wait; done
check "all is as with a control plane" eventually 15 same 111100
BY_FILE='.services += [("ours", "ztunnel") as $s | {name: "by-file-\($s)", namespace: "default", hostname: "by-file-\($s).default.svc.cluster.local", vips: ["/10.96.77.\(if $s == "ours" then 1 else 2 end)"], ports: {"90": 8080}}]
  | .workloads |= map(if .workloadName | startswith("server-") then .services["default/by-file-\(.workloadName | ltrimstr("server-")).default.svc.cluster.local"] = {"90": 8080} else . end)'
policy() { jq -nc --arg n "$1" --arg s "$2" --arg a "$3" --argjson r "$4" '{name: $n, namespace: "default", scope: $s, action: $a, rules: $r, dryRun: false}'; }
document "$BY_FILE"
ours_again() { [ "$(verdicts ours ours)" = 111111 ]; }
check "ours reads the file again when it changes" eventually 15 ours_again
equal "ztunnel does not" 111100 "$(verdicts ztunnel ztunnel)"
check "ztunnel is started again" again
check "a service of the file, by address and by name" eventually 15 same 111111
said() { # WANT FILTER
  document "$BY_FILE | $2" && again >"$WORK/again" 2>&1 || { cat "$WORK/again"; return 1; }
  eventually 15 same "$1"
}
check "a policy of a namespace that denies a port" said 101011 ".policies = [$(policy p Namespace Deny '[[[{"destinationPorts": [8081]}]]]')]"
check "one that allows a namespace" said 110011 ".policies = [$(policy p Namespace Allow '[[[{"namespaces": ["!Exact default"]}]]]')]"
check "one that allows an identity" said 110011 ".policies = [$(policy p Namespace Allow '[[[{"principals": ["!Suffix /sa/client"]}]]]')]"
check "one of the mesh that denies by prefix, but for a port" said 111011 ".policies = [$(policy p Global Deny '[[[{"namespaces": ["!Prefix for"]}], [{"notDestinationPorts": [8080]}]]]')]"
check "one with a selector, which nobody names" said 111111 ".policies = [$(policy p WorkloadSelector Deny '[[[{"destinationPorts": [8080]}]]]')]"
check "and which the servers name" said 010100 ".policies = [$(policy p WorkloadSelector Deny '[[[{"destinationPorts": [8080]}]]]')] | .workloads |= map(if .workloadName | startswith(\"server-\") then .authorizationPolicies = [\"default/p\"] else . end)"
check "endpoints that are not healthy" said 111100 '.workloads |= map(if .workloadName | startswith("server-") then .status = "Unhealthy" else . end)'
document "$BY_FILE | .sevices = []"
check_not "a misspelt key: ours says so and is not ready" lateen proxy replace n2 --binary "$OURLOCAL" --drain 1s --wait
check "and names it" bash -c "grep -q 'sevices' '$RUN/nodes/n2/proxy.log'"
check_not "nor is ztunnel" lateen proxy replace n4 --ztunnel "$ZTUNNEL_LOCAL" --drain 1s --wait
check "those before go on" eventually 15 same 111100
check "down" lateen down

echo "# revocation lists (CRL_PATH)"
ca=$WORK/cacerts crl=$WORK/crl.pem
mkdir "$ca"; : >"$crl"
ossl() { openssl "$@" >/dev/null 2>>"$WORK/openssl.log"; }
authority() { # one that signs itself
  ossl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout "$ca/ca-key.pem" -out "$ca/ca-cert.pem" -days 10 -subj "/O=example/CN=one" \
    -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign,cRLSign &&
    cp "$ca/ca-cert.pem" "$ca/root-cert.pem" && cp "$ca/ca-cert.pem" "$ca/cert-chain.pem"
}
check "an authority" authority
echo 01 >"$WORK/number"
printf '[ca]\ndefault_ca=c\n[c]\ndatabase=%s\ndefault_md=sha256\ndefault_crl_days=1\ncrlnumber=%s\ncrl_extensions=x\n[x]\nauthorityKeyIdentifier=keyid\n' "$WORK/index.txt" "$WORK/number" >"$WORK/ca.cnf"
# revoke NODE:ACCOUNT...: the authority's next list has the certificates that these proxies hold, and no others.
revoke() {
  local one; : >"$WORK/index.txt"
  for one in "$@"; do
    proxy_page "${one%:*}" /config_dump -f | jq -r --arg a "sa/${one#*:}" '.certificates[] | select(.identity | endswith($a)) | .certChain[0].pem' | base64 -d >"$WORK/revoked.pem"
    printf 'R\t301231000000Z\t260101000000Z\t%s\tunknown\t/CN=%s\n' "$(openssl x509 -in "$WORK/revoked.pem" -noout -serial | cut -d= -f2)" "$one" >>"$WORK/index.txt"
  done
  ossl ca -gencrl -config "$WORK/ca.cnf" -cert "$ca/ca-cert.pem" -keyfile "$ca/ca-key.pem" -out "$crl.new" && mv "$crl.new" "$crl"
}
served() { local pair got=; for pair in "${PAIRS[@]}"; do set -- $pair; got+=$([ "$(call "client-$1" "http://server-$2:8080/")" = 200 ] && echo 1 || echo 0); done; echo $got; }
# are WANT: who is served, of ours-ours, ours-ztunnel, ztunnel-ours, ztunnel-ztunnel.
are() { local got; got=$(served); [ "$got" = "$1" ] || { echo "want $1, got $got"; return 1; }; }
# refused DESCRIPTION WANT [LIVE [NEW]]: who is served once the list is read: at once by 1.31, as by ours, WANT. 1.30 looks at a list when a
# tunnel to it is made, and never as a client: LIVE while those it has go on, NEW when they had to be made again.
refused() {
  if [ $RELEASE != 1.30 ] || [ $# = 2 ]; then check "$1" eventually 20 are "$2"; return; fi
  check "$1: 1.30 lets go on what is there" eventually 20 are "$3"
  [ $# = 3 ] || check "$1: 1.30 on new tunnels" new_tunnels "$4"
}
new_tunnels() { lateen proxy replace n4 --ztunnel "$ZTUNNEL" --drain 1s --wait && eventually 20 are "$1"; }
begin --ca-dir "$ca" --proxy-env "CRL_PATH=$crl"
keep() { lateen exec "deploy/client-$1" -- lateen-load run --url "http://server-$2:8080/?size=16" --warmup 0s --timeout 5s --qps 20 --connections 2 --duration 12s --json - >"$WORK/keep-$1-$2" 2>/dev/null; }
KEPT=(); for pair in "${PAIRS[@]}"; do keep $pair & KEPT+=($!); done
sleep 2
check "the client's certificate behind ours is revoked" revoke n1:client
refused "it is refused by both, and the one behind ztunnel is not" 0011 0111
wait "${KEPT[@]}"
for s in ours ztunnel; do
  what="what it had open to $s was cut ($(jq -c .counts "$WORK/keep-ours-$s"))"
  if [ "$s $RELEASE" = "ztunnel 1.30" ]; then check_not "1.30: $what" jq -e '.counts.failed > 0' "$WORK/keep-ours-$s"; else check "$what" jq -e '.counts.ok > 5 and .counts.failed > 5' "$WORK/keep-ours-$s"; fi
  check "what the other had open was not ($(jq -c .counts "$WORK/keep-ztunnel-$s"))" jq -e '.counts.failed == 0' "$WORK/keep-ztunnel-$s"
done
refused "it is refused by both still" 0011 0111 0011
check "the other's instead" revoke n3:client
refused "is refused by both" 1100 1101 1100
check "the certificate of the server behind ztunnel" revoke n4:server
refused "both clients refuse it" 1010 1011
check "the certificate of ours" revoke n2:server
refused "both clients refuse that" 0101 0111
check "both clients'" revoke n1:client n3:client
refused "nobody is served" 0000 0101 0000
: >"$crl"
check "emptied: ours stays with the list that it had, ztunnel forgets it" eventually 20 are 0101
check "a list of nothing" revoke
check "takes all back at both" eventually 20 are 1111
check "the client's once more" revoke n1:client
refused "refused" 0011 0111 0011
mv "$crl" "$crl.away"
check "without the file: what both had read stays" are 0011
check "ztunnel starts without it" lateen proxy replace n4 --ztunnel "$ZTUNNEL" --drain 1s --wait
check "and serves the revoked until it comes" eventually 15 are 0111
check_not "ours does not start" lateen proxy replace n2 --drain 1s --wait
check "and says why" grep -q "CRL_PATH=.*mount the revocation lists there, or unset it" "$RUN/nodes/n2/proxy.log"
check "the one before goes on, and refuses the revoked" are 0111
mv "$crl.away" "$crl"
refused "the file comes: ztunnel refuses, too" 0011 0111 0011
check "ours starts" lateen proxy replace n2 --drain 1s --wait
check "and refuses the revoked from its first connection" are 0011
echo "no list" >"$crl.new" && mv "$crl.new" "$crl"
check "a file that holds no list changes nothing at either" are 0011
check "ztunnel starts with it" lateen proxy replace n4 --ztunnel "$ZTUNNEL" --drain 1s --wait
check "and serves the revoked" eventually 15 are 0111
check_not "ours does not start" lateen proxy replace n2 --drain 1s --wait
check "and the one before refuses the revoked" are 0111
finish
