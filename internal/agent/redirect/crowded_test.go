package redirect

import (
	"runtime"
	"testing"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"

	"lateen.dev/lateen/internal/agent/netns"
)

// crowd adds many rules to a chain, as a pod with CAP_NET_ADMIN can.
func crowd(t *testing.T, ns *netns.Namespace, chain *nftables.Chain) {
	t.Helper()
	for range 30 {
		nft(t, ns, func(c *nftables.Conn) error {
			for range 100 {
				c.AddRule(&nftables.Rule{Table: chain.Table, Chain: chain, Exprs: []expr.Any{&expr.Counter{}}})
			}
			return nil
		})
	}
}

// takes is how much memory is asked for while fn runs.
func takes(fn func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	fn()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// A pod chooses how many rules and chains it has: the agent does not read them all.
func TestACrowdOfRulesTakesNoMemory(t *testing.T) {
	const most = 1 << 20
	w := newWorld(t)
	apply(t, w.pod, Draining)
	var foreign *nftables.Chain
	nft(t, w.pod, func(c *nftables.Conn) error {
		foreign = c.AddChain(&nftables.Chain{
			Name: "out", Table: c.AddTable(&nftables.Table{Family: nftables.TableFamilyINet, Name: "foreign"}), Type: nftables.ChainTypeNAT,
			Hooknum: nftables.ChainHookOutput, Priority: nftables.ChainPriorityNATDest,
		})
		return nil
	})
	crowd(t, w.pod, foreign)
	if n := takes(func() { settle(t, w.pod) }); n > most {
		t.Errorf("to settle took %d KiB", n>>10)
	}
	for name, fn := range map[string]func(){
		"apply": func() { apply(t, w.pod, Capturing) },
		"observe": func() {
			if mode, err := Observe(w.pod); err != nil || mode != Capturing {
				t.Errorf("%v, %v", mode, err)
			}
		},
		"count what is disowned": func() {
			if _, err := Disowned(w.pod); err != nil {
				t.Error(err)
			}
		},
	} {
		for _, chain := range []string{redirectOutbound, disownOutbound} {
			apply(t, w.pod, Absent)
			apply(t, w.pod, Capturing)
			table := ourTable()
			nft(t, w.pod, func(c *nftables.Conn) error {
				c.AddChain(&nftables.Chain{Name: chain, Table: table})
				return nil
			})
			crowd(t, w.pod, &nftables.Chain{Name: chain, Table: table})
			if n := takes(fn); n > most {
				t.Errorf("%s with a crowd in %s: took %d KiB", name, chain, n>>10)
			}
		}
	}
	apply(t, w.pod, Capturing)
	table := zone().table()
	crowd(t, w.pod, &nftables.Chain{Name: zoneChain, Table: table})
	if n := takes(func() { apply(t, w.pod, Capturing) }); n > most {
		t.Errorf("apply with a crowd of zones took %d KiB", n>>10)
	}
}
