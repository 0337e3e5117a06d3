// Package netnstest makes network namespaces for tests and runs code in them. Everything it makes is gone with the
// test: namespaces have no name, and a link ends with the namespaces at its ends.
package netnstest

import (
	"net"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"lateen.dev/lateen/internal/agent/netns"
)

// New makes a namespace whose loopback interface is up. It fails the test without root.
func New(t testing.TB) *netns.Namespace {
	t.Helper()
	ns, err := netns.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ns.Close() })
	In(t, ns, func(h *netlink.Handle) error {
		lo, err := h.LinkByName("lo")
		if err != nil {
			return err
		}
		return h.LinkSetUp(lo)
	})
	return ns
}

// In runs fn with a routing socket of the namespace, inside the namespace.
func In(t testing.TB, ns *netns.Namespace, fn func(*netlink.Handle) error) {
	t.Helper()
	err := ns.Do(func() error {
		h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
		if err != nil {
			return err
		}
		defer h.Close()
		return fn(h)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Pod makes a namespace like a pod's: eth0 with the address, connected to the node, which routes the address to it and
// is its default route. The node forwards between its pods.
func Pod(t testing.TB, node *netns.Namespace, link, address string) *netns.Namespace {
	t.Helper()
	pod := New(t)
	In(t, node, func(h *netlink.Handle) error {
		attributes := netlink.NewLinkAttrs()
		attributes.Name = link
		return pod.WithFD(func(fd int) error {
			return h.LinkAdd(&netlink.Veth{LinkAttrs: attributes, PeerName: "eth0", PeerNamespace: netlink.NsFd(fd)})
		})
	})
	ip := netip.MustParseAddr(address)
	host := &net.IPNet{IP: ip.AsSlice(), Mask: net.CIDRMask(ip.BitLen(), ip.BitLen())}
	In(t, pod, func(h *netlink.Handle) error {
		eth0, err := h.LinkByName("eth0")
		if err != nil {
			return err
		}
		// NODAD: an address is there at once, also an IPv6 one.
		if err := h.AddrAdd(eth0, &netlink.Addr{IPNet: host, Flags: unix.IFA_F_NODAD}); err != nil {
			return err
		}
		if err := h.LinkSetUp(eth0); err != nil {
			return err
		}
		return h.RouteAdd(&netlink.Route{LinkIndex: eth0.Attrs().Index, Scope: netlink.SCOPE_LINK, Dst: anywhere(ip)})
	})
	In(t, node, func(h *netlink.Handle) error {
		veth, err := h.LinkByName(link)
		if err != nil {
			return err
		}
		if err := h.LinkSetUp(veth); err != nil {
			return err
		}
		return h.RouteAdd(&netlink.Route{LinkIndex: veth.Attrs().Index, Scope: netlink.SCOPE_LINK, Dst: host})
	})
	for _, name := range []string{"net.ipv4.ip_forward", "net.ipv4.conf.all.proxy_arp", "net.ipv4.conf." + link + ".proxy_arp"} {
		Sysctl(t, node, name, "1")
	}
	return pod
}

func anywhere(ip netip.Addr) *net.IPNet {
	return &net.IPNet{IP: make([]byte, ip.BitLen()/8), Mask: net.CIDRMask(0, ip.BitLen())}
}
