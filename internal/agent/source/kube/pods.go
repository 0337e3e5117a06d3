package kube

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"lateen.dev/lateen/internal/agent/source"
	"lateen.dev/lateen/internal/model/wellknown"
)

// ownParts are the components of the mesh that the mesh itself stands on: capturing one would have it wait for itself.
var ownParts = []string{"control", "agent", "node"}

var (
	keptLabels      = []string{wellknown.DataplaneMode, wellknown.PartOf, wellknown.Component}
	keptAnnotations = []string{
		source.ConfigHash, source.ConfigMirror, wellknown.Redirection, wellknown.DNSCapture, wellknown.BypassInboundCapture, wellknown.RerouteVirtualInterfaces,
		wellknown.ExcludeInboundPorts, wellknown.ExcludeOutboundPorts, wellknown.ExcludeOutboundIPRanges, wellknown.IncludeOutboundIPRanges,
	}
)

// trimPod keeps of a pod what the agent reads. It changes the pod: it is called before anybody else has it. What it returns it keeps as it is:
// an informer that begins with a list from the watch calls it twice, when it reads the list and when it takes it over.
func trimPod(object any) (any, error) {
	p, ok := object.(*corev1.Pod)
	if !ok {
		return object, nil
	}
	meta := trimMeta(p.ObjectMeta, keptLabels)
	for _, name := range keptAnnotations {
		// A pod that has ended needs only the annotations that say whether it was captured.
		if value, there := p.Annotations[name]; there && (!terminal(p) || name == wellknown.Redirection || name == source.ConfigHash || name == source.ConfigMirror) {
			if meta.Annotations == nil {
				meta.Annotations = map[string]string{}
			}
			meta.Annotations[name] = brief(value)
		}
	}
	trimmed := &corev1.Pod{
		ObjectMeta: meta,
		Spec:       corev1.PodSpec{NodeName: p.Spec.NodeName, ServiceAccountName: p.Spec.ServiceAccountName, HostNetwork: p.Spec.HostNetwork},
		Status:     corev1.PodStatus{Phase: p.Status.Phase, PodIP: p.Status.PodIP, PodIPs: p.Status.PodIPs},
	}
	if terminal(p) {
		return trimmed, nil
	}
	if len(p.Spec.Containers) == 1 && p.Spec.Containers[0].Name == probedPart {
		trimmed.Spec.Containers = p.Spec.Containers
		return trimmed, nil
	}
	// The ports that the kubelet probes are kept as ports of one container.
	ports := probedPorts(&p.Spec)
	if len(ports) > 0 {
		trimmed.Spec.Containers = []corev1.Container{{Name: probedPart}}
	}
	for _, port := range ports[:min(len(ports), maxProbed)] {
		c := &trimmed.Spec.Containers[0]
		c.Ports = append(c.Ports, corev1.ContainerPort{Name: probed, ContainerPort: int32(port)})
	}
	if left := len(ports) - maxProbed; left > 0 {
		c := &trimmed.Spec.Containers[0]
		c.Ports = append(c.Ports, corev1.ContainerPort{Name: unprobed, ContainerPort: int32(left)})
	}
	return trimmed, nil
}

// brief keeps of a value that is too long for anything only how long it is, in words that nothing takes for a value.
func brief(value string) string {
	const longest = 4096
	if len(value) <= longest {
		return value
	}
	return fmt.Sprintf("(%d bytes; up to %d are read)", len(value), longest)
}

// trimNamespace keeps of a namespace what the agent reads.
func trimNamespace(object any) (any, error) {
	n, ok := object.(*corev1.Namespace)
	if !ok {
		return object, nil
	}
	return &corev1.Namespace{ObjectMeta: trimMeta(n.ObjectMeta, []string{wellknown.DataplaneMode})}, nil
}

func trimMeta(m metav1.ObjectMeta, labels []string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: m.Name, Namespace: m.Namespace, UID: m.UID, ResourceVersion: m.ResourceVersion, DeletionTimestamp: m.DeletionTimestamp,
		Labels: only(m.Labels, labels),
	}
}

func only(from map[string]string, names []string) map[string]string {
	kept := maps.Clone(from)
	maps.DeleteFunc(kept, func(name, _ string) bool { return !slices.Contains(names, name) })
	if len(kept) == 0 {
		return nil
	}
	return kept
}

const (
	// probedPart is the name of the one container of a trimmed pod. No API server lets a real one be called so.
	probedPart = "(probed)"
	// probed is the name of the ports of a trimmed pod; unprobed names the number of those that are too many.
	probed   = "probed"
	unprobed = "unprobed"
	// maxProbed is how many ports of one pod the kubelet reaches past policy.
	maxProbed = 64
)

// probedPorts are the ports of the pod that the kubelet itself connects to, in the order in which they are named: probes
// and hooks that name no other host.
func probedPorts(spec *corev1.PodSpec) []uint16 {
	var ports []uint16
	seen := map[uint16]bool{}
	for _, c := range slices.Concat(spec.InitContainers, spec.Containers) {
		add := func(host string, port intstr.IntOrString) {
			number := port.IntVal
			if port.Type == intstr.String {
				number = 0
				for _, p := range c.Ports {
					if p.Name == port.StrVal {
						number = p.ContainerPort
					}
				}
			}
			if host == "" && number > 0 && number <= 65535 && !seen[uint16(number)] {
				seen[uint16(number)] = true
				ports = append(ports, uint16(number))
			}
		}
		for _, probe := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe} {
			switch {
			case probe == nil:
			case probe.HTTPGet != nil:
				add(probe.HTTPGet.Host, probe.HTTPGet.Port)
			case probe.TCPSocket != nil:
				add(probe.TCPSocket.Host, probe.TCPSocket.Port)
			case probe.GRPC != nil:
				add("", intstr.FromInt32(probe.GRPC.Port))
			}
		}
		if c.Lifecycle == nil {
			continue
		}
		for _, hook := range []*corev1.LifecycleHandler{c.Lifecycle.PostStart, c.Lifecycle.PreStop} {
			switch {
			case hook == nil:
			case hook.HTTPGet != nil:
				add(hook.HTTPGet.Host, hook.HTTPGet.Port)
			case hook.TCPSocket != nil:
				add(hook.TCPSocket.Host, hook.TCPSocket.Port)
			}
		}
	}
	return ports
}

// sandboxUID is how the runtime knows the pod.
func sandboxUID(p *corev1.Pod) string { return source.RuntimeUID(string(p.UID), p.Annotations) }

func terminal(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

// addresses of the pod as the API server knows them.
func addresses(p *corev1.Pod) []netip.Addr {
	var all []netip.Addr
	for _, ip := range p.Status.PodIPs {
		if a, err := netip.ParseAddr(ip.IP); err == nil {
			all = append(all, a.Unmap())
		}
	}
	return all
}

// described is the pod as the agent wants it; own is the namespace of the mesh's own parts.
func described(p *corev1.Pod, s sandbox, own string) source.Pod {
	at := addresses(p)
	if len(at) == 0 {
		// A pod that is being born has no address in its object yet.
		at = s.addresses()
	}
	pod := source.Pod{
		UID: string(p.UID), Namespace: p.Namespace, Name: p.Name, ServiceAccount: p.Spec.ServiceAccountName,
		HostNetwork: p.Spec.HostNetwork, Labels: p.Labels, Annotations: p.Annotations, NetNS: s.NetNS,
		Network: s.network(), Held: s.held, Version: p.ResourceVersion,
		Terminating: p.DeletionTimestamp != nil, Ended: terminal(p) || s.Going,
	}
	if p.Namespace == own && p.Labels[wellknown.PartOf] == "lateen" && slices.Contains(ownParts, p.Labels[wellknown.Component]) {
		pod.Labels = maps.Clone(p.Labels)
		pod.Labels[wellknown.DataplaneMode] = "none"
	}
	if len(at) > 0 {
		pod.IP = at[0].String()
	}
	for _, c := range p.Spec.Containers {
		for _, port := range c.Ports {
			if port.Name == unprobed {
				pod.Refused = append(pod.Refused, fmt.Sprintf(
					"its probes and hooks name %d ports; those after the first %d are subject to policy, so have fewer", maxProbed+int(port.ContainerPort), maxProbed))
				continue
			}
			for _, a := range at {
				pod.Probed = append(pod.Probed, netip.AddrPortFrom(a, uint16(port.ContainerPort)))
			}
		}
	}
	return pod
}
