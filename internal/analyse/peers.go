package analyse

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	securityapi "istio.io/api/security/v1beta1"

	"lateen.dev/lateen/internal/model/wellknown"
	"lateen.dev/lateen/internal/spelling"
	"lateen.dev/lateen/internal/translate"
)

// values is a list of a rule.
type values struct {
	field string
	list  []string
	// none is what the rule leaves out if a value matches nothing. It is empty for a list of what the rule is about.
	none string
	of   func(a *analysis, p *policy, value string) (Finding, bool)
}

// nobody is left out by an exception that matches no identity.
const nobody = "nobody"

// peers looks at everything in a policy's rules that names peers.
func (a *analysis) peers(p *policy) {
	for i, rule := range p.Spec.Rules {
		for j, from := range rule.GetFrom() {
			s, at := from.GetSource(), fmt.Sprintf("spec.rules[%d].from[%d].source.", i, j)
			for _, v := range []values{
				{at + "principals", s.GetPrincipals(), "", (*analysis).principal}, {at + "notPrincipals", s.GetNotPrincipals(), nobody, (*analysis).principal},
				{at + "namespaces", s.GetNamespaces(), "", (*analysis).namespace}, {at + "notNamespaces", s.GetNotNamespaces(), nobody, (*analysis).namespace},
				{at + "serviceAccounts", s.GetServiceAccounts(), "", (*analysis).account}, {at + "notServiceAccounts", s.GetNotServiceAccounts(), nobody, (*analysis).account},
			} {
				a.values(p, v)
			}
		}
		for j, when := range rule.GetWhen() {
			a.condition(p, fmt.Sprintf("spec.rules[%d].when[%d].", i, j), when)
		}
	}
}

func (a *analysis) condition(p *policy, at string, when *securityapi.Condition) {
	of := map[string]func(*analysis, *policy, string) (Finding, bool){
		"source.principal": (*analysis).principal, "source.namespace": (*analysis).namespace, "source.serviceAccount": (*analysis).account,
	}[when.GetKey()]
	if of != nil {
		a.values(p, values{at + "values", when.Values, "", of})
		a.values(p, values{at + "notValues", when.NotValues, nobody, of})
	}
}

func (a *analysis) values(p *policy, v values) {
	for i, value := range v.list {
		f, wrong := v.of(a, p, value)
		if !wrong {
			continue
		}
		f.Field = fmt.Sprintf("%s[%d]", v.field, i)
		if v.none != "" && f.Code != EscapedPath {
			f.Message += "; so it excepts " + v.none
		}
		if f.Severity == Warning {
			f.State = Partial
		}
		a.add(p.key, f)
	}
}

// principal looks at one principal of a rule.
func (a *analysis) principal(_ *policy, value string) (Finding, bool) {
	if value == "*" {
		return Finding{}, false // any identity, whichever there are now
	}
	const scheme = "spiffe://"
	if bare, has := strings.CutPrefix(value, scheme); has {
		return Finding{Code: PrincipalScheme, Severity: Warning, Message: quoted(value) + " matches no identity: principals have no scheme",
			Fix: "leave out " + scheme + ": write " + bare}, true
	}
	best := identity{}
	for _, m := range translate.Patterns(translate.ExpandPrincipals(a.Mesh.TrustDomain, a.Mesh.TrustDomainAliases, []string{value})) {
		a.identities.principals(m, best.better)
	}
	if best.is != absent {
		return met(quoted(value), best)
	}
	if strings.Contains(value, "*") {
		return Finding{Code: UnmatchedPattern, Severity: Warning, Message: quoted(value) + " matches no identity",
			Fix: "principals are written as " + a.identities.principal("NAMESPACE", "ACCOUNT")}, true
	}
	part := strings.Split(value, "/")
	if len(part) != 5 || part[1] != "ns" || part[3] != "sa" {
		return Finding{Code: PrincipalForm, Severity: Warning, Message: quoted(value) + " matches no identity: it is not written as a principal",
			Fix: "write " + a.identities.principal("NAMESPACE", "ACCOUNT")}, true
	}
	if expanded := translate.ExpandPrincipals(a.Mesh.TrustDomain, a.Mesh.TrustDomainAliases, []string{value}); !slices.Contains(expanded, a.identities.principal(part[2], part[4])) {
		return Finding{Code: ForeignTrustDomain, Severity: Warning, Message: fmt.Sprintf("%s matches no identity: the mesh's trust domain is %q", quoted(value), a.Mesh.TrustDomain)}, true // the same account of this mesh is another peer, so no correction is known
	}
	return a.missing(part[2], part[4], quoted(value), a.identities.principal)
}

// account looks at one service account of a rule: NAME, of the policy's namespace, or NAMESPACE/NAME.
func (a *analysis) account(p *policy, value string) (Finding, bool) {
	namespace, name, qualified := strings.Cut(value, "/")
	if !qualified {
		namespace, name = p.Namespace, value
	}
	if i := a.identities.accounts[namespace][name]; i != nil {
		return met("service account "+quoted(value), *i)
	}
	return a.missing(namespace, name, quoted(value), func(namespace, account string) string {
		if qualified {
			return namespace + "/" + account
		}
		return account
	})
}

// namespace looks at one namespace of a rule.
func (a *analysis) namespace(_ *policy, value string) (Finding, bool) {
	if value == "*" {
		return Finding{}, false
	}
	best := identity{}
	for _, m := range translate.Patterns([]string{value}) {
		a.identities.inNamespaces(m, best.better)
	}
	switch {
	case best.is != absent:
		return met("namespace "+quoted(value), best)
	case strings.Contains(value, "*"):
		return Finding{Code: UnmatchedPattern, Severity: Warning, Message: quoted(value) + " matches no namespace that has an identity"}, true
	case a.namespaces[value] != nil:
		return met("namespace "+quoted(value), identity{namespace: value, is: planned})
	}
	return a.unknownNamespace(quoted(value), value, func(namespace string) string { return namespace }), true
}

// better keeps the more present of two identities, and of equal ones the one whose namespace comes first. It returns false when there can be
// no better one.
func (i *identity) better(than *identity) bool {
	if than.is > i.is || than.is == i.is && than.namespace < i.namespace {
		*i = *than
	}
	return i.is != present
}

// met judges a named peer by its most present identity.
func met(named string, best identity) (Finding, bool) {
	switch best.is {
	case planned:
		return Finding{Code: PeerWithoutPods, Severity: Info, Message: named + " matches no identity now: there are no pods of it"}, true
	case outsider:
		return Finding{Code: PeerNotEnrolled, Severity: Warning, Message: fmt.Sprintf("%s matches no identity: its pods (%s) cannot be enrolled, and their connections carry no identity", named, best.outside),
			Fix: "match their addresses with ipBlocks"}, true
	case plaintext:
		return Finding{Code: PeerNotEnrolled, Severity: Warning, Message: named + " matches no identity: its pods are not enrolled, and connect without one",
			Fix: "enrol them: lateen label namespace " + best.namespace + " " + wellknown.DataplaneMode + "=" + ambient}, true
	}
	return Finding{}, false
}

// missing is about an account that does not exist, where write says how an account is written there.
func (a *analysis) missing(namespace, account, named string, write func(namespace, account string) string) (Finding, bool) {
	if a.namespaces[namespace] == nil && a.identities.accounts[namespace] == nil {
		return a.unknownNamespace(named, namespace, func(namespace string) string { return write(namespace, account) }), true
	}
	f := Finding{Code: UnknownServiceAccount, Severity: Warning, Message: fmt.Sprintf("%s matches no identity: namespace %s has no service account %q", named, namespace, account)}
	if len(a.ServiceAccounts) == 0 {
		f.Message = fmt.Sprintf("%s matches no identity: no pod of namespace %s runs as service account %q", named, namespace, account)
	}
	if near := spelling.Nearest(account, slices.Sorted(maps.Keys(a.identities.accounts[namespace]))); near != "" {
		f.Fix = "did you mean " + write(namespace, near) + "?"
	}
	return f, true
}

func (a *analysis) unknownNamespace(named, namespace string, write func(namespace string) string) Finding {
	f := Finding{Code: UnknownNamespace, Severity: Warning, Message: fmt.Sprintf("%s matches no identity: there is no namespace %q", named, namespace)}
	if len(a.namespaces) == 0 { // nobody lists namespaces
		f.Message = fmt.Sprintf("%s matches no identity: no pod of namespace %q has one", named, namespace)
	}
	if near := spelling.Nearest(namespace, slices.Sorted(maps.Keys(a.namespaces))); near != "" {
		f.Fix = "did you mean " + write(near) + "?"
	}
	return f
}

func quoted(value string) string { return fmt.Sprintf("%.200q", value) }
