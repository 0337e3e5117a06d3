package translate

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"

	securityapi "istio.io/api/security/v1beta1"
	securityv1 "istio.io/client-go/pkg/apis/security/v1"

	"lateen.dev/lateen/internal/gen/security"
)

// principals are peers of several trust domains; the empty one has no identity.
var principals = []string{
	"", "cluster.local/ns/a/sa/x", "cluster.local/ns/b/sa/x", "cluster.local/ns/b/sa/y", "old.example/ns/b/sa/x", "other.example/ns/a/sa/x",
	"abc/ns/b/sa/x", "ab/ns/cluster.local/sa/x", "notcluster.local/ns/b/sa/other.example",
}

// admits evaluates a policy's rules for a peer, as proxies do.
func admits(p *security.Authorization, principal string, port uint32) bool {
	return slices.ContainsFunc(p.GetRules(), func(r *security.Rule) bool {
		return !slices.ContainsFunc(r.Clauses, func(c *security.Clause) bool {
			return !slices.ContainsFunc(c.Matches, func(m *security.Match) bool { return !isEmpty(m) && meets(m, principal, port) })
		})
	})
}

func meets(m *security.Match, principal string, port uint32) bool {
	parts := strings.Split(principal, "/")
	namespace, account := "", ""
	if principal != "" {
		namespace, account = parts[2], parts[4]
	}
	text := func(what string) func(*security.StringMatch) bool {
		return func(s *security.StringMatch) bool {
			switch s.MatchType.(type) {
			case *security.StringMatch_Exact:
				return what == s.GetExact()
			case *security.StringMatch_Prefix:
				return strings.HasPrefix(what, s.GetPrefix())
			case *security.StringMatch_Suffix:
				return strings.HasSuffix(what, s.GetSuffix())
			}
			return what != ""
		}
	}
	who := func(s *security.StringMatch) bool { return principal != "" && text(principal)(s) }
	as := func(s *security.ServiceAccountMatch) bool {
		return s.Namespace == namespace && s.ServiceAccount == account
	}
	return attribute(m.Principals, m.NotPrincipals, who) && attribute(m.Namespaces, m.NotNamespaces, text(namespace)) &&
		attribute(m.ServiceAccounts, m.NotServiceAccounts, as) &&
		attribute(m.DestinationPorts, m.NotDestinationPorts, func(p uint32) bool { return p == port })
}

func attribute[T any](yes, no []T, is func(T) bool) bool {
	return (len(yes) == 0 || slices.ContainsFunc(yes, is)) && !slices.ContainsFunc(no, is)
}

var expressions = map[string]*regexp.Regexp{}

// matches compiles an expression once.
func matches(expression, text string) bool {
	e, known := expressions[expression]
	if !known {
		e = regexp.MustCompile("^(?:" + expression + ")$")
		expressions[expression] = e
	}
	return e.MatchString(text)
}

// meant evaluates a rule by what Istio tells Envoy of it: patterns over SPIFFE identities, which no peer without identity fulfils.
func meant(rule *securityapi.Rule, principal string, port uint32) bool {
	pattern := func(expression string) bool {
		return principal != "" && matches(expression, "spiffe://"+principal)
	}
	who := func(v string) bool {
		return pattern("spiffe://" + strings.ReplaceAll(regexp.QuoteMeta(v), `\*`, ".*"))
	}
	domain := func(v string) bool {
		return pattern("spiffe://" + strings.ReplaceAll(regexp.QuoteMeta(v), `\*`, "[^/]*") + "/.*")
	}
	namespace := func(v string) bool { return pattern(".*/ns/" + regexp.QuoteMeta(v) + "/.*") }
	account := func(v string) bool {
		ns, sa, _ := strings.Cut(v, "/")
		return pattern("spiffe://.+/ns/" + regexp.QuoteMeta(ns) + "/(.+/|)sa/" + regexp.QuoteMeta(sa) + "(/.+)?")
	}
	at := func(v string) bool { return v == fmt.Sprint(port) }
	source := func(f *securityapi.Rule_From) bool {
		s := f.Source
		return attribute(s.Principals, s.NotPrincipals, who) && attribute(s.TrustDomains, s.NotTrustDomains, domain) &&
			attribute(s.Namespaces, s.NotNamespaces, namespace) && attribute(s.ServiceAccounts, s.NotServiceAccounts, account)
	}
	operation := func(o *securityapi.Rule_To) bool { return attribute(o.Operation.Ports, o.Operation.NotPorts, at) }
	condition := func(c *securityapi.Condition) bool {
		return attribute(c.Values, c.NotValues, map[string]func(string) bool{"source.principal": who, "source.trustDomain": domain, "source.namespace": namespace, "destination.port": at}[c.Key])
	}
	return (len(rule.From) == 0 || slices.ContainsFunc(rule.From, source)) && (len(rule.To) == 0 || slices.ContainsFunc(rule.To, operation)) &&
		!slices.ContainsFunc(rule.When, func(c *securityapi.Condition) bool { return !condition(c) })
}

// scribe writes rules at random.
type scribe struct{ *rand.Rand }

func (s scribe) some(values ...string) (out []string) {
	for _, v := range values {
		if s.IntN(3) == 0 {
			out = append(out, v)
		}
	}
	return out
}

func (s scribe) source() *securityapi.Source {
	domains := []string{"cluster.local", "other.example", "ab*", "old*", "*", "ab"}
	names := []string{"cluster.local/ns/a/sa/x", "cluster.local/*", "*/sa/x", "*", "other*"}
	out := &securityapi.Source{TrustDomains: s.some(domains...), NotTrustDomains: s.some("other.example", "ab*", "cluster.local")}
	switch s.IntN(3) {
	case 0:
		out.Principals, out.NotPrincipals = s.some(names...), s.some(names...)
	case 1:
		out.Namespaces, out.NotNamespaces = s.some("a", "b"), s.some("cluster.local")
	case 2:
		out.ServiceAccounts, out.NotServiceAccounts = s.some("a/x", "b/y"), s.some("b/x")
	}
	if out.String() == "" {
		out.TrustDomains = []string{"old*"}
	}
	return out
}

func (s scribe) rule() *securityapi.Rule {
	rule := &securityapi.Rule{}
	for range s.IntN(4) {
		rule.From = append(rule.From, &securityapi.Rule_From{Source: s.source()})
	}
	if s.IntN(2) == 0 {
		rule.To = []*securityapi.Rule_To{{Operation: &securityapi.Operation{Ports: []string{"80"}}}}
	}
	if s.IntN(2) == 0 {
		c := &securityapi.Condition{Key: "source.trustDomain", Values: s.some("cluster.local", "a*"), NotValues: s.some("abc", "old*")}
		if len(c.Values)+len(c.NotValues) > 0 {
			rule.When = append(rule.When, c)
		}
	}
	return rule
}

// Trust domains beside all else that names peers, in any number of sources, mean what they mean to Envoy, peers without identity included.
func TestTrustDomainsMeanWhatTheyMeanInIstio(t *testing.T) {
	matched, not := 0, 0
	for seed := range uint64(4000) {
		s := scribe{rand.New(rand.NewPCG(seed, 4))} //nolint:gosec // a test
		p := &securityv1.AuthorizationPolicy{}
		p.Namespace, p.Name = "shop", "p"
		p.Spec.Action = []securityapi.AuthorizationPolicy_Action{securityapi.AuthorizationPolicy_ALLOW, securityapi.AuthorizationPolicy_DENY}[s.IntN(2)]
		for range 1 + s.IntN(2) {
			p.Spec.Rules = append(p.Spec.Rules, s.rule())
		}
		out, conditions := Authorization(mesh, p)
		if len(conditions) != 1 || conditions[0].Reason != "Accepted" {
			t.Fatalf("seed %d: %v of %v", seed, conditions, &p.Spec)
		}
		for _, principal := range principals {
			for _, port := range []uint32{80, 81} {
				want := slices.ContainsFunc(p.Spec.Rules, func(r *securityapi.Rule) bool { return meant(r, principal, port) })
				if got := admits(out, principal, port); got != want {
					t.Fatalf("seed %d: %q on %d matches: %v, want %v\nof   %v\nread %v", seed, principal, port, got, want, &p.Spec, out)
				}
				if want {
					matched++
				} else {
					not++
				}
			}
		}
	}
	if matched < 1000 || not < 1000 {
		t.Errorf("%d connections that match and %d that do not say little", matched, not)
	}
}

func TestTrustDomains(t *testing.T) {
	for _, c := range []struct{ name, spec, reason, want string }{
		{"one is how a principal begins", "rules: [{from: [{source: {trustDomains: [other.example], namespaces: [b]}}]}]", "Accepted",
			"rules: [{clauses: [{matches: [{principals: [{prefix: other.example/}], namespaces: [{exact: b}]}]}]}]"},
		{"none of them", "action: DENY\nrules: [{from: [{source: {notTrustDomains: [cluster.local], notPrincipals: [x]}}]}]", "Accepted",
			"action: DENY\nrules: [{clauses: [{matches: [{notPrincipals: [{exact: x}, {prefix: cluster.local/}]}]}]}]"},
		{"as a condition", `rules: [{when: [{key: source.trustDomain, values: ["*", "x*"], notValues: [mine]}]}]`, "Accepted",
			"rules: [{clauses: [{matches: [{principals: [{presence: {}}, {prefix: x}], notPrincipals: [{prefix: mine/}]}]}]}]"},
		{"beside principals they are a clause", "rules: [{from: [{source: {trustDomains: [a], principals: [\"*/sa/x\"]}}]}]", "Accepted",
			"rules: [{clauses: [{matches: [{principals: [{suffix: /sa/x}]}]}, {matches: [{principals: [{prefix: a/}]}]}]}]"},
		{"of one source of several they are a rule", `
rules:
- to: [{operation: {ports: ["80"]}}]
  from: [{source: {trustDomains: [a], principals: ["*/sa/x"]}}, {source: {namespaces: [b]}}, {source: {trustDomains: [a], principals: ["*/sa/y"]}}]
  when: [{key: destination.port, notValues: ["81"]}]`, "Accepted", `
rules:
- clauses: [{matches: [{destinationPorts: [80]}]}, {matches: [{namespaces: [{exact: b}]}]}, {matches: [{notDestinationPorts: [81]}]}]
- clauses: [{matches: [{destinationPorts: [80]}]}, {matches: [{principals: [{suffix: /sa/x}]}, {principals: [{suffix: /sa/y}]}]}, {matches: [{principals: [{prefix: a/}]}]}, {matches: [{notDestinationPorts: [81]}]}]`},
		{"how one ends cannot be judged, so an ALLOW rule is left out", `rules: [{from: [{source: {trustDomains: ["*.example"], namespaces: [b]}}]}]`, "UnsupportedValue", ""},
		{"nor of those that are excepted", `rules: [{from: [{source: {notTrustDomains: ["*.example"], namespaces: [b]}}]}]`, "UnsupportedValue", ""},
		{"nor in a condition", `rules: [{when: [{key: source.trustDomain, values: [a, "*.example"]}]}]`, "UnsupportedValue", ""},
		{"a DENY rule is kept without it", `action: DENY` + "\n" + `rules: [{from: [{source: {trustDomains: [a, "*.example"], namespaces: [b]}}]}]`, "UnsupportedValue",
			"action: DENY\nrules: [{clauses: [{matches: [{namespaces: [{exact: b}]}]}]}]"},
		{"or with those that can be judged if it says nothing else", `action: DENY` + "\n" + `rules: [{from: [{source: {trustDomains: [a, "*.example"]}}]}]`, "UnsupportedValue",
			"action: DENY\nrules: [{clauses: [{matches: [{principals: [{prefix: a/}]}]}]}]"},
		{"and denies nobody without those", `action: DENY` + "\n" + `rules: [{when: [{key: source.trustDomain, values: ["*.example"]}]}]`, "UnsupportedValue",
			"action: DENY\nrules: [{clauses: [{matches: [{}]}]}]"},
		{"of those that are excepted the others count", `action: DENY` + "\n" + `rules: [{from: [{source: {notTrustDomains: [a, "*.example"]}}]}]`, "UnsupportedValue",
			"action: DENY\nrules: [{clauses: [{matches: [{notPrincipals: [{prefix: a/}]}]}]}]"},
		{"a star within is no pattern", `rules: [{when: [{key: source.trustDomain, values: ["a*b"]}]}]`, "UnsupportedValue", ""},
		{"and a beginning has no slash", `rules: [{when: [{key: source.trustDomain, values: ["a/b*"]}]}]`, "UnsupportedValue", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, conditions := Authorization(mesh, policy(t, "shop", c.spec))
			if len(conditions) != 1 || conditions[0].Reason != c.reason || conditions[0].Status != "True" {
				t.Errorf("conditions %v, want %s", conditions, c.reason)
			}
			diff(t, got, message(t, dedup("name: p\nnamespace: shop\nscope: NAMESPACE\n"+c.want), &security.Authorization{}))
		})
	}
}

func TestWhatCannotBeJudgedOfTrustDomainsIsNamed(t *testing.T) {
	_, conditions := Authorization(mesh, policy(t, "shop", `rules: [{from: [{source: {trustDomains: ["*.example"]}}]}]`))
	if m := conditions[0].Message; !strings.Contains(m, `trustDomains "*.example"`) || !strings.Contains(m, "allows less") || !strings.Contains(m, "in full") {
		t.Errorf("message %q", m)
	}
	// A DENY that goes on with part of a list denies less, which nobody must take for more.
	_, conditions = Authorization(mesh, policy(t, "shop", `{action: DENY, rules: [{from: [{source: {trustDomains: [a, "*.example"]}}]}]}`))
	if m := conditions[0].Message; !strings.Contains(m, "less than written") {
		t.Errorf("message %q", m)
	}
}

// Sources that need a rule each are bounded by what their copies weigh; beyond that a policy closes and says so.
func TestRulesAreNotCopiedWithoutBound(t *testing.T) {
	p := &securityv1.AuthorizationPolicy{}
	p.Namespace, p.Name = "shop", "p"
	rule := &securityapi.Rule{}
	for i := range 512 {
		rule.To = append(rule.To, &securityapi.Rule_To{Operation: &securityapi.Operation{Ports: []string{fmt.Sprint(i + 1)}}})
		rule.From = append(rule.From, &securityapi.Rule_From{Source: &securityapi.Source{TrustDomains: []string{fmt.Sprint("d", i)}, Principals: []string{"*/sa/x"}}})
	}
	for range 50 {
		p.Spec.Rules = append(p.Spec.Rules, rule)
	}
	for _, action := range []securityapi.AuthorizationPolicy_Action{securityapi.AuthorizationPolicy_ALLOW, securityapi.AuthorizationPolicy_DENY} {
		p.Spec.Action = action
		out, conditions := Authorization(mesh, p)
		if conditions[0].Reason != "UnsupportedValue" || !strings.Contains(conditions[0].Message, "trustDomains beside principals") {
			t.Errorf("%s: its author is told %v", action, conditions)
		}
		if len(out.Rules) > 300 {
			t.Errorf("%s: %d rules", action, len(out.Rules))
		}
		// An ALLOW may admit less than written, a DENY more.
		for _, principal := range []string{"d511/ns/a/sa/x", "e/ns/a/sa/x", "d511/ns/a/sa/y"} {
			is, got := strings.HasPrefix(principal, "d511") && strings.HasSuffix(principal, "x"), admits(out, principal, 80)
			if action == securityapi.AuthorizationPolicy_ALLOW && got && !is || action == securityapi.AuthorizationPolicy_DENY && !got && is {
				t.Errorf("%s: %s matches: %v", action, principal, got)
			}
		}
	}
}

// A trust domain of the mesh in a policy means the mesh under all its names. The local domain is none of these names unless it is given, as in Istio.
func TestTrustDomainsMeanTheMeshUnderAllItsNames(t *testing.T) {
	aliased := Mesh{TrustDomain: "mesh.example", TrustDomainAliases: []string{"old.example"}, RootNamespace: "istio-system"}
	for value, want := range map[string]string{
		"mesh.example":  "{prefix: mesh.example/}, {prefix: old.example/}",
		"old.example":   "{prefix: mesh.example/}, {prefix: old.example/}",
		"other.example": "{prefix: other.example/}",
		"mesh*":         "{prefix: mesh}",
		"cluster.local": "{prefix: cluster.local/}",
	} {
		for _, spec := range []string{
			`rules: [{from: [{source: {trustDomains: ["` + value + `"], notTrustDomains: ["` + value + `"]}}]}]`,
			`rules: [{when: [{key: source.trustDomain, values: ["` + value + `"], notValues: ["` + value + `"]}]}]`,
		} {
			got, _ := Authorization(aliased, policy(t, "shop", spec))
			diff(t, got, message(t, "name: p\nnamespace: shop\nscope: NAMESPACE\nrules: [{clauses: [{matches: [{principals: ["+want+"], notPrincipals: ["+want+"]}]}]}]", &security.Authorization{}))
		}
	}
	got, _ := Authorization(aliased, policy(t, "shop", `rules: [{from: [{source: {trustDomains: [old.example, mesh.example]}}]}]`))
	if n := len(got.Rules[0].Clauses[0].Matches[0].Principals); n != 2 {
		t.Errorf("each is named once, and there are %d", n)
	}
}

// Edges of policy matching at which attacks failed.
func TestPolicyMatchingHoldsAtItsEdges(t *testing.T) {
	for _, c := range []struct {
		name, spec string
		matches    map[string]bool
	}{
		{"peers without identity have no namespace", `rules: [{from: [{source: {namespaces: ["*"]}}]}]`, map[string]bool{"": false, principals[1]: true}},
		{"and are in none that is excepted", `rules: [{from: [{source: {notNamespaces: ["*"]}}]}]`, map[string]bool{"": true, principals[1]: false}},
		{"nor have they a principal", `rules: [{from: [{source: {principals: ["*"]}}]}]`, map[string]bool{"": false, principals[1]: true}},
		{"an empty beginning is no pattern of its own", `rules: [{from: [{source: {notPrincipals: ["*"]}}]}]`, map[string]bool{"": true, principals[1]: false}},
		{"an end", `rules: [{from: [{source: {principals: ["*/sa/x"]}}]}]`, map[string]bool{"": false, "cluster.local/ns/b/sa/x": true, "cluster.local/ns/b/sa/y": false}},
		{"a beginning", `rules: [{from: [{source: {principals: ["cluster.local/ns/a*"]}}]}]`, map[string]bool{"cluster.local/ns/a/sa/x": true, "notcluster.local/ns/b/sa/other.example": false}},
		{"an account of the policy's own namespace", `rules: [{from: [{source: {serviceAccounts: [x]}}]}]`, map[string]bool{"cluster.local/ns/a/sa/x": false, "cluster.local/ns/shop/sa/x": true, "": false}},
		{"two stars are text", `rules: [{from: [{source: {namespaces: ["**"]}}]}]`, map[string]bool{"cluster.local/ns/b/sa/x": false, "": false}},
	} {
		out, _ := Authorization(mesh, policy(t, "shop", c.spec))
		for principal, want := range c.matches {
			if admits(out, principal, 80) != want {
				t.Errorf("%s: %q matches: %v", c.name, principal, !want)
			}
		}
	}
	// An address of IPv4 in IPv6's clothes is written as its author wrote it; proxies unmap what they compare it with.
	out, conditions := Authorization(mesh, policy(t, "shop", `rules: [{from: [{source: {ipBlocks: ["::ffff:10.0.0.1", "::ffff:10.1.0.0/112"]}}]}]`))
	for i, want := range []netip.Prefix{netip.MustParsePrefix("10.0.0.1/32"), netip.MustParsePrefix("10.1.0.0/16")} {
		got := out.Rules[0].Clauses[0].Matches[0].SourceIps[i]
		addr, _ := netip.AddrFromSlice(got.Address)
		if netip.PrefixFrom(addr, int(got.Length)) != want {
			t.Errorf("block %d is %v/%d, want %v (%v)", i, addr, got.Length, want, conditions)
		}
	}
}
