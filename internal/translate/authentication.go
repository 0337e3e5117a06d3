package translate

import (
	"fmt"
	"strings"

	securityapi "istio.io/api/security/v1beta1"
	typev1beta1 "istio.io/api/type/v1beta1"
	securityv1 "istio.io/client-go/pkg/apis/security/v1"

	"lateen.dev/lateen/internal/gen/l7"
	"lateen.dev/lateen/internal/model"
)

// AuthenticationTargets are the targetRefs of a RequestAuthentication; none for one that is for sidecars and gateways.
func AuthenticationTargets(ra *securityv1.RequestAuthentication) []*typev1beta1.PolicyTargetReference {
	return refs(ra.Spec.TargetRef, ra.Spec.TargetRefs) //nolint:staticcheck // targetRef is still accepted
}

// RequestAuthentication translates a RequestAuthentication for the proxies that read requests. It returns nil for one that none of them has.
func RequestAuthentication(mesh Mesh, ra *securityv1.RequestAuthentication, in Targets) (*l7.Authentication, model.Report) {
	targets := AuthenticationTargets(ra)
	if len(targets) == 0 {
		return nil, model.Report{Conditions: []model.Condition{NotImplemented("without targetRefs it is for sidecars and gateways, and this mesh has none; name a Gateway or a Service in spec.targetRefs to have a waypoint enforce it")}}
	}
	at := attach(mesh, ra.Namespace, targets, in)
	out := &l7.Authentication{Namespace: ra.Namespace, Name: ra.Name}
	var bad []string
	for i, rule := range ra.Spec.GetJwtRules() {
		t, faults := tokenRule(fmt.Sprintf("jwtRules[%d]", i), rule)
		out.Rules, bad = append(out.Rules, t), append(bad, faults...)
	}
	message := "tokens are not verified yet: a request with anything in a place of a token that the rules name is refused with 401, and one without passes as unauthenticated"
	if len(out.Rules) == 0 {
		message = "it has no rules, so it asks for no token and refuses nothing"
	}
	if len(bad) > 0 {
		message = "no field of a request can be called so, and none is looked into: " + strings.Join(bad, ", ") + ". " + message
	}
	report := at.conditions(partly(message))
	if !at.inForce() {
		return nil, report
	}
	out.Parents, out.Targets = parents(at.gateways), at.targets
	return out, report
}

// tokenRule reads where the tokens of an issuer are.
func tokenRule(path string, rule *securityapi.JWTRule) (_ *l7.TokenRule, bad []string) {
	out := &l7.TokenRule{Issuer: rule.GetIssuer(), Params: rule.GetFromParams(), Cookies: rule.GetFromCookies()}
	for i, h := range rule.GetFromHeaders() {
		if !isToken(h.GetName()) {
			bad = append(bad, fmt.Sprintf("%s.fromHeaders[%d] %.100q", path, i, h.GetName()))
			continue
		}
		out.Fields = append(out.Fields, &l7.TokenField{Name: strings.ToLower(h.GetName()), Prefix: h.GetPrefix()})
	}
	return out, bad
}
