package install

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"lateen.dev/lateen/internal/engine/api"
)

// guards are the kinds that say who may do what: without one of them a part of the mesh fails at what it does seldom, or a limit that it relies
// on is gone without a word.
var guards = []string{"ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}

// Guards says whether the step is about a right, or a limit to one.
func (s Step) Guards() bool { return slices.Contains(guards, s.Kind) }

// Drift are the objects of an installation of this program's version that are not as it made them any more: those that are gone and those of
// which fields differ. Of one that Helm made, whose values Helm alone knows, it names what is gone of those that have no need of values. It
// changes nothing: the API server is asked what each would become.
func (c *Cluster) Drift(ctx context.Context, o Options, record *Record) ([]Step, error) {
	o.Values = record.Values
	kubeVersion, err := c.Version()
	if err != nil {
		return nil, err
	}
	classes, err := c.objects().get(ctx, named("CustomResourceDefinition", "", "gatewayclasses.gateway.networking.k8s.io"))
	if err != nil {
		return nil, err
	}
	want, err := desired(o, kubeVersion, classes != nil)
	if err != nil {
		return nil, err
	}
	var drift []Step
	for _, object := range want.objects {
		if record.Helm && !slices.Contains(guards, object.GetKind()) {
			continue
		}
		s, err := c.drifted(ctx, object, record.Helm)
		if err != nil {
			return nil, err
		}
		if s.Action == Create || s.Action == Change {
			drift = append(drift, s)
		}
	}
	return drift, nil
}

func (c *Cluster) drifted(ctx context.Context, object *unstructured.Unstructured, there bool) (Step, error) {
	live, err := c.objects().get(ctx, object)
	switch {
	case err != nil:
		return Step{}, err
	case live == nil:
		return step(Create, object, ""), nil
	case there:
		return step(Unchanged, object, ""), nil
	}
	// Also one that somebody took for his own by its labels is compared.
	return c.judge(ctx, object, live, func(*unstructured.Unstructured) bool { return true })
}

// Called is the step's object as people name it.
func (s Step) Called() string {
	return api.Key{Kind: s.Kind, Namespace: s.Namespace, Name: s.Name}.String()
}
