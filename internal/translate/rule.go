package translate

import (
	"slices"

	"google.golang.org/protobuf/proto"
	securityapi "istio.io/api/security/v1beta1"

	"lateen.dev/lateen/internal/gen/security"
)

// ruleSet translates the rules of one policy.
type ruleSet struct {
	action    security.Action
	namespace string
	rules     []*security.Rule
	// unsupported is what node proxies cannot judge.
	unsupported map[string]bool
	// room is how many bytes copies of clauses may still take.
	room int
}

// roomForCopies bounds what is sent of a policy beyond what its author wrote.
const roomForCopies = 64 << 10

// add translates one rule. The clauses of a rule are ANDed, the matches of a clause ORed. An ALLOW rule takes part only if all of it can
// be judged.
func (s *ruleSet) add(rule *securityapi.Rule) {
	whole := true
	miss := func(bad []string) {
		for _, b := range bad {
			s.unsupported[b], whole = true, false
		}
	}
	var before, after []*security.Clause
	if len(rule.GetTo()) > 0 {
		operations := &security.Clause{}
		for _, to := range rule.GetTo() {
			m, bad := operationMatch(to.GetOperation())
			operations.Matches = append(operations.Matches, m)
			miss(bad)
		}
		before = append(before, operations)
	}
	for _, when := range rule.GetWhen() {
		m, bad := conditionMatch(when, s.namespace)
		after = append(after, &security.Clause{Matches: []*security.Match{m}})
		miss(bad)
	}
	sources, bad := sourceClauses(rule.GetFrom(), s.namespace)
	miss(bad)
	if copies := (len(sources) - 1) * size(before, after); copies > s.room {
		miss([]string{"trustDomains beside principals in so many sources of a rule"})
		sources = joined(sources)
	} else {
		s.room -= max(copies, 0)
	}
	if s.action == security.Action_ALLOW && !whole {
		return
	}
	if len(sources) == 0 {
		sources = [][]*security.Clause{nil}
	}
	for _, from := range sources {
		s.rules = append(s.rules, &security.Rule{Clauses: slices.Concat(before, from, after)})
	}
}

// sourceClauses are the clauses that a rule's sources become. Sources that name trust domains beside principals need a second clause, since
// both are matched with one text and each list holds alternatives. As a clause is about all sources of its rule, each of the results is for
// a rule of its own: the first for the sources that need none, if there are any.
func sourceClauses(from []*securityapi.Rule_From, namespace string) (alternatives [][]*security.Clause, bad []string) {
	plain := &security.Clause{}
	seconds := map[string]*security.Clause{}
	for _, f := range from {
		m, domains, b := sourceMatch(f.GetSource(), namespace)
		bad = append(bad, b...)
		if len(domains) == 0 {
			plain.Matches = append(plain.Matches, m)
			continue
		}
		second := &security.Clause{Matches: []*security.Match{{Principals: domains}}}
		key := second.String()
		if first, known := seconds[key]; known {
			first.Matches = append(first.Matches, m)
			continue
		}
		first := &security.Clause{Matches: []*security.Match{m}}
		seconds[key] = first
		alternatives = append(alternatives, []*security.Clause{first, second})
	}
	if len(plain.Matches) > 0 {
		alternatives = slices.Insert(alternatives, 0, []*security.Clause{plain})
	}
	return alternatives, bad
}

// joined is one alternative for all, without the second clauses: it matches more.
func joined(alternatives [][]*security.Clause) [][]*security.Clause {
	all := &security.Clause{}
	for _, a := range alternatives {
		all.Matches = append(all.Matches, a[0].Matches...)
	}
	return [][]*security.Clause{{all}}
}

func size(clauses ...[]*security.Clause) (bytes int) {
	for _, c := range slices.Concat(clauses...) {
		bytes += proto.Size(c)
	}
	return bytes
}

// CanMatch says whether a rule can ever match: proxies skip a match without fields, and a clause of nothing else matches nothing.
func CanMatch(r *security.Rule) bool {
	return !slices.ContainsFunc(r.Clauses, func(c *security.Clause) bool {
		return !slices.ContainsFunc(c.Matches, func(m *security.Match) bool { return !isEmpty(m) })
	})
}

// Names says whether a match names anything. Proxies skip one that does not.
func Names(m *security.Match) bool { return !isEmpty(m) }

func isEmpty(m *security.Match) bool {
	return len(m.Namespaces)+len(m.NotNamespaces)+len(m.ServiceAccounts)+len(m.NotServiceAccounts)+len(m.Principals)+len(m.NotPrincipals)+
		len(m.SourceIps)+len(m.NotSourceIps)+len(m.DestinationIps)+len(m.NotDestinationIps)+
		len(m.DestinationPorts)+len(m.NotDestinationPorts) == 0
}
