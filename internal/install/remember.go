package install

import (
	"context"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"lateen.dev/lateen/internal/install/render"
)

// settingsName is the ConfigMap that says what all parts agree on.
const settingsName = "lateen-mesh"

// remember takes from the parts themselves, where the record is lost, what a removal needs of the values: where mesh-wide policies are, and where the nodes
// have their plugins.
func (r *Removal) remember(ctx context.Context) error {
	c, found := r.cluster, map[string]any{}
	settings, err := c.objects().get(ctx, named("ConfigMap", r.record.Namespace, settingsName))
	if err != nil {
		return err
	}
	if settings != nil {
		if root, _, _ := unstructured.NestedString(settings.Object, "data", "ROOT_NAMESPACE"); root != "" {
			found["mesh"] = map[string]any{"rootNamespace": root}
		}
	}
	d, err := c.Client.AppsV1().DaemonSets(r.record.Namespace).Get(ctx, agentName, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return c.explain(err)
	}
	if err == nil && len(d.Spec.Template.Spec.Containers) > 0 {
		folders := map[string]any{}
		for _, arg := range d.Spec.Template.Spec.Containers[0].Args {
			for flag, value := range map[string]string{"--cni-bin-dir=/host": "binDir", "--cni-conf-dir=/host": "confDir"} {
				if dir, ok := strings.CutPrefix(arg, flag); ok {
					folders[value] = dir
				}
			}
		}
		found["cni"] = folders
	}
	r.record.Values = render.Merge(r.record.Values, found)
	return nil
}
