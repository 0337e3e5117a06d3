package local

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"lateen.dev/lateen/internal/engine/local/merge"
	"lateen.dev/lateen/internal/model/wellknown"
)

// writeReports writes the objects that the engine itself reports, those that changed, for the control plane.
func (r *reconciler) writeReports(nodes []*corev1.Node, pods []*corev1.Pod) error {
	want := map[string]any{}
	for _, n := range nodes {
		want["node."+n.Name+".yaml"] = n
	}
	for _, p := range pods {
		want[fileName("pod."+p.Namespace+"."+p.Name)+".yaml"] = p
	}
	var errs []error
	for name, o := range want {
		b, err := yaml.Marshal(o)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if bytes.Equal(b, r.seen.files[name]) {
			continue
		}
		if err := writeAtomic(filepath.Join(r.dir.engineObjects(), name), b, 0o644); err != nil {
			errs = append(errs, fmt.Errorf("report %s: %w", name, err))
			continue
		}
		r.seen.files[name] = b
	}
	for name := range r.seen.files {
		if want[name] != nil {
			continue
		}
		if err := os.Remove(filepath.Join(r.dir.engineObjects(), name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, fmt.Errorf("withdraw %s: %w", name, err))
			continue
		}
		delete(r.seen.files, name)
	}
	return errors.Join(errs...)
}

// reportNodes makes the Node objects. The state's lock must be held.
func (s *state) reportNodes() []*corev1.Node {
	var out []*corev1.Node
	for _, n := range s.nodes {
		out = append(out, &corev1.Node{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"},
			ObjectMeta: metav1.ObjectMeta{Name: n.name, UID: types.UID(n.uid), Labels: maps.Clone(n.labels),
				CreationTimestamp: metav1.NewTime(n.created)},
			Spec: corev1.NodeSpec{PodCIDR: n.PodCIDR().String(), PodCIDRs: texts(n.PodCIDRs())},
			Status: corev1.NodeStatus{
				Addresses: n.addresses(),
				Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "NetworkReady",
					Message: "the node's network namespace is up", LastTransitionTime: metav1.NewTime(n.created)}},
			},
		})
	}
	return out
}

func (n *node) addresses() []corev1.NodeAddress {
	var out []corev1.NodeAddress
	for _, ip := range n.IPs() {
		out = append(out, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: ip.String()})
	}
	return append(out, corev1.NodeAddress{Type: corev1.NodeHostName, Address: n.name})
}

func podIPs(ips []netip.Addr) (out []corev1.PodIP) {
	for _, ip := range ips {
		out = append(out, corev1.PodIP{IP: ip.String()})
	}
	return out
}

func hostIPs(ips []netip.Addr) (out []corev1.HostIP) {
	for _, ip := range ips {
		out = append(out, corev1.HostIP{IP: ip.String()})
	}
	return out
}

// texts writes each element of a list.
func texts[T fmt.Stringer](list []T) (out []string) {
	for _, e := range list {
		out = append(out, e.String())
	}
	return out
}

// reportPods makes the Pod objects, those of the node proxies included. The state's lock must be held.
func (s *state) reportPods() []*corev1.Pod {
	var out []*corev1.Pod
	for _, p := range s.pods {
		out = append(out, s.reportPod(p))
	}
	for _, n := range s.nodes {
		out = append(out, n.reportProxy())
	}
	return out
}

func (s *state) reportPod(p *pod) *corev1.Pod {
	o := &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Name: p.id.name, Namespace: p.id.namespace, UID: types.UID(p.id.uid),
			Labels: maps.Clone(p.labels), Annotations: maps.Clone(p.annotations), CreationTimestamp: metav1.NewTime(p.id.created)},
		Spec: *p.id.spec.DeepCopy(),
		Status: corev1.PodStatus{Phase: p.phase, Message: p.reason, HostIP: p.id.node.IP().String(),
			HostIPs: hostIPs(p.id.node.IPs())},
	}
	o.Spec.NodeName = p.id.node.name
	o.Spec.ServiceAccountName = p.id.serviceAccount()
	if p.id.owner.Kind == "Deployment" {
		yes := true
		o.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: p.id.owner.Name,
			UID: types.UID(s.ownerUID(p)), Controller: &yes}}
	}
	if p.redirection.enabled {
		if o.Annotations == nil {
			o.Annotations = map[string]string{}
		}
		o.Annotations[wellknown.Redirection] = "enabled"
	}
	if p.network {
		o.Status.PodIP = p.id.ip.String()
		o.Status.PodIPs = podIPs(p.id.ips)
	}
	if !p.started.IsZero() {
		o.Status.StartTime = &metav1.Time{Time: p.started}
	}
	if p.stopping {
		o.DeletionTimestamp = &metav1.Time{Time: p.deleted}
	}
	for _, c := range p.containers {
		s := c.report()
		if c.init {
			o.Status.InitContainerStatuses = append(o.Status.InitContainerStatuses, s)
		} else {
			o.Status.ContainerStatuses = append(o.Status.ContainerStatuses, s)
		}
	}
	o.Status.Conditions = p.conditions()
	if p.redirection.enabled && p.redirection.err != "" {
		o.Status.Conditions = append(o.Status.Conditions, corev1.PodCondition{Type: wellknown.ExceptionsAccepted, Status: corev1.ConditionFalse,
			Reason: "Invalid", Message: p.redirection.err})
	}
	return o
}

// conditions are the pod's, without times: what has not changed must look the same.
func (p *pod) conditions() []corev1.PodCondition {
	initialized := true
	for _, c := range p.containers {
		initialized = initialized && (!c.init || c.done)
	}
	reason, message := "", ""
	if !p.ready() {
		reason, message = "ContainersNotReady", p.unreadyWhy()
	}
	status := func(b bool) corev1.ConditionStatus {
		if b {
			return corev1.ConditionTrue
		}
		return corev1.ConditionFalse
	}
	return []corev1.PodCondition{
		{Type: corev1.PodScheduled, Status: corev1.ConditionTrue},
		{Type: corev1.PodInitialized, Status: status(initialized)},
		{Type: corev1.ContainersReady, Status: status(p.ready()), Reason: reason, Message: message},
		{Type: corev1.PodReady, Status: status(p.ready()), Reason: reason, Message: message},
	}
}

// unreadyWhy says in words why a pod is not ready.
func (p *pod) unreadyWhy() string {
	switch {
	case p.stopping:
		return "being ended"
	case p.reason != "":
		return p.reason
	}
	for _, c := range p.containers {
		if c.message != "" && !c.done {
			return "container " + c.spec.Name + ": " + c.message
		}
	}
	for _, c := range p.containers {
		if !c.running() && !c.done {
			return "container " + c.spec.Name + " is not running yet"
		}
		if !c.init && !c.ready && c.running() {
			return "container " + c.spec.Name + " has not passed its readiness probe yet"
		}
	}
	return ""
}

func (c *container) report() corev1.ContainerStatus {
	started := c.running()
	s := corev1.ContainerStatus{Name: c.spec.Name, Image: c.spec.Image, Ready: c.ready || c.init && c.done, RestartCount: int32(c.restarts), Started: &started}
	terminated := func() *corev1.ContainerStateTerminated {
		reason := "Completed"
		if *c.exitCode != 0 {
			reason = "Error"
		}
		return &corev1.ContainerStateTerminated{ExitCode: int32(*c.exitCode), Reason: reason, Message: c.lastExit, FinishedAt: metav1.NewTime(c.finished)}
	}
	switch {
	case c.running():
		s.State.Running = &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(c.started)}
	case c.done && c.exitCode != nil:
		s.State.Terminated = terminated()
	default:
		s.State.Waiting = &corev1.ContainerStateWaiting{Reason: c.waiting, Message: c.message}
	}
	if c.exitCode != nil && !c.done {
		s.LastTerminationState.Terminated = terminated()
	}
	return s
}

// reportProxy is the node's proxy as the pod that it would be in a cluster. The state's lock must be held.
func (n *node) reportProxy() *corev1.Pod {
	ready := corev1.ConditionFalse
	if n.proxyReady {
		ready = corev1.ConditionTrue
	}
	image := "lateen/proxy"
	if n.program().ztunnel {
		image = "ztunnel"
	}
	return &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Name: n.proxyPodName(), Namespace: meshNamespace, UID: types.UID(n.podUID),
			Labels: map[string]string{"app": "ztunnel"}, CreationTimestamp: metav1.NewTime(n.created)},
		Spec: corev1.PodSpec{NodeName: n.name, ServiceAccountName: proxyAccount, HostNetwork: true,
			Containers: []corev1.Container{{Name: "proxy", Image: image}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIP: n.IP().String(), HostIP: n.IP().String(),
			PodIPs: podIPs(n.IPs()), HostIPs: hostIPs(n.IPs()),
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}},
	}
}

// deploymentStatus counts a Deployment's pods. The state's lock must be held.
func (s *state) deploymentStatus(o *stored) appsv1.DeploymentStatus {
	d := o.Value.(*appsv1.Deployment)
	hash := templateHash(&d.Spec.Template, o.dir)
	out := appsv1.DeploymentStatus{ObservedGeneration: o.version} // pods are counted by the template of this very moment
	for _, p := range s.podsOf(o.Key) {
		if p.stopping {
			continue
		}
		out.Replicas++
		if p.id.hash == hash {
			out.UpdatedReplicas++
		}
		if p.ready() {
			out.ReadyReplicas++
			out.AvailableReplicas++
		}
	}
	out.UnavailableReplicas = max(out.Replicas-out.ReadyReplicas, 0)
	wanted := int32(1)
	if d.Spec.Replicas != nil {
		wanted = *d.Spec.Replicas
	}
	available := appsv1.DeploymentCondition{Type: appsv1.DeploymentAvailable, Status: corev1.ConditionFalse, Reason: "MinimumReplicasUnavailable"}
	if out.ReadyReplicas >= wanted {
		available.Status, available.Reason = corev1.ConditionTrue, "MinimumReplicasAvailable"
	}
	out.Conditions = append(out.Conditions, available)
	if why := s.complaints[o.Key]; why != "" {
		out.Conditions = append(out.Conditions, appsv1.DeploymentCondition{Type: appsv1.DeploymentReplicaFailure, Status: corev1.ConditionTrue,
			Reason: "FailedCreate", Message: why})
	}
	return out
}

// withStatus adds a status to an object's JSON.
func withStatus(o merge.Object, status any) (merge.Object, error) {
	b, err := yaml.Marshal(status)
	if err != nil {
		return nil, err
	}
	b, err = yaml.YAMLToJSON(b)
	if err != nil {
		return nil, err
	}
	s, err := merge.Parse(b)
	if err != nil {
		return nil, err
	}
	return merge.Set(o, s, "status"), nil
}
