package redirect

import (
	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// The chains of type nat see only the packet with which connection tracking begins to know a connection, and they leave
// alone one that is picked up in the middle. Whoever sends such a packet first, and then opens a connection with the same
// addresses and ports, would have it pass them unseen. So what opens a connection is looked at once more, after them: if
// the connection belongs to the proxy and was not translated, it is dropped. A connection that is older than the rules
// opens nothing any more and goes on.
const (
	holdInbound  = "hold-inbound"
	holdOutbound = "hold-outbound"
)

func holds(chain func(string, nftables.ChainType, *nftables.ChainHook, *nftables.ChainPriority) *nftables.Chain, s Settings) []ruledChain {
	after := nftables.ChainPriorityRef(*nftables.ChainPriorityNATDest + 10)
	// All packets pass here, so most leave at the first two rules.
	passed := [][]expr.Any{
		rule(protocol(expr.CmpOpNeq, unix.IPPROTO_TCP), accept()),
		rule(opens(expr.CmpOpNeq), accept()),
		rule(translated(), accept()),
	}
	arriving := append(passed[:len(passed):len(passed)], rule(arrivesBy("lo"), accept()))
	return []ruledChain{
		{
			chain: chain(holdInbound, nftables.ChainTypeFilter, nftables.ChainHookPrerouting, after),
			rules: append(arriving, inbound(s, hold)...),
		},
		{
			chain: chain(holdOutbound, nftables.ChainTypeFilter, nftables.ChainHookOutput, after),
			rules: append(passed[:len(passed):len(passed)], outbound(s, hold)...),
		},
	}
}

// translated matches a packet of a connection whose destination was translated. It does not match one that connection
// tracking knows nothing of, or calls invalid.
func translated() []expr.Any {
	const destinationTranslated = 1 << 5 // IPS_DST_NAT, linux/netfilter/nf_conntrack_common.h
	return []expr.Any{
		&expr.Ct{Register: 1, Key: expr.CtKeySTATUS},
		maskWith(destinationTranslated, 0),
		compare(expr.CmpOpNeq, make([]byte, 4)),
	}
}

// hold drops. A connection to the proxy's own port for plaintext is there already, which the kernel does not count as
// translated.
func hold(port uint16) []expr.Any {
	if port == InboundPort {
		return rule(portIsNot(port), drop())
	}
	return drop()
}
