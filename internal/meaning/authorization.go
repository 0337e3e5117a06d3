package meaning

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	securityapi "istio.io/api/security/v1beta1"
	typeapi "istio.io/api/type/v1beta1"
	securityv1 "istio.io/client-go/pkg/apis/security/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"lateen.dev/lateen/internal/model/wellknown"
	"lateen.dev/lateen/internal/translate"
)

const (
	sourceTrustDomain    = "source.trustDomain"
	sourceServiceAccount = "source.serviceAccount"
	sourcePrincipal      = "source.principal"
)

// connectionAttributes are the keys of `when` that both meshes judge by the connection alone.
var connectionAttributes = []string{"source.ip", "source.namespace", sourcePrincipal, "destination.ip", "destination.port"}

func (c *comparison) authorizations() {
	for _, p := range c.AuthorizationPolicies {
		switch {
		case c.forGateways(p):
			c.out.add("authorization-gateway", Difference{Object: policyObject(p), Field: "spec.targetRefs"})
		case targeted(p):
			// Waypoints of both meshes enforce it.
		case p.Spec.Action != securityapi.AuthorizationPolicy_ALLOW && p.Spec.Action != securityapi.AuthorizationPolicy_DENY:
			// Neither mesh's node proxies enforce AUDIT and CUSTOM.
		case isDryRun(p):
			c.dryRun(p)
		default:
			c.emptySelector(p)
			c.attributes(p)
		}
	}
}

func policyObject(p *securityv1.AuthorizationPolicy) Object {
	return Object{Kind: "AuthorizationPolicy", Namespace: p.Namespace, Name: p.Name}
}

func targeted(p *securityv1.AuthorizationPolicy) bool {
	return p.Spec.TargetRef != nil || len(p.Spec.TargetRefs) > 0 //nolint:staticcheck // targetRef is still accepted
}

// forGateways says whether a policy is for a Gateway, or the Gateways of a class, that are no waypoints. This mesh serves no others.
func (c *comparison) forGateways(p *securityv1.AuthorizationPolicy) bool {
	refs := p.Spec.TargetRefs
	if ref := p.Spec.TargetRef; ref != nil { //nolint:staticcheck // targetRef is still accepted
		refs = append(slices.Clone(refs), ref)
	}
	return slices.ContainsFunc(refs, func(ref *typeapi.PolicyTargetReference) bool {
		switch ref.GetKind() {
		case "GatewayClass":
			return !c.isWaypointClass(ref.GetName())
		case "Gateway":
			return slices.ContainsFunc(c.Gateways, func(g *gatewayv1.Gateway) bool {
				return g.Namespace == p.Namespace && g.Name == ref.GetName() && !c.isWaypointClass(string(g.Spec.GatewayClassName))
			})
		}
		return false
	})
}

// isDryRun says whether a policy only reports: both meshes read the annotation alike.
func isDryRun(p *securityv1.AuthorizationPolicy) bool {
	dry, err := strconv.ParseBool(p.Annotations[wellknown.DryRun])
	return err == nil && dry
}

// dryRun is about policies that enforce nothing in either mesh.
func (c *comparison) dryRun(p *securityv1.AuthorizationPolicy) {
	if !c.controlEnv("AMBIENT_ENABLE_DRY_RUN_AUTHORIZATION_POLICY") {
		c.out.add("authorization-dry-run", Difference{Object: policyObject(p), Field: "metadata.annotations." + wellknown.DryRun})
	}
	for _, z := range c.Proxies {
		if minor, known := istioMinor(z.Image); known && minor < firstDryRunMinor {
			c.out.add("authorization-dry-run-enforced", Difference{Object: policyObject(p), Field: "metadata.annotations." + wellknown.DryRun,
				Today: fmt.Sprintf("istiod does not send a policy in dry run; %s has version 1.%d, which would enforce it", z.Object, minor)})
			return
		}
	}
}

// firstDryRunMinor is the first ztunnel, 1.29, that knows a policy in dry run for one. An older one enforces it.
const firstDryRunMinor = 29

// istioMinor reads N of an image tag 1.N.
func istioMinor(image string) (minor int, known bool) {
	_, tag, ok := strings.Cut(image[strings.LastIndex(image, "/")+1:], ":")
	parts := strings.Split(tag, ".")
	if !ok || len(parts) < 2 || parts[0] != "1" {
		return 0, false
	}
	digits := parts[1][:len(parts[1])-len(strings.TrimLeft(parts[1], "0123456789"))]
	minor, err := strconv.Atoi(digits)
	return minor, err == nil
}

// nothing is a selector that chooses no pod.
var nothing = []string{"spec:", "  selector:", "    matchLabels: {" + wellknown.Selects + ": nothing}"}

// emptySelector is about `selector: {}`. One with an empty matchLabels is not meant: Istio attaches that to all workloads, as this mesh does.
func (c *comparison) emptySelector(p *securityv1.AuthorizationPolicy) {
	if p.Spec.Selector == nil || p.Spec.Selector.MatchLabels != nil {
		return
	}
	d := Difference{Object: policyObject(p), Field: "spec.selector", Severity: AccessCloses, Keep: nothing,
		Then: fmt.Sprintf("the %s policy holds for all workloads of namespace %s", p.Spec.Action, p.Namespace)}
	if p.Namespace == c.Settings.RootNamespace {
		d.Then = fmt.Sprintf("the %s policy holds for all workloads of the mesh", p.Spec.Action)
	}
	if p.Spec.Action == securityapi.AuthorizationPolicy_ALLOW && c.anotherAllows(p) {
		d.Severity = AccessOpens
		d.Then += ", and allows what it names beside the ALLOW policies that are in force"
	}
	c.out.add("authorization-empty-selector", d)
}

// anotherAllows says whether another ALLOW policy is in force for workloads that this one would hold for.
func (c *comparison) anotherAllows(p *securityv1.AuthorizationPolicy) bool {
	root := c.Settings.RootNamespace
	return slices.ContainsFunc(c.AuthorizationPolicies, func(o *securityv1.AuthorizationPolicy) bool {
		asleep := o.Spec.Selector != nil && o.Spec.Selector.MatchLabels == nil
		return o != p && !asleep && !targeted(o) && !isDryRun(o) && o.Spec.Action == securityapi.AuthorizationPolicy_ALLOW &&
			(o.Namespace == p.Namespace || o.Namespace == root || p.Namespace == root)
	})
}

// match counts what of a source, an operation or a condition each mesh judges: with nothing left it matches no connection.
type match struct {
	today, then int
	// field is what this mesh judges and Istio does not; empty if nothing.
	field, rule string
	// unjudged is a field that Istio passes over, and that this mesh knows and cannot judge; empty if there is none.
	unjudged string
}

// clause are matches of which one must match.
type clause []match

func (c clause) alive(fields func(match) int) bool {
	return slices.ContainsFunc(c, func(m match) bool { return fields(m) > 0 })
}

func today(m match) int { return m.today }
func then(m match) int  { return m.then }

// attributes is about the attributes that this mesh judges by the connection and Istio's ztunnels do not.
func (c *comparison) attributes(p *securityv1.AuthorizationPolicy) {
	deny := p.Spec.Action == securityapi.AuthorizationPolicy_DENY
	for i, rule := range p.Spec.Rules {
		clauses, istioDrops, lateenDrops := readRule(rule)
		if deny {
			istioDrops, lateenDrops = false, false // of a DENY rule the rest is kept
		}
		aliveToday, aliveThen := !istioDrops, !lateenDrops
		for _, cl := range clauses {
			aliveToday = aliveToday && cl.alive(today)
			aliveThen = aliveThen && cl.alive(then)
		}
		if !aliveThen {
			if aliveToday {
				c.unjudged(p, i, clauses)
			}
			continue // it is as dead in both
		}
		c.principals(p, i, rule)
		for _, cl := range clauses {
			for _, m := range cl {
				if m.field == "" {
					continue
				}
				// A match that is judged by more fields matches less; one that matched nothing matches more.
				widens := !aliveToday || m.today == 0
				c.attribute(p, i, m, widens, deny)
			}
		}
	}
}

func (c *comparison) attribute(p *securityv1.AuthorizationPolicy, rule int, m match, widens, deny bool) {
	field := fmt.Sprintf("spec.rules[%d].%s", rule, m.field)
	d := Difference{Object: policyObject(p), Field: field, Severity: AccessCloses}
	switch {
	case widens && deny:
		d.Today, d.Then = "the ztunnels do not judge it, so the rule denies nothing by it", "the rule denies whom it names"
		d.Keep = []string{fmt.Sprintf("# remove spec.rules[%d]%s", rule, orItsPart(m))}
	case widens:
		d.Severity = AccessOpens
		d.Today, d.Then = "the ztunnels do not judge it, so the rule allows nobody by it", "the rule allows whom it names"
		d.Keep = []string{fmt.Sprintf("# remove spec.rules[%d]%s", rule, orItsPart(m))}
	case deny:
		d.Severity = AccessOpens
		d.Today, d.Then = "the ztunnels pass over it, so the rule denies peers of any trust domain", "the rule denies those of the named trust domains alone"
		d.Keep = []string{"# remove " + field}
	default:
		d.Today, d.Then = "the ztunnels pass over it, so the rule allows peers of any trust domain", "the rule allows those of the named trust domains alone"
		d.Keep = []string{"# remove " + field}
	}
	c.out.add(m.rule, d)
}

// unjudged is about an ALLOW rule that this mesh drops because of a pattern that its node proxies cannot judge.
func (c *comparison) unjudged(p *securityv1.AuthorizationPolicy, rule int, clauses []clause) {
	for _, m := range slices.Concat(clauses...) {
		if m.unjudged == "" {
			continue
		}
		field := fmt.Sprintf("spec.rules[%d].%s", rule, m.unjudged)
		c.out.add("authorization-trust-domains", Difference{Object: policyObject(p), Field: field, Severity: AccessCloses,
			Today: "the ztunnels pass over it, so the rule allows peers of any trust domain",
			Then:  "the node proxies cannot judge how a trust domain ends, so the rule allows nobody", Keep: []string{"# remove " + field}})
	}
}

// principals is about those that mean the mesh itself by a name that is not its own. To Istio's ztunnels a principal is a text.
func (c *comparison) principals(p *securityv1.AuthorizationPolicy, i int, rule *securityapi.Rule) {
	lists := map[string][]string{}
	for j, from := range rule.GetFrom() {
		at := fmt.Sprintf("spec.rules[%d].from[%d].source.", i, j)
		lists[at+"principals"], lists[at+"notPrincipals"] = from.GetSource().GetPrincipals(), from.GetSource().GetNotPrincipals()
	}
	for j, when := range rule.GetWhen() {
		if at := fmt.Sprintf("spec.rules[%d].when[%d].", i, j); when.GetKey() == sourcePrincipal {
			lists[at+"values"], lists[at+"notValues"] = when.GetValues(), when.GetNotValues()
		}
	}
	for _, field := range sortedKeys(lists) {
		meant := translate.ExpandPrincipals(c.Settings.TrustDomain, c.Settings.TrustDomainAliases, lists[field])
		more := slices.DeleteFunc(slices.Clone(meant), func(one string) bool { return slices.Contains(lists[field], one) })
		if len(more) == 0 {
			continue
		}
		d := Difference{Object: policyObject(p), Field: field, Severity: AccessOpens, Then: "it means " + short(more[0]) + " as well"}
		if n := len(more) - 1; n > 0 {
			d.Then = fmt.Sprintf("it means %s and %d others as well", short(more[0]), n)
		}
		excepts := strings.HasSuffix(field, ".notPrincipals") || strings.HasSuffix(field, ".notValues")
		if denies := p.Spec.Action == securityapi.AuthorizationPolicy_DENY; denies != excepts {
			d.Severity = AccessCloses
		}
		c.out.add("authorization-principals", d)
	}
}

// orItsPart narrows what is to be removed to one source where the rule has others.
func orItsPart(m match) string {
	if from, _, ok := strings.Cut(m.field, ".source"); ok {
		return "." + from
	}
	return ""
}

// readRule reads a rule as both meshes do. An ALLOW rule with an attribute that a mesh does not judge is dropped there.
func readRule(rule *securityapi.Rule) (clauses []clause, istioDrops, lateenDrops bool) {
	var to, from clause
	for _, t := range rule.GetTo() {
		op := t.GetOperation()
		n := filled(op.GetPorts(), op.GetNotPorts())
		if filled(op.GetHosts(), op.GetNotHosts(), op.GetMethods(), op.GetNotMethods(), op.GetPaths(), op.GetNotPaths()) > 0 {
			istioDrops, lateenDrops = true, true
		}
		to = append(to, match{today: n, then: n})
	}
	for i, f := range rule.GetFrom() {
		s := f.GetSource()
		n := filled(s.GetIpBlocks(), s.GetNotIpBlocks(), s.GetNamespaces(), s.GetNotNamespaces(), s.GetServiceAccounts(), s.GetNotServiceAccounts(),
			s.GetPrincipals(), s.GetNotPrincipals())
		if filled(s.GetRemoteIpBlocks(), s.GetNotRemoteIpBlocks(), s.GetRequestPrincipals(), s.GetNotRequestPrincipals()) > 0 {
			istioDrops, lateenDrops = true, true
		}
		m, name := match{today: n, then: n}, "trustDomains"
		if len(s.GetTrustDomains()) == 0 {
			name = "notTrustDomains"
		}
		domains, unjudged := judgedDomains(n, s.GetTrustDomains(), s.GetNotTrustDomains())
		if m.then += domains; domains > 0 {
			m.field, m.rule = fmt.Sprintf("from[%d].source.%s", i, name), "authorization-trust-domains"
		}
		if unjudged {
			m.unjudged, lateenDrops = fmt.Sprintf("from[%d].source.%s", i, name), true
		}
		from = append(from, m)
	}
	for _, cl := range []clause{to, from} {
		if len(cl) > 0 {
			clauses = append(clauses, cl)
		}
	}
	for i, w := range rule.GetWhen() {
		field := fmt.Sprintf("when[%d].key", i)
		switch key := w.GetKey(); {
		case slices.Contains(connectionAttributes, key):
			clauses = append(clauses, clause{{today: 1, then: 1}})
		case key == sourceServiceAccount:
			clauses, istioDrops = append(clauses, clause{{then: 1, field: field, rule: "authorization-when-service-account"}}), true
		case key == sourceTrustDomain:
			m := match{}
			domains, unjudged := judgedDomains(0, w.GetValues(), w.GetNotValues())
			if m.then = domains; domains > 0 {
				m.field, m.rule = field, "authorization-when-trust-domain"
			}
			clauses, istioDrops, lateenDrops = append(clauses, clause{m}), true, lateenDrops || unjudged
		default:
			clauses, istioDrops, lateenDrops = append(clauses, clause{{}}), true, true
		}
	}
	return clauses, istioDrops, lateenDrops
}

// judgedDomains counts which of two lists of trust domains this mesh judges, beside so many other fields; unjudged says that not all of their patterns
// can be. Of those that are named, part is as good as none beside anything else.
func judgedDomains(others int, named, excepted []string) (lists int, unjudged bool) {
	judged := func(domains []string) []string {
		return slices.DeleteFunc(slices.Clone(domains), func(d string) bool { return !translate.JudgesDomain(d) })
	}
	wanted, except := judged(named), judged(excepted)
	lists = filled(except)
	if len(wanted) == len(named) || others+lists == 0 {
		lists += filled(wanted)
	}
	return lists, len(wanted) < len(named) || len(except) < len(excepted)
}

// filled counts the lists that are not empty.
func filled(lists ...[]string) int {
	n := 0
	for _, l := range lists {
		if len(l) > 0 {
			n++
		}
	}
	return n
}
