package translate

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lateen.dev/lateen/internal/gen/workload"
	"lateen.dev/lateen/internal/model"
)

// Labels and annotations that the mesh reads.
const (
	redirectionAnnotation = "ambient.istio.io/redirection"
	tunnelLabel           = "networking.istio.io/tunnel"
	workloadNameLabel     = "service.istio.io/workload-name"
	subzoneLabel          = "topology.istio.io/subzone"
)

// canonicalNames and canonicalRevisions are the labels that name a workload's service and version, best first.
var (
	canonicalNames     = []string{"service.istio.io/canonical-name", "app.kubernetes.io/name", "app"}
	canonicalRevisions = []string{"service.istio.io/canonical-revision", "app.kubernetes.io/version", "version"}
)

// WorkloadInput is a pod and what bears on it.
type WorkloadInput struct {
	Pod      *corev1.Pod
	Node     *corev1.Node      // nil if unknown
	Services []*corev1.Service // those whose selectors choose the pod
	Policies []string          // names of the policies that are attached to the pod rather than to its namespace or the mesh
}

// Workload translates a pod. It returns nil for a pod that has no address or has ended: there is nothing to connect to.
func Workload(mesh Mesh, in WorkloadInput) (*workload.Workload, []model.Condition) {
	pod := in.Pod
	if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return nil, []model.Condition{rejected("Ended", "the pod's phase is "+string(pod.Status.Phase))}
	}
	addresses, ok := podAddresses(pod)
	if !ok {
		return nil, []model.Condition{rejected("InvalidAddress", "status.podIPs holds something that is no IP address")}
	}
	if len(addresses) == 0 {
		return nil, []model.Condition{rejected("NoAddress", "the pod has no IP address yet")}
	}
	name, kind := controller(pod)
	w := &workload.Workload{
		Uid:                   mesh.PodResource(pod.Namespace, pod.Name),
		Name:                  pod.Name,
		Namespace:             pod.Namespace,
		Addresses:             addresses,
		Network:               mesh.Network,
		ServiceAccount:        cmp.Or(pod.Spec.ServiceAccountName, "default"),
		Node:                  pod.Spec.NodeName,
		ClusterId:             mesh.ClusterID,
		WorkloadName:          name,
		WorkloadType:          kind,
		CanonicalName:         firstLabel(pod.Labels, canonicalNames, name),
		CanonicalRevision:     firstLabel(pod.Labels, canonicalRevisions, "latest"),
		AuthorizationPolicies: in.Policies,
		Status:                workload.WorkloadStatus_UNHEALTHY,
		Services:              podServices(mesh, pod, in.Services),
		Locality:              locality(in.Node),
	}
	// cluster.local is what proxies assume when the field is empty.
	if mesh.TrustDomain != "cluster.local" {
		w.TrustDomain = mesh.TrustDomain
	}
	if ready(pod) && pod.DeletionTimestamp == nil {
		w.Status = workload.WorkloadStatus_HEALTHY
	}
	if pod.Spec.HostNetwork {
		w.NetworkMode = workload.NetworkMode_HOST_NETWORK
	}
	switch {
	case pod.Labels[tunnelLabel] == "http":
		w.TunnelProtocol = workload.TunnelProtocol_HBONE
		w.NativeTunnel = true
	case pod.Annotations[redirectionAnnotation] == "enabled":
		w.TunnelProtocol = workload.TunnelProtocol_HBONE
	}
	return w, []model.Condition{accepted()}
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

func ready(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// controller names what made the pod: its Deployment where one can be told, else its direct owner, else the pod itself.
func controller(pod *corev1.Pod) (string, workload.WorkloadType) {
	name, kind := pod.Name, workload.WorkloadType_POD
	if owner := metav1.GetControllerOf(pod); owner != nil {
		name = owner.Name
		switch owner.Kind {
		case "Deployment":
			kind = workload.WorkloadType_DEPLOYMENT
		case "ReplicaSet":
			// A Deployment's ReplicaSet bears the template's hash behind the Deployment's name.
			if hash := pod.Labels["pod-template-hash"]; hash != "" && strings.HasSuffix(name, "-"+hash) {
				name, kind = strings.TrimSuffix(name, "-"+hash), workload.WorkloadType_DEPLOYMENT
			}
		case "Job":
			kind = workload.WorkloadType_JOB
		case "CronJob":
			kind = workload.WorkloadType_CRONJOB
		}
	}
	return cmp.Or(pod.Labels[workloadNameLabel], name), kind
}

func firstLabel(labels map[string]string, keys []string, otherwise string) string {
	for _, k := range keys {
		if v, ok := labels[k]; ok {
			return v
		}
	}
	return otherwise
}

// podServices maps each service that selects the pod to the pod's own ports behind the service's.
func podServices(mesh Mesh, pod *corev1.Pod, services []*corev1.Service) map[string]*workload.PortList {
	if len(services) == 0 {
		return nil
	}
	out := make(map[string]*workload.PortList, len(services))
	for _, svc := range services {
		ports := &workload.PortList{}
		for _, p := range tcpPorts(svc) {
			target := uint32(p.TargetPort.IntVal)
			if p.TargetPort.StrVal != "" {
				// A pod that has no port of that name does not serve this port at all.
				if target = namedPort(pod, p.TargetPort.StrVal); target == 0 {
					continue
				}
			}
			ports.Ports = append(ports.Ports, &workload.Port{ServicePort: uint32(p.Port), TargetPort: cmp.Or(target, uint32(p.Port))})
		}
		out[mesh.ServiceResource(svc.Namespace, svc.Name)] = ports
	}
	return out
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
		Subzone: node.Labels[subzoneLabel],
	}
	if l.Region == "" && l.Zone == "" && l.Subzone == "" {
		return nil
	}
	return l
}
