package translate

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"lateen.dev/lateen/internal/gen/workload"
)

// The name is that of what outlives runs and releases: another name each time would be another series of metrics each time.
func TestAPodIsNamedByWhatOutlivesIt(t *testing.T) {
	const (
		pods        = workload.WorkloadType_POD
		deployments = workload.WorkloadType_DEPLOYMENT
		jobs        = workload.WorkloadType_JOB
		cronJobs    = workload.WorkloadType_CRONJOB
	)
	for _, c := range []struct {
		name, labels, owner, want string
		kind                      workload.WorkloadType
	}{
		{"nobody's", "", "", "web-1", pods},
		{"a Deployment's", "pod-template-hash: 6f7b8", "{kind: ReplicaSet, name: web-6f7b8}", "web", deployments},
		{"a ReplicaSet's of its own", "", "{kind: ReplicaSet, name: web-6f7b8}", "web-6f7b8", pods},
		{"a ReplicaSet's whose name does not end so", "pod-template-hash: 6f7b8", "{kind: ReplicaSet, name: web}", "web", pods},
		{"an Argo Rollout's", "rollouts-pod-template-hash: 6f7b8", "{kind: ReplicaSet, name: web-6f7b8}", "web", pods},
		{"an Argo Rollout's whose ReplicaSet is named otherwise", "rollouts-pod-template-hash: 6f7b8", "{kind: ReplicaSet, name: web-1}", "web-1", pods},
		{"a DeploymentConfig's", "deploymentconfig: web", "{kind: ReplicationController, name: web-3}", "web", pods},
		{"a ReplicationController's", "", "{kind: ReplicationController, name: web-3}", "web-3", pods},
		{"of something else, with that label", "deploymentconfig: other", "{kind: StatefulSet, name: db}", "db", pods},
		{"a CronJob's", "", "{kind: Job, name: backup-28374650}", "backup", cronJobs},
		{"a CronJob's, ten digits", "", "{kind: Job, name: a-b-1702386000}", "a-b", cronJobs},
		{"a Job's with too few digits", "", "{kind: Job, name: backup-2837465}", "backup-2837465", jobs},
		{"a Job's with too many", "", "{kind: Job, name: backup-28374650123}", "backup-28374650123", jobs},
		{"a Job's with digits and no dash", "", "{kind: Job, name: backup28374650}", "backup28374650", jobs},
		{"a Job's of digits alone", "", "{kind: Job, name: \"-28374650\"}", "-28374650", jobs},
		{"a Job's with letters behind", "", "{kind: Job, name: backup-28374650x}", "backup-28374650x", jobs},
		{"a node's: static", "", "{kind: Node, name: node-1}", "web-1", pods},
		{"an operator's, under its own name", "", "{kind: Cluster, name: pg}", "pg", pods},
		{"with a name of its own", "service.istio.io/workload-name: own", "{kind: Job, name: backup-28374650}", "own", cronJobs},
	} {
		pod := object[corev1.Pod](t, podHead+"  labels: {"+c.labels+"}\nstatus: {podIP: 10.0.0.1}")
		if c.owner != "" {
			pod.OwnerReferences = object[corev1.Pod](t, "metadata: {ownerReferences: ["+c.owner[:len(c.owner)-1]+", controller: true, apiVersion: v1, uid: u}]}").OwnerReferences
		}
		w, _ := Workload(mesh, pod, WorkloadInput{})
		if w.WorkloadName != c.want || w.CanonicalName != c.want || w.WorkloadType != c.kind {
			t.Errorf("%s: %s %s, canonical %s; want %s %s", c.name, w.WorkloadType, w.WorkloadName, w.CanonicalName, c.kind, c.want)
		}
	}
}
