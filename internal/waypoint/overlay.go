package waypoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"lateen.dev/lateen/internal/model/wellknown"
)

// The keys of a ConfigMap with parameters. The value of each is a strategic merge patch of one object, as Istio has them.
const (
	keyDeployment     = "deployment"
	keyService        = "service"
	keyServiceAccount = "serviceAccount"
	keyAutoscaler     = "horizontalPodAutoscaler"
	keyBudget         = "podDisruptionBudget"
)

var keys = []string{keyDeployment, keyService, keyServiceAccount, keyAutoscaler, keyBudget}

// layer is one ConfigMap with parameters.
type layer struct {
	name string
	data map[string]string
}

// layers are the ConfigMaps that change the objects of a Gateway, in their order.
type layers struct {
	gateway string
	all     []layer
}

// ParametersOf is the name of the ConfigMap that a Gateway's parametersRef means, in its namespace; empty if it has none.
func ParametersOf(in Input) (string, error) {
	infra := in.Gateway.Spec.Infrastructure
	if infra == nil || infra.ParametersRef == nil {
		return "", nil
	}
	ref := infra.ParametersRef
	if ref.Kind != "ConfigMap" || ref.Group != "" {
		return "", refuse(ReasonParameters, "%s: spec.infrastructure.parametersRef means a %s of group %q; name a ConfigMap (group \"\") of the Gateway's namespace", Named(in.Gateway), ref.Kind, ref.Group)
	}
	return ref.Name, nil
}

// layersOf are first the defaults of the class, then the Gateway's own parameters.
func layersOf(in Input) (layers, error) {
	out := layers{gateway: Named(in.Gateway)}
	if defaults := slices.Clone(in.Defaults); len(defaults) > 0 {
		slices.SortFunc(defaults, func(a, b corev1.ConfigMap) int {
			if c := a.CreationTimestamp.Compare(b.CreationTimestamp.Time); c != 0 {
				return c
			}
			return strings.Compare(a.Name, b.Name)
		})
		out.all = append(out.all, layer{"ConfigMap " + defaults[0].Namespace + "/" + defaults[0].Name, defaults[0].Data})
	}
	name, err := ParametersOf(in)
	if err != nil {
		return out, err
	}
	if name != "" {
		if in.Parameters == nil {
			return out, refuse(ReasonParameters, "%s: spec.infrastructure.parametersRef names ConfigMap %s/%s, which does not exist; create it or correct the name", Named(in.Gateway), in.Gateway.Namespace, name)
		}
		out.all = append(out.all, layer{"ConfigMap " + in.Gateway.Namespace + "/" + name, in.Parameters.Data})
	}
	for _, l := range out.all {
		for _, key := range slices.Sorted(maps.Keys(l.data)) {
			if !slices.Contains(keys, key) {
				return out, refuse(ReasonParameters, "%s: key %q has no meaning for a waypoint; use %s", l.name, key, strings.Join(keys, ", "))
			}
		}
	}
	return out, nil
}

// apply changes the objects by the layers, and leaves out those that nobody has asked for.
func (l layers) apply(base Objects) (Objects, error) {
	var err error
	var changed bool
	before := base
	if base.ServiceAccount == nil {
		for _, one := range l.all {
			if _, has := one.data[keyServiceAccount]; has {
				return Objects{}, refuse(ReasonParameters, "%s: key %s has no effect, since annotation %s of %s names an account that exists; remove one of them", one.name, keyServiceAccount, wellknown.GatewayServiceAccount, l.gateway)
			}
		}
	} else if base.ServiceAccount, _, err = overlaid(l, keyServiceAccount, base.ServiceAccount); err != nil {
		return Objects{}, err
	}
	if base.Service, changed, err = overlaid(l, keyService, base.Service); err != nil {
		return Objects{}, err
	}
	if changed && !maps.Equal(before.Service.Spec.Selector, base.Service.Spec.Selector) {
		return Objects{}, l.fixed(keyService, "spec.selector")
	}
	if base.Deployment, changed, err = overlaid(l, keyDeployment, base.Deployment); err != nil {
		return Objects{}, err
	}
	if changed {
		if err := l.judge(before.Deployment, base.Deployment); err != nil {
			return Objects{}, err
		}
	}
	align(base.Deployment)
	if base.Autoscaler, changed, err = overlaid(l, keyAutoscaler, base.Autoscaler); err != nil {
		return Objects{}, err
	}
	if !changed {
		base.Autoscaler = nil
	} else if base.Autoscaler.Spec.ScaleTargetRef != before.Autoscaler.Spec.ScaleTargetRef {
		return Objects{}, l.fixed(keyAutoscaler, "spec.scaleTargetRef")
	}
	if base.Budget, changed, err = overlaid(l, keyBudget, base.Budget); err != nil {
		return Objects{}, err
	}
	if !changed {
		base.Budget = nil
	} else if !reflect.DeepEqual(base.Budget.Spec.Selector, before.Budget.Spec.Selector) {
		return Objects{}, l.fixed(keyBudget, "spec.selector")
	}
	return base, nil
}

// judge refuses a Deployment whose pods would not be the waypoint's, or would have more rights than a waypoint needs: who may write Gateways and
// ConfigMaps of a namespace is not to get by them what the namespace does not let him have otherwise.
func (l layers) judge(before, after *appsv1.Deployment) error {
	if !reflect.DeepEqual(before.Spec.Selector, after.Spec.Selector) {
		return l.fixed(keyDeployment, "spec.selector")
	}
	for name, value := range fixedLabels(before.Name) {
		if after.Spec.Template.Labels[name] != value {
			return l.fixed(keyDeployment, "spec.template.metadata.labels."+name)
		}
	}
	spec := &after.Spec.Template.Spec
	if spec.ServiceAccountName != before.Spec.Template.Spec.ServiceAccountName || spec.DeprecatedServiceAccount != "" && spec.DeprecatedServiceAccount != spec.ServiceAccountName {
		return refuse(ReasonParameters, "%s: key %s changes spec.template.spec.serviceAccountName; name the account in annotation %s of %s", l.names(keyDeployment), keyDeployment, wellknown.GatewayServiceAccount, l.gateway)
	}
	if !slices.ContainsFunc(spec.Containers, func(c corev1.Container) bool { return c.Name == Container }) {
		return refuse(ReasonParameters, "%s: key %s removes container %s, which is the proxy; keep it", l.names(keyDeployment), keyDeployment, Container)
	}
	if field := unrestricted(spec); field != "" {
		return refuse(ReasonParameters, "%s: key %s sets spec.template.spec.%s, which Pod Security's level restricted does not admit, and no pod of a waypoint needs; leave it out", l.names(keyDeployment), keyDeployment, field)
	}
	return nil
}

func (l layers) fixed(key, field string) error {
	return refuse(ReasonParameters, "%s: key %s changes %s, by which a waypoint's parts find each other; leave it out", l.names(key), key, field)
}

// names are the ConfigMaps that have a key.
func (l layers) names(key string) string {
	var out []string
	for _, one := range l.all {
		if _, has := one.data[key]; has {
			out = append(out, one.name)
		}
	}
	return strings.Join(out, " or ")
}

// overlaid merges the patches of a key into an object. changed says whether there was one.
func overlaid[T any, P interface {
	*T
	metav1.Object
}](l layers, key string, base P) (_ P, changed bool, err error) {
	object := base
	for _, one := range l.all {
		patch, has := one.data[key]
		if !has {
			continue
		}
		changed = true
		next, err := merged[T](object, patch)
		if err != nil {
			return nil, true, refuse(ReasonParameters, "%s: key %s: %v; correct it", one.name, key, err)
		}
		object = next
		if !sameIdentity(base, object) {
			return nil, true, refuse(ReasonParameters, "%s: key %s changes the object's name, namespace, owner or another field of metadata that is not labels or annotations; leave it out", one.name, key)
		}
	}
	return object, changed, nil
}

// merged is an object with a strategic merge patch, decoded strictly.
func merged[T any](object any, patch string) (*T, error) {
	raw, err := yaml.YAMLToJSONStrict([]byte(patch))
	if err != nil {
		return nil, fmt.Errorf("it is not YAML: %w", err)
	}
	if !strings.HasPrefix(string(raw), "{") {
		return nil, fmt.Errorf("it is no object but %.40s", raw)
	}
	old, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	out := new(T)
	text, err := strategicpatch.StrategicMergePatch(old, raw, out)
	if err != nil {
		return nil, fmt.Errorf("it is no strategic merge patch: %w", err)
	}
	out = new(T)
	unknown, err := kjson.UnmarshalStrict(text, out)
	if err = errors.Join(append(unknown, err)...); err != nil {
		return nil, err
	}
	return out, nil
}

// sameIdentity says whether a patch has left the metadata as they were, but for labels and annotations.
func sameIdentity(a, b metav1.Object) bool {
	return a.GetName() == b.GetName() && a.GetNamespace() == b.GetNamespace() && a.GetGenerateName() == b.GetGenerateName() && a.GetUID() == b.GetUID() &&
		a.GetResourceVersion() == b.GetResourceVersion() && a.GetGeneration() == b.GetGeneration() && len(b.GetFinalizers()) == 0 && len(b.GetManagedFields()) == 0 &&
		b.GetDeletionTimestamp() == nil && reflect.DeepEqual(a.GetOwnerReferences(), b.GetOwnerReferences()) &&
		b.GetLabels()[wellknown.GatewayName] == a.GetLabels()[wellknown.GatewayName]
}
