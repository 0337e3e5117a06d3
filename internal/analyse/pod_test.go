package analyse

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"lateen.dev/lateen/internal/model"
)

// podOf is a copy of an object's pod under its key's name, with the app's labels and account.
func podOf(o model.Object, app int) *corev1.Pod {
	p := o.Value.(*corev1.Pod).DeepCopy()
	p.Namespace, p.Name = o.Key.Namespace, o.Key.Name
	p.Labels = map[string]string{"app": fmt.Sprintf("app%d", app)}
	p.Spec.ServiceAccountName = p.Labels["app"]
	return p
}
