package model

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lateen.dev/lateen/internal/model/wellknown"
)

// Account returns the service account that a pod runs as. It returns false for a pod that has no identity: one without a service account,
// and a static pod. The API server's admission writes an account into every other pod, so an empty account never means "default".
func Account(pod *corev1.Pod) (name string, ok bool) {
	name = pod.Spec.ServiceAccountName
	return name, name != "" && !Static(pod)
}

// Static reports whether a kubelet made the pod's object itself, as the mirror of a static pod. With its own credential a kubelet may make
// such objects in every namespace, with labels of its choice. The API server allows that only with both signs that this function looks for.
func Static(pod *corev1.Pod) bool {
	if _, mirror := pod.Annotations[wellknown.ConfigMirror]; mirror {
		return true
	}
	owner := metav1.GetControllerOfNoCopy(pod)
	return owner != nil && owner.Kind == "Node" && owner.APIVersion == "v1"
}

// Ended reports whether all containers of a pod have ended for good.
func Ended(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}
