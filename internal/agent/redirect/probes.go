package redirect

import (
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// Pods let connections from the probe addresses past the proxy: policy does not hold for them. So a node must see to it
// that nobody has these addresses but its prober.

// probeTable is the one table that is ours on the node.
const probeTable = "lateen-probes"

// Prober says how the node's prober is known among the node's processes.
type Prober struct {
	match []expr.Any
	never []expr.Any // matches sockets that are not its, although match does
}

// ByGroup knows the prober's sockets by the group (fsgid) of the thread that made them. Setting one takes CAP_SETGID, and
// choosing the right one takes knowing it: a group that was drawn at random is known only to those who may read rules.
func ByGroup(gid uint32) Prober {
	return Prober{match: []expr.Any{
		&expr.Meta{Register: 1, Key: expr.MetaKeySKGID},
		compare(expr.CmpOpEq, binaryutil.NativeEndian.PutUint32(gid)),
	}}
}

// GuardProbes lets nobody but the prober use the probe addresses, in the calling process's network namespace, which is
// the node's: neither another process of the node nor any packet that comes from a pod or another node. It says whether
// anything had to change; applying twice is the same as once.
func GuardProbes(p Prober) (changed bool, err error) {
	table := &nftables.Table{Family: nftables.TableFamilyINet, Name: probeTable}
	return replaceTable(table, guard(table, p))
}

func guard(table *nftables.Table, p Prober) []ruledChain {
	chain := func(name string, hook *nftables.ChainHook) *nftables.Chain {
		return &nftables.Chain{Name: name, Table: table, Type: nftables.ChainTypeFilter, Hooknum: hook, Priority: nftables.ChainPriorityRaw}
	}
	var arriving, departing [][]expr.Any
	for _, probe := range []netip.Addr{Probe4, Probe6} {
		arriving = append(arriving, rule(linkIsNot(expr.MetaKeyIIFNAME, "lo"), address(source, probe), drop()))
		// A connection needs its first packet; the kernel answers for sockets that are gone, and those have no group.
		if p.match != nil {
			departing = append(departing, rule(opening(), address(source, probe), p.match, accept()))
		}
		departing = append(departing, rule(opening(), address(source, probe), refuse()))
	}
	return []ruledChain{
		{chain: chain("arriving", nftables.ChainHookPrerouting), rules: arriving},
		{chain: chain("departing", nftables.ChainHookOutput), rules: departing},
	}
}

func linkIsNot(side expr.MetaKey, link string) []expr.Any {
	e := linkIs(side, link)
	e[1].(*expr.Cmp).Op = expr.CmpOpNeq
	return e
}

// refuse resets the connection: whoever opens it here is told at once.
func refuse() []expr.Any {
	return []expr.Any{&expr.Reject{Type: unix.NFT_REJECT_TCP_RST}}
}

func drop() []expr.Any {
	return []expr.Any{&expr.Verdict{Kind: expr.VerdictDrop}}
}
