package redirect

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// A kubelet does not know the probe addresses: it connects from the node's own. So the node translates its connections
// to captured pods, and no others: those that the kubelet's own sockets open, to a pod's address and a port that the
// pod wants probed.

// ByCgroup knows the prober's sockets by the cgroup (version 2) in which they were made: the one with the id (its
// folder's inode) at the level below the root of the calling thread's cgroup namespace. Cgroups below it are not meant,
// so that a pod's never is where the prober runs in a cgroup that contains all others.
func ByCgroup(id uint64, level uint32) Prober {
	return Prober{
		// Reading the level below succeeds only if there is one.
		never: cgroupAt(level + 1),
		match: Cgroup{ID: id, Level: level}.holds(),
	}
}

// ByUser knows the prober's sockets by the user who made them: all of that user's on the node's network.
func ByUser(uid uint32) Prober {
	return Prober{match: []expr.Any{
		&expr.Meta{Register: 1, Key: expr.MetaKeySKUID},
		compare(expr.CmpOpEq, binaryutil.NativeEndian.PutUint32(uid)),
	}}
}

// PoseProbes translates the prober's connections to the targets to the probe addresses, in the calling process' network
// namespace, which is the node's, and lets nobody use these addresses otherwise. Targets that are nil stay those that stand.
// It says whether anything but the targets had to change; applying twice is the same as once.
func PoseProbes(p Prober, targets []netip.AddrPort) (changed bool, err error) {
	if changed, err = reused(p).put(); err != nil {
		return changed, err
	}
	table := &nftables.Table{Family: nftables.TableFamilyINet, Name: probeTable}
	want := append(guard(table, Prober{}), pose(table, p)...)
	c, closer, err := connect()
	if err != nil {
		return changed, err
	}
	defer closer()
	same, err := tableIs(c, table, want, 2*len(families))
	if err != nil {
		return changed, err
	}
	if targets == nil {
		if targets, err = standing(c, table); err != nil {
			return changed, err
		}
	}
	if !same || !hasSets(c, table) {
		changed = true
		if err := writeProbes(c, table, want, targets); err != nil {
			return changed, err
		}
	}
	for _, family := range families {
		if err := family.retarget(c, table, targets); err != nil {
			return changed, err
		}
	}
	return changed, nil
}

// standing are the targets that stand in the table, if it is there.
func standing(c *nftables.Conn, table *nftables.Table) (targets []netip.AddrPort, err error) {
	if there, err := findTable(c, table); err != nil || there == nil {
		return nil, err
	}
	for _, family := range families {
		set, err := c.GetSetByName(table, family.probed(table).Name)
		if err != nil {
			continue // a table without it is written anew
		}
		elements, err := c.GetSetElements(set)
		if err != nil {
			return nil, fmt.Errorf("list set of probed ports: %w", err)
		}
		for _, e := range elements {
			if t, ok := family.targetOf(e.Key); ok {
				targets = append(targets, t)
			}
		}
	}
	return targets, nil
}

// atATime is how many targets go into one message: a message's list has 64 KiB.
const atATime = 500

// writeProbes makes the table anew in one transaction, with as many targets as fit.
func writeProbes(c *nftables.Conn, table *nftables.Table, want []ruledChain, targets []netip.AddrPort) error {
	c.AddTable(table)
	c.DelTable(table)
	c.AddTable(table)
	for _, family := range families {
		elements := family.elements(targets)
		if err := c.AddSet(family.probed(table), elements[:min(len(elements), atATime)]); err != nil {
			return fmt.Errorf("write set of probed ports: %w", err)
		}
		if err := c.AddSet(family.opening(table), nil); err != nil {
			return fmt.Errorf("write set of probes: %w", err)
		}
	}
	for _, w := range want {
		c.AddChain(w.chain)
		for _, exprs := range w.rules {
			c.AddRule(&nftables.Rule{Table: table, Chain: w.chain, Exprs: exprs})
		}
	}
	if err := c.Flush(); err != nil {
		return fmt.Errorf("write table inet %s: %w; the kernel needs nf_tables with socket and nat for inet (Linux 5.13)", probeTable, err)
	}
	return nil
}

// RemoveProbes takes the rules about probe addresses off the node.
func RemoveProbes() error {
	var errs []error
	for _, table := range []*nftables.Table{
		{Family: nftables.TableFamilyINet, Name: probeTable}, {Family: nftables.TableFamilyINet, Name: reusedTable}, bridgeTable(),
	} {
		_, err := deleteTable(table)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// hasSets says whether the sets are there as they should be.
func hasSets(c *nftables.Conn, table *nftables.Table) bool {
	for _, family := range families {
		for _, want := range []*nftables.Set{family.probed(table), family.opening(table)} {
			have, err := c.GetSetByName(table, want.Name)
			if err != nil || have.KeyType.Bytes != want.KeyType.Bytes || have.HasTimeout != want.HasTimeout || have.Timeout != want.Timeout {
				return false
			}
		}
	}
	return true
}

// retarget brings the set of probed ports to the targets. What goes and what comes is written in parts, each of them a
// transaction: there may be more than one can hold.
func (f probeFamily) retarget(c *nftables.Conn, table *nftables.Table, targets []netip.AddrPort) error {
	set := f.probed(table)
	stand, err := c.GetSetElements(set)
	if err != nil {
		return fmt.Errorf("list set of probed ports: %w", err)
	}
	have, want := map[string]bool{}, map[string]bool{}
	var come, leave []nftables.SetElement
	for _, e := range stand {
		have[string(e.Key)] = true
	}
	for _, e := range f.elements(targets) {
		want[string(e.Key)] = true
		if !have[string(e.Key)] {
			come = append(come, e)
		}
	}
	for _, e := range stand {
		if !want[string(e.Key)] {
			leave = append(leave, nftables.SetElement{Key: e.Key})
		}
	}
	for _, change := range []struct {
		elements []nftables.SetElement
		make     func(*nftables.Set, []nftables.SetElement) error
	}{{leave, c.SetDeleteElements}, {come, c.SetAddElements}} {
		for part := range slices.Chunk(change.elements, atATime) {
			err := change.make(set, part)
			if err == nil {
				err = c.Flush()
			}
			if err != nil {
				return fmt.Errorf("write set of probed ports: %w", err)
			}
		}
	}
	return nil
}

// probeFamily is what differs between the two versions of IP.
type probeFamily struct {
	version   int
	nfproto   byte
	addresses nftables.SetDatatype
	words     uint32 // of 32 bits, of an address
	source    uint32 // its offset in the header
	probe     netip.Addr
	// answeredTo is the key of the address that a connection's answers go to.
	answeredTo uint32
}

var families = []probeFamily{
	{4, unix.NFPROTO_IPV4, nftables.TypeIPAddr, 1, 12, Probe4, answeredTo4},
	{6, unix.NFPROTO_IPV6, nftables.TypeIP6Addr, 4, 8, Probe6, answeredTo6},
}

// probed are the addresses and ports that may be probed.
func (f probeFamily) probed(table *nftables.Table) *nftables.Set {
	return &nftables.Set{
		Table: table, Name: fmt.Sprintf("probed%d", f.version), ID: uint32(f.version), Concatenation: true,
		KeyType: nftables.MustConcatSetType(f.addresses, nftables.TypeInetService),
	}
}

// opening are connections that the prober is opening. Whose a packet is can be seen when it is made; its source can be
// translated only when it leaves. What is noted is used up there: the time is for packets that somebody drops in between.
func (f probeFamily) opening(table *nftables.Table) *nftables.Set {
	const memory, most = time.Second, 1 << 16
	return &nftables.Set{
		Table: table, Name: fmt.Sprintf("opening%d", f.version), ID: uint32(10 + f.version), Concatenation: true, Dynamic: true,
		HasTimeout: true, Timeout: memory, Size: most,
		KeyType: nftables.MustConcatSetType(f.addresses, nftables.TypeInetService, f.addresses, nftables.TypeInetService),
	}
}

// elements are those of the targets that are of the family.
func (f probeFamily) elements(targets []netip.AddrPort) []nftables.SetElement {
	var all []nftables.SetElement
	seen := map[netip.AddrPort]bool{}
	for _, t := range targets {
		if t.Addr().Is4() != (f.version == 4) || seen[t] {
			continue
		}
		seen[t] = true
		key := append(t.Addr().AsSlice(), binary.BigEndian.AppendUint16(nil, t.Port())...)
		all = append(all, nftables.SetElement{Key: append(key, 0, 0)}) // fields begin at whole words
	}
	return all
}

// targetOf reads an element as elements writes it.
func (f probeFamily) targetOf(key []byte) (netip.AddrPort, bool) {
	n := int(4 * f.words)
	if len(key) < n+2 {
		return netip.AddrPort{}, false
	}
	a, ok := netip.AddrFromSlice(key[:n])
	return netip.AddrPortFrom(a, binary.BigEndian.Uint16(key[n:])), ok
}

// word is the register that begins with a word of 32 bits, as the kernel writes it.
func word(n uint32) uint32 {
	const first, narrow = 1, 8 // NFT_REG_1, NFT_REG32_00
	if n%4 == 0 {
		return first + n/4
	}
	return narrow + n
}

// target loads the destination's address and port behind each other, from a word on.
func (f probeFamily) target(at uint32) []expr.Any {
	return []expr.Any{
		&expr.Payload{DestRegister: word(at), Base: expr.PayloadBaseNetworkHeader, Offset: f.source + 4*f.words, Len: 4 * f.words},
		&expr.Payload{DestRegister: word(at + f.words), Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
	}
}

// flow loads both ends of the packet behind each other.
func (f probeFamily) flow() []expr.Any {
	return append([]expr.Any{
		&expr.Payload{DestRegister: word(0), Base: expr.PayloadBaseNetworkHeader, Offset: f.source, Len: 4 * f.words},
		&expr.Payload{DestRegister: word(f.words), Base: expr.PayloadBaseTransportHeader, Offset: 0, Len: 2},
	}, f.target(f.words+1)...)
}

func (f probeFamily) is() []expr.Any {
	return []expr.Any{&expr.Meta{Register: 1, Key: expr.MetaKeyNFPROTO}, compare(expr.CmpOpEq, []byte{f.nfproto})}
}

func lookup(s *nftables.Set) []expr.Any {
	return []expr.Any{&expr.Lookup{SourceRegister: 1, SetName: s.Name, SetID: s.ID}}
}

// dynsetDelete is NFT_DYNSET_OP_DELETE, linux/netfilter/nf_tables.h.
const dynsetDelete = 2

func keep(s *nftables.Set, operation uint32) []expr.Any {
	return []expr.Any{&expr.Dynset{SrcRegKey: 1, SetName: s.Name, SetID: s.ID, Operation: operation}}
}

func pose(table *nftables.Table, p Prober) []ruledChain {
	var made, leaving [][]expr.Any
	for _, f := range families {
		toTarget := rule(opening(), f.is(), f.target(0), lookup(f.probed(table)))
		if p.never != nil {
			made = append(made, rule(toTarget, p.never, accept()))
		}
		set := f.opening(table)
		made = append(made, rule(toTarget, p.match, fresh(), f.flow(), keep(set, unix.NFT_DYNSET_OP_UPDATE)))
		leaving = append(leaving, rule(opening(), f.is(), f.flow(), lookup(set), keep(set, dynsetDelete), []expr.Any{
			&expr.Immediate{Register: 1, Data: f.probe.AsSlice()},
			&expr.NAT{Type: expr.NATTypeSourceNAT, Family: uint32(f.nfproto), RegAddrMin: 1, RegAddrMax: 1},
		}))
	}
	// The chain runs before others that translate sources, since the first translation is final.
	early := nftables.ChainPriorityRef(*nftables.ChainPriorityNATSource - 10)
	return []ruledChain{
		{
			chain: &nftables.Chain{Name: "made-by-the-prober", Table: table, Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookOutput, Priority: nftables.ChainPriorityMangle},
			rules: made,
		},
		{
			chain: &nftables.Chain{Name: "pose-as-prober", Table: table, Type: nftables.ChainTypeNAT, Hooknum: nftables.ChainHookPostrouting, Priority: early},
			rules: leaving,
		},
	}
}
