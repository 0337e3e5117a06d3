package servicenat

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

const tableName = "lateen-services"

// reg1 is the first register of 4 bytes, in which a concatenated key or value begins.
const reg1 = unix.NFT_REG32_00

// offDestPort is an offset in transport headers.
const offDestPort = 2

// family is what differs between the IP families.
type family struct {
	table    nftables.TableFamily
	nat      uint32
	address  nftables.SetDatatype
	length   uint32 // of an address, in bytes
	protocol uint32 // offsets in the IP header
	source   uint32
	dest     uint32
	refusal  uint8 // code of the ICMP message for a port that is not there
}

var (
	family4 = family{table: nftables.TableFamilyIPv4, nat: unix.NFPROTO_IPV4, address: nftables.TypeIPAddr, length: 4, protocol: 9, source: 12, dest: 16, refusal: 3}
	family6 = family{table: nftables.TableFamilyIPv6, nat: unix.NFPROTO_IPV6, address: nftables.TypeIP6Addr, length: 16, protocol: 6, source: 8, dest: 24, refusal: 4}
)

// after returns the register that follows so many addresses and so many words of 4 bytes.
func (f family) after(addresses, words uint32) uint32 {
	return reg1 + addresses*f.length/4 + words
}

// Config is what the table of one family needs to know apart from the plan.
type Config struct {
	ServiceCIDR netip.Prefix
	Resolver    netip.Addr // in ServiceCIDR, but a real address: never refused
}

func (c Config) family() family {
	if c.ServiceCIDR.Addr().Is6() {
		return family6
	}
	return family4
}

// Apply replaces the tables of the given families in the namespace at ns by the plan's, in one transaction: no packet
// meets a half-made table. Connections that are under way keep their backend.
func Apply(ns string, p Plan, families ...Config) error {
	f, err := os.Open(ns)
	if err != nil {
		return err
	}
	defer f.Close()
	conn, err := nftables.New(nftables.WithNetNSFd(int(f.Fd())), nftables.WithSockOptions(func(s *netlink.Conn) error {
		// A transaction is one message, and every part of it is acknowledged by one.
		return errors.Join(s.SetWriteBuffer(8<<20), s.SetReadBuffer(8<<20))
	}))
	if err != nil {
		return fmt.Errorf("open netlink: %w", err)
	}
	for _, c := range families {
		f := c.family()
		t := &nftables.Table{Name: tableName, Family: f.table}
		conn.AddTable(t) // the table is added first, so that its deletion cannot fail
		conn.DelTable(t)
		conn.AddTable(t)
		if err := addTranslation(conn, t, f, p); err != nil {
			return err
		}
		if err := addHairpin(conn, t, f, p.Hairpins); err != nil {
			return err
		}
		addRefusal(conn, t, f, c)
	}
	if err := conn.Flush(); err != nil {
		return fmt.Errorf("install service table: %w; the kernel needs nftables with nat (CONFIG_NFT_NAT)", err)
	}
	return nil
}

func addTranslation(conn *nftables.Conn, t *nftables.Table, f family, p Plan) error {
	vips := &nftables.Set{
		Table: t, Name: "services", IsMap: true, Concatenation: true,
		KeyType:  nftables.MustConcatSetType(f.address, nftables.TypeInetProto, nftables.TypeInetService),
		DataType: nftables.TypeVerdict,
	}
	var elements []nftables.SetElement
	for _, port := range p.Ports {
		if uint32(port.Addr.Addr().BitLen()/8) != f.length {
			continue
		}
		chain := conn.AddChain(&nftables.Chain{Table: t, Name: port.Chain})
		if err := addBackends(conn, t, f, chain, port); err != nil {
			return err
		}
		elements = append(elements, nftables.SetElement{
			Key:         serviceKey(port),
			VerdictData: &expr.Verdict{Kind: expr.VerdictGoto, Chain: port.Chain},
		})
	}
	if err := addSet(conn, vips, elements); err != nil {
		return fmt.Errorf("add service map: %w", err)
	}
	accept := nftables.ChainPolicyAccept
	for _, hook := range []struct {
		name string
		hook *nftables.ChainHook
	}{{"prerouting", nftables.ChainHookPrerouting}, {"output", nftables.ChainHookOutput}} {
		chain := conn.AddChain(&nftables.Chain{
			Table: t, Name: hook.name, Type: nftables.ChainTypeNAT, Hooknum: hook.hook,
			Priority: nftables.ChainPriorityNATDest, Policy: &accept,
		})
		conn.AddRule(&nftables.Rule{Table: t, Chain: chain, Exprs: []expr.Any{
			load(expr.PayloadBaseNetworkHeader, f.dest, f.length, reg1),
			load(expr.PayloadBaseNetworkHeader, f.protocol, 1, f.after(1, 0)),
			load(expr.PayloadBaseTransportHeader, offDestPort, 2, f.after(1, 1)),
			&expr.Lookup{SourceRegister: reg1, SetName: vips.Name, SetID: vips.ID, IsDestRegSet: true},
		}})
	}
	return nil
}

// addBackends fills a service port's chain: pick a number at random, look the backend up by it, go there.
func addBackends(conn *nftables.Conn, t *nftables.Table, f family, chain *nftables.Chain, port Port) error {
	backends := &nftables.Set{
		Table: t, Name: port.Chain, IsMap: true,
		KeyType:  nftables.TypeInteger,
		DataType: nftables.MustConcatSetType(f.address, nftables.TypeInetService),
	}
	var elements []nftables.SetElement
	for i, b := range port.Backends {
		elements = append(elements, nftables.SetElement{
			Key: binaryutil.NativeEndian.PutUint32(uint32(i)),
			Val: addrPort(b),
		})
	}
	if err := addSet(conn, backends, elements); err != nil {
		return fmt.Errorf("add backends of %s: %w", port.Addr, err)
	}
	conn.AddRule(&nftables.Rule{Table: t, Chain: chain, Exprs: []expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: reg1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: reg1, Data: []byte{port.Protocol}},
		&expr.Numgen{Register: reg1, Modulus: uint32(len(port.Backends)), Type: unix.NFT_NG_RANDOM},
		&expr.Lookup{SourceRegister: reg1, DestRegister: reg1, IsDestRegSet: true, SetName: backends.Name, SetID: backends.ID},
		&expr.NAT{Type: expr.NATTypeDestNAT, Family: f.nat, RegAddrMin: reg1, RegProtoMin: f.after(1, 0)},
	}})
	return nil
}

// setChunk is how many elements go into one message: the length of their list is a 16-bit number of bytes.
const setChunk = 200

func addSet(conn *nftables.Conn, s *nftables.Set, elements []nftables.SetElement) error {
	if err := conn.AddSet(s, nil); err != nil {
		return err
	}
	for chunk := range slices.Chunk(elements, setChunk) {
		if err := conn.SetAddElements(s, chunk); err != nil {
			return err
		}
	}
	return nil
}

func addHairpin(conn *nftables.Conn, t *nftables.Table, f family, pods []netip.Addr) error {
	set := &nftables.Set{
		Table: t, Name: "hairpins", Concatenation: true,
		KeyType: nftables.MustConcatSetType(f.address, f.address),
	}
	var elements []nftables.SetElement
	for _, ip := range pods {
		b := ip.AsSlice()
		if uint32(len(b)) != f.length {
			continue
		}
		elements = append(elements, nftables.SetElement{Key: append(append([]byte{}, b...), b...)})
	}
	if err := addSet(conn, set, elements); err != nil {
		return fmt.Errorf("add hairpin set: %w", err)
	}
	accept := nftables.ChainPolicyAccept
	chain := conn.AddChain(&nftables.Chain{
		Table: t, Name: "postrouting", Type: nftables.ChainTypeNAT, Hooknum: nftables.ChainHookPostrouting,
		Priority: nftables.ChainPriorityNATSource, Policy: &accept,
	})
	conn.AddRule(&nftables.Rule{Table: t, Chain: chain, Exprs: []expr.Any{
		load(expr.PayloadBaseNetworkHeader, f.source, f.length, reg1),
		load(expr.PayloadBaseNetworkHeader, f.dest, f.length, f.after(1, 0)),
		&expr.Lookup{SourceRegister: reg1, SetName: set.Name, SetID: set.ID},
		&expr.Masq{},
	}})
	return nil
}

// addRefusal answers what is still addressed to a service after translation: nothing stands behind it, and a client that is
// told so at once need not wait for a timeout.
func addRefusal(conn *nftables.Conn, t *nftables.Table, f family, c Config) {
	accept := nftables.ChainPolicyAccept
	for _, hook := range []struct {
		name string
		hook *nftables.ChainHook
	}{{"refuse-forwarded", nftables.ChainHookForward}, {"refuse-own", nftables.ChainHookOutput}} {
		chain := conn.AddChain(&nftables.Chain{
			Table: t, Name: hook.name, Type: nftables.ChainTypeFilter, Hooknum: hook.hook,
			Priority: nftables.ChainPriorityFilter, Policy: &accept,
		})
		mask := make([]byte, f.length)
		for i := range c.ServiceCIDR.Bits() {
			mask[i/8] |= 0x80 >> (i % 8)
		}
		conn.AddRule(&nftables.Rule{Table: t, Chain: chain, Exprs: []expr.Any{
			load(expr.PayloadBaseNetworkHeader, f.dest, f.length, reg1),
			&expr.Cmp{Op: expr.CmpOpNeq, Register: reg1, Data: c.Resolver.AsSlice()},
			&expr.Bitwise{SourceRegister: reg1, DestRegister: reg1, Len: f.length, Mask: mask, Xor: make([]byte, f.length)},
			&expr.Cmp{Op: expr.CmpOpEq, Register: reg1, Data: c.ServiceCIDR.Masked().Addr().AsSlice()},
			&expr.Reject{Type: unix.NFT_REJECT_ICMP_UNREACH, Code: f.refusal},
		}})
	}
}

func load(base expr.PayloadBase, offset, length, register uint32) expr.Any {
	return &expr.Payload{DestRegister: register, Base: base, Offset: offset, Len: length}
}

// Concatenated keys and values pad each part to 4 bytes.
func serviceKey(p Port) []byte {
	k := append([]byte{}, p.Addr.Addr().AsSlice()...)
	k = append(k, p.Protocol, 0, 0, 0)
	return append(k, byte(p.Addr.Port()>>8), byte(p.Addr.Port()), 0, 0)
}

func addrPort(a netip.AddrPort) []byte {
	return append(append([]byte{}, a.Addr().AsSlice()...), byte(a.Port()>>8), byte(a.Port()), 0, 0)
}
