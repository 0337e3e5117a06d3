package fabric

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"lateen.dev/lateen/internal/engine/local/netns"
)

func TestAddressPlanHasNoOverlaps(t *testing.T) {
	taken := map[netip.Prefix]string{}
	take := func(p netip.Prefix, who string) {
		for q, other := range taken {
			if p.Overlaps(q) {
				t.Errorf("%s of %s overlaps %s of %s", p, who, q, other)
			}
		}
		taken[p] = who
	}
	for _, f := range []*Family{IPv4, IPv6} {
		take(f.ServiceCIDR, "services")
		take(host(f.FabricIP), "fabric")
		take(host(f.ProbeIP), "probes")
		if !f.ServiceCIDR.Contains(f.DNSIP) {
			t.Error("the resolver is no service")
		}
	}
	for i := 1; i <= MaxNodes; i++ {
		for _, f := range []*Family{IPv4, IPv6} {
			n := Node{Index: i, Families: []*Family{f}}
			take(host(n.IP()), n.FabricPort())
			take(n.PodCIDR(), n.FabricPort()+"'s pods")
			if !f.FabricCIDR.Contains(n.IP()) || !f.PodsCIDR.Overlaps(n.PodCIDR()) || !n.PodCIDR().Contains(n.Gateway()) || !n.PodCIDR().Contains(n.Pool().Addr()) {
				t.Errorf("node %d: %s, %s, %s are not where they belong", i, n.IP(), n.PodCIDR(), n.Gateway())
			}
		}
	}
}

// lay makes a fabric of two nodes with a pod each, in a namespace of its own.
func lay(t *testing.T) (nodes []Node, pods []string, ips []netip.Addr) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("this test makes network namespaces and needs root: run it with sudo")
	}
	dir := t.TempDir()
	home := filepath.Join(dir, "fabric")
	if err := netns.Create(home); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { netns.Remove(home) })
	for i := 1; i <= 2; i++ {
		nodes = append(nodes, Node{Index: i, NetNS: filepath.Join(dir, fmt.Sprintf("n%d", i))})
	}
	if err := netns.Do(home, func() error { return Up(nodes) }); err != nil {
		t.Fatal(err)
	}
	for i, n := range nodes {
		t.Cleanup(func() {
			if err := netns.Remove(n.NetNS); err != nil {
				t.Error(err)
			}
		})
		ip := n.Gateway().Next()
		pod := filepath.Join(dir, fmt.Sprintf("pod%d", i+1))
		if err := AddPod(n, pod, "p1", ip); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := RemovePod(n, pod, "p1"); err != nil {
				t.Error(err)
			}
			if err := RemovePod(n, pod, "p1"); err != nil {
				t.Errorf("removing a pod twice: %v", err)
			}
		})
		pods, ips = append(pods, pod), append(ips, ip)
	}
	return append(nodes, Node{NetNS: home}), pods, ips
}

// hear receives one packet in a namespace and says from whom it was.
func hear(t *testing.T, ns, address string) <-chan string {
	t.Helper()
	var c net.PacketConn
	if err := netns.Do(ns, func() (err error) {
		c, err = net.ListenPacket("udp4", address)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	heard := make(chan string, 16)
	go func() {
		buf := make([]byte, 100)
		for {
			n, from, err := c.ReadFrom(buf)
			if err != nil {
				return
			}
			heard <- string(buf[:n]) + " from " + from.(*net.UDPAddr).IP.String()
		}
	}()
	return heard
}

// say sends one packet from a namespace, from an address that need not be its own, as only root may.
func say(t *testing.T, ns string, from, to netip.AddrPort, text string) {
	t.Helper()
	err := netns.Do(ns, func() error {
		lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
			var err error
			cerr := c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_IP, unix.IP_TRANSPARENT, 1) })
			return errors.Join(cerr, err)
		}}
		c, err := lc.ListenPacket(context.Background(), "udp4", from.String())
		if err != nil {
			return err
		}
		defer c.Close()
		_, err = c.WriteTo([]byte(text), net.UDPAddrFromAddrPort(to))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestPodsReachEachOtherWithTheirOwnAddresses(t *testing.T) {
	_, pods, ips := lay(t)
	for i := range pods {
		for j := range pods {
			to := netip.AddrPortFrom(ips[j], 7000+uint16(i))
			heard := hear(t, pods[j], to.String())
			say(t, pods[i], netip.AddrPortFrom(ips[i], 0), to, "hello")
			select {
			case got := <-heard:
				if want := "hello from " + ips[i].String(); got != want {
					t.Errorf("pod %d to pod %d: %q, want %q", i+1, j+1, got, want)
				}
			case <-time.After(30 * time.Second):
				t.Errorf("pod %d does not reach pod %d", i+1, j+1)
			}
		}
	}
}

func TestPodCannotSendFromAnotherAddress(t *testing.T) {
	nodes, pods, ips := lay(t)
	to := netip.AddrPortFrom(ips[1], 7000)
	heard := hear(t, pods[1], to.String())
	for _, liar := range []netip.Addr{IPv4.ProbeIP, ips[1], nodes[0].IP(), IPv4.FabricIP, nodes[0].PodCIDR().Addr().Next().Next().Next()} {
		say(t, pods[0], netip.AddrPortFrom(liar, 0), to, "lie")
	}
	// Packets do not overtake each other here: when the honest one is there the others are lost.
	say(t, pods[0], netip.AddrPortFrom(ips[0], 0), to, "truth")
	select {
	case got := <-heard:
		if want := "truth from " + ips[0].String(); got != want {
			t.Errorf("heard %q first", got)
		}
	case <-time.After(30 * time.Second):
		t.Error("the honest packet is lost too")
	}
}

func TestNodeProbesFromTheProbeAddress(t *testing.T) {
	nodes, pods, ips := lay(t)
	var l net.Listener
	if err := netns.Do(pods[0], func() (err error) {
		l, err = net.Listen("tcp4", netip.AddrPortFrom(ips[0], 80).String())
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		if c, err := l.Accept(); err == nil {
			io.WriteString(c, c.RemoteAddr().(*net.TCPAddr).IP.String())
			c.Close()
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	c, err := netns.Dial(ctx, nodes[0].NetNS, "tcp4", l.Addr().String(), &net.TCPAddr{IP: IPv4.ProbeIP.AsSlice()})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if b, err := io.ReadAll(c); err != nil || string(b) != IPv4.ProbeIP.String() {
		t.Errorf("the pod was probed from %s, %v", b, err)
	}
}

func TestFabricReachesNodesAndPods(t *testing.T) {
	nodes, pods, ips := lay(t)
	heard := hear(t, pods[1], netip.AddrPortFrom(ips[1], 7000).String())
	say(t, nodes[2].NetNS, netip.AddrPortFrom(IPv4.FabricIP, 0), netip.AddrPortFrom(ips[1], 7000), "hello")
	select {
	case got := <-heard:
		if got != "hello from "+IPv4.FabricIP.String() {
			t.Errorf("heard %q", got)
		}
	case <-time.After(30 * time.Second):
		t.Error("the fabric does not reach a pod")
	}
	dns := hear(t, nodes[2].NetNS, netip.AddrPortFrom(IPv4.DNSIP, 53).String())
	say(t, pods[0], netip.AddrPortFrom(ips[0], 0), netip.AddrPortFrom(IPv4.DNSIP, 53), "who")
	select {
	case got := <-dns:
		if got != "who from "+ips[0].String() {
			t.Errorf("heard %q", got)
		}
	case <-time.After(30 * time.Second):
		t.Error("a pod does not reach the resolver's address")
	}
}

// Every pair of places reaches each other, in every family.
func TestDualStackReachesEverywhere(t *testing.T) {
	for name, families := range map[string][]*Family{"dual": {IPv4, IPv6}, "IPv6": {IPv6}} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			home := filepath.Join(dir, "fabric")
			if err := netns.Create(home); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { netns.Remove(home) })
			var nodes []Node
			for i := 1; i <= 2; i++ {
				nodes = append(nodes, Node{Index: i, NetNS: filepath.Join(dir, fmt.Sprintf("n%d", i)), Families: families})
			}
			if err := netns.Do(home, func() error { return Up(nodes) }); err != nil {
				t.Fatal(err)
			}
			places := map[string][]netip.Addr{home: nil}
			for _, f := range families {
				places[home] = append(places[home], f.FabricIP)
			}
			for _, n := range nodes {
				t.Cleanup(func() { netns.Remove(n.NetNS) })
				places[n.NetNS] = n.IPs()
				pod := n.NetNS + "-pod"
				ips := n.PodIPs(n.Pool().Addr().Next().Next())
				if len(ips) != len(families) {
					t.Fatalf("addresses %v", ips)
				}
				if err := AddPod(n, pod, "p1", ips...); err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { RemovePod(n, pod, "p1") })
				places[pod] = ips
			}
			for to, ips := range places {
				for _, ip := range ips {
					var l net.Listener
					if err := netns.Do(to, func() (err error) {
						l, err = net.Listen("tcp", netip.AddrPortFrom(ip, 8080).String())
						return err
					}); err != nil {
						t.Fatal(err)
					}
					for from := range places {
						ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
						c, err := netns.Dial(ctx, from, "tcp", l.Addr().String(), nil)
						cancel()
						if err != nil {
							t.Errorf("from %s to %s: %v", filepath.Base(from), l.Addr(), err)
							continue
						}
						c.Close()
					}
					l.Close()
				}
			}
			// The node probes from the probe address and gets its answers.
			pod := places[nodes[0].NetNS+"-pod"]
			for _, ip := range pod {
				var l net.Listener
				if err := netns.Do(nodes[0].NetNS+"-pod", func() (err error) {
					l, err = net.Listen("tcp", netip.AddrPortFrom(ip, 8081).String())
					return err
				}); err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
				from := net.TCPAddrFromAddrPort(netip.AddrPortFrom(FamilyOf(ip).ProbeIP, 0))
				c, err := netns.Dial(ctx, nodes[0].NetNS, "tcp", l.Addr().String(), from)
				cancel()
				if err != nil {
					t.Errorf("probe of %s: %v", ip, err)
				} else {
					c.Close()
				}
				l.Close()
			}
		})
	}
}
