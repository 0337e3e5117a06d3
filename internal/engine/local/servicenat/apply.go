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

// Registers of 4 bytes each, in which a concatenated key or value is put together.
const (
	reg1     = unix.NFT_REG_1
	regNext  = unix.NFT_REG32_01
	regNext2 = unix.NFT_REG32_02
)

// Offsets in IPv4 and transport headers.
const (
	offProtocol = 9
	offSource   = 12
	offDest     = 16
	offDestPort = 2
)

// Config is what the table needs to know apart from the plan.
type Config struct {
	ServiceCIDR netip.Prefix
	Resolver    netip.Addr // in ServiceCIDR, but a real address: never refused
}

// Apply replaces the table in the namespace at ns by the plan's, in one transaction: no packet meets a half-made table.
// Connections that are under way keep their backend.
func Apply(ns string, c Config, p Plan) error {
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
	t := &nftables.Table{Name: tableName, Family: nftables.TableFamilyIPv4}
	conn.AddTable(t) // so that deleting it cannot fail
	conn.DelTable(t)
	conn.AddTable(t)
	if err := addTranslation(conn, t, p); err != nil {
		return err
	}
	if err := addHairpin(conn, t, p.Hairpins); err != nil {
		return err
	}
	addRefusal(conn, t, c)
	if err := conn.Flush(); err != nil {
		return fmt.Errorf("install service table: %w; the kernel needs nftables with nat (CONFIG_NFT_NAT)", err)
	}
	return nil
}

func addTranslation(conn *nftables.Conn, t *nftables.Table, p Plan) error {
	vips := &nftables.Set{
		Table: t, Name: "services", IsMap: true, Concatenation: true,
		KeyType:  nftables.MustConcatSetType(nftables.TypeIPAddr, nftables.TypeInetProto, nftables.TypeInetService),
		DataType: nftables.TypeVerdict,
	}
	var elements []nftables.SetElement
	for _, port := range p.Ports {
		chain := conn.AddChain(&nftables.Chain{Table: t, Name: port.Chain})
		if err := addBackends(conn, t, chain, port); err != nil {
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
			load(expr.PayloadBaseNetworkHeader, offDest, 4, reg1),
			load(expr.PayloadBaseNetworkHeader, offProtocol, 1, regNext),
			load(expr.PayloadBaseTransportHeader, offDestPort, 2, regNext2),
			&expr.Lookup{SourceRegister: reg1, SetName: vips.Name, SetID: vips.ID, IsDestRegSet: true},
		}})
	}
	return nil
}

// addBackends fills a service port's chain: pick a number at random, look the backend up by it, go there.
func addBackends(conn *nftables.Conn, t *nftables.Table, chain *nftables.Chain, port Port) error {
	backends := &nftables.Set{
		Table: t, Name: port.Chain, IsMap: true,
		KeyType:  nftables.TypeInteger,
		DataType: nftables.MustConcatSetType(nftables.TypeIPAddr, nftables.TypeInetService),
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
		&expr.NAT{Type: expr.NATTypeDestNAT, Family: unix.NFPROTO_IPV4, RegAddrMin: reg1, RegProtoMin: regNext},
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

func addHairpin(conn *nftables.Conn, t *nftables.Table, pods []netip.Addr) error {
	set := &nftables.Set{
		Table: t, Name: "hairpins", Concatenation: true,
		KeyType: nftables.MustConcatSetType(nftables.TypeIPAddr, nftables.TypeIPAddr),
	}
	var elements []nftables.SetElement
	for _, ip := range pods {
		b := ip.AsSlice()
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
		load(expr.PayloadBaseNetworkHeader, offSource, 4, reg1),
		load(expr.PayloadBaseNetworkHeader, offDest, 4, regNext),
		&expr.Lookup{SourceRegister: reg1, SetName: set.Name, SetID: set.ID},
		&expr.Masq{},
	}})
	return nil
}

// addRefusal answers what is still addressed to a service after translation: nothing stands behind it, and a client that is
// told so at once need not wait for a timeout.
func addRefusal(conn *nftables.Conn, t *nftables.Table, c Config) {
	accept := nftables.ChainPolicyAccept
	for _, hook := range []struct {
		name string
		hook *nftables.ChainHook
	}{{"refuse-forwarded", nftables.ChainHookForward}, {"refuse-own", nftables.ChainHookOutput}} {
		chain := conn.AddChain(&nftables.Chain{
			Table: t, Name: hook.name, Type: nftables.ChainTypeFilter, Hooknum: hook.hook,
			Priority: nftables.ChainPriorityFilter, Policy: &accept,
		})
		mask := [4]byte{}
		for i := range c.ServiceCIDR.Bits() {
			mask[i/8] |= 0x80 >> (i % 8)
		}
		conn.AddRule(&nftables.Rule{Table: t, Chain: chain, Exprs: []expr.Any{
			load(expr.PayloadBaseNetworkHeader, offDest, 4, reg1),
			&expr.Cmp{Op: expr.CmpOpNeq, Register: reg1, Data: c.Resolver.AsSlice()},
			&expr.Bitwise{SourceRegister: reg1, DestRegister: reg1, Len: 4, Mask: mask[:], Xor: make([]byte, 4)},
			&expr.Cmp{Op: expr.CmpOpEq, Register: reg1, Data: c.ServiceCIDR.Masked().Addr().AsSlice()},
			&expr.Reject{Type: unix.NFT_REJECT_ICMP_UNREACH, Code: 3}, // port unreachable
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
