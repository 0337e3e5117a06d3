package translate

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"lateen.dev/lateen/internal/gen/workload"
)

// dedup lets a table's row override fields of the text it builds on: of equal top-level keys the last counts.
func dedup(text string) string {
	last := map[string]int{}
	lines := strings.Split(text, "\n")
	for i, l := range lines {
		if key, _, ok := strings.Cut(l, ":"); ok && !strings.HasPrefix(l, " ") && !strings.HasPrefix(l, "-") {
			last[key] = i
		}
	}
	var out []string
	for i, l := range lines {
		if key, _, ok := strings.Cut(l, ":"); ok && !strings.HasPrefix(l, " ") && !strings.HasPrefix(l, "-") && last[key] != i {
			continue
		}
		out = append(out, l)
	}
	return strings.Join(out, "\n")
}

func TestService(t *testing.T) {
	const head = "metadata: {name: web, namespace: shop}\n"
	const plain = `
name: web
namespace: shop
hostname: web.shop.svc.cluster.local
canonical: true
addresses: [{address: CmAAAQ==}]
ports: [{servicePort: 80, targetPort: 80}]
ipFamilies: IPV4_ONLY
`
	for _, c := range []struct{ name, service, namespace, want string }{
		{"plain", head + "spec: {clusterIP: 10.96.0.1, ports: [{port: 80}]}", "", plain},
		{"headless", head + "spec: {clusterIP: None, ports: [{port: 80}]}", "", plain + "addresses: []\nipFamilies: AUTOMATIC"},
		{"two families", head + "spec: {clusterIP: 10.96.0.1, clusterIPs: [10.96.0.1, \"fd00::1\"], ipFamilies: [IPv4, IPv6], ports: [{port: 80}]}", "",
			plain + "addresses: [{address: CmAAAQ==}, {address: /QAAAAAAAAAAAAAAAAAAAQ==}]\nipFamilies: DUAL"},
		{"another family", head + "spec: {clusterIP: 10.96.0.1, ipFamilies: [IPv6], ports: [{port: 80}]}", "", plain + "ipFamilies: IPV6_ONLY"},
		{"named target port", head + "spec: {clusterIP: 10.96.0.1, ports: [{port: 80, targetPort: http}]}", "", plain + "ports: [{servicePort: 80}]"},
		{"application protocols", head + `spec: {clusterIP: 10.96.0.1, ports: [{port: 1, name: http-web}, {port: 2, name: grpc}, {port: 3, name: tls-x},
  {port: 4, name: x, appProtocol: kubernetes.io/h2c}, {port: 5, name: tcp}, {port: 6, name: http2}, {port: 7, name: https}, {port: 8, name: grpc-web},
  {port: 9, name: y, appProtocol: http}, {port: 10, name: db}]}`, "",
			plain + `ports: [{servicePort: 1, targetPort: 1, appProtocol: HTTP11}, {servicePort: 2, targetPort: 2, appProtocol: GRPC}, {servicePort: 3, targetPort: 3, appProtocol: TLS}, {servicePort: 4, targetPort: 4, appProtocol: HTTP2}, {servicePort: 5, targetPort: 5, appProtocol: TCP}, {servicePort: 6, targetPort: 6, appProtocol: HTTP2}, {servicePort: 7, targetPort: 7, appProtocol: TLS}, {servicePort: 8, targetPort: 8}, {servicePort: 9, targetPort: 9, appProtocol: HTTP11}, {servicePort: 10, targetPort: 10}]`},
		{"local endpoints only", head + "spec: {clusterIP: 10.96.0.1, internalTrafficPolicy: Local, ports: [{port: 80}]}", "",
			plain + "loadBalancing: {routingPreference: [NODE], mode: STRICT}"},
		{"near endpoints", head + "spec: {clusterIP: 10.96.0.1, trafficDistribution: PreferClose, ports: [{port: 80}]}", "metadata: {annotations: {networking.istio.io/traffic-distribution: PreferSameNode}}",
			plain + "loadBalancing: {routingPreference: [NETWORK, REGION, ZONE], mode: FAILOVER}"},
		{"near endpoints for a whole namespace", head + "spec: {clusterIP: 10.96.0.1, ports: [{port: 80}]}", "metadata: {annotations: {networking.istio.io/traffic-distribution: PreferSameNode}}",
			plain + "loadBalancing: {routingPreference: [NETWORK, REGION, ZONE, SUBZONE, NODE], mode: FAILOVER}"},
		{"endpoints that are not ready", head + "spec: {clusterIP: 10.96.0.1, publishNotReadyAddresses: true, ports: [{port: 80}]}", "",
			plain + "loadBalancing: {healthPolicy: ALLOW_ALL}"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var ns *corev1.Namespace
			if c.namespace != "" {
				ns = object[corev1.Namespace](t, c.namespace)
			}
			got, conditions := Service(mesh, object[corev1.Service](t, c.service), Context{Namespace: ns})
			if len(conditions) != 1 || conditions[0].Reason != "Accepted" {
				t.Errorf("conditions %v", conditions)
			}
			diff(t, got, message(t, dedup(c.want), &workload.Service{}))
		})
	}
}

func TestServiceSaysWhatItLeavesOut(t *testing.T) {
	got, conditions := Service(mesh, object[corev1.Service](t, "metadata: {name: dns, namespace: kube-system}\nspec: {clusterIP: 10.96.0.10, ports: [{name: u, port: 53, protocol: UDP}, {name: t, port: 53}]}"), Context{})
	if len(got.Ports) != 1 || conditions[0].Reason != "Accepted" || conditions[0].Status != "True" || !strings.Contains(conditions[0].Message, "bypass the mesh") {
		t.Errorf("%v, %v", got, conditions)
	}
	for affinity, want := range map[string]string{"ClientIP": "UnsupportedValue", "None": "Accepted"} {
		got, conditions = Service(mesh, object[corev1.Service](t, "metadata: {name: web}\nspec: {clusterIP: 10.96.0.10, sessionAffinity: "+affinity+", ports: [{port: 53}]}"), Context{})
		if got == nil || conditions[0].Reason != want || strings.Contains(conditions[0].Message, "sessionAffinity") != (want == "UnsupportedValue") {
			t.Errorf("%s: %v", affinity, conditions)
		}
	}
	got, conditions = Service(mesh, object[corev1.Service](t, "metadata: {name: out}\nspec: {type: ExternalName, externalName: example.com}"), Context{})
	if got != nil || conditions[0].Status != "False" {
		t.Errorf("%v, %v", got, conditions)
	}
	if a := ServiceAliases(&workload.Service{Addresses: []*workload.NetworkAddress{{Network: "n", Address: []byte{10, 96, 0, 1}}}}); len(a) != 1 || a[0] != "n/10.96.0.1" {
		t.Errorf("aliases %v", a)
	}
}
