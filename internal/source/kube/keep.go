package kube

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/model/wellknown"
)

// This file says, kind by kind, what is kept of an object: what the compiler and the CA read, and nothing else. A cluster has many more
// bytes of objects than of what matters to a mesh, and nothing that is not kept can make work when it changes.

// known are the annotations that mean something to the mesh.
var known = func() map[string]bool {
	m := map[string]bool{}
	for _, k := range wellknown.Keys {
		if k.Kind == wellknown.Annotation {
			m[k.Name] = true
		}
	}
	return m
}()

// annotations keeps those that mean something; nil if there is none.
func annotations(all map[string]string) map[string]string {
	var kept map[string]string
	for k, v := range all {
		if known[k] {
			if kept == nil {
				kept = map[string]string{}
			}
			kept[k] = v
		}
	}
	return kept
}

// meta is what is kept of the metadata of Kubernetes' own kinds.
func meta(in *interner, from *metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: from.Name, Namespace: in.text(from.Namespace), UID: from.UID,
		CreationTimestamp: from.CreationTimestamp, DeletionTimestamp: from.DeletionTimestamp,
		Labels: in.labels(from.Labels), Annotations: in.labels(annotations(from.Annotations)),
	}
}

// trim drops from a decoded custom resource what the compiler does not read.
func trim(o metav1.Object) metav1.Object {
	o.SetAnnotations(annotations(o.GetAnnotations()))
	o.SetManagedFields(nil)
	o.SetOwnerReferences(nil)
	o.SetFinalizers(nil)
	o.SetResourceVersion("")
	switch o := o.(type) {
	case *gatewayv1.Gateway:
		// Where it is found is written into its status. Of what is said of it, two conditions are read back: whether a waypoint of others can be
		// used, and how far the deployer is with one of this mesh.
		o.Status = gatewayv1.GatewayStatus{Addresses: o.Status.Addresses, Conditions: readBack(o.Status.Conditions)}
	case *gatewayv1.GatewayClass:
		o.Status = gatewayv1.GatewayClassStatus{}
	}
	return o
}

// readBack keeps the conditions of a Gateway that mean something to the mesh, without what changes when nothing else does.
func readBack(all []metav1.Condition) (kept []metav1.Condition) {
	for _, c := range all {
		switch c.Type {
		case string(gatewayv1.GatewayConditionProgrammed):
			kept = append(kept, metav1.Condition{Type: c.Type, Status: c.Status})
		case wellknown.Deployed:
			kept = append(kept, metav1.Condition{Type: c.Type, Status: c.Status, Reason: c.Reason, Message: c.Message})
		}
	}
	return kept
}

func namespace(in *interner, o *corev1.Namespace) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: meta(in, &o.ObjectMeta)}
}

func node(in *interner, o *corev1.Node) *corev1.Node {
	n := &corev1.Node{ObjectMeta: meta(in, &o.ObjectMeta), Spec: corev1.NodeSpec{PodCIDR: o.Spec.PodCIDR, PodCIDRs: o.Spec.PodCIDRs}, Status: corev1.NodeStatus{Addresses: o.Status.Addresses}}
	if slices.ContainsFunc(o.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionUnknown
	}) {
		n.Status.Conditions = isSilent
	}
	return n
}

// isSilent is the one condition of a node that is read; the times in it are not kept, since they change every few seconds.
var isSilent = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}}

func service(in *interner, o *corev1.Service) *corev1.Service {
	s := &o.Spec
	return &corev1.Service{ObjectMeta: meta(in, &o.ObjectMeta), Spec: corev1.ServiceSpec{
		Ports: s.Ports, Selector: s.Selector, ClusterIP: s.ClusterIP, ClusterIPs: s.ClusterIPs, Type: s.Type, IPFamilies: s.IPFamilies,
		SessionAffinity:       corev1.ServiceAffinity(in.text(string(s.SessionAffinity))),
		InternalTrafficPolicy: s.InternalTrafficPolicy, TrafficDistribution: s.TrafficDistribution, PublishNotReadyAddresses: s.PublishNotReadyAddresses,
	}}
}

func endpointSlice(in *interner, o *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{ObjectMeta: meta(in, &o.ObjectMeta), AddressType: o.AddressType, Ports: o.Ports, Endpoints: o.Endpoints}
}

// isReady is the one condition of a pod that is read; all ready pods share it.
var isReady = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}

// pod keeps of a pod where it is, what it runs as, whether it serves, and by which names others know it and its ports.
func pod(in *interner, o *corev1.Pod) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: meta(in, &o.ObjectMeta)}
	p.OwnerReferences = in.owner(o.OwnerReferences)
	if o.DeletionTimestamp != nil {
		// The CA judges by both when the pod must have ended.
		p.DeletionGracePeriodSeconds, p.Spec.TerminationGracePeriodSeconds = o.DeletionGracePeriodSeconds, o.Spec.TerminationGracePeriodSeconds
	}
	p.Spec.NodeName = in.text(o.Spec.NodeName)
	p.Spec.ServiceAccountName = in.text(o.Spec.ServiceAccountName)
	p.Spec.HostNetwork = o.Spec.HostNetwork
	p.Spec.Hostname, p.Spec.Subdomain = o.Spec.Hostname, in.text(o.Spec.Subdomain)
	p.Spec.Containers = in.ports(o)
	p.Status.Phase = phase(o.Status.Phase)
	p.Status.PodIP, p.Status.PodIPs = o.Status.PodIP, o.Status.PodIPs
	if len(p.Status.PodIPs) == 1 && p.Status.PodIPs[0].IP == p.Status.PodIP {
		p.Status.PodIP = p.Status.PodIPs[0].IP // the same bytes once
	}
	if slices.ContainsFunc(o.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	}) {
		p.Status.Conditions = isReady
	}
	return p
}

// endedPodStaysEnded writes the phase of a pod that has ended into a later version of the same pod. Its kubelet alone writes the phase, and the
// API server lets it write Running again: so a kubelet that fell to an attacker would get back the identities of all pods that have ended there.
// A static pod has no identity, and the same object runs again when its node has started again.
func endedPodStaysEnded(before, now any) {
	was, is := before.(*corev1.Pod), now.(*corev1.Pod)
	if was.UID == is.UID && model.Ended(was) && !model.Static(was) {
		is.Status.Phase = was.Status.Phase
	}
}

// phase is the same text without bytes of its own.
func phase(p corev1.PodPhase) corev1.PodPhase {
	for _, same := range []corev1.PodPhase{corev1.PodRunning, corev1.PodPending, corev1.PodSucceeded, corev1.PodFailed, corev1.PodUnknown} {
		if p == same {
			return same
		}
	}
	return p
}

// ports are a pod's named TCP ports, which targetPorts of Services may mean, as one container: those of its containers and of the init
// containers that keep running beside them.
func ports(o *corev1.Pod) []corev1.ContainerPort {
	var named []corev1.ContainerPort
	add := func(c *corev1.Container) {
		for _, p := range c.Ports {
			if p.Name != "" && (p.Protocol == "" || p.Protocol == corev1.ProtocolTCP) {
				named = append(named, corev1.ContainerPort{Name: p.Name, ContainerPort: p.ContainerPort})
			}
		}
	}
	for i := range o.Spec.Containers {
		add(&o.Spec.Containers[i])
	}
	for i := range o.Spec.InitContainers {
		if c := &o.Spec.InitContainers[i]; c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			add(c)
		}
	}
	return named
}
