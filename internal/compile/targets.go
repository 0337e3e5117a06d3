package compile

import (
	typev1beta1 "istio.io/api/type/v1beta1"
	securityv1 "istio.io/client-go/pkg/apis/security/v1"

	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/translate"
)

// targets finds the policies that name an object in targetRefs, whether it is there or not.
type targets map[model.Key]map[model.Key]bool

// feedTargets keeps the index.
func feedTargets(x *sourceIndex, ch model.Changed) {
	for _, target := range targetsOf(ch.Key.Namespace, ch.Old) {
		if delete(x.targets[target], ch.Key); len(x.targets[target]) == 0 {
			delete(x.targets, target)
		}
	}
	for _, target := range targetsOf(ch.Key.Namespace, ch.New) {
		if x.targets[target] == nil {
			x.targets[target] = map[model.Key]bool{}
		}
		x.targets[target][ch.Key] = true
	}
}

// targetsOf lists what a policy names. Whether it may is not asked here.
func targetsOf(namespace string, o *model.Object) (out []model.Key) {
	var refs []*typev1beta1.PolicyTargetReference
	if policy, ok := valueOf[*securityv1.AuthorizationPolicy](o); ok {
		refs = translate.PolicyTargets(policy)
	} else if ra, ok := valueOf[*securityv1.RequestAuthentication](o); ok {
		refs = translate.AuthenticationTargets(ra)
	}
	for _, ref := range refs {
		switch ref.GetKind() {
		case "Gateway":
			out = append(out, model.GatewayKey(namespace, ref.GetName()))
		case "GatewayClass":
			out = append(out, model.GatewayClassKey(ref.GetName()))
		case "Service":
			out = append(out, model.ServiceKey(namespace, ref.GetName()))
		case "ServiceEntry":
			out = append(out, model.ServiceEntryKey(namespace, ref.GetName()))
		}
	}
	return out
}

// policiesOfTarget are the policies that name the object.
func policiesOfTarget(x *sourceIndex, ch model.Changed, stale marker) {
	x.policiesFor(ch.Key, stale.mark)
}

// policiesFor calls visit for each policy that names an object.
func (x *sourceIndex) policiesFor(target model.Key, visit func(model.Key)) {
	for policy := range x.targets[target] {
		visit(policy)
	}
}
