// Package netnstest makes network namespaces for tests and runs code in them. Everything it makes is gone with the
// test: namespaces have no name, and a link ends with the namespaces at its ends.
package netnstest

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

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
	if ip.Is4() {
		// Otherwise the kernel adds IPv6 addresses and routes some time later.
		Sysctl(t, pod, "net.ipv6.conf.eth0.disable_ipv6", "1")
	} else {
		Sysctl(t, pod, "net.ipv6.conf.eth0.addr_gen_mode", "1")
	}
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
	Sysctl(t, node, "net.ipv4.ip_forward", "1")
	// The node answers for every address, and at once.
	Sysctl(t, node, "net.ipv4.conf."+link+".proxy_arp", "1")
	Sysctl(t, node, "net.ipv4.neigh."+link+".proxy_delay", "0")
	if ip.Is6() {
		awaitRoutes(t, pod, host.String(), "ff00::/8")
	}
	return pod
}

// awaitRoutes waits for the routes that the kernel adds once a link works.
func awaitRoutes(t testing.TB, ns *netns.Namespace, destinations ...string) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for {
		missing := slices.Clone(destinations)
		In(t, ns, func(h *netlink.Handle) error {
			routes, err := h.RouteListFiltered(netlink.FAMILY_V6, &netlink.Route{Table: unix.RT_TABLE_LOCAL}, netlink.RT_FILTER_TABLE)
			for _, r := range routes {
				missing = slices.DeleteFunc(missing, func(d string) bool { return r.Dst != nil && r.Dst.String() == d })
			}
			return err
		})
		if len(missing) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("no route to %v after 30 s", missing)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func anywhere(ip netip.Addr) *net.IPNet {
	return &net.IPNet{IP: make([]byte, ip.BitLen()/8), Mask: net.CIDRMask(0, ip.BitLen())}
}

// ProxyNeighbours has the node answer on its links, by name, for an IPv6 address that is behind another.
func ProxyNeighbours(t testing.TB, node *netns.Namespace, addresses map[string]string) {
	t.Helper()
	In(t, node, func(h *netlink.Handle) error {
		for link, address := range addresses {
			l, err := h.LinkByName(link)
			if err != nil {
				return err
			}
			err = h.NeighAdd(&netlink.Neigh{
				LinkIndex: l.Attrs().Index, Family: netlink.FAMILY_V6, Flags: netlink.NTF_PROXY, IP: net.ParseIP(address),
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	for link := range addresses {
		Sysctl(t, node, "net.ipv6.conf."+link+".proxy_ndp", "1")
		Sysctl(t, node, "net.ipv6.neigh."+link+".proxy_delay", "0")
	}
}

// Mount makes the namespace a file at path, as container runtimes do, until the test ends.
func Mount(t testing.TB, ns *netns.Namespace, path string) {
	t.Helper()
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	err := ns.WithFD(func(fd int) error { return unix.Mount(fmt.Sprintf("/proc/self/fd/%d", fd), path, "", unix.MS_BIND, "") })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { Unmount(t, path) })
}

// Unmount leaves an empty file where a namespace is mounted. Without one it does nothing.
func Unmount(t testing.TB, path string) {
	t.Helper()
	if err := unix.Unmount(path, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		t.Error(err)
	}
}
