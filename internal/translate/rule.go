package translate

import (
	"slices"

	securityapi "istio.io/api/security/v1beta1"

	"lateen.dev/lateen/internal/gen/security"
)

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
