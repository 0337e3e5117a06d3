package redirect

import (
	"encoding/binary"
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// tableName is the one table that is ours in a pod's namespace.
const tableName = "lateen"

// The chains that translate new connections.
const (
	redirectInbound  = "redirect-inbound"
	redirectOutbound = "redirect-outbound"
)

// capturing are the chains whose rules are about new connections. If any of them has one, the pod is captured.
var capturing = []string{redirectInbound, redirectOutbound, holdInbound, holdOutbound}

// ruledChain is a base chain with the rules that it must have, in order.
type ruledChain struct {
	chain *nftables.Chain
	rules [][]expr.Any
}

// ruleset is the whole table for a mode. While draining, the chains of type nat stay, empty: with the last of them the
// kernel would stop translating the connections that are already redirected.
func ruleset(table *nftables.Table, mode Mode, s Settings) []ruledChain {
	chain := func(name string, kind nftables.ChainType, hook *nftables.ChainHook, priority *nftables.ChainPriority) *nftables.Chain {
		return &nftables.Chain{Name: name, Table: table, Type: kind, Hooknum: hook, Priority: priority}
	}
	chains := []ruledChain{
		{
			chain: chain("mark-inbound", nftables.ChainTypeFilter, nftables.ChainHookPrerouting, nftables.ChainPriorityMangle),
			rules: markInbound(),
		},
		{
			// Type route: a packet whose mark changes here is routed again.
			chain: chain("return-outbound", nftables.ChainTypeRoute, nftables.ChainHookOutput, nftables.ChainPriorityMangle),
			rules: returnOutbound(),
		},
		{
			chain: chain(redirectInbound, nftables.ChainTypeNAT, nftables.ChainHookPrerouting, nftables.ChainPriorityNATDest),
		},
		{
			chain: chain(redirectOutbound, nftables.ChainTypeNAT, nftables.ChainHookOutput, nftables.ChainPriorityNATDest),
		},
	}
	if mode == Capturing {
		chains[2].rules = inbound(s, redirectTo)
		chains[3].rules = outbound(s, redirectTo)
		chains = append(chains, holds(chain, s)...)
		if s.Own.Known() {
			chains = append(chains, disown(chain, s.Own))
		}
		if s.capturesDNS() {
			chains[3].rules = append(chains[3].rules, redirectDNS(s)...)
			chains = append(chains, dnsZones(chain)...)
		}
	}
	return chains
}

// markInbound remembers on the connection that the proxy opened it inside the pod: its packets come in over the
// loopback interface with the proxy's mark still on them.
func markInbound() [][]expr.Any {
	return [][]expr.Any{
		rule(markIs(expr.CmpOpEq, ProxyMark), []expr.Any{
			&expr.Ct{Register: 1, Key: expr.CtKeyMARK},
			maskWith(^uint32(MarkMask), ReturnMark),
			&expr.Ct{Register: 1, Key: expr.CtKeyMARK, SourceRegister: true},
		}),
	}
}

// returnOutbound puts the connection's mark on the pod's answers, so that the policy route keeps those to a foreign
// address inside the pod, where the proxy's socket has that address.
func returnOutbound() [][]expr.Any {
	return [][]expr.Any{
		rule([]expr.Any{
			&expr.Ct{Register: 1, Key: expr.CtKeyMARK},
			maskWith(MarkMask, 0),
			compare(expr.CmpOpEq, binaryutil.NativeEndian.PutUint32(ReturnMark)),
			&expr.Ct{Register: 1, Key: expr.CtKeyMARK},
			&expr.Meta{Register: 1, Key: expr.MetaKeyMARK, SourceRegister: true},
		}),
	}
}

// verdict is what a rule does with a connection that belongs to a port of the proxy.
type verdict func(port uint16) []expr.Any

// inbound says which connections from outside belong to the proxy.
func inbound(s Settings, captured verdict) [][]expr.Any {
	var rules [][]expr.Any
	for _, link := range s.VirtualInterfaces {
		rules = append(rules, rule(arrivesBy(link), opening(), captured(OutboundPort)))
	}
	if s.BypassInbound {
		return rules
	}
	rules = append(rules,
		rule(tcp(), address(source, Probe4), accept()),
		rule(tcp(), address(source, Probe6), accept()),
		rule(tcp(), address(destination, netip.MustParseAddr("127.0.0.1")), accept()),
		rule(tcp(), address(destination, netip.IPv6Loopback()), accept()),
	)
	for _, port := range s.InboundPorts {
		rules = append(rules, rule(opening(), portIs(port), accept()))
	}
	return append(rules, rule(opening(), portIsNot(TunnelPort), markIs(expr.CmpOpNeq, ProxyMark), captured(InboundPort)))
}

// outbound says which of the pod's own connections belong to the proxy.
func outbound(s Settings, captured verdict) [][]expr.Any {
	rules := [][]expr.Any{
		rule(tcp(), address(destination, Probe4), accept()),
		rule(tcp(), address(destination, Probe6), accept()),
		rule(tcp(), markIs(expr.CmpOpEq, ReturnMark), accept()),
		// A packet that leaves through the loopback interface is the pod calling itself. The verdict here also holds for the
		// same packet's arrival: a connection passes the chains of type nat for its destination once.
		rule(leavesBy("lo"), accept()),
	}
	if s.capturesDNS() {
		rules = append(rules, rule(opening(), portIs(domain), markIs(expr.CmpOpNeq, ProxyMark), captured(DNSPort)))
	}
	for _, port := range s.OutboundPorts {
		rules = append(rules, rule(opening(), portIs(port), accept()))
	}
	for _, r := range s.OutboundRanges {
		rules = append(rules, rule(opening(), within(destination, r), accept()))
	}
	if s.OnlyRanges == nil {
		return append(rules, rule(opening(), markIs(expr.CmpOpNeq, ProxyMark), captured(OutboundPort)))
	}
	for _, r := range s.OnlyRanges {
		rules = append(rules, rule(opening(), within(destination, r), markIs(expr.CmpOpNeq, ProxyMark), captured(OutboundPort)))
	}
	return rules
}

func rule(parts ...[]expr.Any) []expr.Any {
	var all []expr.Any
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}

func tcp() []expr.Any { return protocol(expr.CmpOpEq, unix.IPPROTO_TCP) }

func protocol(op expr.CmpOp, number byte) []expr.Any {
	return []expr.Any{
		&expr.Meta{Register: 1, Key: expr.MetaKeyL4PROTO},
		compare(op, []byte{number}),
	}
}

// opening matches the packet that opens a TCP connection. Connection tracking picks up older connections in the middle
// and takes their next packet for the first; translating that would break them.
func opening() []expr.Any { return rule(tcp(), opens(expr.CmpOpEq)) }

// opens compares the flags of a TCP packet with those of the one that opens a connection.
func opens(op expr.CmpOp) []expr.Any {
	const fin, syn, rst, ack = 0x01, 0x02, 0x04, 0x10
	const flagsOffset = 13
	return []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: flagsOffset, Len: 1},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 1, Mask: []byte{fin | syn | rst | ack}, Xor: []byte{0}},
		compare(op, []byte{syn}),
	}
}

type side int

const (
	source side = iota
	destination
)

// field loads an address of the packet, if it is of the family of a.
func field(s side, a netip.Addr) (load []expr.Any, length uint32) {
	// Offsets of the source address in the two IP headers; the destination follows it.
	family, offset := byte(unix.NFPROTO_IPV4), uint32(12)
	if a.Is6() {
		family, offset = unix.NFPROTO_IPV6, 8
	}
	length = uint32(a.BitLen() / 8)
	if s == destination {
		offset += length
	}
	return []expr.Any{
		&expr.Meta{Register: 1, Key: expr.MetaKeyNFPROTO},
		compare(expr.CmpOpEq, []byte{family}),
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: length},
	}, length
}

func address(s side, a netip.Addr) []expr.Any {
	load, _ := field(s, a)
	return append(load, compare(expr.CmpOpEq, a.AsSlice()))
}

// within matches an address in a range.
func within(s side, r netip.Prefix) []expr.Any {
	load, length := field(s, r.Addr())
	mask := make([]byte, length)
	for i := range r.Bits() {
		mask[i/8] |= 0x80 >> (i % 8)
	}
	return append(load,
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: length, Mask: mask, Xor: make([]byte, length)},
		compare(expr.CmpOpEq, r.Masked().Addr().AsSlice()))
}

func portIs(port uint16) []expr.Any { return portOf(expr.CmpOpEq, port) }

func portIsNot(port uint16) []expr.Any { return portOf(expr.CmpOpNeq, port) }

func portOf(op expr.CmpOp, port uint16) []expr.Any {
	return []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
		compare(op, binary.BigEndian.AppendUint16(nil, port)),
	}
}

func markIs(op expr.CmpOp, mark uint32) []expr.Any {
	return []expr.Any{
		&expr.Meta{Register: 1, Key: expr.MetaKeyMARK},
		maskWith(MarkMask, 0),
		compare(op, binaryutil.NativeEndian.PutUint32(mark)),
	}
}

func leavesBy(link string) []expr.Any { return linkIs(expr.MetaKeyOIFNAME, link) }

func arrivesBy(link string) []expr.Any { return linkIs(expr.MetaKeyIIFNAME, link) }

func linkIs(side expr.MetaKey, link string) []expr.Any {
	name := make([]byte, unix.IFNAMSIZ)
	copy(name, link)
	return []expr.Any{
		&expr.Meta{Register: 1, Key: side},
		compare(expr.CmpOpEq, name),
	}
}

func redirectTo(port uint16) []expr.Any {
	return []expr.Any{
		&expr.Immediate{Register: 1, Data: binary.BigEndian.AppendUint16(nil, port)},
		&expr.Redir{RegisterProtoMin: 1, RegisterProtoMax: 1, Flags: unix.NF_NAT_RANGE_PROTO_SPECIFIED},
	}
}

func accept() []expr.Any {
	return []expr.Any{&expr.Verdict{Kind: expr.VerdictAccept}}
}

func maskWith(mask, xor uint32) *expr.Bitwise {
	return &expr.Bitwise{
		SourceRegister: 1, DestRegister: 1, Len: 4,
		Mask: binaryutil.NativeEndian.PutUint32(mask), Xor: binaryutil.NativeEndian.PutUint32(xor),
	}
}

func compare(op expr.CmpOp, data []byte) *expr.Cmp {
	return &expr.Cmp{Register: 1, Op: op, Data: data}
}
