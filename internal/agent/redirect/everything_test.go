package redirect

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"lateen.dev/lateen/internal/agent/netns"
	"lateen.dev/lateen/internal/agent/netns/netnstest"
)

// everything describes all rules, policy rules and routes of a namespace, in an order that does not depend on when
// they were made.
func everything(t *testing.T, ns *netns.Namespace) []string {
	t.Helper()
	var all []string
	nft(t, ns, func(c *nftables.Conn) error {
		tables, err := c.ListTables()
		if err != nil {
			return err
		}
		for _, table := range tables {
			all = append(all, fmt.Sprintf("table %d %s flags %d", table.Family, table.Name, table.Flags))
		}
		chains, err := c.ListChains()
		if err != nil {
			return err
		}
		for _, chain := range chains {
			name := fmt.Sprintf("chain %d %s %s", chain.Table.Family, chain.Table.Name, chain.Name)
			if chain.Hooknum != nil {
				name += fmt.Sprintf(" %s hook %d priority %d policy %d", chain.Type, *chain.Hooknum, *chain.Priority, *chain.Policy)
			}
			all = append(all, name)
			if chain.Table.Name == zoneTable {
				// Read by hand, like it is written.
				rules, err := zone().have()
				if err != nil {
					return err
				}
				all = append(all, fmt.Sprintf("%s rules %x", name, rules))
				continue
			}
			rules, err := c.GetRules(chain.Table, chain)
			if err != nil {
				return err
			}
			for i, r := range rules {
				line := fmt.Sprintf("%s rule %d", name, i)
				for _, e := range r.Exprs {
					b, err := expr.Marshal(byte(chain.Table.Family), e)
					if err != nil {
						return err
					}
					line += fmt.Sprintf(" %T%x", e, b)
				}
				all = append(all, line)
			}
		}
		return nil
	})
	netnstest.In(t, ns, func(h *netlink.Handle) error {
		for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
			rules, err := h.RuleList(family)
			if err != nil {
				return err
			}
			for _, r := range rules {
				mask := uint32(0)
				if r.Mask != nil {
					mask = *r.Mask
				}
				all = append(all, fmt.Sprintf("rule family %d %s mask %#x", r.Family, r.String(), mask))
			}
			routes, err := h.RouteListFiltered(family, &netlink.Route{Table: unix.RT_TABLE_UNSPEC}, netlink.RT_FILTER_TABLE)
			if err != nil {
				return err
			}
			for _, r := range routes {
				all = append(all, fmt.Sprintf("route family %d %s", family, r.String()))
			}
		}
		return nil
	})
	slices.Sort(all)
	return all
}
