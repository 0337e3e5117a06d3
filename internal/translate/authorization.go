package translate

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	securityapi "istio.io/api/security/v1beta1"
	securityv1 "istio.io/client-go/pkg/apis/security/v1"

	"lateen.dev/lateen/internal/gen/security"
	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/model/wellknown"
)

// Authorization translates an AuthorizationPolicy for node proxies, which decide per connection. It returns nil for a policy that
// is not theirs. Attributes that only a proxy that reads requests could judge are treated exactly as Istio treats them, so that a policy
// means the same here and there: an ALLOW rule that names one is dropped and allows nothing. A DENY rule is kept without them; a source,
// operation or condition of which nothing is left matches nothing, and with it nor does a rule that has no alternative to it.
func Authorization(mesh Mesh, policy *securityv1.AuthorizationPolicy) (*security.Authorization, []model.Condition) {
	spec := withAliases(mesh, &policy.Spec)
	if targeted(spec) {
		return nil, []model.Condition{rejected("WaypointRequired", "a policy with targetRefs is for waypoints, which read requests; node proxies do not enforce it. Use a selector to have them do so")}
	}
	out := &security.Authorization{Name: policy.Name, Namespace: policy.Namespace, Scope: scope(mesh, policy)}
	switch spec.Action {
	case securityapi.AuthorizationPolicy_ALLOW:
		out.Action = security.Action_ALLOW
	case securityapi.AuthorizationPolicy_DENY:
		out.Action = security.Action_DENY
	default:
		return nil, []model.Condition{rejected("UnsupportedValue", fmt.Sprintf("node proxies do not support action %s; the policy is not enforced", spec.Action))}
	}
	dryRun, unclear := dryRun(policy)
	out.DryRun = dryRun
	rules := ruleSet{action: out.Action, namespace: policy.Namespace, unsupported: map[string]bool{}, room: roomForCopies}
	for _, rule := range spec.Rules {
		rules.add(rule)
	}
	out.Rules = rules.rules
	return out, judged(out, rules.unsupported, unclear)
}

// judged tells the author of a policy what node proxies cannot judge of it, and what that makes of it. unclear is what else is to be said.
func judged(out *security.Authorization, unsupported map[string]bool, unclear string) []model.Condition {
	if len(unsupported) == 0 {
		if unclear != "" {
			return []model.Condition{partly(unclear)}
		}
		return []model.Condition{accepted()}
	}
	effect := "rules of this ALLOW policy that use them are dropped, so it allows less than written"
	switch {
	case out.Action != security.Action_DENY:
	case !slices.ContainsFunc(out.Rules, CanMatch):
		effect = "without them nothing is left that this DENY policy could match, so it denies nothing"
	default:
		effect = "rules of this DENY policy are enforced without them, so those that keep other attributes deny more than written and those that keep none deny nothing"
	}
	names := slices.Sorted(maps.Keys(unsupported))
	const named = 16
	list := strings.Join(names[:min(len(names), named)], ", ")
	if more := len(names) - named; more > 0 {
		list += fmt.Sprintf(" and %d more", more)
	}
	condition := partly(fmt.Sprintf("node proxies cannot judge %s; %s. A waypoint is needed to enforce them", list, effect))
	if slices.ContainsFunc(names, isTrustDomains) {
		condition.Message += `. Of trust domains they judge those that are written in full, "x*" and "*"`
		if out.Action == security.Action_DENY {
			condition.Message += "; a source or condition of this DENY policy that names nothing else denies these alone, which is less than written"
		}
	}
	if unclear != "" {
		condition.Message += ". " + unclear
	}
	return []model.Condition{condition}
}

// dryRun says whether a policy only reports. A value that is neither true nor false enforces: a policy must not vanish
// because of a word in an annotation.
func dryRun(policy *securityv1.AuthorizationPolicy) (bool, string) {
	v := policy.Annotations[wellknown.DryRun]
	if v == "" {
		return false, ""
	}
	parsed, err := strconv.ParseBool(v)
	if err != nil {
		return false, fmt.Sprintf("annotation %s is %.100q, so the policy is enforced; use true or false", wellknown.DryRun, v)
	}
	return parsed, ""
}

// UnclearDryRun says that a policy's annotation for dry runs is neither true nor false; it is empty if the annotation is clear or missing.
func UnclearDryRun(policy *securityv1.AuthorizationPolicy) string {
	_, unclear := dryRun(policy)
	return unclear
}

func targeted(spec *securityapi.AuthorizationPolicy) bool {
	return spec.TargetRef != nil || len(spec.TargetRefs) > 0 //nolint:staticcheck // targetRef is still accepted
}

// AttachedByName says whether workloads must name the policy, which is so when a selector chooses them.
func AttachedByName(policy *securityv1.AuthorizationPolicy) bool {
	return !targeted(&policy.Spec) && policy.Spec.Selector != nil
}

// scope follows Istio: a selector binds to workloads; without one the root namespace means the mesh. One without labels binds to every workload
// of the namespace, or of the mesh, which is what Istio's sidecars take it for. In Istio's ambient mode such a policy holds for nobody.
func scope(mesh Mesh, policy *securityv1.AuthorizationPolicy) security.Scope {
	switch {
	case policy.Spec.Selector != nil:
		return security.Scope_WORKLOAD_SELECTOR
	case policy.Namespace == mesh.RootNamespace:
		return security.Scope_GLOBAL
	}
	return security.Scope_NAMESPACE
}
