package redirect

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"lateen.dev/lateen/internal/agent/netns"
)

// An Istio in ambient mode leaves its redirection in pods when it goes. To the same ports, it does no harm while the proxy of this mesh
// listens there; in a pod that is released it would lead every connection to where nobody does. These are its names: chains of its own,
// to which it jumps from those of iptables, or tables of its own.
var (
	inheritedChains   = []string{"ISTIO_PRERT", "ISTIO_OUTPUT"}
	inheritedIn       = []string{"raw", "mangle", "nat"}
	inheritedTables   = []string{"istio-ambient-raw", "istio-ambient-mangle", "istio-ambient-nat"}
	inheritedFamilies = []nftables.TableFamily{nftables.TableFamilyIPv4, nftables.TableFamilyIPv6}
)

// Inherited removes what an Istio that is gone left in a pod's network, and says whether there was anything. Other rules in the same
// tables stay; a table that has nothing but empty chains of iptables' own goes, because Istio made it. What was written with the older
// iptables (not iptables-nft) is not seen.
func Inherited(ns *netns.Namespace) (had bool, err error) {
	err = ns.Do(func() error {
		had, err = removeInherited()
		return err
	})
	return had, err
}

func removeInherited() (had bool, err error) {
	c, closer, err := connect()
	if err != nil {
		return false, err
	}
	defer closer()
	for _, name := range inheritedTables {
		table, err := findTable(c, &nftables.Table{Family: nftables.TableFamilyINet, Name: name})
		if err != nil {
			return had, err
		}
		if table != nil {
			c.DelTable(table)
			had = true
		}
	}
	var emptied []*nftables.Table
	for _, family := range inheritedFamilies {
		for _, name := range inheritedIn {
			table, err := findTable(c, &nftables.Table{Family: family, Name: name})
			if err != nil {
				return had, err
			}
			if table == nil {
				continue
			}
			found, err := dropChains(c, table)
			if err != nil {
				return had, err
			}
			if found {
				had = true
				emptied = append(emptied, table)
			}
		}
	}
	if !had {
		return false, nil
	}
	// All rules go in one transaction: with half of them, marks would misroute packets.
	if err := c.Flush(); err != nil {
		return false, fmt.Errorf("remove what Istio left: %w", err)
	}
	for _, table := range emptied {
		if err := dropEmpty(c, table); err != nil {
			return had, err
		}
	}
	return had, nil
}

// mostRead is of how many rules a chain is read.
const mostRead = 4096

// dropChains has the next transaction remove Istio's chains of a table, and the jumps to them.
func dropChains(c *nftables.Conn, table *nftables.Table) (found bool, err error) {
	var chains []*nftables.Chain
	for _, name := range inheritedChains {
		chain, err := findChain(c, table, name)
		if err != nil {
			return false, err
		}
		if chain != nil {
			chains = append(chains, chain)
		}
	}
	if len(chains) == 0 {
		return false, nil
	}
	for _, name := range []string{"PREROUTING", "OUTPUT"} {
		n, err := rulesIn(table, name)
		if err == nil && n > mostRead {
			err = fmt.Errorf("there are %d, more than %d", n, mostRead)
		}
		var rules []*nftables.Rule
		if err == nil {
			rules, err = c.GetRules(table, &nftables.Chain{Name: name})
		}
		if err != nil {
			return false, fmt.Errorf("list rules of chain %s: %w", name, err)
		}
		for _, r := range rules {
			if !jumps(r) {
				continue
			}
			if err := c.DelRule(&nftables.Rule{Table: table, Chain: &nftables.Chain{Name: name, Table: table}, Handle: r.Handle}); err != nil {
				return false, err
			}
		}
	}
	for _, chain := range chains {
		c.FlushChain(chain)
		c.DelChain(chain)
	}
	return true, nil
}

// jumps says whether a rule leads to one of Istio's chains.
func jumps(r *nftables.Rule) bool {
	return slices.ContainsFunc(r.Exprs, func(e expr.Any) bool {
		v, ok := e.(*expr.Verdict)
		return ok && slices.Contains(inheritedChains, v.Chain)
	})
}

// builtIn are the chains that iptables makes in its tables by itself.
var builtIn = []string{"PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"}

// dropEmpty removes a table of iptables in which nothing is left.
func dropEmpty(c *nftables.Conn, table *nftables.Table) error {
	now, err := findTable(c, table)
	if err != nil || now == nil {
		return err
	}
	chains := 0
	for _, name := range builtIn {
		chain, err := findChain(c, table, name)
		if err != nil {
			return err
		}
		if chain == nil {
			continue
		}
		if chain.Policy == nil || *chain.Policy != nftables.ChainPolicyAccept {
			return nil
		}
		if rules, err := rulesIn(table, name); err != nil || rules > 0 {
			return err
		}
		chains++
	}
	if !holdsNothingElse(now, chains, 0) {
		return nil
	}
	c.DelTable(table)
	if err := c.Flush(); err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EBUSY) {
		return fmt.Errorf("remove table %s, which Istio left: %w", table.Name, err)
	}
	return nil
}

// findChain returns a chain as it stands, or nil.
func findChain(c *nftables.Conn, table *nftables.Table, name string) (*nftables.Chain, error) {
	chain, err := c.ListChain(table, name)
	switch {
	case err == nil:
		return chain, nil
	case strings.Contains(err.Error(), unix.ENOENT.Error()): // the library does not pass the number on
		return nil, nil
	}
	return nil, fmt.Errorf("look for chain %s of table %s: %w", name, table.Name, err)
}
