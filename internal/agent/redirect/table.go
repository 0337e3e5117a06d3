package redirect

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

func ourTable() *nftables.Table {
	// One table of family inet serves both address families and works in a pod that has no IPv6.
	return &nftables.Table{Family: nftables.TableFamilyINet, Name: tableName}
}

// connect opens netfilter's netlink socket in the calling thread's network namespace.
func connect() (*nftables.Conn, func(), error) {
	c, err := nftables.New(nftables.AsLasting())
	if err != nil {
		return nil, nil, fmt.Errorf("open nftables: %w; the kernel needs nf_tables", err)
	}
	return c, func() { _ = c.CloseLasting() }, nil
}

// replaceTable makes a table be what is wanted, in one transaction, and leaves a table that already is alone.
func replaceTable(ours *nftables.Table, want []ruledChain) (changed bool, err error) {
	c, closer, err := connect()
	if err != nil {
		return false, err
	}
	defer closer()
	same, err := tableIs(c, ours.Name, want)
	if err != nil || same {
		return false, err
	}
	// Adding before deleting makes the deletion succeed whether or not the table is there.
	c.AddTable(ours)
	c.DelTable(ours)
	table := c.AddTable(ours)
	for _, w := range want {
		chain := *w.chain
		chain.Table = table
		c.AddChain(&chain)
		for _, exprs := range w.rules {
			c.AddRule(&nftables.Rule{Table: table, Chain: &chain, Exprs: exprs})
		}
	}
	if err := c.Flush(); err != nil {
		return false, fmt.Errorf("write table inet %s: %w; the kernel needs nf_tables with nat and redirect for inet (Linux 5.2)", ours.Name, err)
	}
	return true, nil
}

func deleteTable() (changed bool, err error) {
	c, closer, err := connect()
	if err != nil {
		return false, err
	}
	defer closer()
	table, err := findTable(c, tableName)
	if err != nil || table == nil {
		return false, err
	}
	c.DelTable(ourTable())
	if err := c.Flush(); err != nil && !errors.Is(err, unix.ENOENT) {
		return false, fmt.Errorf("delete table inet %s: %w", tableName, err)
	}
	return true, nil
}

func observeTable() (Mode, error) {
	c, closer, err := connect()
	if err != nil {
		return Absent, err
	}
	defer closer()
	table, err := findTable(c, tableName)
	if err != nil || table == nil {
		return Absent, err
	}
	chains, err := chainsOf(c, tableName)
	if err != nil {
		return Absent, err
	}
	for _, chain := range chains {
		if chain.Type != nftables.ChainTypeNAT && !isHold(chain.Name) {
			continue
		}
		rules, err := c.GetRules(chain.Table, chain)
		if err != nil {
			return Absent, fmt.Errorf("list rules of chain %s: %w", chain.Name, err)
		}
		if len(rules) > 0 {
			return Capturing, nil
		}
	}
	return Draining, nil
}

// findTable returns the table of family inet with a name, or nil.
func findTable(c *nftables.Conn, name string) (*nftables.Table, error) {
	tables, err := c.ListTablesOfFamily(nftables.TableFamilyINet)
	if err != nil {
		return nil, fmt.Errorf("list nftables tables: %w; the kernel needs nf_tables", err)
	}
	for _, t := range tables {
		if t.Name == name {
			return t, nil
		}
	}
	return nil, nil
}

func chainsOf(c *nftables.Conn, table string) ([]*nftables.Chain, error) {
	all, err := c.ListChainsOfTableFamily(nftables.TableFamilyINet)
	if err != nil {
		return nil, fmt.Errorf("list nftables chains: %w", err)
	}
	var ours []*nftables.Chain
	for _, chain := range all {
		if chain.Table.Name == table {
			ours = append(ours, chain)
		}
	}
	return ours, nil
}

func tableIs(c *nftables.Conn, name string, want []ruledChain) (bool, error) {
	table, err := findTable(c, name)
	if err != nil || table == nil || table.Flags != 0 {
		// A flag could put it to sleep.
		return false, err
	}
	have, err := chainsOf(c, name)
	if err != nil || len(have) != len(want) {
		return false, err
	}
	byName := map[string]*nftables.Chain{}
	for _, chain := range have {
		byName[chain.Name] = chain
	}
	for _, w := range want {
		chain := byName[w.chain.Name]
		if chain == nil || !sameHook(chain, w.chain) {
			return false, nil
		}
		rules, err := c.GetRules(chain.Table, chain)
		if err != nil {
			return false, fmt.Errorf("list rules of chain %s: %w", chain.Name, err)
		}
		if len(rules) != len(w.rules) {
			return false, nil
		}
		for i := range rules {
			if !sameExpressions(rules[i].Exprs, w.rules[i]) {
				return false, nil
			}
		}
	}
	return true, nil
}

func sameHook(have, want *nftables.Chain) bool {
	return have.Type == want.Type && have.Hooknum != nil && *have.Hooknum == *want.Hooknum &&
		have.Priority != nil && *have.Priority == *want.Priority &&
		have.Policy != nil && *have.Policy == nftables.ChainPolicyAccept
}

// sameExpressions compares what stands in the kernel with what is wanted, by the bytes on the wire.
func sameExpressions(have, want []expr.Any) bool {
	if len(have) != len(want) {
		return false
	}
	for i := range have {
		x, err := expr.Marshal(unix.NFPROTO_INET, readBack(have[i]))
		if err != nil {
			return false
		}
		y, err := expr.Marshal(unix.NFPROTO_INET, want[i])
		if err != nil || !bytes.Equal(x, y) {
			return false
		}
	}
	return true
}

// readBack completes an expression that was read from the kernel. The library does not read the source register of an
// expression that sets something on the connection; without one, such an expression could only be that.
func readBack(e expr.Any) expr.Any {
	if ct, ok := e.(*expr.Ct); ok && ct.Register == 0 {
		return &expr.Ct{Key: ct.Key, Register: 1, SourceRegister: true}
	}
	return e
}
