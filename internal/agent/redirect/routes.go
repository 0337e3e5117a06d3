package redirect

import (
	"bufio"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// policy is one address family's way for answers to the proxy: a rule that leads ReturnMark to a table in which every
// address is local.
type policy struct {
	family int
	all    *net.IPNet
}

var (
	policy4 = policy{family: netlink.FAMILY_V4, all: &net.IPNet{IP: net.IPv4zero.To4(), Mask: net.CIDRMask(0, 32)}}
	policy6 = policy{family: netlink.FAMILY_V6, all: &net.IPNet{IP: net.IPv6zero, Mask: net.CIDRMask(0, 128)}}
)

func (p policy) rule() *netlink.Rule {
	mask := uint32(MarkMask)
	r := netlink.NewRule()
	r.Family, r.Mark, r.Mask, r.Table, r.Priority = p.family, ReturnMark, &mask, RouteTable, RulePriority
	return r
}

func (p policy) route(loopback netlink.Link) *netlink.Route {
	return &netlink.Route{
		Family: p.family, LinkIndex: loopback.Attrs().Index, Dst: p.all,
		Table: RouteTable, Type: unix.RTN_LOCAL, Scope: netlink.SCOPE_HOST,
	}
}

// routing is netlink's routing socket in the calling thread's network namespace.
type routing struct {
	handle   *netlink.Handle
	loopback netlink.Link
}

func openRouting() (*routing, error) {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open route netlink: %w", err)
	}
	lo, err := h.LinkByName("lo")
	if err != nil {
		h.Close()
		return nil, fmt.Errorf("find the loopback interface: %w", err)
	}
	return &routing{handle: h, loopback: lo}, nil
}

func addRoutes() (changed bool, err error) {
	r, err := openRouting()
	if err != nil {
		return false, err
	}
	defer r.handle.Close()
	if r.loopback.Attrs().Flags&net.FlagUp == 0 {
		return false, errors.New("the pod's loopback interface is down; the proxy reaches the pod over it, so the network plugin must set it up first")
	}
	policies := []policy{policy4}
	v6, err := hasIPv6()
	if err != nil {
		return false, err
	}
	if v6 {
		policies = append(policies, policy6)
	}
	for _, p := range policies {
		added, err := r.add(p)
		changed = changed || added
		if err != nil {
			return changed, err
		}
	}
	return changed, nil
}

func deleteRoutes() (changed bool, err error) {
	r, err := openRouting()
	if err != nil {
		return false, err
	}
	defer r.handle.Close()
	var errs []error
	for _, p := range []policy{policy4, policy6} {
		removed, err := r.remove(p)
		changed = changed || removed
		errs = append(errs, err)
	}
	return changed, errors.Join(errs...)
}

func routesLeft() (bool, error) {
	r, err := openRouting()
	if err != nil {
		return false, err
	}
	defer r.handle.Close()
	for _, p := range []policy{policy4, policy6} {
		rule, err := r.ruleExists(p)
		if err != nil || rule {
			return rule, err
		}
		route, err := r.routeExists(p)
		if err != nil || route {
			return route, err
		}
	}
	return false, nil
}

// hasIPv6 says whether the pod can be reached over IPv6 at all: link-local addresses do not count. It reads no further
// than it must: how many addresses a pod has is the pod's choice.
func hasIPv6() (bool, error) {
	f, err := os.Open("/proc/thread-self/net/if_inet6")
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil // a kernel without IPv6
	}
	if err != nil {
		return false, fmt.Errorf("list the pod's addresses: %w", err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		digits, _, _ := strings.Cut(lines.Text(), " ")
		b, err := hex.DecodeString(digits)
		if err != nil {
			return false, fmt.Errorf("list the pod's addresses: %w", err)
		}
		if ip, ok := netip.AddrFromSlice(b); ok && !ip.IsLoopback() && !ip.IsLinkLocalUnicast() {
			return true, nil
		}
	}
	if err := lines.Err(); err != nil {
		return false, fmt.Errorf("list the pod's addresses: %w", err)
	}
	return false, nil
}

func (r *routing) add(p policy) (changed bool, err error) {
	there, err := r.routeExists(p)
	if err != nil {
		return false, err
	}
	if !there {
		if err := r.handle.RouteAdd(p.route(r.loopback)); err != nil && !errors.Is(err, unix.EEXIST) {
			return false, fmt.Errorf("add the local route in table %d: %w", RouteTable, err)
		}
		changed = true
	}
	there, err = r.ruleExists(p)
	if err != nil {
		return changed, err
	}
	if !there {
		if err := r.handle.RuleAdd(p.rule()); err != nil && !errors.Is(err, unix.EEXIST) {
			return changed, fmt.Errorf("add the policy rule for mark %#x: %w; the kernel needs IP_MULTIPLE_TABLES", ReturnMark, err)
		}
		changed = true
	}
	return changed, nil
}

func (r *routing) remove(p policy) (changed bool, err error) {
	there, err := r.ruleExists(p)
	if err != nil {
		return false, err
	}
	if there {
		if err := r.handle.RuleDel(p.rule()); err != nil && !errors.Is(err, unix.ENOENT) {
			return false, fmt.Errorf("delete the policy rule for mark %#x: %w", ReturnMark, err)
		}
		changed = true
	}
	there, err = r.routeExists(p)
	if err != nil {
		return changed, err
	}
	if there {
		if err := r.handle.RouteDel(p.route(r.loopback)); err != nil && !errors.Is(err, unix.ESRCH) {
			return changed, fmt.Errorf("delete the local route in table %d: %w", RouteTable, err)
		}
		changed = true
	}
	return changed, nil
}

func (r *routing) ruleExists(p policy) (bool, error) {
	rules, err := r.handle.RuleList(p.family)
	if err != nil {
		if unsupportedFamily(err) {
			return false, nil
		}
		return false, fmt.Errorf("list policy rules: %w", err)
	}
	for _, have := range rules {
		if have.Family == p.family && have.Priority == RulePriority && have.Table == RouteTable && have.Mark == ReturnMark &&
			have.Mask != nil && *have.Mask == MarkMask {
			return true, nil
		}
	}
	return false, nil
}

func (r *routing) routeExists(p policy) (bool, error) {
	routes, err := r.handle.RouteListFiltered(p.family, &netlink.Route{Table: RouteTable, LinkIndex: r.loopback.Attrs().Index},
		netlink.RT_FILTER_TABLE|netlink.RT_FILTER_OIF)
	if err != nil {
		if unsupportedFamily(err) {
			return false, nil
		}
		return false, fmt.Errorf("list routes of table %d: %w", RouteTable, err)
	}
	for _, have := range routes {
		if have.Family == p.family && have.Type == unix.RTN_LOCAL && (have.Dst == nil || isAll(have.Dst)) {
			return true, nil
		}
	}
	return false, nil
}

func isAll(n *net.IPNet) bool {
	ones, _ := n.Mask.Size()
	return ones == 0
}

// unsupportedFamily: a kernel without IPv6 has no IPv6 rules or routes to list.
func unsupportedFamily(err error) bool {
	return errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EOPNOTSUPP)
}
