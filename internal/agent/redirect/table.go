package redirect

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
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
	same, err := tableIs(c, ours, want, 0)
	if err != nil || same {
		return false, err
	}
	there, err := findTable(c, ours)
	if err != nil {
		return false, err
	}
	if there != nil {
		// Adding before deleting makes the deletion succeed also if it has gone meanwhile. Where there is none, nothing is
		// deleted: the kernel takes milliseconds to let go of what is, and a pod is waiting to be born.
		c.AddTable(ours)
		c.DelTable(ours)
	}
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
		needs := "nf_tables with nat and redirect for inet (Linux 5.2)"
		if ours.Family == nftables.TableFamilyBridge {
			needs = "nf_tables for bridges (NF_TABLES_BRIDGE)"
		}
		return false, fmt.Errorf("write table %s: %w; the kernel needs %s", ours.Name, err, needs)
	}
	return true, nil
}

// deleteTable removes a table, if it is there.
func deleteTable(ours *nftables.Table) (changed bool, err error) {
	c, closer, err := connect()
	if err != nil {
		return false, err
	}
	defer closer()
	table, err := findTable(c, ours)
	if err != nil || table == nil {
		return false, err
	}
	c.DelTable(ours)
	if err := c.Flush(); err != nil && !errors.Is(err, unix.ENOENT) {
		return false, fmt.Errorf("delete table %s: %w", ours.Name, err)
	}
	return true, nil
}

func observeTable() (Mode, error) {
	c, closer, err := connect()
	if err != nil {
		return Absent, err
	}
	defer closer()
	table, err := findTable(c, ourTable())
	if err != nil || table == nil {
		return Absent, err
	}
	for _, name := range capturing {
		rules, err := rulesIn(table, name)
		if err != nil {
			return Absent, err
		}
		if rules > 0 {
			return Capturing, nil
		}
	}
	return Draining, nil
}

// findTable returns the table of that family and name as it stands, or nil. Others are not listed: how many a pod has is
// the pod's choice.
func findTable(c *nftables.Conn, ours *nftables.Table) (*nftables.Table, error) {
	t, err := c.ListTableOfFamily(ours.Name, ours.Family)
	if errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look for table %s: %w; the kernel needs nf_tables", ours.Name, err)
	}
	return t, nil
}

// holdsNothingElse says whether a table has as many chains and sets as it should.
func holdsNothingElse(table *nftables.Table, chains, sets int) bool {
	// The library reads the number in the wrong order.
	use := binary.BigEndian.Uint32(binaryutil.NativeEndian.PutUint32(table.Use))
	return int(use) == chains+sets
}

// tableIs says whether a table is what is wanted, with so many sets.
func tableIs(c *nftables.Conn, ours *nftables.Table, want []ruledChain, sets int) (bool, error) {
	table, err := findTable(c, ours)
	if err != nil || table == nil || table.Flags != 0 || !holdsNothingElse(table, len(want), sets) {
		// A flag could put it to sleep.
		return false, err
	}
	for _, w := range want {
		chain, err := c.ListChain(ours, w.chain.Name)
		if err != nil || !sameHook(chain, w.chain) {
			return false, nil
		}
		if n, err := rulesIn(ours, chain.Name); err != nil || n != len(w.rules) {
			return false, err
		}
		rules, err := c.GetRules(ours, chain)
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
	// The library leaves these out of what it reads. What they are compared with is in the next expression.
	want = slices.DeleteFunc(slices.Clone(want), func(e expr.Any) bool { _, socket := e.(*expr.Socket); return socket })
	if len(have) != len(want) {
		return false
	}
	for i := range have {
		x, err := expr.Marshal(unix.NFPROTO_INET, readBack(have[i]))
		if err != nil {
			return false
		}
		y, err := expr.Marshal(unix.NFPROTO_INET, readBack(want[i]))
		if err != nil || !bytes.Equal(x, y) {
			return false
		}
	}
	return true
}

// readBack completes an expression that was read from the kernel. The library does not read the source register of an
// expression that sets something on the connection; without one, such an expression could only be that.
func readBack(e expr.Any) expr.Any {
	switch e := e.(type) {
	case *expr.Ct:
		if e.Register == 0 {
			return &expr.Ct{Key: e.Key, Register: 1, SourceRegister: true}
		}
	case *expr.Counter:
		return &expr.Counter{} // the count itself is not compared
	case *expr.Lookup:
		named := *e
		named.SetID = 0 // it holds within a transaction only
		return &named
	case *expr.Dynset:
		named := *e
		named.SetID = 0
		return &named
	}
	return e
}

// tableLeft says whether a table is there.
func tableLeft(ours *nftables.Table) (bool, error) {
	c, closer, err := connect()
	if err != nil {
		return false, err
	}
	defer closer()
	table, err := findTable(c, ours)
	return table != nil, err
}
