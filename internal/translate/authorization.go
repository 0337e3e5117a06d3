package translate

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/types/known/emptypb"
	securityapi "istio.io/api/security/v1beta1"
	securityv1 "istio.io/client-go/pkg/apis/security/v1"

	"lateen.dev/lateen/internal/gen/security"
	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/model/wellknown"
)

// Authorization translates an AuthorizationPolicy for node proxies, which decide per connection. It returns nil for a policy that
// is not theirs. Attributes that only a proxy that reads requests could judge are treated exactly as Istio treats them, so that a policy
// means the same here and there: an ALLOW rule that names one is dropped and allows nothing. A DENY rule is kept without them; a source,
// operation or condition of which nothing is left matches nothing, and with it nor does a rule that has no alternative to it.
func Authorization(mesh Mesh, policy *securityv1.AuthorizationPolicy) (*security.Authorization, []model.Condition) {
	spec := withAliases(mesh, &policy.Spec)
	if targeted(spec) {
		return nil, []model.Condition{rejected("WaypointRequired", "a policy with targetRefs is for waypoints, which read requests; node proxies do not enforce it. Use a selector to have them do so")}
	}
	out := &security.Authorization{Name: policy.Name, Namespace: policy.Namespace, Scope: scope(mesh, policy)}
	switch spec.Action {
	case securityapi.AuthorizationPolicy_ALLOW:
		out.Action = security.Action_ALLOW
	case securityapi.AuthorizationPolicy_DENY:
		out.Action = security.Action_DENY
	default:
		return nil, []model.Condition{rejected("UnsupportedValue", fmt.Sprintf("node proxies do not support action %s; the policy is not enforced", spec.Action))}
	}
	dryRun, unclear := dryRun(policy)
	out.DryRun = dryRun
	unsupported := map[string]bool{}
	for _, rule := range spec.Rules {
		if r := translateRule(out.Action, policy.Namespace, rule, unsupported); r != nil {
			out.Rules = append(out.Rules, r)
		}
	}
	if len(unsupported) == 0 {
		if unclear != "" {
			return out, []model.Condition{partly(unclear)}
		}
		return out, []model.Condition{accepted()}
	}
	effect := "rules of this ALLOW policy that use them are dropped, so it allows less than written"
	switch {
	case out.Action != security.Action_DENY:
	case !slices.ContainsFunc(out.Rules, canMatch):
		effect = "without them nothing is left that this DENY policy could match, so it denies nothing"
	default:
		effect = "rules of this DENY policy are enforced without them, so those that keep other attributes deny more than written and those that keep none deny nothing"
	}
	conditions := []model.Condition{partly(fmt.Sprintf("node proxies cannot judge %s; %s. A waypoint is needed to enforce them",
		strings.Join(slices.Sorted(maps.Keys(unsupported)), ", "), effect))}
	if unclear != "" {
		conditions[0].Message += ". " + unclear
	}
	return out, conditions
}

// dryRun says whether a policy only reports. A value that is neither true nor false enforces: a policy must not vanish
// because of a word in an annotation.
func dryRun(policy *securityv1.AuthorizationPolicy) (bool, string) {
	v := policy.Annotations[wellknown.DryRun]
	if v == "" {
		return false, ""
	}
	parsed, err := strconv.ParseBool(v)
	if err != nil {
		return false, fmt.Sprintf("annotation %s is %.100q, so the policy is enforced; use true or false", wellknown.DryRun, v)
	}
	return parsed, ""
}

func targeted(spec *securityapi.AuthorizationPolicy) bool {
	return spec.TargetRef != nil || len(spec.TargetRefs) > 0 //nolint:staticcheck // targetRef is still accepted
}

// AttachedByName says whether workloads must name the policy, which is so when a selector chooses them.
func AttachedByName(policy *securityv1.AuthorizationPolicy) bool {
	return !targeted(&policy.Spec) && policy.Spec.Selector != nil
}

// scope follows Istio: a selector binds to workloads; without one the root namespace means the mesh.
func scope(mesh Mesh, policy *securityv1.AuthorizationPolicy) security.Scope {
	switch {
	case policy.Spec.Selector != nil:
		return security.Scope_WORKLOAD_SELECTOR
	case policy.Namespace == mesh.RootNamespace:
		return security.Scope_GLOBAL
	}
	return security.Scope_NAMESPACE
}

// translateRule returns nil for a rule that must not take part. Its clauses are ANDed, the matches of a clause ORed.
func translateRule(action security.Action, namespace string, rule *securityapi.Rule, unsupported map[string]bool) *security.Rule {
	out := &security.Rule{}
	whole := true // every attribute of the rule was understood
	add := func(matches []*security.Match, bad []string) {
		for _, b := range bad {
			unsupported[b] = true
			whole = false
		}
		if len(matches) > 0 {
			out.Clauses = append(out.Clauses, &security.Clause{Matches: matches})
		}
	}
	var matches []*security.Match
	var bad []string
	for _, to := range rule.GetTo() {
		m, b := operationMatch(to.GetOperation())
		matches, bad = append(matches, m), append(bad, b...)
	}
	add(matches, bad)
	matches, bad = nil, nil
	for _, from := range rule.GetFrom() {
		m, b := sourceMatch(from.GetSource(), namespace)
		matches, bad = append(matches, m), append(bad, b...)
	}
	add(matches, bad)
	for _, when := range rule.GetWhen() {
		m, b := conditionMatch(when, namespace)
		add([]*security.Match{m}, b)
	}
	if action == security.Action_ALLOW && !whole {
		return nil
	}
	return out
}

// canMatch says whether a rule can ever match: proxies skip a match without fields, and a clause of nothing else matches nothing.
func canMatch(r *security.Rule) bool {
	return !slices.ContainsFunc(r.Clauses, func(c *security.Clause) bool {
		return !slices.ContainsFunc(c.Matches, func(m *security.Match) bool { return !isEmpty(m) })
	})
}

func isEmpty(m *security.Match) bool {
	return len(m.Namespaces)+len(m.NotNamespaces)+len(m.ServiceAccounts)+len(m.NotServiceAccounts)+len(m.Principals)+len(m.NotPrincipals)+
		len(m.SourceIps)+len(m.NotSourceIps)+len(m.DestinationIps)+len(m.NotDestinationIps)+
		len(m.DestinationPorts)+len(m.NotDestinationPorts) == 0
}

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

func sourceMatch(s *securityapi.Source, namespace string) (*security.Match, []string) {
	bad := given(map[string][]string{
		"requestPrincipals": s.GetRequestPrincipals(), "notRequestPrincipals": s.GetNotRequestPrincipals(),
		"remoteIpBlocks": s.GetRemoteIpBlocks(), "notRemoteIpBlocks": s.GetNotRemoteIpBlocks(),
	})
	m := &security.Match{
		Namespaces:         stringMatches(s.GetNamespaces()),
		NotNamespaces:      stringMatches(s.GetNotNamespaces()),
		Principals:         stringMatches(s.GetPrincipals()),
		NotPrincipals:      stringMatches(s.GetNotPrincipals()),
		ServiceAccounts:    accountMatches(s.GetServiceAccounts(), namespace),
		NotServiceAccounts: accountMatches(s.GetNotServiceAccounts(), namespace),
	}
	m.SourceIps, bad = blocks("ipBlocks", s.GetIpBlocks(), bad)
	m.NotSourceIps, bad = blocks("notIpBlocks", s.GetNotIpBlocks(), bad)
	return m, bad
}

func conditionMatch(c *securityapi.Condition, namespace string) (*security.Match, []string) {
	m := &security.Match{}
	var bad []string
	switch key := c.GetKey(); key {
	case "source.namespace":
		m.Namespaces, m.NotNamespaces = stringMatches(c.Values), stringMatches(c.NotValues)
	case "source.principal":
		m.Principals, m.NotPrincipals = stringMatches(c.Values), stringMatches(c.NotValues)
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
		out = append(out, &security.Address{Address: prefix.Addr().AsSlice(), Length: uint32(prefix.Bits())})
	}
	return out, bad
}
