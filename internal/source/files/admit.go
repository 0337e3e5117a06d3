package files

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lateen.dev/lateen/internal/model"
)

// admitPod writes down the service account of a pod that names none, as an API server does. To the mesh a pod without one has no identity.
// The mirror of a static pod stays without.
func admitPod(o metav1.Object) {
	pod := o.(*corev1.Pod)
	if !model.Static(pod) {
		pod.Spec.ServiceAccountName = cmp.Or(pod.Spec.ServiceAccountName, pod.Spec.DeprecatedServiceAccount, "default")
	}
}
