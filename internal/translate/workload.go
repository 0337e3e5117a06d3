package translate

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"lateen.dev/lateen/internal/gen/workload"
	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/model/wellknown"
)

// canonicalNames and canonicalRevisions are the labels that name a workload's service and version, best first.
var (
	canonicalNames     = []string{wellknown.ServiceCanonicalName, wellknown.AppName, "app"}
	canonicalRevisions = []string{wellknown.ServiceCanonicalRevision, wellknown.AppVersion, "version"}
)

// reasonNoIdentity is why a pod is not of the mesh although it is labelled or annotated like one.
const reasonNoIdentity = "NoIdentity"

// WorkloadInput is what bears on a workload besides its own object.
type WorkloadInput struct {
	Context
	Node     *corev1.Node // nil if unknown
	Offers   []Offer      // the services that choose the workload
	Policies []string     // names of the policies that are attached to the workload rather than to its namespace or the mesh
	// PodCIDRs says that the cluster's pods have addresses of their node's ranges, so that one that has not is told.
	PodCIDRs bool
	// Decisions are those of the endpoints that are written into a ServiceEntry, by the uid of each.
	Decisions map[string]*Decision
	// Gateway finds the entrance to a network, or nil.
	Gateway func(network string) *workload.GatewayAddress
}

// Workload translates a pod. It returns nil for a pod that has no address or has ended: there is nothing to connect to.
func Workload(mesh Mesh, pod *corev1.Pod, in WorkloadInput) (*workload.Workload, []model.Condition) {
	if model.Ended(pod) {
		return nil, []model.Condition{rejected("Ended", "the pod's phase is "+string(pod.Status.Phase))}
	}
	addresses, ok := podAddresses(pod)
	if !ok {
		return nil, []model.Condition{rejected("InvalidAddress", "status.podIPs holds something that is no IP address")}
	}
	if len(addresses) == 0 {
		return nil, []model.Condition{rejected("NoAddress", "the pod has no IP address yet")}
	}
	v := newVerdict()
	if addresses = in.ownAddresses(pod, addresses, v); len(addresses) == 0 {
		return nil, []model.Condition{rejected(ConflictedReason, strings.Join(v.notes, "; "))}
	}
	account, identified := model.Account(pod)
	w := &workload.Workload{
		Uid:                   mesh.PodResource(pod.Namespace, pod.Name),
		Name:                  pod.Name,
		Namespace:             pod.Namespace,
		Addresses:             addresses,
		Network:               mesh.Network,
		TrustDomain:           mesh.trustDomain(),
		ServiceAccount:        account,
		Node:                  pod.Spec.NodeName,
		ClusterId:             mesh.ClusterID,
		AuthorizationPolicies: in.Policies,
		Status:                workload.WorkloadStatus_UNHEALTHY,
		Services:              onPod(pod, in.Offers),
		Locality:              locality(in.Node),
	}
	name, kind := controller(pod)
	describe(w, name, pod.Labels)
	w.WorkloadType = kind
	if PodReady(pod) {
		w.Status = workload.WorkloadStatus_HEALTHY
	}
	if pod.Spec.HostNetwork {
		w.NetworkMode = workload.NetworkMode_HOST_NETWORK
	}
	tunnel(w, pod.Labels, pod.Annotations)
	if !identified {
		w.ServiceAccount = ""
		withoutIdentity(w, pod, in, v)
		return w, v.conditions()
	}
	w.Waypoint, w.ApplicationTunnel = in.bindWorkload(pod, v)
	return w, v.conditions()
}

// withoutIdentity takes a pod that has no identity out of the mesh: nobody is led to it through a tunnel or a waypoint, where it could prove
// nothing. Such a pod may be a kubelet's own invention, with labels of its choice. So in a namespace that is in the mesh it serves no Service:
// clients would send it in plain TCP what they mean for pods with identities. Elsewhere it does, as in Kubernetes.
func withoutIdentity(w *workload.Workload, pod *corev1.Pod, in WorkloadInput, v *verdict) {
	why := "it has no service account"
	if model.Static(pod) {
		why = "it is a static pod"
	}
	const fix = "run it by a Deployment or a DaemonSet"
	if w.TunnelProtocol != workload.TunnelProtocol_NONE {
		w.TunnelProtocol, w.NativeTunnel = workload.TunnelProtocol_NONE, false
		v.note(reasonNoIdentity, fmt.Sprintf("the pod has no identity, since %s: annotation %s and label %s have no effect on it; %s", why, wellknown.Redirection, wellknown.Tunnel, fix))
	}
	if len(w.Services) > 0 && in.enrolled() {
		v.note(reasonNoIdentity, fmt.Sprintf("the pod has no identity, since %s, and namespace %s is in the mesh: it is no endpoint of %s; %s, or have the Service select other labels",
			why, pod.Namespace, strings.Join(slices.Sorted(maps.Keys(w.Services)), ", "), fix))
		w.Services = nil
	}
}

// describe names what a workload is part of.
func describe(w *workload.Workload, name string, labels map[string]string) {
	w.WorkloadName = name
	w.CanonicalName = firstLabel(labels, canonicalNames, name)
	w.CanonicalRevision = firstLabel(labels, canonicalRevisions, "latest")
}

// tunnel says how a workload is reached: through HBONE if it speaks that itself or its node's proxy has captured it, else in plain TCP.
func tunnel(w *workload.Workload, labels, annotations map[string]string) {
	switch {
	// Istio's label may name several protocols.
	case slices.Contains(strings.Split(labels[wellknown.Tunnel], ","), "http"):
		w.TunnelProtocol = workload.TunnelProtocol_HBONE
		w.NativeTunnel = true
	case annotations[wellknown.Redirection] == "enabled":
		w.TunnelProtocol = workload.TunnelProtocol_HBONE
	}
}

// podAddresses returns the pod's addresses in wire form. A pod with one bad address has none: half of it would be a trap.
func podAddresses(pod *corev1.Pod) (addresses [][]byte, ok bool) {
	ips := pod.Status.PodIPs
	if len(ips) == 0 && pod.Status.PodIP != "" {
		ips = []corev1.PodIP{{IP: pod.Status.PodIP}}
	}
	for _, ip := range ips {
		addr, err := netip.ParseAddr(ip.IP)
		if err != nil {
			return nil, false
		}
		addresses = append(addresses, addr.Unmap().AsSlice())
	}
	return addresses, true
}

// OwnAddresses are those at which a pod is found, and no Service or entry; with hostNetwork they are its node's.
func OwnAddresses(pod *corev1.Pod) []netip.Addr {
	if model.Ended(pod) {
		return nil
	}
	raw, _ := podAddresses(pod)
	var out []netip.Addr
	for _, a := range raw {
		if addr, ok := netip.AddrFromSlice(a); ok && !slices.Contains(out, addr) {
			out = append(out, addr)
		}
	}
	return out
}

// NodeAddresses are those at which a node is found, and no Service or entry.
func NodeAddresses(node *corev1.Node) []netip.Addr {
	var out []netip.Addr
	for _, a := range node.Status.Addresses {
		// The others are names.
		if addr, err := netip.ParseAddr(a.Address); err == nil && !slices.Contains(out, addr.Unmap()) {
			out = append(out, addr.Unmap())
		}
	}
	return out
}

// PodReady says whether connections to a pod's services may go to it.
func PodReady(pod *corev1.Pod) bool {
	return ready(pod) && pod.DeletionTimestamp == nil && !model.Ended(pod)
}

func ready(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

func firstLabel(labels map[string]string, keys []string, otherwise string) string {
	for _, k := range keys {
		if v, ok := labels[k]; ok {
			return v
		}
	}
	return otherwise
}

func namedPort(pod *corev1.Pod, name string) uint32 {
	for _, containers := range [][]corev1.Container{pod.Spec.Containers, sidecars(pod)} {
		for _, c := range containers {
			for _, p := range c.Ports {
				if p.Name == name && (p.Protocol == "" || p.Protocol == corev1.ProtocolTCP) {
					return uint32(p.ContainerPort)
				}
			}
		}
	}
	return 0
}

// sidecars are the init containers that keep running beside the others.
func sidecars(pod *corev1.Pod) []corev1.Container {
	var out []corev1.Container
	for _, c := range pod.Spec.InitContainers {
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			out = append(out, c)
		}
	}
	return out
}

func locality(node *corev1.Node) *workload.Locality {
	if node == nil {
		return nil
	}
	l := &workload.Locality{
		Region:  node.Labels[corev1.LabelTopologyRegion],
		Zone:    node.Labels[corev1.LabelTopologyZone],
		Subzone: node.Labels[wellknown.Subzone],
	}
	if l.Region == "" && l.Zone == "" && l.Subzone == "" {
		return nil
	}
	return l
}
