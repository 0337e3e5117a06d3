package redirect

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"lateen.dev/lateen/internal/agent/netns/netnstest"
)

// Only what is not open any more can be opened once more from the same port: the kernel sees to that.
const reusedPort = 45678

// attack opens a connection from the port of a probe, as a process that is not the prober, and says where it arrives.
// Refused is what it is if the node resets it.
func (p *posing) attack(t *testing.T, from, target netip.AddrPort) (direct bool, who netip.Addr, err error) {
	t.Helper()
	type arrival struct {
		direct bool
		from   netip.Addr
	}
	came := make(chan arrival, 2)
	for _, l := range []net.Listener{p.app, p.inbound} {
		_ = l.(*net.TCPListener).SetDeadline(time.Now().Add(30 * time.Second)) // longer than it is tried below
		go func() {
			if c, err := l.Accept(); err == nil {
				from, _ := netip.ParseAddrPort(c.RemoteAddr().String())
				came <- arrival{l == p.app, from.Addr().Unmap()}
				c.Close()
			}
		}()
	}
	defer func() {
		for _, l := range []net.Listener{p.app, p.inbound} {
			_ = l.(*net.TCPListener).SetDeadline(time.Unix(1, 0))
		}
	}()
	for deadline := time.Now().Add(15 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if err = dialBound(t, "", p.node, from, target, 10*time.Second); err == nil {
			a := <-came
			return a.direct, a.from, nil
		}
		// Until the prober's socket is gone.
		if message := err.Error(); !containsAny(message, "address already in use", "cannot assign requested address") || time.Now().After(deadline) {
			return false, netip.Addr{}, err
		}
	}
}

func TestTheKubeletsPortIsNobodyElsesOnceItsProbeHasLeft(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		t.Run(fmt.Sprintf("v6=%v", v6), func(t *testing.T) {
			p := newPosing(t, v6)
			dir, level := cgroups(t)
			target, from := netip.AddrPortFrom(p.address, 8080), netip.AddrPortFrom(p.own, reusedPort)
			p.pose(t, ByCgroup(inode(t, dir), level), true, target)

			// The app resets the probe, so that no end of it waits and the port is free at once.
			reset := make(chan net.Addr, 1)
			_ = p.app.(*net.TCPListener).SetDeadline(time.Now().Add(15 * time.Second))
			go func() {
				defer close(reset)
				c, err := p.app.Accept()
				if err != nil {
					return
				}
				_, _ = c.Read(make([]byte, 5))
				_ = c.(*net.TCPConn).SetLinger(0)
				c.Close()
				reset <- c.RemoteAddr()
			}()
			if err := dialBound(t, dir, p.node, from, target, 10*time.Second); err != nil {
				t.Fatalf("the probe: %v", err)
			}
			if got := host(<-reset); got != p.probe.String() {
				t.Fatalf("the probe came from %s", got)
			}
			if direct, who, err := p.attack(t, from, target); err == nil && (direct || who == p.probe) {
				t.Errorf("another process with the probe's port: direct %v, from %v", direct, who)
			}
		})
	}
}

func TestAProbeThatIsNotAnsweredOpensNothingForOthers(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		t.Run(fmt.Sprintf("v6=%v", v6), func(t *testing.T) {
			p := newPosing(t, v6)
			dir, level := cgroups(t)
			pods := below(t, dir, "kubepods")
			target, from := netip.AddrPortFrom(p.address, 8080), netip.AddrPortFrom(p.own, reusedPort)
			p.pose(t, ByCgroup(inode(t, dir), level), true, target)

			// As a program that is overloaded: what opens a connection is not answered.
			busy := &nftables.Table{Family: nftables.TableFamilyINet, Name: "busy"}
			nft(t, p.pod, func(c *nftables.Conn) error {
				c.AddTable(busy)
				chain := c.AddChain(&nftables.Chain{Name: "in", Table: busy, Type: nftables.ChainTypeFilter,
					Hooknum: nftables.ChainHookPrerouting, Priority: nftables.ChainPriorityRaw})
				c.AddRule(&nftables.Rule{Table: busy, Chain: chain, Exprs: rule(opening(), portIs(8080), drop())})
				return nil
			})
			// The kernel sends the packet a second time after a second.
			if err := dialBound(t, dir, p.node, from, target, 1200*time.Millisecond); err == nil {
				t.Fatal("the probe was answered")
			}
			nft(t, p.node, func(c *nftables.Conn) error {
				table := &nftables.Table{Family: nftables.TableFamilyINet, Name: probeTable}
				for _, f := range families {
					left, err := c.GetSetElements(f.opening(table))
					if err != nil || len(left) > 0 {
						t.Errorf("%d connections may still take the probe address, %v", len(left), err)
					}
				}
				return nil
			})
			nft(t, p.pod, func(c *nftables.Conn) error { c.DelTable(busy); return nil })

			// Connection tracking has it still, and translates whatever opens it.
			for name, cgroup := range map[string]string{"another process of root": "", "a pod on the node's network": pods} {
				err := dialBound(t, cgroup, p.node, from, target, 10*time.Second)
				if err == nil || !containsAny(err.Error(), unix.ECONNREFUSED.Error(), unix.ECONNRESET.Error()) {
					t.Errorf("%s with the port of a probe: %v", name, err)
				}
			}
			if direct, who := p.arrives(t, func() error { return dialBound(t, dir, p.node, from, target, 10*time.Second) }); !direct || who != p.probe {
				t.Errorf("the kubelet from that port once more: direct %v, from %v", direct, who)
			}
			// Other ports are not meant.
			if direct, who := p.arrives(t, func() error { return dialFrom(t, "", p.node, target) }); direct || who == p.probe {
				t.Errorf("another process from another port: direct %v, from %v", direct, who)
			}
		})
	}
}

func TestWhatGuardsReusedPortsIsRepaired(t *testing.T) {
	p := newPosing(t, false)
	target := netip.AddrPortFrom(p.address, 8080)
	p.pose(t, ByUser(0), true, target)
	reused := &nftables.Table{Family: nftables.TableFamilyINet, Name: reusedTable}
	for name, damage := range map[string]func(*nftables.Conn){
		"emptied": func(c *nftables.Conn) { c.FlushTable(reused) },
		"deleted": func(c *nftables.Conn) { c.DelTable(reused) },
		"let pass": func(c *nftables.Conn) {
			c.InsertRule(&nftables.Rule{Table: reused, Chain: &nftables.Chain{Name: "reused"}, Exprs: accept()})
		},
	} {
		nft(t, p.node, func(c *nftables.Conn) error { damage(c); return nil })
		t.Log(name)
		p.pose(t, ByUser(0), true, target)
		p.pose(t, ByUser(0), false, target)
	}
	// The set remembers for as long as it should and no longer.
	nft(t, p.node, func(c *nftables.Conn) error {
		set, err := c.GetSetByName(&nftables.Table{Family: nftables.TableFamilyINet, Name: probeTable}, "opening4")
		if err != nil || !set.HasTimeout || set.Timeout != time.Second {
			t.Errorf("the set of probes that are being opened: %+v, %v", set, err)
		}
		return nil
	})
}

// ports are targets of many pods.
func ports(pods, each int, v6 bool) (all []netip.AddrPort) {
	for pod := range pods {
		a := netip.AddrFrom4([4]byte{10, 1, byte(pod >> 8), byte(pod)})
		if v6 {
			a = netip.AddrFrom16([16]byte{0xfd, 1, 14: byte(pod >> 8), 15: byte(pod)})
		}
		for port := range each {
			all = append(all, netip.AddrPortFrom(a, uint16(port+1)))
		}
	}
	return all
}

// More than a message of the kernel's holds, and more than a transaction.
func TestAnyNumberOfPortsIsProbed(t *testing.T) {
	p := newPosing(t, false)
	target := netip.AddrPortFrom(p.address, 8080)
	many := append(ports(250, 64, false), ports(250, 64, true)...)
	stand := func(want []netip.AddrPort) {
		t.Helper()
		have := 0
		nft(t, p.node, func(c *nftables.Conn) error {
			for _, f := range families {
				all, err := c.GetSetElements(f.probed(&nftables.Table{Family: nftables.TableFamilyINet, Name: probeTable}))
				if err != nil {
					return err
				}
				have += len(all)
			}
			return nil
		})
		if have != len(want) {
			t.Errorf("%d ports are probed, want %d", have, len(want))
		}
	}
	p.pose(t, ByUser(0), true, many...)
	stand(many)
	p.pose(t, ByUser(0), false, append(many[:1000:1000], target)...)
	stand(append(many[:1000:1000], target))
	if direct, _ := p.arrives(t, func() error { return dialFrom(t, "", p.node, target) }); !direct {
		t.Error("a probe does not pass beside many others")
	}
	p.pose(t, ByUser(0), false, many...)
	stand(many)
	p.pose(t, ByUser(0), false, []netip.AddrPort{}...)
	stand(nil)
}

func TestABridgeLetsNobodyPoseAsTheProber(t *testing.T) {
	for name, v6 := range map[string]bool{"IPv4": false, "IPv6": true} {
		t.Run(name, func(t *testing.T) {
			p := newProbed(t, v6)
			p.bridge(t)
			to := netip.AddrPortFrom(p.address, 8080)
			p.guard(t)
			open(t, p.peer, "", to.String(), p.inbound) // the peer knows the way now
			// Without it the rest would show nothing.
			before := p.seen(t)
			for deadline := time.Now().Add(15 * time.Second); p.seen(t) == before; {
				p.spoof(to)
				if time.Now().After(deadline) {
					t.Fatal("what the neighbour spoofs does not arrive over the bridge")
				}
			}
			for _, want := range []bool{true, false} {
				if changed, err := p.guardBridges(); err != nil || changed != want {
					t.Fatalf("guard bridges: changed %v, %v; want %v", changed, err, want)
				}
			}
			before = p.seen(t)
			for range 3 {
				p.spoof(to)
			}
			if p.seen(t) != before {
				t.Errorf("%d packets with the probe address arrived", p.seen(t)-before)
			}
			open(t, p.peer, "", to.String(), p.inbound)

			nft(t, p.node, func(c *nftables.Conn) error { c.FlushTable(bridgeTable()); return nil })
			if changed, err := p.guardBridges(); err != nil || !changed {
				t.Errorf("not repaired: changed %v, %v", changed, err)
			}
			if err := p.node.Do(RemoveProbes); err != nil {
				t.Fatal(err)
			}
			nft(t, p.node, func(c *nftables.Conn) error {
				tables, err := c.ListTables()
				if len(tables) > 0 {
					t.Errorf("tables left: %v", tables[0].Name)
				}
				return err
			})
		})
	}
}

func (p *probed) guardBridges() (changed bool, err error) {
	err = p.node.Do(func() (err error) {
		changed, err = GuardBridges()
		return err
	})
	return changed, err
}

// bridge connects the pods by a bridge of the node that does not hand to IP what passes it.
func (p *probed) bridge(t *testing.T) {
	for _, setting := range []string{"iptables", "ip6tables", "arptables"} {
		netnstest.Sysctl(t, p.node, "net.bridge.bridge-nf-call-"+setting, "0")
	}
	netnstest.In(t, p.node, func(h *netlink.Handle) error {
		attributes := netlink.NewLinkAttrs()
		attributes.Name = "br0"
		bridge := &netlink.Bridge{LinkAttrs: attributes}
		if err := h.LinkAdd(bridge); err != nil {
			return err
		}
		for _, name := range []string{"pod", "peer"} {
			link, err := h.LinkByName(name)
			if err != nil {
				return err
			}
			if err := h.LinkSetMaster(link, bridge); err != nil {
				return err
			}
		}
		return h.LinkSetUp(bridge)
	})
}

func containsAny(text string, parts ...string) bool {
	for _, p := range parts {
		if strings.Contains(text, p) {
			return true
		}
	}
	return false
}
