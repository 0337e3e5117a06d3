// Package fabric lays the cables of a local mesh: the bridge that stands for the data centre's network, a namespace per node
// on it, and a namespace per pod behind its node. It knows addresses and links, not what runs at either end.
package fabric

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"lateen.dev/lateen/internal/engine/local/delay"
	"lateen.dev/lateen/internal/engine/local/netns"
)

// MaxNodes is how many nodes the addressing plan has room for.
const MaxNodes = 64

const bridgeName = "fabric"

// FabricPort is the name of the node's port on the bridge, seen from the fabric namespace.
func (n Node) FabricPort() string { return fmt.Sprintf("n%d", n.Index) }

// Up makes the bridge in the calling process's namespace, which must be the mesh's own. All nodes have the same families.
func Up(nodes []Node) error {
	families := nodes[0].families()
	v6 := nodes[0].has(IPv6)
	if err := linkUp("lo"); err != nil {
		return err
	}
	if err := setSysctls("net/ipv6/conf/default/disable_ipv6", onOff(!v6), "net/ipv4/tcp_congestion_control", "cubic"); err != nil {
		return err
	}
	// A bridge that learns who listens to what would lose the first questions for neighbours' addresses.
	snoop := false
	br := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: bridgeName}, MulticastSnooping: &snoop}
	if err := netlink.LinkAdd(br); err != nil {
		return fmt.Errorf("add bridge: %w; the kernel needs CONFIG_BRIDGE (try `modprobe bridge`)", err)
	}
	if err := quiet(v6, bridgeName); err != nil {
		return err
	}
	for _, f := range families {
		if err := addAddr(bridgeName, netip.PrefixFrom(f.FabricIP, f.FabricCIDR.Bits())); err != nil {
			return err
		}
		// The resolver answers in the fabric namespace; the nodes' default routes lead here.
		if err := addAddr("lo", host(f.DNSIP)); err != nil {
			return err
		}
	}
	if err := linkUp(bridgeName); err != nil {
		return err
	}
	for _, n := range nodes {
		if err := addNode(n); err != nil {
			return fmt.Errorf("node n%d: %w", n.Index, err)
		}
		for _, f := range families {
			if err := addRoute(f.podCIDR(n), bridgeName, f.nodeIP(n)); err != nil {
				return fmt.Errorf("node n%d: %w", n.Index, err)
			}
		}
	}
	for _, n := range nodes {
		err := netns.Do(n.NetNS, func() error {
			for _, peer := range nodes {
				if peer.Index == n.Index {
					continue
				}
				for _, f := range families {
					if err := addRoute(f.podCIDR(peer), "eth0", f.nodeIP(peer)); err != nil {
						return err
					}
				}
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("node n%d: %w", n.Index, err)
		}
	}
	return nil
}

func addNode(n Node) error {
	if err := netns.Create(n.NetNS); err != nil {
		return err
	}
	link := addVeth
	if n.Delay > 0 {
		link = func(name, peer, peerNS string) error { return delay.Connect(name, peer, peerNS, n.Delay) }
	}
	if err := link(n.FabricPort(), "eth0", n.NetNS); err != nil {
		return err
	}
	if err := n.attach(n.FabricPort()); err != nil {
		return err
	}
	return netns.Do(n.NetNS, func() error { return setUpNode(n) })
}

// attach makes a link of the fabric namespace a port of the bridge, and sets it up.
func (n Node) attach(name string) error {
	bridge, err := netlink.LinkByName(bridgeName)
	if err != nil {
		return err
	}
	port, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	if err := netlink.LinkSetMaster(port, bridge); err != nil {
		return fmt.Errorf("attach to bridge: %w", err)
	}
	if err := quiet(n.has(IPv6), name); err != nil {
		return err
	}
	return linkUp(name)
}

func setUpNode(n Node) error {
	v6 := n.has(IPv6)
	err := setSysctls(
		"net/ipv4/ip_forward", "1",
		// Pods' replies to the probe address and proxies' spoofed client addresses do not come back the way they went.
		"net/ipv4/conf/all/rp_filter", "0",
		"net/ipv4/conf/default/rp_filter", "0",
		"net/ipv6/conf/default/disable_ipv6", onOff(!v6),
		"net/ipv4/tcp_congestion_control", "cubic",
	)
	if err == nil && v6 {
		err = setSysctls("net/ipv6/conf/all/forwarding", "1")
	}
	if err == nil {
		err = quiet(v6, "eth0")
	}
	if err == nil {
		err = linkUp("lo")
	}
	if err != nil {
		return err
	}
	for _, f := range n.families() {
		if err := addAddr("eth0", netip.PrefixFrom(f.nodeIP(n), f.FabricCIDR.Bits())); err != nil {
			return err
		}
		for _, ip := range []netip.Addr{f.ProbeIP, f.gateway(n)} {
			if err := addAddr("lo", host(ip)); err != nil {
				return err
			}
		}
	}
	if v6 {
		// A node that forwards asks for its neighbours from an address of the link.
		if err := addAddr("eth0", n.linkLocal()); err != nil {
			return err
		}
	}
	if err := linkUp("eth0"); err != nil {
		return err
	}
	for _, f := range n.families() {
		if err := addRoute(f.anywhere, "eth0", f.FabricIP); err != nil {
			return err
		}
	}
	return awaitLocal(n.IPs()...)
}

// AddPod makes a pod's namespace with one link to its node and the given addresses, one for each of the node's families.
// port names the node's end of the link.
func AddPod(n Node, podNS, port string, ips ...netip.Addr) error {
	if err := netns.Create(podNS); err != nil {
		return err
	}
	err := netns.Do(n.NetNS, func() error {
		if err := addVeth(port, "eth0", podNS); err != nil {
			return err
		}
		// A pod may only send from its own address, even if it should get hold of privileges.
		if err := setSysctls("net/ipv4/conf/"+port+"/rp_filter", "1"); err != nil {
			return err
		}
		if err := quiet(n.has(IPv6), port); err != nil {
			return err
		}
		if n.has(IPv6) {
			if err := addAddr(port, portLinkLocal); err != nil {
				return err
			}
		}
		return linkUp(port)
	})
	if err == nil {
		err = netns.Do(podNS, func() error { return setUpPod(n, ips) })
	}
	if err == nil {
		err = netns.Do(n.NetNS, func() error {
			for _, ip := range ips {
				if err := addLinkRoute(host(ip), port, FamilyOf(ip).gateway(n)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err != nil {
		return errors.Join(err, RemovePod(n, podNS, port))
	}
	return nil
}

func setUpPod(n Node, ips []netip.Addr) error {
	err := setSysctls(
		"net/ipv6/conf/eth0/disable_ipv6", onOff(!n.has(IPv6)), // loopback keeps ::1, which some programs bind
		"net/ipv4/tcp_congestion_control", "cubic",
		"net/ipv4/ip_unprivileged_port_start", "0", // port 80 needs no capability, as on Kubernetes
	)
	if err == nil {
		err = quiet(n.has(IPv6), "eth0")
	}
	if err != nil {
		return err
	}
	for _, l := range []string{"lo", "eth0"} {
		if err := linkUp(l); err != nil {
			return err
		}
	}
	for _, ip := range ips {
		if err := addAddr("eth0", host(ip)); err != nil {
			return err
		}
		gateway := FamilyOf(ip).gateway(n)
		if ip.Is6() {
			if err := addAddr("eth0", podLinkLocal); err != nil {
				return err
			}
			gateway = portLinkLocal.Addr()
		} else if err := addLinkRoute(host(gateway), "eth0", netip.Addr{}); err != nil {
			return err
		}
		if err := addRoute(FamilyOf(ip).anywhere, "eth0", gateway); err != nil {
			return err
		}
	}
	return awaitLocal(ips...)
}

// quiet keeps the kernel from giving a link IPv6 addresses and routes of its own making, and from waiting before it uses
// those that it is given.
func quiet(v6 bool, link string) error {
	if !v6 {
		return nil
	}
	conf := "net/ipv6/conf/" + link + "/"
	return setSysctls(conf+"accept_ra", "0", conf+"accept_dad", "0", conf+"dad_transmits", "0", conf+"addr_gen_mode", "1")
}

func onOff(on bool) string {
	if on {
		return "1"
	}
	return "0"
}

// host is the range of one address.
func host(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

// RemovePod takes a pod's link away and its namespace's name. It is fine to call it for what is half made.
func RemovePod(n Node, podNS, port string) error {
	err := netns.Do(n.NetNS, func() error {
		l, err := netlink.LinkByName(port)
		if errors.As(err, &netlink.LinkNotFoundError{}) {
			return nil
		} else if err != nil {
			return err
		}
		return netlink.LinkDel(l)
	})
	if nerr := netns.Remove(podNS); nerr != nil && !errors.Is(nerr, os.ErrNotExist) {
		err = errors.Join(err, nerr)
	}
	return err
}

// addVeth makes a pair: one end here, the other, named peer, in the namespace at peerNS.
func addVeth(name, peer, peerNS string) error {
	ns, err := os.Open(peerNS)
	if err != nil {
		return err
	}
	defer ns.Close()
	v := &netlink.Veth{
		LinkAttrs:     netlink.LinkAttrs{Name: name, MTU: 1500},
		PeerName:      peer,
		PeerNamespace: netlink.NsFd(int(ns.Fd())),
	}
	if err := netlink.LinkAdd(v); err != nil {
		return fmt.Errorf("add veth %s: %w; the kernel needs CONFIG_VETH (try `modprobe veth`)", name, err)
	}
	return nil
}

func linkUp(name string) error {
	l, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("link %s: %w", name, err)
	}
	if err := netlink.LinkSetUp(l); err != nil {
		return fmt.Errorf("set link %s up: %w", name, err)
	}
	return nil
}

func addAddr(link string, p netip.Prefix) error {
	l, err := netlink.LinkByName(link)
	if err != nil {
		return fmt.Errorf("link %s: %w", link, err)
	}
	flags := 0
	if p.Addr().Is6() {
		flags = unix.IFA_F_NODAD // an address is there at once
	}
	if err := netlink.AddrAdd(l, &netlink.Addr{IPNet: ipNet(p), Flags: flags}); err != nil {
		return fmt.Errorf("add address %s to %s: %w", p, link, err)
	}
	return nil
}

// awaitLocal waits until what is sent to these IPv6 addresses is this namespace's own: the kernel adds the routes for that in the
// background, once it has seen that the link is up. Until then a program can bind such an address and not reach it.
func awaitLocal(ips ...netip.Addr) error {
	const patience = 5 * time.Second
	deadline := time.Now().Add(patience)
	for _, ip := range ips {
		for ip.Is6() {
			routes, err := netlink.RouteGet(ip.AsSlice())
			if err == nil && len(routes) > 0 && routes[0].Type == unix.RTN_LOCAL {
				break
			}
			if time.Now().After(deadline) {
				return fmt.Errorf("address %s has no local route %v after it was added", ip, patience)
			}
			time.Sleep(time.Millisecond)
		}
	}
	return nil
}

func addRoute(dst netip.Prefix, link string, via netip.Addr) error {
	l, err := netlink.LinkByName(link)
	if err != nil {
		return fmt.Errorf("link %s: %w", link, err)
	}
	// The kernel would refuse a next hop on a link that it has not seen work yet, and sees that a moment later.
	r := &netlink.Route{LinkIndex: l.Attrs().Index, Dst: ipNet(dst), Gw: via.AsSlice(), Flags: int(netlink.FLAG_ONLINK)}
	if err := netlink.RouteAdd(r); err != nil {
		return fmt.Errorf("add route %s via %s: %w", dst, via, err)
	}
	return nil
}

// addLinkRoute makes dst a neighbour on link; src, if valid, is the address to speak from.
func addLinkRoute(dst netip.Prefix, link string, src netip.Addr) error {
	l, err := netlink.LinkByName(link)
	if err != nil {
		return fmt.Errorf("link %s: %w", link, err)
	}
	r := &netlink.Route{LinkIndex: l.Attrs().Index, Dst: ipNet(dst), Scope: netlink.SCOPE_LINK}
	if src.IsValid() {
		r.Src = src.AsSlice()
	}
	if err := netlink.RouteAdd(r); err != nil {
		return fmt.Errorf("add route %s on %s: %w", dst, link, err)
	}
	return nil
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// optional are the settings that a kernel may lack or refuse: one without IPv6 has nothing to turn off, and one whose own
// default is not cubic may not let a namespace choose it.
var optional = map[string]bool{"disable_ipv6": true, "tcp_congestion_control": true}

// setSysctls takes names below /proc/sys and values in turn. The calling thread's namespace is the one that changes.
func setSysctls(namesAndValues ...string) error {
	for i := 0; i < len(namesAndValues); i += 2 {
		name, value := namesAndValues[i], namesAndValues[i+1]
		err := os.WriteFile(filepath.Join("/proc/sys", name), []byte(value), 0o644)
		if optional[filepath.Base(name)] && (errors.Is(err, os.ErrNotExist) || errors.Is(err, os.ErrPermission)) {
			continue
		}
		if err != nil {
			return fmt.Errorf("set %s: %w", name, err)
		}
	}
	return nil
}
