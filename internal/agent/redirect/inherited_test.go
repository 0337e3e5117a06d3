package redirect

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/nftables"
	"github.com/google/nftables/expr"

	"lateen.dev/lateen/internal/agent/netns"
	"lateen.dev/lateen/internal/agent/netns/netnstest"
)

// ipTables are tables as iptables-nft makes them, with chains of Istio's; only what is given by foreign is in them besides.
func ipTables(t *testing.T, ns *netns.Namespace, istio bool, foreign func(c *nftables.Conn, table *nftables.Table, pre *nftables.Chain)) {
	t.Helper()
	kinds := map[string]struct {
		priority *nftables.ChainPriority
		kind     nftables.ChainType
	}{
		"raw":    {nftables.ChainPriorityRaw, nftables.ChainTypeFilter},
		"mangle": {nftables.ChainPriorityMangle, nftables.ChainTypeFilter},
		"nat":    {nftables.ChainPriorityNATDest, nftables.ChainTypeNAT},
	}
	nft(t, ns, func(c *nftables.Conn) error {
		for _, family := range inheritedFamilies {
			for name, k := range kinds {
				table := c.AddTable(&nftables.Table{Family: family, Name: name})
				accept := nftables.ChainPolicyAccept
				base := map[string]*nftables.Chain{}
				for chain, hook := range map[string]*nftables.ChainHook{"PREROUTING": nftables.ChainHookPrerouting, "OUTPUT": nftables.ChainHookOutput} {
					base[chain] = c.AddChain(&nftables.Chain{Name: chain, Table: table, Type: k.kind, Hooknum: hook, Priority: k.priority, Policy: &accept})
				}
				if istio {
					for base, own := range map[*nftables.Chain]string{base["PREROUTING"]: "ISTIO_PRERT", base["OUTPUT"]: "ISTIO_OUTPUT"} {
						chain := c.AddChain(&nftables.Chain{Name: own, Table: table})
						// The rules as such are of no account: where they are is.
						c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: rule(tcp(), accepted())})
						c.AddRule(&nftables.Rule{Table: table, Chain: base, Exprs: []expr.Any{&expr.Counter{}, &expr.Verdict{Kind: expr.VerdictJump, Chain: own}}})
					}
				}
				if foreign != nil {
					foreign(c, table, base["PREROUTING"])
				}
			}
		}
		return nil
	})
}

func accepted() []expr.Any {
	return []expr.Any{&expr.Counter{}, &expr.Verdict{Kind: expr.VerdictAccept}}
}

func inherited(t *testing.T, ns *netns.Namespace) bool {
	t.Helper()
	had, err := Inherited(ns)
	if err != nil {
		t.Fatal(err)
	}
	return had
}

func TestWhatIstioLeftGoesAndOursStays(t *testing.T) {
	ns := netnstest.Pod(t, netnstest.New(t), "veth", "10.9.0.1")
	apply(t, ns, Capturing)
	before := everything(t, ns)
	if inherited(t, ns) {
		t.Error("something was removed where there was nothing")
	}
	ipTables(t, ns, true, nil)
	nft(t, ns, func(c *nftables.Conn) error {
		for _, name := range inheritedTables {
			table := c.AddTable(&nftables.Table{Family: nftables.TableFamilyINet, Name: name})
			c.AddChain(&nftables.Chain{Name: "istio-output", Table: table})
		}
		return nil
	})
	if cmp.Equal(before, everything(t, ns)) {
		t.Fatal("Istio's rules show no difference: the comparison is blind")
	}
	if !inherited(t, ns) {
		t.Error("nothing was there")
	}
	if diff := cmp.Diff(before, everything(t, ns)); diff != "" {
		t.Errorf("not as before Istio:\n%s", diff)
	}
	if inherited(t, ns) {
		t.Error("something was there a second time")
	}
}

// What somebody else has in the same tables stays, with the tables.
func TestForeignRulesBesideIstiosStay(t *testing.T) {
	for name, foreign := range map[string]func(c *nftables.Conn, table *nftables.Table, pre *nftables.Chain){
		"a rule": func(c *nftables.Conn, table *nftables.Table, pre *nftables.Chain) {
			c.AddRule(&nftables.Rule{Table: table, Chain: pre, Exprs: rule(tcp(), accepted())})
		},
		"a chain": func(c *nftables.Conn, table *nftables.Table, _ *nftables.Chain) {
			c.AddChain(&nftables.Chain{Name: "SOMEBODYS", Table: table})
		},
		"another chain, and a jump to it": func(c *nftables.Conn, table *nftables.Table, pre *nftables.Chain) {
			c.AddChain(&nftables.Chain{Name: "ISTIO_INBOUND", Table: table})
			c.AddRule(&nftables.Rule{Table: table, Chain: pre, Exprs: []expr.Any{&expr.Verdict{Kind: expr.VerdictJump, Chain: "ISTIO_INBOUND"}}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			alone, both := netnstest.New(t), netnstest.New(t)
			ipTables(t, alone, false, foreign)
			ipTables(t, both, true, foreign)
			if !inherited(t, both) {
				t.Error("nothing was there")
			}
			if diff := cmp.Diff(everything(t, alone), everything(t, both)); diff != "" {
				t.Errorf("not what there is without Istio:\n%s", diff)
			}
			if inherited(t, alone) {
				t.Error("something of Istio's was found where it never was")
			}
		})
	}
}
