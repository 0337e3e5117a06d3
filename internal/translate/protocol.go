package translate

import (
	"slices"
	"strconv"
	"strings"

	networkingv1 "istio.io/client-go/pkg/apis/networking/v1"
	corev1 "k8s.io/api/core/v1"

	"lateen.dev/lateen/internal/gen/workload"
)

// serverFirstPorts are those of SMTP, DNS, MySQL and MongoDB. A proxy that waits for a client's first bytes there breaks the protocol, so
// Istio takes an unknown name on them for TCP.
var serverFirstPorts = []int32{25, 53, 3306, 27017}

// grpcWeb is the one name of a protocol that holds a dash. The wire has no value for it, and UNKNOWN lets a proxy look.
const grpcWeb = "grpc-web"

// appProtocol reads the application protocol of a Service's port as Istio does. The appProtocol field counts before the port's name, and of
// either the part before the first dash.
func appProtocol(p corev1.ServicePort) workload.AppProtocol {
	name := p.Name
	if p.AppProtocol != nil {
		name = *p.AppProtocol
		// Kubernetes' own names; a port's name cannot have these values.
		switch name {
		case "kubernetes.io/h2c":
			return workload.AppProtocol_HTTP2
		case "kubernetes.io/ws":
			return workload.AppProtocol_HTTP11
		case "kubernetes.io/wss":
			return workload.AppProtocol_TLS
		}
	}
	name = strings.ToLower(name)
	if strings.HasPrefix(name, grpcWeb) {
		return workload.AppProtocol_UNKNOWN
	}
	name, _, _ = strings.Cut(name, "-")
	if slices.Contains(serverFirstPorts, p.Port) && !isProtocol(name) {
		return workload.AppProtocol_TCP
	}
	return protocolNamed(name)
}

// UntypedPorts are the TCP ports of a Service whose protocol a proxy has to find out by looking.
func UntypedPorts(svc *corev1.Service) (ports []string) {
	for _, p := range svc.Spec.Ports {
		name := p.Name
		if p.AppProtocol != nil {
			name = *p.AppProtocol
		}
		if (p.Protocol == "" || p.Protocol == corev1.ProtocolTCP) && appProtocol(p) == workload.AppProtocol_UNKNOWN && !strings.HasPrefix(strings.ToLower(name), grpcWeb) {
			ports = append(ports, strconv.Itoa(int(p.Port)))
		}
	}
	return ports
}

// UntypedEntryPorts are those of a ServiceEntry.
func UntypedEntryPorts(se *networkingv1.ServiceEntry) (ports []string) {
	for _, p := range se.Spec.Ports {
		if protocolNamed(p.Protocol) == workload.AppProtocol_UNKNOWN && !strings.EqualFold(p.Protocol, grpcWeb) && !strings.EqualFold(p.Protocol, "UDP") {
			ports = append(ports, strconv.Itoa(int(p.Number)))
		}
	}
	return ports
}

// isProtocol says whether Istio knows a name in lower case as that of a protocol, also of one that the wire has no value for.
func isProtocol(name string) bool {
	switch name {
	case "http_proxy", "udp":
		return true
	}
	return protocolNamed(name) != workload.AppProtocol_UNKNOWN
}

// protocolNamed reads Istio's names of protocols, in any case. Those of databases are TCP, as for Istio's waypoints: otherwise a waypoint looks
// for HTTP in their first bytes. istiod sends UNKNOWN to node proxies for them.
func protocolNamed(name string) workload.AppProtocol {
	switch strings.ToLower(name) {
	case "http":
		return workload.AppProtocol_HTTP11
	case "http2":
		return workload.AppProtocol_HTTP2
	case "grpc":
		return workload.AppProtocol_GRPC
	case "https", "tls":
		return workload.AppProtocol_TLS
	case "tcp", "mongo", "mysql", "redis":
		return workload.AppProtocol_TCP
	}
	return workload.AppProtocol_UNKNOWN
}
