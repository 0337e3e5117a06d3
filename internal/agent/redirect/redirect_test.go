package redirect

import (
	"encoding/binary"
	"fmt"
	"net"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/nftables"
	mdnetlink "github.com/mdlayher/netlink"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"lateen.dev/lateen/internal/agent/netns"
	"lateen.dev/lateen/internal/agent/netns/netnstest"
)

func apply(t *testing.T, ns *netns.Namespace, mode Mode) (changed bool) {
	t.Helper()
	changed, err := Apply(ns, mode, Settings{})
	if err != nil {
		t.Fatalf("apply %v: %v", mode, err)
	}
	return changed
}

func observe(t *testing.T, ns *netns.Namespace) Mode {
	t.Helper()
	mode, err := Observe(ns)
	if err != nil {
		t.Fatal(err)
	}
	return mode
}

func TestApplyingTwiceChangesNothing(t *testing.T) {
	ns := netnstest.New(t)
	for _, mode := range []Mode{Capturing, Draining, Capturing, Absent, Draining, Absent} {
		if !apply(t, ns, mode) {
			t.Errorf("%v: nothing changed", mode)
		}
		if got := observe(t, ns); got != mode {
			t.Errorf("observed %v after %v", got, mode)
		}
		first := everything(t, ns)
		if apply(t, ns, mode) {
			t.Errorf("%v: changed again", mode)
		}
		if diff := cmp.Diff(first, everything(t, ns)); diff != "" {
			t.Errorf("%v: applying twice differs:\n%s", mode, diff)
		}
	}
}

func TestRemovalLeavesWhatWasThereBefore(t *testing.T) {
	for _, address := range []string{"10.9.0.1", "fd00:9::1"} {
		t.Run(address, func(t *testing.T) {
			ns := netnstest.Pod(t, netnstest.New(t), "veth", address)
			addForeign(t, ns)
			before := everything(t, ns)
			apply(t, ns, Capturing)
			if diff := cmp.Diff(before, everything(t, ns)); diff == "" {
				t.Fatal("capturing shows no difference: the comparison is blind")
			}
			apply(t, ns, Draining)
			apply(t, ns, Absent)
			if diff := cmp.Diff(before, everything(t, ns)); diff != "" {
				t.Errorf("not as before:\n%s", diff)
			}
		})
	}
}

func TestIPv6RoutesOnlyWhereThePodHasIPv6(t *testing.T) {
	node := netnstest.New(t)
	for address, want := range map[string]bool{"10.9.0.1": false, "fd00:9::1": true} {
		ns := netnstest.Pod(t, node, "veth"+address[:2], address)
		apply(t, ns, Capturing)
		netnstest.In(t, ns, func(h *netlink.Handle) error {
			r := &routing{handle: h}
			var err error
			if r.loopback, err = h.LinkByName("lo"); err != nil {
				return err
			}
			rule, err := r.ruleExists(policy6)
			if err != nil {
				return err
			}
			route, err := r.routeExists(policy6)
			if rule != want || route != want {
				t.Errorf("%s: IPv6 rule %v, route %v; want %v", address, rule, route, want)
			}
			return err
		})
	}
}

func TestAPodWithoutIPv6IsCaptured(t *testing.T) {
	ns := netnstest.New(t)
	netnstest.Sysctl(t, ns, "net.ipv6.conf.all.disable_ipv6", "1")
	netnstest.Sysctl(t, ns, "net.ipv6.conf.lo.disable_ipv6", "1")
	apply(t, ns, Capturing)
	if got := observe(t, ns); got != Capturing {
		t.Errorf("observed %v", got)
	}
	apply(t, ns, Absent)
}

func TestRepairsDamage(t *testing.T) {
	damages := map[string]func(*testing.T, *netns.Namespace){
		"table deleted": func(t *testing.T, ns *netns.Namespace) {
			nft(t, ns, func(c *nftables.Conn) error {
				c.DelTable(ourTable())
				return nil
			})
		},
		"rule deleted": func(t *testing.T, ns *netns.Namespace) {
			nft(t, ns, func(c *nftables.Conn) error {
				rules, err := c.GetRules(ourTable(), &nftables.Chain{Name: "redirect-outbound"})
				if err != nil {
					return err
				}
				return c.DelRule(rules[len(rules)-1])
			})
		},
		"rule replaced": func(t *testing.T, ns *netns.Namespace) {
			nft(t, ns, func(c *nftables.Conn) error {
				rules, err := c.GetRules(ourTable(), &nftables.Chain{Name: "redirect-inbound"})
				if err != nil {
					return err
				}
				last := rules[len(rules)-1]
				last.Table, last.Exprs = ourTable(), rule(tcp(), redirectTo(InboundPort+1))
				c.ReplaceRule(last)
				return nil
			})
		},
		"nothing held any more": func(t *testing.T, ns *netns.Namespace) {
			nft(t, ns, func(c *nftables.Conn) error {
				c.FlushChain(&nftables.Chain{Name: holdInbound, Table: ourTable()})
				return nil
			})
		},
		"rule added first": func(t *testing.T, ns *netns.Namespace) {
			nft(t, ns, func(c *nftables.Conn) error {
				c.InsertRule(&nftables.Rule{Table: ourTable(), Chain: &nftables.Chain{Name: "redirect-outbound"}, Exprs: accept()})
				return nil
			})
		},
		"chain added": func(t *testing.T, ns *netns.Namespace) {
			nft(t, ns, func(c *nftables.Conn) error {
				c.AddChain(&nftables.Chain{Name: "foreign", Table: ourTable()})
				return nil
			})
		},
		"table asleep": func(t *testing.T, ns *netns.Namespace) { sleep(t, ns) },
		"chain policy changed": func(t *testing.T, ns *netns.Namespace) {
			nft(t, ns, func(c *nftables.Conn) error {
				drop := nftables.ChainPolicyDrop
				for _, w := range ruleset(ourTable(), Capturing, Settings{}) {
					w.chain.Policy = &drop
					c.AddChain(w.chain)
					break
				}
				return nil
			})
		},
		"zone deleted": func(t *testing.T, ns *netns.Namespace) {
			nft(t, ns, func(c *nftables.Conn) error {
				c.DelTable(&nftables.Table{Family: nftables.TableFamilyINet, Name: zoneTable})
				return nil
			})
		},
		"zone rule added": func(t *testing.T, ns *netns.Namespace) {
			nft(t, ns, func(c *nftables.Conn) error {
				c.InsertRule(&nftables.Rule{Table: &nftables.Table{Family: nftables.TableFamilyINet, Name: zoneTable},
					Chain: &nftables.Chain{Name: zoneChain}, Exprs: accept()})
				return nil
			})
		},
		"policy rule deleted": func(t *testing.T, ns *netns.Namespace) {
			netnstest.In(t, ns, func(h *netlink.Handle) error { return h.RuleDel(policy4.rule()) })
		},
		"route deleted": func(t *testing.T, ns *netns.Namespace) {
			netnstest.In(t, ns, func(h *netlink.Handle) error {
				lo, err := h.LinkByName("lo")
				if err != nil {
					return err
				}
				return h.RouteDel(policy4.route(lo))
			})
		},
	}
	for name, damage := range damages {
		t.Run(name, func(t *testing.T) {
			ns := netnstest.New(t)
			apply(t, ns, Capturing)
			want := everything(t, ns)
			damage(t, ns)
			if diff := cmp.Diff(want, everything(t, ns)); diff == "" {
				t.Fatal("the damage does not show")
			}
			if !apply(t, ns, Capturing) {
				t.Error("nothing was repaired")
			}
			if diff := cmp.Diff(want, everything(t, ns)); diff != "" {
				t.Errorf("not repaired:\n%s", diff)
			}
		})
	}
}

func TestRefusesAPodWhoseLoopbackIsDown(t *testing.T) {
	ns, err := netns.New()
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	if _, err := Apply(ns, Capturing, Settings{}); err == nil {
		t.Fatal("captured a pod that the proxy cannot reach")
	}
	if got := observe(t, ns); got != Absent {
		t.Errorf("left %v behind", got)
	}
}

// nft runs changes in one transaction in the namespace.
func nft(t *testing.T, ns *netns.Namespace, fn func(*nftables.Conn) error) {
	t.Helper()
	err := ns.Do(func() error {
		c, closer, err := connect()
		if err != nil {
			return err
		}
		defer closer()
		if err := fn(c); err != nil {
			return err
		}
		return c.Flush()
	})
	if err != nil {
		t.Fatal(err)
	}
}

// sleep makes our table dormant: it is all there and does nothing. The library cannot say that.
func sleep(t *testing.T, ns *netns.Namespace) {
	t.Helper()
	const dormant = 1 // NFT_TABLE_F_DORMANT
	attributes := mdnetlink.NewAttributeEncoder()
	attributes.ByteOrder = binary.BigEndian
	attributes.String(unix.NFTA_TABLE_NAME, tableName)
	attributes.Uint32(unix.NFTA_TABLE_FLAGS, dormant)
	table, err := attributes.Encode()
	if err != nil {
		t.Fatal(err)
	}
	message := func(kind int, header []byte, flags mdnetlink.HeaderFlags) mdnetlink.Message {
		return mdnetlink.Message{Header: mdnetlink.Header{Type: mdnetlink.HeaderType(kind), Flags: mdnetlink.Request | flags}, Data: header}
	}
	err = ns.Do(func() error {
		c, err := mdnetlink.Dial(unix.NETLINK_NETFILTER, nil)
		if err != nil {
			return err
		}
		defer c.Close()
		toTables := []byte{unix.AF_UNSPEC, 0, 0, unix.NFNL_SUBSYS_NFTABLES}
		_, err = c.SendMessages([]mdnetlink.Message{
			message(unix.NFNL_MSG_BATCH_BEGIN, toTables, 0),
			message(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_NEWTABLE, append([]byte{unix.NFPROTO_INET, 0, 0, 0}, table...), mdnetlink.Acknowledge),
			message(unix.NFNL_MSG_BATCH_END, toTables, 0),
		})
		if err != nil {
			return err
		}
		_, err = c.Receive()
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// addForeign puts what others may have in a pod's namespace next to everything of ours.
func addForeign(t *testing.T, ns *netns.Namespace) {
	t.Helper()
	nft(t, ns, func(c *nftables.Conn) error {
		for _, family := range []nftables.TableFamily{nftables.TableFamilyIPv4, nftables.TableFamilyINet} {
			table := c.AddTable(&nftables.Table{Family: family, Name: "foreign"})
			chain := c.AddChain(&nftables.Chain{
				Name: "out", Table: table, Type: nftables.ChainTypeNAT,
				Hooknum: nftables.ChainHookOutput, Priority: nftables.ChainPriorityNATDest,
			})
			c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: rule(tcp(), accept())})
		}
		// The same name in another family is somebody else's.
		c.AddTable(&nftables.Table{Family: nftables.TableFamilyIPv4, Name: tableName})
		return nil
	})
	netnstest.In(t, ns, func(h *netlink.Handle) error {
		lo, err := h.LinkByName("lo")
		if err != nil {
			return err
		}
		foreign := policy4.rule()
		foreign.Mark = 0x222
		if err := h.RuleAdd(foreign); err != nil {
			return err
		}
		foreign = policy4.rule()
		foreign.Priority--
		if err := h.RuleAdd(foreign); err != nil {
			return err
		}
		_, dst, _ := net.ParseCIDR("192.0.2.0/24")
		return h.RouteAdd(&netlink.Route{
			LinkIndex: lo.Attrs().Index, Dst: dst, Table: RouteTable, Type: unix.RTN_LOCAL, Scope: netlink.SCOPE_HOST,
		})
	})
}

// What else is in a pod's network is the pod's choice, and does not count.
func TestForeignTablesAndAddressesAreLeftAlone(t *testing.T) {
	node := netnstest.New(t)
	ns := netnstest.Pod(t, node, "pod", "fd00:9::1")
	nft(t, ns, func(c *nftables.Conn) error {
		for i := range 10 {
			table := c.AddTable(&nftables.Table{Family: nftables.TableFamilyINet, Name: fmt.Sprint("foreign", i)})
			// Named like ours.
			for _, name := range capturing {
				chain := c.AddChain(&nftables.Chain{Name: name, Table: table})
				c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: accept()})
			}
		}
		c.AddTable(&nftables.Table{Family: nftables.TableFamilyIPv4, Name: tableName})
		return nil
	})
	if got := observe(t, ns); got != Absent {
		t.Errorf("before it is captured the pod is %v", got)
	}
	for range 2 {
		apply(t, ns, Capturing)
		if got := observe(t, ns); got != Capturing {
			t.Errorf("captured it is %v", got)
		}
	}
	if apply(t, ns, Capturing) {
		t.Error("what is in order was changed")
	}
	netnstest.In(t, ns, func(h *netlink.Handle) error {
		rules, err := h.RuleList(netlink.FAMILY_V6)
		if err == nil && !slices.ContainsFunc(rules, func(r netlink.Rule) bool { return r.Table == RouteTable }) {
			t.Error("a pod with an IPv6 address has no route for IPv6")
		}
		return err
	})
	apply(t, ns, Draining)
	if got := observe(t, ns); got != Draining {
		t.Errorf("draining it is %v", got)
	}
	apply(t, ns, Absent)
	if got := observe(t, ns); got != Absent {
		t.Errorf("released it is %v", got)
	}
}
