package translate

import (
	"cmp"

	networkingapi "istio.io/api/networking/v1alpha3"
	networkingv1 "istio.io/client-go/pkg/apis/networking/v1"
	corev1 "k8s.io/api/core/v1"

	"lateen.dev/lateen/internal/gen/workload"
)

// Offer is what a workload must know of a service that it serves: the service's wire name and how its ports are found on a workload.
type Offer struct {
	Host  string // "namespace/hostname"
	ports []offeredPort
}

type offeredPort struct {
	number, target uint32 // target is 0 if nothing says which
	name           string
	targetName     string // of a Service's targetPort, if it is a name
	byName         bool   // a workload's port of the same name is the target: so it is for a ServiceEntry
}

// ServiceOffer is a Service's.
func ServiceOffer(mesh Mesh, svc *corev1.Service) Offer {
	o := Offer{Host: mesh.ServiceResource(svc.Namespace, svc.Name)}
	for _, p := range tcpPorts(svc) {
		o.ports = append(o.ports, offeredPort{number: uint32(p.Port), target: uint32(p.TargetPort.IntVal), name: p.Name, targetName: p.TargetPort.StrVal})
	}
	return o
}

// EntryOffer is that of one host of a ServiceEntry.
func EntryOffer(se *networkingv1.ServiceEntry, host string) Offer {
	o := Offer{Host: EntryResource(se, host)}
	for _, p := range entryPorts(se) {
		o.ports = append(o.ports, offeredPort{number: p.Number, target: p.TargetPort, name: p.Name, byName: true})
	}
	return o
}

// onPod maps services to a pod's own ports. A pod that has no port of a name that a Service targets does not serve that port at all.
func onPod(pod *corev1.Pod, offers []Offer) map[string]*workload.PortList {
	return onWorkload(offers, func(p offeredPort) uint32 {
		switch {
		case p.targetName != "":
			return namedPort(pod, p.targetName)
		case p.byName && p.name != "":
			return cmp.Or(namedPort(pod, p.name), p.target, p.number)
		}
		return cmp.Or(p.target, p.number)
	})
}

// onEntry does the same for the ports that a WorkloadEntry or a ServiceEntry's endpoint names.
func onEntry(e *networkingapi.WorkloadEntry, offers []Offer) map[string]*workload.PortList {
	return onWorkload(offers, func(p offeredPort) uint32 {
		if p.targetName != "" {
			return e.Ports[p.targetName]
		}
		return cmp.Or(e.Ports[p.name], p.target, p.number)
	})
}

func onWorkload(offers []Offer, target func(offeredPort) uint32) map[string]*workload.PortList {
	if len(offers) == 0 {
		return nil
	}
	out := make(map[string]*workload.PortList, len(offers))
	for _, o := range offers {
		list := &workload.PortList{}
		for _, p := range o.ports {
			if t := target(p); t != 0 {
				list.Ports = append(list.Ports, &workload.Port{ServicePort: p.number, TargetPort: t})
			}
		}
		out[o.Host] = list
	}
	return out
}
