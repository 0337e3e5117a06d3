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

// ExpandPrincipals writes out what the principals of a policy mean in a mesh with aliases: one that names the mesh's trust
// domain, an alias of it or cluster.local stands for all of them, as in Istio. Principals are matched as text, without a
// scheme: exact, "*", "prefix*" or "*suffix". One that leaves the trust domain open, and one of another mesh, stays as it is.
// The result holds every given principal and names none twice.
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
		add(principal)
		domain, rest, named := strings.Cut(principal, "/")
		if !named || domain == "*" {
			continue
		}
		if domain != localTrustDomain && !slices.ContainsFunc(all, func(one string) bool { return matchesDomain(domain, one) }) {
			continue
		}
		for _, one := range all {
			// A pattern that means the domain already need not name it again.
			if !matchesDomain(domain, one) {
				add(one + "/" + rest)
			}
		}
	}
	return out
}

// matchesDomain matches a trust domain with the first part of a principal, in which only a leading star can be a pattern:
// one at the end is followed by more.
func matchesDomain(pattern, domain string) bool {
	if suffix, ok := strings.CutPrefix(pattern, "*"); ok {
		return strings.HasSuffix(domain, suffix)
	}
	return pattern == domain
}
