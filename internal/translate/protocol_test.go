package translate

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"lateen.dev/lateen/internal/gen/workload"
)

// The table is Istio's: what istiod sends for the same port.
func TestAppProtocolIsThatOfIstio(t *testing.T) {
	field := func(s string) *string { return &s }
	const (
		unknown = workload.AppProtocol_UNKNOWN
		http11  = workload.AppProtocol_HTTP11
		http2   = workload.AppProtocol_HTTP2
		grpc    = workload.AppProtocol_GRPC
		tls     = workload.AppProtocol_TLS
		tcp     = workload.AppProtocol_TCP
	)
	for _, c := range []struct {
		name  string
		field *string
		port  int32
		want  workload.AppProtocol
	}{
		// The part of the name before the first dash counts, in any case.
		{"", nil, 80, unknown},
		{"http", nil, 80, http11},
		{"HTTP", nil, 80, http11},
		{"http-web", nil, 80, http11},
		{"web-http", nil, 80, unknown},
		{"httpweb", nil, 80, unknown},
		{"http2", nil, 80, http2},
		{"http2-a-b", nil, 80, http2},
		{"h2c", nil, 80, unknown},
		{"http_proxy", nil, 80, unknown},
		{"grpc", nil, 80, grpc},
		{"grpc-api", nil, 80, grpc},
		{"grpc-web", nil, 80, unknown},
		{"gRPC-Web-api", nil, 80, unknown},
		{"grpc-webinar", nil, 80, unknown},
		{"https", nil, 443, tls},
		{"https-admin", nil, 443, tls},
		{"tls", nil, 443, tls},
		{"tls-db", nil, 443, tls},
		{"tcp", nil, 80, tcp},
		{"tcp-raw", nil, 80, tcp},
		// istiod tells node proxies nothing of these; for Istio's waypoints they are TCP.
		{"mongo", nil, 80, tcp},
		{"redis", nil, 6379, tcp},
		{"mysql", nil, 80, tcp},
		{"udp", nil, 80, unknown},
		{"hbone", nil, 80, unknown},
		// The field counts before the name, also an empty one.
		{"http", field("tcp"), 80, tcp},
		{"http", field(""), 80, unknown},
		{"http", field("example.com/own"), 80, unknown},
		{"", field("http"), 80, http11},
		{"", field("HTTP"), 80, http11},
		{"", field("http-web"), 80, http11},
		{"", field("http2"), 80, http2},
		{"", field("h2c"), 80, unknown},
		{"", field("grpc"), 80, grpc},
		{"grpc", field("grpc-web"), 80, unknown},
		{"", field("GRPC-Web"), 80, unknown},
		{"grpc-web", field("grpc"), 80, grpc},
		{"", field("https"), 80, tls},
		{"", field("tls"), 80, tls},
		{"", field("mongo"), 27017, tcp},
		{"", field("redis"), 80, tcp},
		{"", field("mysql"), 3306, tcp},
		{"", field("udp"), 80, unknown},
		{"tcp", field("kubernetes.io/h2c"), 80, http2},
		{"tcp", field("kubernetes.io/ws"), 80, http11},
		{"tcp", field("kubernetes.io/wss"), 80, tls},
		{"tcp", field("kubernetes.io/other"), 80, unknown},
		{"kubernetes.io/h2c", nil, 80, unknown},
		// Where the server may speak first, an unknown name is not for the proxy to look into.
		{"", nil, 25, tcp},
		{"smtp", nil, 25, tcp},
		{"", nil, 53, tcp},
		{"dns-tcp", nil, 53, tcp},
		{"", nil, 3306, tcp},
		{"db", field("example.com/own"), 3306, tcp},
		{"", field(""), 27017, tcp},
		{"http", nil, 3306, http11},
		{"mysql", nil, 3306, tcp},
		{"mongo", nil, 27017, tcp},
		{"grpc-web", nil, 53, unknown},
	} {
		p := corev1.ServicePort{Name: c.name, AppProtocol: c.field, Port: c.port}
		text := fmt.Sprintf("name %q, port %d", c.name, c.port)
		if c.field != nil {
			text += fmt.Sprintf(", appProtocol %q", *c.field)
		}
		if got := appProtocol(p); got != c.want {
			t.Errorf("%s: %s, want %s", text, got, c.want)
		}
	}
}

// A ServiceEntry's port names its protocol; its number says nothing, as in Istio.
func TestAServiceEntrysProtocolIsThatOfIstio(t *testing.T) {
	for name, want := range map[string]workload.AppProtocol{
		"HTTP": workload.AppProtocol_HTTP11, "HTTP2": workload.AppProtocol_HTTP2, "GRPC": workload.AppProtocol_GRPC,
		"HTTPS": workload.AppProtocol_TLS, "TLS": workload.AppProtocol_TLS, "TCP": workload.AppProtocol_TCP,
		"": workload.AppProtocol_UNKNOWN, "GRPC-WEB": workload.AppProtocol_UNKNOWN, "HTTP_PROXY": workload.AppProtocol_UNKNOWN,
		"MONGO": workload.AppProtocol_TCP, "REDIS": workload.AppProtocol_TCP, "MYSQL": workload.AppProtocol_TCP,
		"HBONE": workload.AppProtocol_UNKNOWN, "http-web": workload.AppProtocol_UNKNOWN,
	} {
		if got := protocolNamed(name); got != want {
			t.Errorf("%q: %s, want %s", name, got, want)
		}
	}
}
