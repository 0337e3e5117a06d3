package translate

import (
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"
	securityapi "istio.io/api/security/v1beta1"

	"lateen.dev/lateen/internal/gen/security"
)

// localTrustDomain stands in a policy for the mesh's own trust domain, whatever that is called, as Istio has it.
const localTrustDomain = "cluster.local"

// withAliases writes out every principal and trust domain of a policy, see ExpandPrincipals and expandDomains. It changes a copy.
func withAliases(mesh Mesh, spec *securityapi.AuthorizationPolicy) *securityapi.AuthorizationPolicy {
	if len(mesh.TrustDomainAliases) == 0 && mesh.TrustDomain == localTrustDomain {
		return spec
	}
	expand := func(principals []string) []string {
		return ExpandPrincipals(mesh.TrustDomain, mesh.TrustDomainAliases, principals)
	}
	spec = proto.CloneOf(spec)
	for _, rule := range spec.GetRules() {
		for _, from := range rule.GetFrom() {
			if s := from.GetSource(); s != nil {
				s.Principals, s.NotPrincipals = expand(s.Principals), expand(s.NotPrincipals)
				s.TrustDomains, s.NotTrustDomains = expandDomains(mesh, s.TrustDomains), expandDomains(mesh, s.NotTrustDomains)
			}
		}
		for _, when := range rule.GetWhen() {
			switch when.GetKey() {
			case "source.principal":
				when.Values, when.NotValues = expand(when.Values), expand(when.NotValues)
			case "source.trustDomain":
				when.Values, when.NotValues = expandDomains(mesh, when.Values), expandDomains(mesh, when.NotValues)
			}
		}
	}
	return spec
}

// principalParts is of how many parts a principal is that names a trust domain: domain/ns/NAMESPACE/sa/ACCOUNT.
const principalParts = 5

// ExpandPrincipals writes out what the principals of a policy mean in a mesh with aliases, as Istio does: one that names the
// mesh's trust domain or an alias of it stands for all of them, and so does cluster.local, even where the mesh is called
// otherwise; then it means nobody of that name. Principals are matched as text, without a scheme: exact, "*", "prefix*" or
// "*suffix". One that leaves the trust domain open, one that is not written out to its last part, and one of another mesh stay
// as they are. The result names none twice.
func ExpandPrincipals(own string, aliases []string, principals []string) []string {
	if len(principals) == 0 {
		return principals
	}
	all := append([]string{own}, aliases...)
	out := make([]string, 0, len(principals))
	add := func(principal string) {
		if !slices.Contains(out, principal) {
			out = append(out, principal)
		}
	}
	for _, principal := range principals {
		domain, rest, _ := strings.Cut(principal, "/")
		ours := domain == localTrustDomain || slices.ContainsFunc(all, func(one string) bool { return matchesDomain(domain, one) || startsDomain(domain, one) })
		if strings.Count(principal, "/") != principalParts-1 || domain == "*" || !ours {
			add(principal)
			continue
		}
		for _, one := range all {
			if matchesDomain(domain, one) {
				// A pattern that means the domain already need not name it again.
				add(principal)
			} else {
				add(one + "/" + rest)
			}
		}
	}
	return out
}

// matchesDomain matches a trust domain with the first part of a principal as proxies do: a leading star can be a pattern.
func matchesDomain(pattern, domain string) bool {
	if suffix, ok := strings.CutPrefix(pattern, "*"); ok {
		return strings.HasSuffix(domain, suffix)
	}
	return pattern == domain
}

// startsDomain matches it with a star at the end, which is no pattern to a proxy: more follows it. Istio writes such a
// principal out, and then it means something.
func startsDomain(pattern, domain string) bool {
	prefix, ok := strings.CutSuffix(pattern, "*")
	return ok && strings.HasPrefix(domain, prefix)
}

// expandDomains writes out what the trust domains of a policy mean in a mesh with aliases: the mesh's own or one of its aliases means all of
// them. As in Istio that is said of whole names alone, and cluster.local is no other name for the mesh's, which it is in a principal.
func expandDomains(mesh Mesh, domains []string) []string {
	all := append([]string{mesh.TrustDomain}, mesh.TrustDomainAliases...)
	var out []string
	seen := map[string]bool{}
	for _, domain := range domains {
		means := []string{domain}
		if slices.Contains(all, domain) {
			means = all
		}
		for _, one := range means {
			if !seen[one] {
				out, seen[one] = append(out, one), true
			}
		}
	}
	return out
}

// trustDomains reads the trust domains that a source or condition names, as patterns of principals, with which they begin. Those that it
// excepts go into the match; the others are returned, since a match has one list of principals alone. Peers without identity are of no trust domain:
// no value is theirs, and each exception leaves them in.
//
// bad is what no such pattern says. For a DENY policy, which is kept without it, the match then covers at least what was written wherever it says
// anything else.
func trustDomains(m *security.Match, field string, values []string, notField string, notValues []string) (wanted []*security.StringMatch, bad []string) {
	except, badNot := domainMatches(notField, notValues)
	m.NotPrincipals = append(m.NotPrincipals, except...)
	wanted, bad = domainMatches(field, values)
	if len(bad) > 0 && !isEmpty(m) {
		wanted = nil
	}
	return wanted, append(bad, badNot...)
}

// domainMatches reads Istio's patterns of trust domains. How one ends cannot be said of principals, of which it is the beginning.
func domainMatches(field string, values []string) (out []*security.StringMatch, bad []string) {
	first, others := "", 0
	for _, v := range values {
		beginning, pattern := strings.CutSuffix(v, "*")
		switch {
		case v == "*":
			out = append(out, &security.StringMatch{MatchType: &security.StringMatch_Presence{Presence: &emptypb.Empty{}}})
		case JudgesDomain(v) && pattern:
			out = append(out, &security.StringMatch{MatchType: &security.StringMatch_Prefix{Prefix: beginning}})
		case JudgesDomain(v):
			out = append(out, &security.StringMatch{MatchType: &security.StringMatch_Prefix{Prefix: v + "/"}})
		case first == "":
			first = fmt.Sprintf("%s %.100q", field, v)
		default:
			others++
		}
	}
	switch {
	case others > 0:
		bad = []string{fmt.Sprintf("%s and %d more", first, others)}
	case first != "":
		bad = []string{first}
	}
	return out, bad
}

// JudgesDomain says whether node proxies can judge a pattern of trust domains: the whole of one, its beginning, or any.
func JudgesDomain(pattern string) bool {
	beginning, open := strings.CutSuffix(pattern, "*")
	return !strings.Contains(beginning, "*") && !(open && strings.Contains(beginning, "/"))
}

// isTrustDomains says whether what cannot be judged is a trust domain.
func isTrustDomains(what string) bool {
	field, _, _ := strings.Cut(what, ` "`)
	return slices.Contains([]string{"trustDomains", "notTrustDomains", "source.trustDomain"}, field)
}
