#!/usr/bin/env bash
# The control plane stays away for longer than certificates live: until they run out nothing fails; then the error, the
# metric and readiness name what is stale; when it is back everything heals by itself. An hour of virtual time is a unit
# test of crates/identity; here certificates live 12 seconds.
# bites: a control plane that takes connections and answers nothing (stopped, not unreachable) leaves the state at "fetching"
# for as long as the question may take: the check of "stale" was seen red so.
# bites: dial in clear when a tunnel cannot be had (`go` in crates/proxy/src/node/attempt.rs): seen red by what is on the wire.
source "$(dirname "$0")/lib.sh"
mesh --cert-ttl 12s
remark() { in_node n1 curl -s --max-time 2 http://127.0.0.1:15021/healthz/ready | grep -iE "$1"; }
held() { proxy_metrics n1 | awk -v s="state=\"$1\"" '/^lateen_certificates/ && index($0, s) {print $2}'; }
ask 3 "$WORK/rotating" -mode new -workers 4 -rate 100
equal "rotation alone costs nothing" 0 "$(failed "$WORK/rotating")"
ask 30 "$WORK/keep" -mode keep -workers 2 -rate 40 & KEEP=$!
# Out of reach and not ended: it would be started again.
check "the control plane is out of reach" in_fabric nft 'add table inet away; add chain inet away in { type filter hook input priority 0; }; add rule inet away in tcp dport 15012 reject with tcp reset'
gone=$(date +%s%3N)
watch_wire
ask 26 "$WORK/new" -mode new -workers 4 -rate 100 -path "/?size=77&marker=in-the-clear" & NEW=$!
# Stale lasts for seconds: readiness is asked whenever the metric is, and not only once that has been seen.
stale() { remark 'expires .*renewal fails since' >>"$WORK/remarks"; [ "$(held stale)" -ge 1 ]; }
check "certificates are counted as stale before they run out" eventually 30 stale
told() { [ -s "$WORK/remarks" ] || remark 'expires .*renewal fails since' >>"$WORK/remarks"; }
check "readiness says which, until when and why ($(tail -n 1 "$WORK/remarks" | cut -c1-160))" eventually 5 told
expired() { [ "$(held expired)" -ge 1 ]; }
check "then as expired" eventually 25 expired
said() { remark 'expired'; }
check "readiness says so" eventually 15 said
named() { grep -iE 'error=.*(expired|certificate)' "$RUN/nodes/n1/proxy.log"; }
check "a connection that cannot be made names the certificate" eventually 30 named
# ran_out: when the first certificate did, in seconds since 1970; nothing if no proxy says so.
ran_out() { local node; for node in n1 n2; do proxy_metrics $node; done | awk '/^lateen_certificates_first_expiry_timestamp_seconds/ && $2 > 0 && (!n || $2 + 0 < n) {n = $2 + 0} END {if (n) printf "%d\n", n}'; }
expiry=$(ran_out)
check "the control plane is in reach again" in_fabric nft delete table inet away
wait $NEW $KEEP
unwatch_wire
equal "without a certificate nothing crossed in clear" 0 "$(in_clear 'marker=in-the-clear')"
check "and requests failed instead ($(jq -c .counts "$WORK/new"))" [ "$(failed "$WORK/new")" -ge 1 ]
first=$(awk 'NR == 1 {print $1}' "$WORK/new.failures")
# A certificate lives for 6 s at least at that moment, unless its renewal was late, as on a busy machine. It is good until it runs out.
least=5000
[ -z "$expiry" ] || [ $((expiry * 1000 - 500 - gone)) -ge $least ] || least=$((expiry * 1000 - 500 - gone))
[ $least -ge 2000 ] || not_ok "a certificate had $least ms left, and it is renewed when 6 s are"
check "nothing failed in the first $least ms: $((${first:-$gone} - gone)) ms passed" [ $((${first:-$((gone + 99999))} - gone)) -ge $least ]
equal "and then nothing hung" 0 "$(count "$WORK/new" timeout)"
check "back, it heals by itself" eventually 30 answers
healthy() { ! remark 'stale|expire' && [ "$(held valid)" -ge 1 ]; }
check "readiness has no remark any more" eventually 40 healthy
finish
