package translate

import (
	"fmt"
	"testing"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

func TestListeners(t *testing.T) {
	for _, c := range []struct{ name, annotation, listener, want string }{
		{"the tunnel's", "", "protocol: HBONE, port: 15008", "True/Accepted True/ResolvedRefs"},
		{"another port", "", "protocol: HBONE, port: 15009", "False/PortUnavailable True/ResolvedRefs"},
		{"another protocol", "", "protocol: HTTP, port: 80", "False/UnsupportedProtocol True/ResolvedRefs"},
		{"the tunnel's port with another protocol", "", "protocol: TCP, port: 15008", "False/UnsupportedProtocol True/ResolvedRefs"},
		{"that of the binding", "PROXY", "protocol: istio.io/PROXY, port: 15088", "True/Accepted True/ResolvedRefs"},
		{"that of the binding by its port", "NONE/8080", "protocol: TCP, port: 8080", "True/Accepted True/ResolvedRefs"},
		{"kinds of routes", "", "protocol: HBONE, port: 15008, allowedRoutes: {kinds: [{kind: HTTPRoute}]}", "True/Accepted False/InvalidRouteKinds"},
		{"namespaces of routes", "", "protocol: HBONE, port: 15008, allowedRoutes: {namespaces: {from: All}}", "True/Accepted True/ResolvedRefs"},
		{"certificates", "", "protocol: HBONE, port: 15008, tls: {certificateRefs: [{name: c}]}", "True/Accepted False/InvalidCertificateRef"},
	} {
		t.Run(c.name, func(t *testing.T) {
			gw := object[gatewayv1.Gateway](t, fmt.Sprintf("metadata: {name: wp, namespace: shop, annotations: {ambient.istio.io/waypoint-inbound-binding: %q}}\nspec: {gatewayClassName: lateen-waypoint, listeners: [{name: first, %s}]}", c.annotation, c.listener))
			if c.annotation == "" {
				gw.Annotations = nil
			}
			got := Listeners(gw, nil)
			if len(got) != 1 || got[0].Name != "first" {
				t.Fatalf("%+v", got)
			}
			a, r := got[0].Accepted, got[0].ResolvedRefs
			if text := fmt.Sprintf("%s/%s %s/%s", a.Status, a.Reason, r.Status, r.Reason); text != c.want || a.Message == "" || r.Message == "" {
				t.Errorf("%s, want %s", text, c.want)
			}
		})
	}
}
