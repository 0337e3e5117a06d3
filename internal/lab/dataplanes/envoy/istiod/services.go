package istiod

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	securityv1 "istio.io/client-go/pkg/apis/security/v1"

	"lateen.dev/lateen/internal/lab/dataplanes/envoy"
)

// Service is a service that is bound to the waypoint.
type Service struct {
	Namespace, Name string
	Address         netip.Addr // that clients dial
	Ports           []Port
	// Policies are those that are attached to the service.
	Policies []*securityv1.AuthorizationPolicy
}

// host is the service's name in the mesh.
func (s Service) host() string { return s.Name + "." + s.Namespace + ".svc.cluster.local" }

// Port is a port of a service.
type Port struct {
	Protocol  Protocol
	Number    uint16
	Endpoints []Endpoint
}

// Endpoint is a pod behind a port.
type Endpoint struct {
	Address netip.AddrPort // with the application's port
	// Workload describes the pod as istiod does, for telemetry: name, namespace, application, version and cluster.
	Workload string
}

// Protocol is what istiod takes a port's connections for.
type Protocol string

// The protocols that the lab's services have. A port without a name would be looked at byte by byte, which is other work.
const (
	HTTP Protocol = "http"
	GRPC Protocol = "grpc"
	TCP  Protocol = "tcp"
)

// Services reads objects of one namespace as istiod reads those that are bound to a waypoint. Services without a selector or without an
// address of their own are left out. Policies that name no Service as their target are for pods, and no waypoint has them.
func Services(objects []*corev1.Service, workloads []envoy.Workload, policies []*securityv1.AuthorizationPolicy) ([]Service, error) {
	var list []Service
	for _, o := range objects {
		if len(o.Spec.Selector) == 0 || o.Spec.ClusterIP == corev1.ClusterIPNone {
			continue
		}
		address, err := netip.ParseAddr(o.Spec.ClusterIP)
		if err != nil {
			return nil, fmt.Errorf("service %s/%s: clusterIP %q: %w", o.Namespace, o.Name, o.Spec.ClusterIP, err)
		}
		s := Service{Namespace: o.Namespace, Name: o.Name, Address: address}
		for _, p := range o.Spec.Ports {
			port, err := portOf(o, p, workloads)
			if err != nil {
				return nil, fmt.Errorf("service %s/%s: port %q (%d): %w", o.Namespace, o.Name, p.Name, p.Port, err)
			}
			s.Ports = append(s.Ports, port)
		}
		for _, p := range policies {
			for _, target := range p.Spec.TargetRefs {
				if p.Namespace == o.Namespace && target.Kind == "Service" && target.Name == o.Name {
					s.Policies = append(s.Policies, p)
				}
			}
		}
		list = append(list, s)
	}
	// In the same order each time, so that equal worlds have equal configurations.
	slices.SortFunc(list, func(a, b Service) int { return strings.Compare(a.host(), b.host()) })
	return list, nil
}

func portOf(service *corev1.Service, p corev1.ServicePort, workloads []envoy.Workload) (Port, error) {
	protocol, err := protocolOf(p)
	if err != nil {
		return Port{}, err
	}
	port := Port{Protocol: protocol, Number: uint16(p.Port)}
	selector := labels.SelectorFromSet(service.Spec.Selector)
	for _, w := range workloads {
		if w.Pod.Namespace != service.Namespace || !selector.Matches(labels.Set(w.Pod.Labels)) {
			continue
		}
		target, ok := envoy.Target(w.Pod, p)
		if !ok {
			return Port{}, fmt.Errorf("targetPort %q: pod %s has no container port of that name", p.TargetPort.StrVal, w.Pod.Name)
		}
		port.Endpoints = append(port.Endpoints, Endpoint{
			Address:  netip.AddrPortFrom(w.Address, target),
			Workload: strings.Join([]string{w.Pod.Name, w.Pod.Namespace, w.Pod.Labels["app"], w.Pod.Labels["version"], "Kubernetes"}, ";"),
		})
	}
	slices.SortFunc(port.Endpoints, func(a, b Endpoint) int { return a.Address.Compare(b.Address) })
	return port, nil
}

func protocolOf(p corev1.ServicePort) (Protocol, error) {
	name, _, _ := strings.Cut(p.Name, "-")
	if p.AppProtocol != nil {
		name = *p.AppProtocol
	}
	switch protocol := Protocol(name); {
	case p.Protocol != "" && p.Protocol != corev1.ProtocolTCP:
		return "", fmt.Errorf("the waypoint carries no %s: leave the plane out", p.Protocol)
	case protocol == HTTP || protocol == GRPC || protocol == TCP:
		return protocol, nil
	}
	return "", fmt.Errorf("the Envoy in the waypoint's place carries HTTP/1.1, gRPC and TCP: name the port http, grpc or tcp, or leave the plane out")
}
