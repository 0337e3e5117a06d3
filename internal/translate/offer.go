package translate

import (
	"cmp"

	networkingapi "istio.io/api/networking/v1alpha3"
	networkingv1 "istio.io/client-go/pkg/apis/networking/v1"
	corev1 "k8s.io/api/core/v1"

	"lateen.dev/lateen/internal/gen/workload"
)

// Offer describes a service to a workload that serves it: the service's wire name, and how its ports map to the workload's.
type Offer struct {
	Host  string // "namespace/hostname"
	ports []offeredPort
}

type offeredPort struct {
	number, target uint32 // target is 0 if the object names none
	name           string
	targetName     string // a Service's targetPort, if it is a name
	byName         bool   // the target is the workload's port of the same name, as for a ServiceEntry
}

// ServiceOffer returns the offer of a Service.
func ServiceOffer(mesh Mesh, svc *corev1.Service) Offer {
	o := Offer{Host: mesh.ServiceResource(svc.Namespace, svc.Name)}
	for _, p := range tcpPorts(svc) {
		o.ports = append(o.ports, offeredPort{number: uint32(p.Port), target: uint32(p.TargetPort.IntVal), name: p.Name, targetName: p.TargetPort.StrVal})
	}
	return o
}

// EntryOffer returns the offer of one host of a ServiceEntry.
func EntryOffer(se *networkingv1.ServiceEntry, host string) Offer {
	o := Offer{Host: EntryResource(se, host)}
	for _, p := range entryPorts(se) {
		o.ports = append(o.ports, offeredPort{number: p.Number, target: p.TargetPort, name: p.Name, byName: true})
	}
	return o
}

// onPod maps the ports of services to a pod's ports. A Service's port that targets a name is left out if the pod has no port of that name.
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

// onEntry maps the ports of services to those of a WorkloadEntry or of a ServiceEntry's endpoint.
func onEntry(e *networkingapi.WorkloadEntry, offers []Offer) map[string]*workload.PortList {
	return onWorkload(offers, func(p offeredPort) uint32 {
		if p.targetName != "" {
			return e.Ports[p.targetName]
		}
		return cmp.Or(e.Ports[p.name], p.target, p.number)
	})
}

// onWorkload maps the ports of services by target, which returns 0 for a port that the workload does not serve.
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
