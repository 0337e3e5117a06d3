package redirect

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Settings are what differs between the rules of one pod and those of another. The zero value captures every TCP
// connection and every question to a resolver.
type Settings struct {
	// BypassDNS leaves the pod's questions to its resolver alone.
	BypassDNS bool
	// BypassInbound leaves all that others dial to the pod alone, but for tunnels.
	BypassInbound bool
	// InboundPorts are ports of the pod whose connections reach it directly.
	InboundPorts []uint16
	// OutboundPorts are destination ports that the pod reaches directly.
	OutboundPorts []uint16
	// OutboundRanges are destinations that the pod reaches directly.
	OutboundRanges []netip.Prefix
	// OnlyRanges, unless nil, are the only destinations whose connections are captured; an empty list captures none.
	OnlyRanges []netip.Prefix
	// VirtualInterfaces are interfaces behind which something runs that is the pod's own, such as a virtual machine:
	// what arrives there is outbound traffic of the pod.
	VirtualInterfaces []string
	// Own is where the pod's own processes are. Without it, whoever may mark packets in the pod passes by the proxy.
	Own Cgroup
}

// MaxEntries bounds each list of Settings: every entry is a rule that a new connection passes.
const MaxEntries = 64

// Quoted is a user's text in quotation marks. A long one is cut: what an error says is kept, logged and told.
func Quoted(text string) string {
	const longest = 64
	if len(text) <= longest {
		return strconv.Quote(text)
	}
	return fmt.Sprintf("%q and %d bytes more", text[:longest], len(text)-longest)
}

// Exceptions says in words what passes by the proxy, in a stable order; empty if nothing does.
func (s Settings) Exceptions() []string {
	var all []string
	if s.BypassDNS {
		all = append(all, "DNS")
	}
	if s.BypassInbound {
		all = append(all, "inbound: all but tunnels")
	} else if len(s.InboundPorts) > 0 {
		all = append(all, "inbound ports "+join(s.InboundPorts))
	}
	if len(s.OutboundPorts) > 0 {
		all = append(all, "outbound ports "+join(s.OutboundPorts))
	}
	if len(s.OutboundRanges) > 0 {
		all = append(all, "outbound to "+join(s.OutboundRanges))
	}
	switch {
	case s.OnlyRanges == nil:
	case len(s.OnlyRanges) == 0:
		all = append(all, "outbound: all")
	default:
		all = append(all, "outbound to all but "+join(s.OnlyRanges))
	}
	return all
}

// ExceptsLike says whether the same passes by the proxy, whoever's the pod is.
func (s Settings) ExceptsLike(o Settings) bool {
	s.Own = o.Own
	return s.Equal(o)
}

// Equal compares two settings.
func (s Settings) Equal(o Settings) bool {
	return s.BypassDNS == o.BypassDNS && s.BypassInbound == o.BypassInbound && slices.Equal(s.InboundPorts, o.InboundPorts) &&
		slices.Equal(s.OutboundPorts, o.OutboundPorts) && slices.Equal(s.OutboundRanges, o.OutboundRanges) &&
		(s.OnlyRanges == nil) == (o.OnlyRanges == nil) && slices.Equal(s.OnlyRanges, o.OnlyRanges) &&
		slices.Equal(s.VirtualInterfaces, o.VirtualInterfaces) && s.Own == o.Own
}

func join[T any](list []T) string {
	var texts []string
	for _, e := range list {
		texts = append(texts, fmt.Sprint(e))
	}
	return strings.Join(texts, ", ")
}

// ParsePorts reads a comma-separated list of TCP ports, sorted and without repetitions. One bad entry refuses the list.
func ParsePorts(list string) ([]uint16, error) {
	return parse(list, func(text string) (uint16, error) {
		n, err := strconv.ParseUint(text, 10, 16)
		if err != nil || n == 0 {
			return 0, fmt.Errorf("%s is no port; write numbers from 1 to 65535, separated by commas", Quoted(text))
		}
		return uint16(n), nil
	}, func(a, b uint16) int { return int(a) - int(b) })
}

// ParseRanges reads a comma-separated list of address ranges, sorted and without repetitions. A lone address is a range
// of one. One bad entry refuses the list.
func ParseRanges(list string) ([]netip.Prefix, error) {
	return parse(list, func(text string) (netip.Prefix, error) {
		p, err := netip.ParsePrefix(text)
		if a, addrErr := netip.ParseAddr(text); addrErr == nil && a.Zone() == "" {
			p, err = netip.PrefixFrom(a, a.BitLen()), nil
		}
		switch {
		case err != nil:
			return p, fmt.Errorf("%s is no address range; write ranges such as 10.0.0.0/8 or fd00::/8, separated by commas", Quoted(text))
		case p.Addr().Is4In6():
			return p, fmt.Errorf("%s is an IPv4 range in IPv6's clothes; write it as IPv4", Quoted(text))
		case p != p.Masked():
			return p, fmt.Errorf("%s has bits set behind its length; write %s", Quoted(text), p.Masked())
		}
		return p, nil
	}, netip.Prefix.Compare)
}

// ParseInterfaces reads a comma-separated list of interface names in the order given.
func ParseInterfaces(list string) ([]string, error) {
	return parse(list, func(text string) (string, error) {
		if len(text) >= unix.IFNAMSIZ || text == "." || text == ".." || text == "lo" || strings.ContainsFunc(text, func(r rune) bool {
			return r <= ' ' || r == '/' || r == ':' || r > '~'
		}) {
			return "", fmt.Errorf("%s is no name of a virtual interface; write names of up to %d letters, separated by commas", Quoted(text), unix.IFNAMSIZ-1)
		}
		return text, nil
	}, strings.Compare)
}

func parse[T comparable](list string, one func(string) (T, error), compare func(a, b T) int) ([]T, error) {
	var all []T
	if strings.TrimSpace(list) == "" {
		return all, nil
	}
	// An entry may be there twice, but not without end.
	if n := strings.Count(list, ",") + 1; n > 4*MaxEntries {
		return nil, tooMany(n)
	}
	for text := range strings.SplitSeq(list, ",") {
		text = strings.TrimSpace(text)
		if text == "" {
			return nil, errors.New("there is nothing between two commas, or before the first or after the last; leave the comma out")
		}
		e, err := one(text)
		if err != nil {
			return nil, err
		}
		all = append(all, e)
	}
	slices.SortFunc(all, compare)
	all = slices.Compact(all)
	if len(all) > MaxEntries {
		return nil, tooMany(len(all))
	}
	return all, nil
}

func tooMany(n int) error {
	return fmt.Errorf("%d entries are too many; up to %d are taken, so use ranges", n, MaxEntries)
}
