package translate

import (
	"cmp"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"lateen.dev/lateen/internal/gen/workload"
	"lateen.dev/lateen/internal/model"
)

const trafficDistributionAnnotation = "networking.istio.io/traffic-distribution"

// Service translates a service; ns is its namespace or nil. It returns nil for a service that names something outside the mesh.
func Service(mesh Mesh, svc *corev1.Service, ns *corev1.Namespace) (*workload.Service, []model.Condition) {
	if svc.Spec.Type == corev1.ServiceTypeExternalName {
		return nil, []model.Condition{rejected("UnsupportedValue", "a service of type ExternalName is not part of the mesh; call the external name itself")}
	}
	s := &workload.Service{
		Name:      svc.Name,
		Namespace: svc.Namespace,
		Hostname:  mesh.ServiceHost(svc.Namespace, svc.Name),
		// A Kubernetes service is the authority on its host name.
		Canonical:     true,
		LoadBalancing: loadBalancing(svc, ns),
	}
	for _, ip := range clusterIPs(svc) {
		addr, err := netip.ParseAddr(ip)
		if err != nil {
			return nil, []model.Condition{rejected("InvalidAddress", ip+" is not an IP address")}
		}
		s.Addresses = append(s.Addresses, &workload.NetworkAddress{Network: mesh.Network, Address: addr.Unmap().AsSlice()})
	}
	for _, p := range tcpPorts(svc) {
		target := uint32(p.TargetPort.IntVal)
		if p.TargetPort.StrVal == "" {
			target = cmp.Or(target, uint32(p.Port))
		}
		s.Ports = append(s.Ports, &workload.Port{ServicePort: uint32(p.Port), TargetPort: target, AppProtocol: appProtocol(p)})
	}
	switch families := svc.Spec.IPFamilies; {
	case len(families) == 2:
		s.IpFamilies = workload.IPFamilies_DUAL
	case len(families) == 1 && families[0] == corev1.IPv4Protocol:
		s.IpFamilies = workload.IPFamilies_IPV4_ONLY
	case len(families) == 1:
		s.IpFamilies = workload.IPFamilies_IPV6_ONLY
	}
	condition := accepted()
	if len(s.Ports) < len(svc.Spec.Ports) {
		condition = partly("ports whose protocol is not TCP bypass the mesh")
	}
	return s, []model.Condition{condition}
}

// clusterIPs lists the addresses under which a service is reached; a headless service has none.
func clusterIPs(svc *corev1.Service) []string {
	ips := svc.Spec.ClusterIPs
	if len(ips) == 0 {
		ips = []string{svc.Spec.ClusterIP}
	}
	var out []string
	for _, ip := range ips {
		if ip != "" && ip != corev1.ClusterIPNone {
			out = append(out, ip)
		}
	}
	return out
}

func tcpPorts(svc *corev1.Service) []corev1.ServicePort {
	var out []corev1.ServicePort
	for _, p := range svc.Spec.Ports {
		if p.Protocol == "" || p.Protocol == corev1.ProtocolTCP {
			out = append(out, p)
		}
	}
	return out
}

// appProtocol reads a port's application protocol from its appProtocol field, else from the part of its name before the first dash.
func appProtocol(p corev1.ServicePort) workload.AppProtocol {
	name, _, _ := strings.Cut(p.Name, "-")
	if p.AppProtocol != nil {
		switch *p.AppProtocol {
		case "kubernetes.io/h2c":
			return workload.AppProtocol_HTTP2
		case "kubernetes.io/ws":
			return workload.AppProtocol_HTTP11
		case "kubernetes.io/wss":
			return workload.AppProtocol_TLS
		}
		name, _, _ = strings.Cut(*p.AppProtocol, "-")
	}
	switch strings.ToLower(name) {
	case "http":
		return workload.AppProtocol_HTTP11
	case "http2":
		return workload.AppProtocol_HTTP2
	case "grpc":
		// "grpc-web" is HTTP/1.1 or HTTP/2 and not told apart from gRPC by the wire's values; UNKNOWN lets the proxy look.
		if strings.HasPrefix(strings.ToLower(p.Name), "grpc-web") && p.AppProtocol == nil {
			return workload.AppProtocol_UNKNOWN
		}
		return workload.AppProtocol_GRPC
	case "https", "tls":
		return workload.AppProtocol_TLS
	case "tcp":
		return workload.AppProtocol_TCP
	}
	return workload.AppProtocol_UNKNOWN
}

// loadBalancing reads the wish for near endpoints: the internal traffic policy, else the traffic distribution of
// the service's field, its annotation, or its namespace's annotation.
func loadBalancing(svc *corev1.Service, ns *corev1.Namespace) *workload.LoadBalancing {
	var lb *workload.LoadBalancing
	if p := svc.Spec.InternalTrafficPolicy; p != nil && *p == corev1.ServiceInternalTrafficPolicyLocal {
		lb = &workload.LoadBalancing{
			RoutingPreference: []workload.LoadBalancing_Scope{workload.LoadBalancing_NODE},
			Mode:              workload.LoadBalancing_STRICT,
		}
	} else {
		near := []workload.LoadBalancing_Scope{workload.LoadBalancing_NETWORK, workload.LoadBalancing_REGION, workload.LoadBalancing_ZONE}
		switch trafficDistribution(svc, ns) {
		case "preferclose", "prefersamezone":
			lb = &workload.LoadBalancing{RoutingPreference: near, Mode: workload.LoadBalancing_FAILOVER}
		case "prefersamenode":
			lb = &workload.LoadBalancing{RoutingPreference: append(near, workload.LoadBalancing_SUBZONE, workload.LoadBalancing_NODE), Mode: workload.LoadBalancing_FAILOVER}
		}
	}
	if svc.Spec.PublishNotReadyAddresses {
		if lb == nil {
			lb = &workload.LoadBalancing{}
		}
		lb.HealthPolicy = workload.LoadBalancing_ALLOW_ALL
	}
	return lb
}

func trafficDistribution(svc *corev1.Service, ns *corev1.Namespace) string {
	if d := svc.Spec.TrafficDistribution; d != nil && *d != "" {
		return strings.ToLower(*d)
	}
	if d := svc.Annotations[trafficDistributionAnnotation]; d != "" {
		return strings.ToLower(d)
	}
	if ns != nil {
		return strings.ToLower(ns.Annotations[trafficDistributionAnnotation])
	}
	return ""
}
