package fabric

import (
	"net/netip"
	"slices"
	"time"
)

// Family is the address plan of one IP family. It is the same in every local mesh; each mesh has a network of its own, so
// that they never meet.
type Family struct {
	Name        string       // the family's name in Kubernetes objects
	FabricIP    netip.Addr   // address of the control plane, in the fabric namespace
	FabricCIDR  netip.Prefix // range of the nodes' addresses
	PodsCIDR    netip.Prefix
	ServiceCIDR netip.Prefix
	DNSIP       netip.Addr
	// ProbeIP is the source of the node's probes of its pods; in-pod rules let it through uncaptured.
	ProbeIP netip.Addr

	anywhere netip.Prefix
}

// IPv4 and IPv6 are the two plans.
var (
	IPv4 = &Family{
		Name:        "IPv4",
		FabricIP:    netip.MustParseAddr("10.243.0.1"),
		FabricCIDR:  netip.MustParsePrefix("10.243.0.0/24"),
		PodsCIDR:    netip.MustParsePrefix("10.244.0.0/16"),
		ServiceCIDR: netip.MustParsePrefix("10.96.0.0/16"),
		DNSIP:       netip.MustParseAddr("10.96.0.10"),
		ProbeIP:     netip.MustParseAddr("169.254.7.127"),
		anywhere:    netip.MustParsePrefix("0.0.0.0/0"),
	}
	IPv6 = &Family{
		Name:        "IPv6",
		FabricIP:    netip.MustParseAddr("fd00:10:243::1"),
		FabricCIDR:  netip.MustParsePrefix("fd00:10:243::/64"),
		PodsCIDR:    netip.MustParsePrefix("fd00:10:244::/48"),
		ServiceCIDR: netip.MustParsePrefix("fd00:10:96::/112"),
		DNSIP:       netip.MustParseAddr("fd00:10:96::a"),
		ProbeIP:     netip.MustParseAddr("fd16:9254:7127:1337:ffff:ffff:ffff:ffff"),
		anywhere:    netip.MustParsePrefix("::/0"),
	}
)

// Links between a node and its pods have these link-local addresses: IPv6 neighbours do not answer for addresses that are
// on another link, as the gateway's is.
var (
	portLinkLocal = netip.MustParsePrefix("fe80::1/64")
	podLinkLocal  = netip.MustParsePrefix("fe80::2/64")
)

// FamilyOf is the plan for addresses like a.
func FamilyOf(a netip.Addr) *Family {
	if a.Is4() {
		return IPv4
	}
	return IPv6
}

// Node is one node's place in the network.
type Node struct {
	Index    int // from 1
	NetNS    string
	Families []*Family     // the first is the one that counts where there is room for one address; nil means IPv4 alone
	Delay    time.Duration // how long a frame takes from the node to the bridge, and back; 0 for a cable
}

func (n Node) families() []*Family {
	if n.Families == nil {
		return []*Family{IPv4}
	}
	return n.Families
}

func (n Node) has(f *Family) bool { return slices.Contains(n.families(), f) }

// IP is the node's first address on the fabric.
func (n Node) IP() netip.Addr { return n.families()[0].nodeIP(n) }

// IPs are all the node's addresses on the fabric.
func (n Node) IPs() (ips []netip.Addr) {
	for _, f := range n.families() {
		ips = append(ips, f.nodeIP(n))
	}
	return ips
}

// PodCIDR is the first range of the node's pods.
func (n Node) PodCIDR() netip.Prefix { return n.families()[0].podCIDR(n) }

// PodCIDRs are all ranges of the node's pods.
func (n Node) PodCIDRs() (ranges []netip.Prefix) {
	for _, f := range n.families() {
		ranges = append(ranges, f.podCIDR(n))
	}
	return ranges
}

// Gateway is the node's first address towards its pods.
func (n Node) Gateway() netip.Addr { return n.families()[0].gateway(n) }

// PodIPs are the addresses of a pod in all families, given its first.
func (n Node) PodIPs(first netip.Addr) []netip.Addr {
	b := first.AsSlice()
	ips := []netip.Addr{first}
	for _, f := range n.families()[1:] {
		other := f.podCIDR(n).Addr().AsSlice()
		other[len(other)-1] = b[len(b)-1]
		ip, _ := netip.AddrFromSlice(other)
		ips = append(ips, ip)
	}
	return ips
}

// Pool is the part of PodCIDR from which pods get their addresses.
func (n Node) Pool() netip.Prefix {
	const slot = 8 // bits
	c := n.PodCIDR()
	return netip.PrefixFrom(c.Addr(), c.Addr().BitLen()-slot)
}

// linkLocal is the node's link-local address on the fabric.
func (n Node) linkLocal() netip.Prefix {
	b := portLinkLocal.Addr().As16()
	b[15] = byte(10 + n.Index)
	return netip.PrefixFrom(netip.AddrFrom16(b), portLinkLocal.Bits())
}

func (f *Family) nodeIP(n Node) netip.Addr {
	b := f.FabricCIDR.Addr().AsSlice()
	b[len(b)-1] = byte(10 + n.Index)
	a, _ := netip.AddrFromSlice(b)
	return a
}

func (f *Family) podCIDR(n Node) netip.Prefix {
	b := f.PodsCIDR.Addr().AsSlice()
	if len(b) == 4 {
		b[2] = byte(n.Index)
	} else {
		b[7] = byte(n.Index)
	}
	a, _ := netip.AddrFromSlice(b)
	if a.Is4() {
		return netip.PrefixFrom(a, 24)
	}
	return netip.PrefixFrom(a, 64)
}

func (f *Family) gateway(n Node) netip.Addr { return f.podCIDR(n).Addr().Next() }
