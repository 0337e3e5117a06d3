package translate

import (
	"net/netip"
	"strings"
	"testing"

	networkingv1 "istio.io/client-go/pkg/apis/networking/v1"
	corev1 "k8s.io/api/core/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"lateen.dev/lateen/internal/gen/workload"
)

// waypoints makes a lookup of one waypoint, found as shop/wp.
func waypoints(w *Waypoint) Waypoints {
	return func(namespace, name string) *Waypoint {
		if namespace == "shop" && name == "wp" {
			return w
		}
		return nil
	}
}

var addressed = &Waypoint{Namespace: "shop", Name: "wp", Traffic: "all", from: gatewayv1.NamespacesFromSame,
	Address: &workload.GatewayAddress{HboneMtlsPort: 15008, Destination: &workload.GatewayAddress_Address{Address: &workload.NetworkAddress{Address: []byte{10, 0, 0, 9}}}}}

func TestServiceEntry(t *testing.T) {
	const plain = `
name: api
namespace: shop
hostname: api.example.com
canonical: true
ports: [{servicePort: 443, targetPort: 443, appProtocol: TLS}]
`
	const head = "metadata: {name: api, namespace: shop}\nspec: {hosts: [api.example.com], ports: [{number: 443, name: tls, protocol: TLS}], "
	for _, c := range []struct{ name, entry, want, note string }{
		{"gets the address chosen for it", head + "resolution: DNS}", plain + "addresses: [{address: 8PAABw==}]", ""},
		{"keeps its own addresses", head + "resolution: STATIC, addresses: [192.0.2.1, 198.51.100.0/24]}", plain + "addresses: [{address: wAACAQ==}, {address: xjNkAA==, length: 24}]", ""},
		{"takes a CIDR of one address for an address", head + "resolution: STATIC, addresses: [192.0.2.1/32]}", plain + "addresses: [{address: wAACAQ==}]", ""},
		{"without resolution passes connections through", head + "resolution: NONE, addresses: [192.0.2.1]}", plain + "addresses: [{address: wAACAQ==}]\nloadBalancing: {mode: PASSTHROUGH, healthPolicy: ALLOW_ALL}", ""},
		{"names who may serve it", head + "resolution: DNS, subjectAltNames: [spiffe://td/ns/a/sa/b]}", plain + "addresses: [{address: 8PAABw==}]\nsubjectAltNames: [spiffe://td/ns/a/sa/b]", ""},
		{"is seen in its namespace only", head + "resolution: DNS, exportTo: [.]}", plain + "addresses: [{address: 8PAABw==}]\nvisibility: NAMESPACE", ""},
		{"is seen by everybody if others are named", head + "resolution: DNS, exportTo: [., other]}", plain + "addresses: [{address: 8PAABw==}]", "everybody sees it"},
		{"prefers near endpoints", strings.Replace(head, "namespace: shop", "namespace: shop, annotations: {networking.istio.io/traffic-distribution: PreferClose}", 1) + "resolution: DNS}", plain + "addresses: [{address: 8PAABw==}]\nloadBalancing: {routingPreference: [NETWORK, REGION, ZONE], mode: FAILOVER}", ""},
		{"uses a waypoint", strings.Replace(head, "namespace: shop", "namespace: shop, labels: {istio.io/use-waypoint: wp, istio.io/ingress-use-waypoint: \"true\"}", 1) + "resolution: DNS}", plain + "addresses: [{address: 8PAABw==}]\nwaypoint: {address: {address: CgAACQ==}, hboneMtlsPort: 15008}\ningressUseWaypoint: true", "through waypoint shop/wp"},
		{"says when its waypoint is missing", strings.Replace(head, "namespace: shop", "namespace: shop, labels: {istio.io/use-waypoint: other}", 1) + "resolution: DNS}", plain + "addresses: [{address: 8PAABw==}]", "is not ready"},
		{"leaves out UDP", strings.Replace(head, "ports: [", "ports: [{number: 53, name: u, protocol: UDP}, ", 1) + "resolution: DNS}", plain + "addresses: [{address: 8PAABw==}]", "bypass the mesh"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, conditions := ServiceEntry(mesh, EntryInput{Entry: object[networkingv1.ServiceEntry](t, c.entry), Context: Context{Waypoints: waypoints(addressed)},
				Auto: map[string][]netip.Addr{"api.example.com": {netip.MustParseAddr("240.240.0.7")}}, Canonical: map[string]bool{"api.example.com": true}})
			if len(got) != 1 {
				t.Fatalf("%d services, %v", len(got), conditions)
			}
			got[0].Extensions = nil // TestAnEntrySaysHowOldItIs
			diff(t, got[0], message(t, dedup(c.want), &workload.Service{}))
			said := ""
			for _, x := range conditions {
				if !strings.HasPrefix(x.Message, "the object is accepted as it is written") && x.Message != "api.example.com has the virtual addresses 240.240.0.7" {
					said += x.Message
				}
			}
			if !strings.Contains(said, c.note) || c.note == "" && said != "" {
				t.Errorf("conditions %v, want %q", conditions, c.note)
			}
		})
	}
	if got, conditions := ServiceEntry(mesh, EntryInput{Entry: object[networkingv1.ServiceEntry](t, head+"resolution: DNS}")}); len(got) != 1 || conditions[0].Reason != "NoAddress" {
		t.Errorf("without a free address: %v, %v", got, conditions)
	}
	if got, conditions := ServiceEntry(mesh, EntryInput{Entry: object[networkingv1.ServiceEntry](t, head+"exportTo: [\"~\"]}")}); got != nil || conditions[0].Status != "False" {
		t.Errorf("exported to nobody: %v, %v", got, conditions)
	}
}

func TestAutoHosts(t *testing.T) {
	for spec, want := range map[string]int{
		"spec: {hosts: [a.example.com, b.example.com], resolution: DNS}":                                                               2,
		"spec: {hosts: [a.example.com], resolution: NONE}":                                                                             0,
		"spec: {hosts: [a.example.com], resolution: STATIC, addresses: [192.0.2.1]}":                                                   0,
		"spec: {hosts: [\"*.example.com\"], resolution: STATIC}":                                                                       0,
		"spec: {hosts: [\"*.example.com\"], resolution: DYNAMIC_DNS}":                                                                  1,
		"metadata: {labels: {networking.istio.io/enable-autoallocate-ip: \"false\"}}\nspec: {hosts: [a.example.com], resolution: DNS}": 0,
		"spec: {hosts: [a.example.com, A.example.com], resolution: DNS}":                                                               1,
	} {
		if got := AutoHosts(object[networkingv1.ServiceEntry](t, spec)); len(got) != want {
			t.Errorf("%s: %v, want %d", spec, got, want)
		}
	}
}

func TestEndpoints(t *testing.T) {
	entry := func(spec string) *networkingv1.ServiceEntry {
		return object[networkingv1.ServiceEntry](t, "metadata: {name: api, namespace: shop, labels: {app: api}}\nspec: {hosts: [api.example.com, b.example.com], ports: [{number: 443, name: tls, protocol: TLS}], "+spec+"}")
	}
	hosts := []string{"api.example.com", "b.example.com"}
	const plain = `
name: api
namespace: shop
clusterId: Kubernetes
workloadType: POD
workloadName: api
canonicalName: api
canonicalRevision: latest
`
	got := Endpoints(mesh, entry("resolution: DNS"), hosts, WorkloadInput{})
	if len(got) != 2 {
		t.Fatalf("%d endpoints for two hosts to be resolved", len(got))
	}
	diff(t, got[1], message(t, dedup(plain+"uid: Kubernetes/networking.istio.io/ServiceEntry/shop/api/b.example.com\nhostname: b.example.com\nservices: {shop/b.example.com: {ports: [{servicePort: 443, targetPort: 443}]}}"), &workload.Workload{}))

	gateway := &workload.GatewayAddress{HboneMtlsPort: 15008}
	got = Endpoints(mesh, entry("resolution: STATIC, endpoints: [{address: 192.0.2.1, ports: {tls: 8443}, weight: 3, locality: r/z/s, network: far, serviceAccount: api}, {address: \"unix:///x\"}, {address: 192.0.2.1}]"), hosts[:1],
		WorkloadInput{Policies: []string{"shop/p"}, Gateway: func(network string) *workload.GatewayAddress {
			if network != "far" {
				t.Errorf("asked for network %q", network)
			}
			return gateway
		}})
	if len(got) != 1 {
		t.Fatalf("%d endpoints, want the one that can be reached, once", len(got))
	}
	diff(t, got[0], message(t, dedup(plain+`uid: Kubernetes/networking.istio.io/ServiceEntry/shop/api/192.0.2.1
addresses: [wAACAQ==]
services: {shop/api.example.com: {ports: [{servicePort: 443, targetPort: 8443}]}}
capacity: 3
locality: {region: r, zone: z, subzone: s}
network: far
networkGateway: {hboneMtlsPort: 15008}
serviceAccount: api
authorizationPolicies: [shop/p]`), &workload.Workload{}))
	if got := Endpoints(mesh, entry("resolution: DNS"), nil, WorkloadInput{}); got != nil {
		t.Errorf("endpoints of hosts that others speak for: %v", got)
	}
}

func TestWorkloadEntry(t *testing.T) {
	web := object[corev1.Service](t, "metadata: {name: web, namespace: shop}\nspec: {ports: [{port: 80, targetPort: http}, {port: 81, targetPort: none}, {port: 82, name: x, targetPort: 8082}]}")
	we := object[networkingv1.WorkloadEntry](t, `
metadata: {name: vm, namespace: shop, labels: {app: web, networking.istio.io/tunnel: http}}
spec: {address: vm.example.com, ports: {http: 8080, x: 9}, labels: {app: other, version: v2}, serviceAccount: web}
`)
	got, conditions := WorkloadEntry(mesh, we, WorkloadInput{Offers: []Offer{ServiceOffer(mesh, web)}})
	if len(conditions) != 1 || conditions[0].Reason != "Accepted" {
		t.Errorf("conditions %v", conditions)
	}
	diff(t, got, message(t, `
uid: Kubernetes/networking.istio.io/WorkloadEntry/shop/vm
name: vm
namespace: shop
hostname: vm.example.com
clusterId: Kubernetes
serviceAccount: web
workloadType: POD
workloadName: vm
canonicalName: web
canonicalRevision: v2
tunnelProtocol: HBONE
nativeTunnel: true
services: {shop/web.shop.svc.cluster.local: {ports: [{servicePort: 80, targetPort: 8080}, {servicePort: 82, targetPort: 9}]}}
`, &workload.Workload{}))
	far := object[networkingv1.WorkloadEntry](t, "metadata: {name: vm, namespace: shop}\nspec: {address: 192.0.2.1, network: far}")
	if got, conditions := WorkloadEntry(mesh, far, WorkloadInput{}); got.TunnelProtocol != workload.TunnelProtocol_NONE || conditions[0].Reason != "NoNetworkGateway" {
		t.Errorf("%v, %v", got, conditions)
	}
}
