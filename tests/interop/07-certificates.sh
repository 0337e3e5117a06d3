#!/usr/bin/env bash
# Post-quantum key exchange and certificates that live seconds, with both proxies on either side, under load.
source "$(dirname "$0")/lib.sh"
OURPQC=$(with our-pqc COMPLIANCE_POLICY=pqc SECRET_TTL=10s -- "$OURS" node)
OUR=$(with our-short SECRET_TTL=10s -- "$OURS" node)
BESIDE=$(with ztunnel-short SECRET_TTL=10s -- "$ZTUNNEL")
check "up: ours on n2 insists on a post-quantum exchange; certificates live ten seconds" lateen up --nodes 4 --node-proxy "n1=$OUR" --node-proxy "n2=$OURPQC" --node-proxy "n3=$BESIDE" --node-proxy "n4=$BESIDE"
check "clients and servers behind each" lateen apply -f - < <(people)
check "enrol" lateen label ns default istio.io/dataplane-mode=ambient
check "captured and known to every proxy" lateen wait
served() { [ "$(call "client-$1" "http://server-$2:8080/")" = 200 ]; }
check "ztunnel to ours that insists" eventually 15 served ztunnel ours
check "ours, which prefers it unasked" served ours ours
for pair in "ours ztunnel" "ztunnel ztunnel"; do check "$pair" eventually 10 served $pair; done
serial() { proxy_page "$1" /config_dump -f | jq -r '[.certificates[]? | select(.identity | endswith("sa/server")) | .certChain[0].serialNumber // .cert_chain[0].serialNumber] | join(",")'; }
load() { lateen exec "deploy/client-$1" -- lateen-load run --url "http://server-$2:8080/?size=77" --warmup 0s --timeout 5s --duration 16s --qps 30 --connections 4 --no-keepalive --json - 2>/dev/null | jq -r '"\(.counts.failed) \(.counts.unsent) \(.counts.unanswered)"' >"$WORK/load-$1-$2"; }
before=$(serial n2),$(serial n4)
for pair in "ours ztunnel" "ztunnel ours" "ztunnel ztunnel"; do load $pair & done
wait
for pair in "ours ztunnel" "ztunnel ours" "ztunnel ztunnel"; do equal "$pair: sixteen seconds of new connections, none failed" "0 0 0" "$(cat "$WORK/load-${pair/ /-}")"; done
after=$(serial n2),$(serial n4)
renewed() { echo "before $before, after $after"; [[ $before = ?*,?* ]] && [ "${before%,*}" != "${after%,*}" ] && [ "${before#*,}" != "${after#*,}" ]; }
check "both servers' certificates were renewed meanwhile" renewed
finish
