package translate

import (
	"cmp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lateen.dev/lateen/internal/gen/workload"
	"lateen.dev/lateen/internal/model/wellknown"
)

// controller names what a pod is a part of and outlives it, as Istio does: its Deployment, Rollout, DeploymentConfig or CronJob where one can
// be told, else its direct owner, else the pod itself. A kind that the wire has no type for is a POD.
//
// Other than Istio it does not ask whether the pod's name was generated: what an operator makes under names of its own is named by its owner.
func controller(pod *corev1.Pod) (string, workload.WorkloadType) {
	name, kind := pod.Name, workload.WorkloadType_POD
	if owner := metav1.GetControllerOf(pod); owner != nil {
		name, kind = owning(pod, owner)
	}
	return cmp.Or(pod.Labels[wellknown.ServiceWorkloadName], name), kind
}

// The labels that tell what is behind a pod's direct owner.
const (
	deploymentHash   = "pod-template-hash"          // of a Deployment's ReplicaSets
	rolloutHash      = "rollouts-pod-template-hash" // of an Argo Rollout's
	deploymentConfig = "deploymentconfig"           // OpenShift's, the name itself
)

// owning names what owns a pod through its direct owner.
func owning(pod *corev1.Pod, owner *metav1.OwnerReference) (string, workload.WorkloadType) {
	switch owner.Kind {
	case "Deployment":
		return owner.Name, workload.WorkloadType_DEPLOYMENT
	case "ReplicaSet":
		// It bears the template's hash behind its owner's name.
		if name, ok := withoutHash(owner.Name, pod.Labels[deploymentHash]); ok {
			return name, workload.WorkloadType_DEPLOYMENT
		}
		if name, ok := withoutHash(owner.Name, pod.Labels[rolloutHash]); ok {
			return name, workload.WorkloadType_POD
		}
	case "ReplicationController":
		return cmp.Or(pod.Labels[deploymentConfig], owner.Name), workload.WorkloadType_POD
	case "Job":
		if name, ok := cronJob(owner.Name); ok {
			return name, workload.WorkloadType_CRONJOB
		}
		return owner.Name, workload.WorkloadType_JOB
	case "CronJob":
		return owner.Name, workload.WorkloadType_CRONJOB
	case "Node":
		return pod.Name, workload.WorkloadType_POD // static pods of a node have nothing else in common
	}
	return owner.Name, workload.WorkloadType_POD
}

// withoutHash is a name without the hash behind it; false if there is none.
func withoutHash(name, hash string) (string, bool) {
	if hash == "" {
		return "", false
	}
	return strings.CutSuffix(name, "-"+hash)
}

// cronJob is the CronJob of a Job whose name ends in the time that it was due: in minutes, or in seconds as of old.
func cronJob(job string) (string, bool) {
	const fewest, most = 8, 10
	dash := strings.LastIndexByte(job, '-')
	due := job[dash+1:]
	if dash < 1 || len(due) < fewest || len(due) > most || strings.Trim(due, "0123456789") != "" {
		return "", false
	}
	return job[:dash], true
}
