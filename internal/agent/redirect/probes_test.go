package redirect

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"lateen.dev/lateen/internal/agent/netns"
	"lateen.dev/lateen/internal/agent/netns/netnstest"
)

const proberGroup = 1_999_888_777

// dialAs connects from a thread with a group of its own.
func dialAs(ns *netns.Namespace, gid uintptr, from, to netip.AddrPort, timeout time.Duration, options ...netnstest.Option) (c net.Conn, err error) {
	err = ns.Do(func() error {
		if _, _, errno := unix.RawSyscall(unix.SYS_SETFSGID, gid, 0, 0); errno != 0 {
			return errno
		}
		d := net.Dialer{Timeout: timeout, LocalAddr: net.TCPAddrFromAddrPort(from), Control: netnstest.Control(options...)}
		c, err = d.Dial("tcp", to.String())
		return err
	})
	return c, err
}

// probed is a captured pod on a node that has the probe address, and a neighbour of the pod.
type probed struct {
	node, pod, peer *netns.Namespace
	app, inbound    net.Listener
	probe, address  netip.Addr
	own             netip.Addr // the node's, apart from the probe's
	transparent     netnstest.Option
}

func newProbed(t *testing.T, v6 bool) *probed {
	p := &probed{node: netnstest.New(t), probe: Probe4, address: netip.MustParseAddr("10.9.0.1"), own: netip.MustParseAddr("10.9.0.254"), transparent: netnstest.Transparent}
	peer, any := "10.9.0.2", "0.0.0.0"
	if v6 {
		p.probe, p.address, peer, any = Probe6, netip.MustParseAddr("fd00:9::1"), "fd00:9::2", "[::]"
		p.own = netip.MustParseAddr("fd00:9::fe")
		p.transparent = func(fd int) error { return unix.SetsockoptInt(fd, unix.SOL_IPV6, unix.IPV6_TRANSPARENT, 1) }
		netnstest.Sysctl(t, p.node, "net.ipv6.conf.all.forwarding", "1")
	}
	p.pod, p.peer = netnstest.Pod(t, p.node, "pod", p.address.String()), netnstest.Pod(t, p.node, "peer", peer)
	netnstest.In(t, p.node, func(h *netlink.Handle) error {
		// On the pod's link, so that the pod resolves it.
		link, err := h.LinkByName("pod")
		if err != nil {
			return err
		}
		for _, a := range []netip.Addr{p.own, p.probe} {
			if err := h.AddrAdd(link, &netlink.Addr{IPNet: netlink.NewIPNet(a.AsSlice()), Flags: unix.IFA_F_NODAD}); err != nil {
				return err
			}
		}
		return nil
	})
	// Otherwise the node itself may drop what claims to come from it; that is no protection to count on.
	for _, setting := range []string{"all.rp_filter=0", "peer.rp_filter=0", "all.accept_local=1"} {
		name, value, _ := strings.Cut(setting, "=")
		netnstest.Sysctl(t, p.node, "net.ipv4.conf."+name, value)
	}
	if v6 {
		netnstest.ProxyNeighbours(t, p.node, map[string]string{"pod": peer, "peer": p.address.String()})
	}
	p.app = netnstest.Listen(t, p.pod, any+":8080")
	p.inbound = netnstest.Listen(t, p.pod, fmt.Sprintf("%s:%d", any, InboundPort), netnstest.Marked(ProxyMark))
	apply(t, p.pod, Capturing)
	p.count(t)
	return p
}

// count has the pod count what arrives with the probe address.
func (p *probed) count(t *testing.T) {
	nft(t, p.pod, func(c *nftables.Conn) error {
		table := c.AddTable(&nftables.Table{Family: nftables.TableFamilyINet, Name: "seen"})
		chain := c.AddChain(&nftables.Chain{Name: "in", Table: table, Type: nftables.ChainTypeFilter,
			Hooknum: nftables.ChainHookPrerouting, Priority: nftables.ChainPriorityRaw})
		c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: rule(address(source, p.probe), []expr.Any{&expr.Counter{}})})
		return nil
	})
}

// spoof has the neighbour open a connection from the probe address. It cannot complete: the answers go to the node, which
// has the address. But a packet is enough to tell.
func (p *probed) spoof(to netip.AddrPort) {
	c, err := dialAs(p.peer, 0, netip.AddrPortFrom(p.probe, 4711), to, 300*time.Millisecond, p.transparent)
	if err == nil {
		c.Close()
	}
}

func (p *probed) seen(t *testing.T) (packets uint64) {
	nft(t, p.pod, func(c *nftables.Conn) error {
		rules, err := c.GetRules(&nftables.Table{Family: nftables.TableFamilyINet, Name: "seen"}, &nftables.Chain{Name: "in"})
		if err != nil {
			return err
		}
		for _, e := range rules[0].Exprs {
			if counter, ok := e.(*expr.Counter); ok {
				packets = counter.Packets
			}
		}
		return nil
	})
	return packets
}

func (p *probed) guard(t *testing.T) {
	t.Helper()
	for _, want := range []bool{true, false} {
		var changed bool
		err := p.node.Do(func() (err error) {
			changed, err = GuardProbes(ByGroup(proberGroup))
			return err
		})
		if err != nil || changed != want {
			t.Fatalf("guard: changed %v, %v; want %v", changed, err, want)
		}
	}
}

// arrives says whether a connection from the node bound to the probe address gets past the proxy.
func (p *probed) arrives(t *testing.T, gid uintptr) error {
	t.Helper()
	c, err := dialAs(p.node, gid, netip.AddrPortFrom(p.probe, 0), netip.AddrPortFrom(p.address, 8080), 10*time.Second)
	if err != nil {
		return err
	}
	defer c.Close()
	_ = p.app.(*net.TCPListener).SetDeadline(time.Now().Add(30 * time.Second))
	atApp, err := p.app.Accept()
	if err != nil {
		t.Fatalf("the probe connected, but not to the app: %v", err)
	}
	defer atApp.Close()
	if got := host(atApp.RemoteAddr()); got != p.probe.String() {
		t.Errorf("the app sees source %s", got)
	}
	exchange(t, c, atApp)
	return nil
}

func TestOnlyTheProberHasTheProbeAddress(t *testing.T) {
	for name, v6 := range map[string]bool{"IPv4": false, "IPv6": true} {
		t.Run(name, func(t *testing.T) {
			p := newProbed(t, v6)
			to := netip.AddrPortFrom(p.address, 8080)
			spoof := func() { p.spoof(to) }

			// Without the guard anybody passes; otherwise the rest would show nothing.
			if err := p.arrives(t, 0); err != nil {
				t.Fatalf("unguarded: %v", err)
			}
			open(t, p.peer, "", to.String(), p.inbound) // the peer knows the way now
			before := p.seen(t)
			for deadline := time.Now().Add(15 * time.Second); p.seen(t) == before; {
				if spoof(); time.Now().After(deadline) {
					t.Fatal("unguarded: what the neighbour spoofs does not arrive")
				}
			}

			p.guard(t)
			if err := p.arrives(t, proberGroup); err != nil {
				t.Errorf("the prober: %v", err)
			}
			before = p.seen(t)
			if err := p.arrives(t, 0); !errors.Is(err, unix.ECONNREFUSED) {
				t.Errorf("root on the node, bound to the probe address: %v, want %v", err, unix.ECONNREFUSED)
			}
			if spoof(); p.seen(t) != before {
				t.Errorf("%d packets with the probe address arrived", p.seen(t)-before)
			}
			// Root on the node without tricks is like anybody else.
			open(t, p.node, netip.AddrPortFrom(p.own, 0).String(), to.String(), p.inbound)
			open(t, p.peer, "", to.String(), p.inbound)
		})
	}
}

func TestAProbesGuardIsRepaired(t *testing.T) {
	p := newProbed(t, false)
	p.guard(t)
	nft(t, p.node, func(c *nftables.Conn) error {
		c.InsertRule(&nftables.Rule{Table: &nftables.Table{Family: nftables.TableFamilyINet, Name: probeTable},
			Chain: &nftables.Chain{Name: "departing"}, Exprs: accept()})
		return nil
	})
	if err := p.arrives(t, 0); err != nil {
		t.Fatalf("the damage does not show: %v", err)
	}
	p.guard(t)
	if err := p.arrives(t, 0); err == nil {
		t.Error("not repaired")
	}
}
