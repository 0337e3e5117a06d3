package analyse

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"lateen.dev/lateen/internal/gen/security"
	"lateen.dev/lateen/internal/translate"
)

// presence says how much there is of an identity. A higher one includes the lower ones.
type presence int

const (
	absent    presence = iota
	planned            // the account exists, and no pod runs as it now
	outsider           // pods run as it that cannot be enrolled: they connect without an identity
	plaintext          // pods run as it that are not enrolled: they connect without an identity
	present            // peers with it can connect
)

// identity is a service account of the mesh.
type identity struct {
	namespace, account string
	is                 presence
	// outside says why its pods cannot be enrolled, if it is an outsider.
	outside string
}

// identities indexes the identities of the mesh's workloads by account, by prefix and by suffix.
type identities struct {
	// domains are the mesh's trust domain and its aliases: policies name a peer under each of them.
	domains    []string
	accounts   map[string]map[string]*identity // by namespace and name
	namespaces map[string]*corev1.Namespace
	forward    []named // by principal
	backward   []named // by the principal's letters from the last to the first
	looked     *int
}

type named struct {
	text string
	of   *identity
}

func newIdentities(mesh translate.Mesh, namespaces map[string]*corev1.Namespace, looked *int) *identities {
	return &identities{domains: append([]string{mesh.TrustDomain}, mesh.TrustDomainAliases...), namespaces: namespaces, accounts: map[string]map[string]*identity{}, looked: looked}
}

// exists notes a service account, whether anything runs as it or not.
func (s *identities) exists(namespace, account string) *identity {
	in := s.accounts[namespace]
	if in == nil {
		in = map[string]*identity{}
		s.accounts[namespace] = in
	}
	if in[account] == nil {
		in[account] = &identity{namespace: namespace, account: account, is: planned}
	}
	return in[account]
}

// add notes a workload that runs as an account; meshed says that it connects with its identity, and outside why it cannot be enrolled.
func (s *identities) add(namespace, account string, meshed bool, outside string) {
	is := plaintext
	switch {
	case meshed:
		is = present
	case outside != "":
		is = outsider
	}
	if i := s.exists(namespace, account); i.is < is {
		i.is, i.outside = is, outside
	}
}

// settle sorts the identities once all are there.
func (s *identities) settle() {
	for _, namespace := range slices.Sorted(maps.Keys(s.accounts)) {
		for _, account := range slices.Sorted(maps.Keys(s.accounts[namespace])) {
			of := s.accounts[namespace][account]
			for _, domain := range s.domains {
				principal := principalOf(domain, namespace, account)
				s.forward = append(s.forward, named{principal, of})
				s.backward = append(s.backward, named{reversed(principal), of})
			}
		}
	}
	for _, list := range [][]named{s.forward, s.backward} {
		slices.SortFunc(list, func(a, b named) int { return strings.Compare(a.text, b.text) })
	}
}

// principal is an identity as policies name it, under the mesh's own trust domain.
func (s *identities) principal(namespace, account string) string {
	return principalOf(s.domains[0], namespace, account)
}

func principalOf(domain, namespace, account string) string {
	return domain + "/ns/" + namespace + "/sa/" + account
}

func reversed(s string) string {
	b := []byte(s)
	slices.Reverse(b)
	return string(b)
}

// within calls visit for the identities whose text begins with a prefix, until it returns false.
func (s *identities) within(list []named, prefix string, visit func(*identity) bool) {
	i, _ := slices.BinarySearchFunc(list, prefix, func(n named, p string) int { return strings.Compare(n.text, p) })
	for ; i < len(list) && strings.HasPrefix(list[i].text, prefix); i++ {
		*s.looked++
		if !visit(list[i].of) {
			return
		}
	}
}

// principals calls visit for the identities that a pattern of principals matches, until it returns false.
func (s *identities) principals(m *security.StringMatch, visit func(*identity) bool) {
	switch m := m.GetMatchType().(type) {
	case *security.StringMatch_Presence:
		s.within(s.forward, "", visit)
	case *security.StringMatch_Prefix:
		s.within(s.forward, m.Prefix, visit)
	case *security.StringMatch_Suffix:
		s.within(s.backward, reversed(m.Suffix), visit)
	case *security.StringMatch_Exact:
		i, found := slices.BinarySearchFunc(s.forward, m.Exact, func(n named, p string) int { return strings.Compare(n.text, p) })
		*s.looked++
		if found {
			visit(s.forward[i].of)
		}
	}
}

// inNamespaces does so for a pattern of namespaces.
func (s *identities) inNamespaces(m *security.StringMatch, visit func(*identity) bool) {
	if exact := m.GetExact(); exact != "" {
		s.inNamespace(exact, visit)
		return
	}
	for namespace := range s.accounts {
		*s.looked++
		if translate.Matches(m, namespace) && !s.inNamespace(namespace, visit) {
			return
		}
	}
}

// inNamespace does so for the identities of one namespace. It returns false if visit did.
func (s *identities) inNamespace(namespace string, visit func(*identity) bool) bool {
	for _, i := range s.accounts[namespace] {
		*s.looked++
		if !visit(i) {
			return false
		}
	}
	return true
}

// standing says how present the peers are that fulfil a match: present if there are any; planned if pods of them may still come, with the names
// of what they would be pods of; else absent. Exceptions count only if they except everything that the match names: otherwise another peer
// fulfils it. A match that names no identity, or "*", is fulfilled by any peer, unless it is empty, since proxies skip empty matches.
func (s *identities) standing(m *security.Match) (presence, []string) {
	if contradicts(m) {
		return absent, nil
	}
	if (len(m.Principals) == 0 || anybody(m.Principals)) && (len(m.Namespaces) == 0 || anybody(m.Namespaces)) && len(m.ServiceAccounts) == 0 {
		if translate.Names(m) {
			return present, nil
		}
		return absent, nil
	}
	best, soon := absent, map[string]bool{}
	byNamespace := len(m.Principals) == 0 && len(m.ServiceAccounts) == 0
	visit := func(i *identity) bool {
		if s.fits(m, i) {
			best = max(best, i.is)
			if i.is == planned && byNamespace {
				soon["namespace "+i.namespace] = true
			} else if i.is == planned {
				soon["service account "+i.namespace+"/"+i.account] = true
			}
		}
		return best != present
	}
	switch {
	case len(m.ServiceAccounts) > 0:
		for _, a := range m.ServiceAccounts {
			if i := s.accounts[a.Namespace][a.ServiceAccount]; i != nil && best != present {
				visit(i)
			}
		}
	case len(m.Principals) > 0 && !anybody(m.Principals):
		for _, p := range m.Principals {
			if best != present {
				s.principals(p, visit)
			}
		}
	default:
		for _, n := range m.Namespaces {
			if best != present {
				s.inNamespaces(n, visit)
			}
			// A namespace can exist without an account that is known.
			if name := n.GetExact(); byNamespace && s.namespaces[name] != nil && len(s.accounts[name]) == 0 {
				best = max(best, planned)
				soon["namespace "+name] = true
			}
		}
	}
	switch best {
	case present:
		return present, nil
	case planned:
		return planned, slices.Sorted(maps.Keys(soon))
	}
	return absent, nil // pods without an identity fulfil nothing
}

// anybody says whether "*" is among patterns.
func anybody(list []*security.StringMatch) bool {
	return slices.ContainsFunc(list, func(p *security.StringMatch) bool { return p.GetPresence() != nil })
}

// fits says whether an identity is one that each list of a match names.
func (s *identities) fits(m *security.Match, i *identity) bool {
	any := func(list []*security.StringMatch, text string) bool {
		return len(list) == 0 || slices.ContainsFunc(list, func(p *security.StringMatch) bool { return translate.Matches(p, text) })
	}
	return slices.ContainsFunc(s.domains, func(domain string) bool { return any(m.Principals, principalOf(domain, i.namespace, i.account)) }) && any(m.Namespaces, i.namespace) &&
		(len(m.ServiceAccounts) == 0 || slices.ContainsFunc(m.ServiceAccounts, func(a *security.ServiceAccountMatch) bool {
			return a.Namespace == i.namespace && a.ServiceAccount == i.account
		}))
}
