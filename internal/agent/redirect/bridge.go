package redirect

import (
	"encoding/binary"
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// Packets between two pods over a bridge of the node do not pass the node's IP hooks, unless the bridge hands them there
// (br_netfilter). So every packet that enters a bridge with a probe address is dropped at the bridge. The prober's own packets
// enter none: they begin behind it.

func bridgeTable() *nftables.Table {
	return &nftables.Table{Family: nftables.TableFamilyBridge, Name: probeTable}
}

// GuardBridges lets nothing that comes to a bridge have a probe address, in the calling process' network namespace, which
// is the node's. It says whether anything had to change; applying twice is the same as once.
func GuardBridges() (changed bool, err error) {
	table := bridgeTable()
	return replaceTable(table, []ruledChain{{
		chain: &nftables.Chain{
			Name: "arriving", Table: table, Type: nftables.ChainTypeFilter,
			Hooknum: nftables.ChainHookPrerouting, Priority: nftables.ChainPriorityRaw,
		},
		rules: [][]expr.Any{
			rule(protocolIs(unix.ETH_P_IP), from(Probe4), drop()),
			rule(protocolIs(unix.ETH_P_IPV6), from(Probe6), drop()),
		},
	}})
}

// protocolIs matches what a frame carries.
func protocolIs(kind uint16) []expr.Any {
	return []expr.Any{
		&expr.Meta{Register: 1, Key: expr.MetaKeyPROTOCOL},
		compare(expr.CmpOpEq, binary.BigEndian.AppendUint16(nil, kind)),
	}
}

// from matches a source address, without a check of the packet's IP version.
func from(a netip.Addr) []expr.Any { return address(source, a)[2:] }
