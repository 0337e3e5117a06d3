package redirect

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// forgetConnections empties the namespace's connection tracking if our table was its last user. The kernel stops
// watching then but keeps its entries, some for days. A pod that is captured again would have a new connection taken
// for a forgotten one with the same ports, and it would pass the rules untouched.
func forgetConnections() error {
	used, err := connectionTrackingUsed()
	if err != nil || used {
		return err
	}
	h, err := netlink.NewHandle(unix.NETLINK_NETFILTER)
	if err != nil {
		return fmt.Errorf("open conntrack netlink: %w", err)
	}
	defer h.Close()
	if err := h.ConntrackTableFlush(netlink.ConntrackTable); err != nil {
		return fmt.Errorf("forget tracked connections: %w; the kernel needs NF_CT_NETLINK", err)
	}
	return nil
}

// connectionTrackingUsed says whether anybody has rules in the calling thread's network namespace, which may need
// connection tracking; their entries are then up to date and theirs to keep.
func connectionTrackingUsed() (bool, error) {
	if there, err := anyTable(); err != nil || there {
		return there, err
	}
	for list := range legacyTables {
		if names, err := legacyTablesOf(list); err != nil || len(names) > 0 {
			return len(names) > 0, err
		}
	}
	return false, nil
}

// legacyTables are the kernel's lists of iptables' own tables, and whose addresses their rules see.
var legacyTables = map[string]uint8{"ip_tables_names": unix.AF_INET, "ip6_tables_names": unix.AF_INET6}

// legacyTablesOf reads such a list. A kernel without these tables has none.
func legacyTablesOf(list string) ([]string, error) {
	names, err := os.ReadFile("/proc/thread-self/net/" + list)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list iptables tables: %w", err)
	}
	return strings.Fields(string(names)), nil
}
