package redirect

import (
	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// A source that was translated once stays so for as long as connection tracking knows the connection: two minutes if it
// was never answered, whoever opens one with the same addresses and ports meanwhile. So a packet that opens such a
// connection is looked at before it leaves: it must be the prober's again.
//
// The address of the answers is what tells such a connection from those that others translate.

const reusedTable = "lateen-probes-reused"

// reused resets what others than the prober open over connections that have the probe address already.
func reused(p Prober) handTable {
	var rules []handRule
	for _, f := range families {
		opens := rule(opening(), f.is())
		posed := byHand(directed{key: f.answeredTo, direction: reply}, compare(expr.CmpOpEq, f.probe.AsSlice()), refuse())
		if p.never != nil {
			rules = append(rules, byHand(append([]any{opens, p.never}, posed...)...), byHand(opens, p.never, accept()))
		}
		rules = append(rules, byHand(opens, p.match, accept()), byHand(append([]any{opens}, posed...)...))
	}
	return handTable{
		name: reusedTable, chain: "reused", hook: nftables.ChainHookOutput, priority: nftables.ChainPriorityMangle,
		rules: rules, needs: "socket and ct (Linux 5.13)",
	}
}

// fresh matches the packet with which connection tracking begins to know a connection: only its source is still to be
// decided on.
func fresh() []expr.Any {
	const decided = 1 << 7 // IPS_SRC_NAT_DONE, linux/netfilter/nf_conntrack_common.h
	return []expr.Any{
		&expr.Ct{Register: 1, Key: expr.CtKeySTATUS},
		maskWith(decided, 0),
		compare(expr.CmpOpEq, make([]byte, 4)),
	}
}

// The keys of a connection's ends by the version of IP.
const (
	answeredTo4 = unix.NFT_CT_DST_IP
	answeredTo6 = unix.NFT_CT_DST_IP6
)
