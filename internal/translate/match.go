package translate

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"google.golang.org/protobuf/types/known/emptypb"
	securityapi "istio.io/api/security/v1beta1"

	"lateen.dev/lateen/internal/gen/security"
)

func operationMatch(op *securityapi.Operation) (*security.Match, []string) {
	bad := given(map[string][]string{
		"hosts": op.GetHosts(), "notHosts": op.GetNotHosts(), "methods": op.GetMethods(), "notMethods": op.GetNotMethods(),
		"paths": op.GetPaths(), "notPaths": op.GetNotPaths(),
	})
	m := &security.Match{}
	m.DestinationPorts, bad = ports("ports", op.GetPorts(), bad)
	m.NotDestinationPorts, bad = ports("notPorts", op.GetNotPorts(), bad)
	return m, bad
}

// sourceMatch reads one source. domains, if there are any, are those of its trust domains that it names beside principals: they must match as well.
func sourceMatch(s *securityapi.Source, namespace string) (m *security.Match, domains []*security.StringMatch, bad []string) {
	bad = given(map[string][]string{
		"requestPrincipals": s.GetRequestPrincipals(), "notRequestPrincipals": s.GetNotRequestPrincipals(),
		"remoteIpBlocks": s.GetRemoteIpBlocks(), "notRemoteIpBlocks": s.GetNotRemoteIpBlocks(),
	})
	m = &security.Match{
		Namespaces:         stringMatches(s.GetNamespaces()),
		NotNamespaces:      stringMatches(s.GetNotNamespaces()),
		Principals:         stringMatches(s.GetPrincipals()),
		NotPrincipals:      stringMatches(s.GetNotPrincipals()),
		ServiceAccounts:    accountMatches(s.GetServiceAccounts(), namespace),
		NotServiceAccounts: accountMatches(s.GetNotServiceAccounts(), namespace),
	}
	m.SourceIps, bad = blocks("ipBlocks", s.GetIpBlocks(), bad)
	m.NotSourceIps, bad = blocks("notIpBlocks", s.GetNotIpBlocks(), bad)
	wanted, b := trustDomains(m, "trustDomains", s.GetTrustDomains(), "notTrustDomains", s.GetNotTrustDomains())
	bad = append(bad, b...)
	if len(m.Principals) == 0 {
		m.Principals, wanted = wanted, nil
	}
	return m, wanted, bad
}

func conditionMatch(c *securityapi.Condition, namespace string) (*security.Match, []string) {
	m := &security.Match{}
	var bad []string
	switch key := c.GetKey(); key {
	case "source.namespace":
		m.Namespaces, m.NotNamespaces = stringMatches(c.Values), stringMatches(c.NotValues)
	case "source.principal":
		m.Principals, m.NotPrincipals = stringMatches(c.Values), stringMatches(c.NotValues)
	case "source.trustDomain":
		m.Principals, bad = trustDomains(m, key, c.Values, key, c.NotValues)
	case "source.serviceAccount":
		m.ServiceAccounts, m.NotServiceAccounts = accountMatches(c.Values, namespace), accountMatches(c.NotValues, namespace)
	case "source.ip":
		m.SourceIps, bad = blocks(key, c.Values, bad)
		m.NotSourceIps, bad = blocks(key, c.NotValues, bad)
	case "destination.ip":
		m.DestinationIps, bad = blocks(key, c.Values, bad)
		m.NotDestinationIps, bad = blocks(key, c.NotValues, bad)
	case "destination.port":
		m.DestinationPorts, bad = ports(key, c.Values, bad)
		m.NotDestinationPorts, bad = ports(key, c.NotValues, bad)
	default:
		bad = append(bad, key)
	}
	return m, bad
}

// given names the lists that are not empty.
func given(lists map[string][]string) []string {
	var names []string
	for name, values := range lists {
		if len(values) > 0 {
			names = append(names, name)
		}
	}
	return names
}

// stringMatches reads Istio's patterns: "*" for any value there is, "*x" for a suffix, "x*" for a prefix.
func stringMatches(values []string) []*security.StringMatch {
	var out []*security.StringMatch
	for _, v := range values {
		switch {
		case v == "*":
			out = append(out, &security.StringMatch{MatchType: &security.StringMatch_Presence{Presence: &emptypb.Empty{}}})
		case strings.HasPrefix(v, "*"):
			out = append(out, &security.StringMatch{MatchType: &security.StringMatch_Suffix{Suffix: v[1:]}})
		case strings.HasSuffix(v, "*"):
			out = append(out, &security.StringMatch{MatchType: &security.StringMatch_Prefix{Prefix: v[:len(v)-1]}})
		default:
			out = append(out, &security.StringMatch{MatchType: &security.StringMatch_Exact{Exact: v}})
		}
	}
	return out
}

// Patterns reads the values of a rule as its proxies do.
func Patterns(values []string) []*security.StringMatch { return stringMatches(values) }

// Matches says whether a proxy finds that a pattern matches a text.
func Matches(m *security.StringMatch, text string) bool {
	switch m := m.GetMatchType().(type) {
	case *security.StringMatch_Presence:
		return text != ""
	case *security.StringMatch_Prefix:
		return strings.HasPrefix(text, m.Prefix)
	case *security.StringMatch_Suffix:
		return strings.HasSuffix(text, m.Suffix)
	case *security.StringMatch_Exact:
		return text == m.Exact
	}
	return false
}

// accountMatches reads "name", which is in the policy's own namespace, and "namespace/name".
func accountMatches(values []string, namespace string) []*security.ServiceAccountMatch {
	var out []*security.ServiceAccountMatch
	for _, v := range values {
		ns, name, qualified := strings.Cut(v, "/")
		if !qualified {
			ns, name = namespace, v
		}
		out = append(out, &security.ServiceAccountMatch{Namespace: ns, ServiceAccount: name})
	}
	return out
}

// ports reads port numbers; one that is none is reported like an attribute that cannot be judged; the others stay.
func ports(field string, values []string, bad []string) ([]uint32, []string) {
	var out []uint32
	for _, v := range values {
		n, err := strconv.ParseUint(v, 10, 16)
		if err != nil {
			bad = append(bad, fmt.Sprintf("%s %.100q", field, v))
			continue
		}
		out = append(out, uint32(n))
	}
	return out, bad
}

// blocks reads addresses and CIDRs, with the same care as ports.
func blocks(field string, values []string, bad []string) ([]*security.Address, []string) {
	var out []*security.Address
	for _, v := range values {
		prefix, err := netip.ParsePrefix(v)
		if err != nil {
			addr, addrErr := netip.ParseAddr(v)
			if addrErr != nil || addr.Zone() != "" {
				bad = append(bad, fmt.Sprintf("%s %.100q", field, v))
				continue
			}
			prefix = netip.PrefixFrom(addr, addr.BitLen())
		}
		prefix = unmapped(prefix)
		out = append(out, &security.Address{Address: prefix.Addr().AsSlice(), Length: uint32(prefix.Bits())})
	}
	return out, bad
}

// unmapped writes a block of IPv4 addresses in IPv6 form as one of IPv4 addresses, which is what connections from there are matched by.
func unmapped(prefix netip.Prefix) netip.Prefix {
	const mapped = 96
	if !prefix.Addr().Is4In6() || prefix.Bits() < mapped {
		return prefix
	}
	return netip.PrefixFrom(prefix.Addr().Unmap(), prefix.Bits()-mapped)
}
