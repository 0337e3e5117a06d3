package envoy

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Workload is a pod as the mesh sees it.
type Workload struct {
	// Pod is its object: name, labels and ports are read.
	Pod      *corev1.Pod
	Address  netip.Addr
	Identity string // SPIFFE
	// Dir is the absolute directory of its proxy's files.
	Dir string
}

func (w Workload) name() string { return w.Pod.Namespace + "/" + w.Pod.Name }

// Pods gives the proxy of every workload what it has to know: all services that have a pod behind them, and whom to admit: those
// whom the policies that select it name, or where there is none everybody. settings are the same for all.
func Pods(workloads []Workload, services []*corev1.Service, policies []Policy, settings Settings) ([]Pod, error) {
	var reachable []Service
	dialled := map[netip.AddrPort]bool{}
	takes := map[netip.AddrPort]bool{} // by an application's address: whether it takes bytes rather than requests
	for _, object := range services {
		list, err := servicesOf(object, workloads)
		if err != nil {
			return nil, fmt.Errorf("service %s/%s: %w", object.Namespace, object.Name, err)
		}
		for _, s := range list {
			for _, e := range s.Endpoints {
				if tcp, known := takes[e]; known && tcp != s.TCP {
					return nil, fmt.Errorf("service %s/%s: port %d leads to %s, which is HTTP to one service and TCP to another: name both ports alike", object.Namespace, object.Name, s.Port, e)
				}
				takes[e] = s.TCP
			}
			// Pods may be behind several services that have no address of their own.
			if at := netip.AddrPortFrom(s.Address, s.Port); object.Spec.ClusterIP != corev1.ClusterIPNone || !dialled[at] {
				dialled[at] = true
				reachable = append(reachable, s)
			}
		}
	}
	var identities []string
	for _, w := range workloads {
		identities = append(identities, w.Identity)
	}
	slices.Sort(identities)
	identities = slices.Compact(identities)
	var pods []Pod
	for _, w := range workloads {
		admits, err := rulesFor(w.Pod, policies)
		if err != nil {
			return nil, err
		}
		if admits == nil {
			admits = []Rule{{Name: "everybody", Callers: identities}}
		}
		var tcp []uint16
		for at, is := range takes {
			if is && at.Addr() == w.Address {
				tcp = append(tcp, at.Port())
			}
		}
		slices.Sort(tcp)
		pods = append(pods, Pod{Name: w.name(), Dir: w.Dir, Settings: settings, Admits: admits, TCP: tcp, Services: reachable})
	}
	return pods, nil
}

// servicesOf are an object's ports, without those that have no pod behind them. Where it has no address of its own each of its pods
// is a service: what is dialled are their addresses.
func servicesOf(object *corev1.Service, workloads []Workload) ([]Service, error) {
	if len(object.Spec.Selector) == 0 {
		return nil, nil // nothing says which pods are behind it
	}
	headless := object.Spec.ClusterIP == corev1.ClusterIPNone
	var address netip.Addr
	var err error
	if !headless {
		if address, err = netip.ParseAddr(object.Spec.ClusterIP); err != nil {
			return nil, fmt.Errorf("clusterIP %q: %w", object.Spec.ClusterIP, err)
		}
	}
	selector := labels.SelectorFromSet(object.Spec.Selector)
	var list []Service
	for _, port := range object.Spec.Ports {
		tcp, err := takesBytes(port)
		if err != nil {
			return nil, fmt.Errorf("port %q (%d): %w", port.Name, port.Port, err)
		}
		s := Service{TCP: tcp, Name: object.Namespace + "/" + object.Name, Address: address, Port: uint16(port.Port)}
		for _, w := range workloads {
			if w.Pod.Namespace != object.Namespace || !selector.Matches(labels.Set(w.Pod.Labels)) {
				continue
			}
			target, ok := Target(w.Pod, port)
			if !ok {
				return nil, fmt.Errorf("targetPort %q: pod %s has no container port of that name", port.TargetPort.StrVal, w.Pod.Name)
			}
			if headless {
				list = append(list, Service{
					TCP: tcp, Name: s.Name + "/" + w.Pod.Name, Address: w.Address, Port: target,
					Endpoints: []netip.AddrPort{netip.AddrPortFrom(w.Address, target)}, Identities: []string{w.Identity},
				})
				continue
			}
			s.Endpoints = append(s.Endpoints, netip.AddrPortFrom(w.Address, target))
			s.Identities = append(s.Identities, w.Identity)
		}
		slices.Sort(s.Identities)
		s.Identities = slices.Compact(s.Identities)
		if len(s.Endpoints) > 0 {
			list = append(list, s)
		}
	}
	return list, nil
}

// takesBytes tells TCP from HTTP by a port's name or protocol, as meshes do. What a mesh would read as requests of another kind is
// refused: carried as bytes it would cost less than it does there.
func takesBytes(port corev1.ServicePort) (bool, error) {
	if port.Protocol != "" && port.Protocol != corev1.ProtocolTCP {
		return false, fmt.Errorf("the pair of Envoys carries no %s: leave the plane out", port.Protocol)
	}
	name, _, _ := strings.Cut(port.Name, "-")
	if port.AppProtocol != nil {
		name = *port.AppProtocol
	}
	switch name {
	case "http":
		return false, nil
	case "http2", "grpc", "grpc-web", "kubernetes.io/h2c", "kubernetes.io/ws":
		return false, fmt.Errorf("the pair of Envoys carries HTTP/1.1 and TCP, not %s: name the port http or tcp, or leave the plane out", name)
	}
	return true, nil
}

// Target is the port of a pod that a port of a service leads to; false if it is named and the pod has none of the name.
func Target(pod *corev1.Pod, port corev1.ServicePort) (uint16, bool) {
	if port.TargetPort.Type == intstr.Int {
		if n := port.TargetPort.IntVal; n != 0 {
			return uint16(n), true
		}
		return uint16(port.Port), true
	}
	for _, c := range pod.Spec.Containers {
		for _, p := range c.Ports {
			if p.Name == port.TargetPort.StrVal {
				return uint16(p.ContainerPort), true
			}
		}
	}
	return 0, false
}
