package translate

import (
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	securityapi "istio.io/api/security/v1beta1"
)

// localTrustDomain stands in a policy for the mesh's own trust domain, whatever that is called, as Istio has it.
const localTrustDomain = "cluster.local"

// withAliases writes out every principal of a policy, see ExpandPrincipals. It changes a copy.
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
			}
		}
		for _, when := range rule.GetWhen() {
			if when.GetKey() == "source.principal" {
				when.Values, when.NotValues = expand(when.Values), expand(when.NotValues)
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
