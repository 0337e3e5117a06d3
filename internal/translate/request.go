package translate

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	securityapi "istio.io/api/security/v1beta1"
	typev1beta1 "istio.io/api/type/v1beta1"
	securityv1 "istio.io/client-go/pkg/apis/security/v1"

	"lateen.dev/lateen/internal/gen/l7"
	"lateen.dev/lateen/internal/model"
)

// Targeted says whether a policy is for waypoints: it names what it is attached to.
func Targeted(policy *securityv1.AuthorizationPolicy) bool { return targeted(&policy.Spec) }

// PolicyTargets are the targetRefs of an AuthorizationPolicy.
func PolicyTargets(policy *securityv1.AuthorizationPolicy) []*typev1beta1.PolicyTargetReference {
	return refs(policy.Spec.TargetRef, policy.Spec.TargetRefs) //nolint:staticcheck // targetRef is still accepted
}

// refs are the given of targetRefs and of targetRef, their older name for a single one.
func refs(one *typev1beta1.PolicyTargetReference, all []*typev1beta1.PolicyTargetReference) []*typev1beta1.PolicyTargetReference {
	if one != nil {
		all = append([]*typev1beta1.PolicyTargetReference{one}, all...)
	}
	return slices.DeleteFunc(slices.Clone(all), func(r *typev1beta1.PolicyTargetReference) bool { return r == nil })
}

// RequestAuthorization translates an AuthorizationPolicy with targetRefs for the proxies that read requests. It returns nil for a policy that
// none of them has. A rule with a value that cannot be judged matches never more, if it is of action ALLOW, and else never less than what is written:
// an ALLOW rule is dropped and allows nothing. A rule of another action loses the whole list, or of a negative list the value alone.
func RequestAuthorization(mesh Mesh, policy *securityv1.AuthorizationPolicy, in Targets) (*l7.Authorization, model.Report) {
	spec := withAliases(mesh, &policy.Spec)
	at := attach(mesh, policy.Namespace, PolicyTargets(policy), in)
	action, known := map[securityapi.AuthorizationPolicy_Action]l7.Action{
		securityapi.AuthorizationPolicy_ALLOW: l7.Action_ALLOW, securityapi.AuthorizationPolicy_DENY: l7.Action_DENY,
		securityapi.AuthorizationPolicy_AUDIT: l7.Action_AUDIT, securityapi.AuthorizationPolicy_CUSTOM: l7.Action_CUSTOM,
	}[spec.Action]
	if !known {
		return nil, at.conditions(rejected("UnsupportedValue", fmt.Sprintf("waypoints do not know action %s; the policy is not enforced", spec.Action)))
	}
	rules := requestRules{action: action, namespace: policy.Namespace, unsupported: map[string]bool{}, unknown: map[string]bool{}}
	for _, rule := range spec.Rules {
		rules.add(rule)
	}
	dry, unclear := dryRun(policy)
	report := at.conditions(rules.verdict(spec.GetProvider().GetName(), unclear))
	if !at.inForce() {
		return nil, report
	}
	return &l7.Authorization{Namespace: policy.Namespace, Name: policy.Name, Parents: parents(at.gateways), Targets: at.targets, Action: action,
		DryRun: dry, Provider: spec.GetProvider().GetName(), Rules: rules.rules}, report
}

// requestRules translates the rules of one policy.
type requestRules struct {
	action    l7.Action
	namespace string
	rules     []*l7.Rule
	// unsupported is what waypoints cannot judge, and unknown are keys of conditions that there are not.
	unsupported, unknown map[string]bool
	dropped              int
	// matchesAll says that a rule has nothing left but what cannot be judged.
	matchesAll bool
}

// add translates one rule: an alternative to the others. An ALLOW rule takes part only if all of it can be judged, and one with an unknown key
// does not take part whatever its action.
func (s *requestRules) add(rule *securityapi.Rule) {
	out := &l7.Rule{}
	whole, known := true, true
	miss := func(bad []string) {
		for _, b := range bad {
			s.unsupported[b], whole = true, false
		}
	}
	anybody, anything := false, false
	for _, from := range rule.GetFrom() {
		source, bad := requestSource(from.GetSource(), s.namespace)
		miss(bad)
		anybody = anybody || namesNoSource(source)
		out.From = append(out.From, source)
	}
	for _, to := range rule.GetTo() {
		operation, bad := requestOperation(to.GetOperation())
		miss(bad)
		anything = anything || namesNoOperation(operation)
		out.To = append(out.To, operation)
	}
	for _, when := range rule.GetWhen() {
		condition, bad, ok := requestCondition(when, s.namespace)
		if !ok {
			s.unknown[fmt.Sprintf("%.100q", when.GetKey())], known = true, false
			continue
		}
		miss(bad)
		if len(condition.Values)+len(condition.NotValues) > 0 {
			out.When = append(out.When, condition)
		}
	}
	if !known || s.action == l7.Action_ALLOW && !whole {
		s.dropped++
		return
	}
	// A source of which nothing is left stands for everybody, and so does a list of alternatives with it.
	if anybody && s.action != l7.Action_ALLOW {
		out.From = nil
	}
	if anything && s.action != l7.Action_ALLOW {
		out.To = nil
	}
	s.matchesAll = s.matchesAll || !whole && len(out.From)+len(out.To)+len(out.When) == 0
	s.rules = append(s.rules, out)
}

// tokenNote says what holds until waypoints verify tokens.
const tokenNote = "tokens are not verified yet: an ALLOW rule that needs one matches nobody, and in other actions a condition on one counts as true where a request has a token"

// verdict tells the author of a policy what waypoints make of its rules.
func (s *requestRules) verdict(provider, unclear string) model.Condition {
	var notes []string
	if len(s.unsupported) > 0 {
		effect := "rules of this ALLOW policy with it are dropped, so it allows less than written"
		if s.action != l7.Action_ALLOW {
			effect = "the policy is enforced without it and the other values of its list, so it matches more than written"
			if s.matchesAll {
				effect += "; a rule of which nothing is left matches every request"
			}
		}
		notes = append(notes, fmt.Sprintf("waypoints cannot judge %s; %s", few(s.unsupported), effect))
	}
	if len(s.unknown) > 0 {
		notes = append(notes, fmt.Sprintf("there is no attribute %s, and rules with it are dropped: they match nothing; correct the key", few(s.unknown)))
	}
	if s.action == l7.Action_CUSTOM {
		notes = append(notes, fmt.Sprintf("provider %q is not called yet: requests that the policy matches are refused with 403", provider))
	}
	if slices.ContainsFunc(s.rules, needsToken) {
		notes = append(notes, tokenNote)
	}
	if unclear != "" {
		notes = append(notes, unclear)
	}
	if len(notes) == 0 {
		return accepted()
	}
	return partly(strings.Join(notes, ". "))
}

// needsToken says whether a rule names something of a token.
func needsToken(r *l7.Rule) bool {
	return slices.ContainsFunc(r.From, func(s *l7.Source) bool { return len(s.RequestPrincipals)+len(s.NotRequestPrincipals) > 0 }) ||
		slices.ContainsFunc(r.When, func(c *l7.Condition) bool {
			return c.GetClaim() != nil || slices.Contains([]l7.Attribute{l7.Attribute_REQUEST_AUTH_PRINCIPAL, l7.Attribute_REQUEST_AUTH_AUDIENCES, l7.Attribute_REQUEST_AUTH_PRESENTER}, c.GetKnown())
		})
}

// few lists names in order, up to a bound.
func few(set map[string]bool) string {
	names := slices.Sorted(maps.Keys(set))
	const named = 16
	list := strings.Join(names[:min(len(names), named)], ", ")
	if more := len(names) - named; more > 0 {
		list += fmt.Sprintf(" and %d more", more)
	}
	return list
}
