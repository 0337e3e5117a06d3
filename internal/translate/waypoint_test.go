package translate

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"lateen.dev/lateen/internal/gen/workload"
)

func TestGateway(t *testing.T) {
	own := object[corev1.Service](t, "metadata: {name: wp, namespace: shop}\nspec: {ports: [{port: 15008}]}")
	class := object[gatewayv1.GatewayClass](t, "metadata: {name: mine, labels: {istio.io/waypoint-for: all}, annotations: {ambient.istio.io/waypoint-inbound-binding: PROXY/15088}}\nspec: {controllerName: istio.io/mesh-controller}")
	const spec = "\nspec: {gatewayClassName: istio-waypoint, listeners: [{name: m, protocol: HBONE, port: 15008}]}"
	const byName = `{"hostname":{"namespace":"shop","hostname":"wp.shop.svc.cluster.local"},"hboneMtlsPort":15008}`
	const byAddress = `{"address":{"address":"CgAACQ=="},"hboneMtlsPort":15008}`
	for _, c := range []struct {
		name, gateway    string
		class            *gatewayv1.GatewayClass
		own              *corev1.Service
		address, traffic string
		tunnel           string
		reason           string
	}{
		{"is found by its service", "metadata: {name: wp, namespace: shop}" + spec, nil, own, byName, "service", "", "Accepted"},
		{"is found by its address", "metadata: {name: wp, namespace: shop}" + spec + "\nstatus: {addresses: [{type: IPAddress, value: 10.0.0.9}]}", nil, own, byAddress, "service", "", "Accepted"},
		{"is found by its host name before its address", "metadata: {name: wp, namespace: shop}" + spec + "\nstatus: {addresses: [{type: IPAddress, value: 10.0.0.9}, {type: Hostname, value: wp.shop.svc.cluster.local}]}", nil, own, byName, "service", "", "Accepted"},
		{"is found by another's host name", "metadata: {name: wp, namespace: shop}" + spec + "\nstatus: {addresses: [{type: IPAddress, value: 10.0.0.9}, {type: Hostname, value: wp.example}]}", nil, own, `{"hostname":{"namespace":"shop","hostname":"wp.example"},"hboneMtlsPort":15008}`, "service", "", "Accepted"},
		{"is not found by a service that is gone", "metadata: {name: wp, namespace: shop}" + spec + "\nstatus: {addresses: [{type: Hostname, value: wp.shop.svc.cluster.local}]}", nil, nil, "", "", "", "AddressNotAssigned"},
		{"is found by its address when its service is gone", "metadata: {name: wp, namespace: shop}" + spec + "\nstatus: {addresses: [{type: Hostname, value: wp.shop.svc.cluster.local}, {value: 10.0.0.9}]}", nil, nil, byAddress, "service", "", "Accepted"},
		{"is not ready without either", "metadata: {name: wp, namespace: shop}" + spec, nil, nil, "", "", "", "AddressNotAssigned"},
		{"takes what its label says", "metadata: {name: wp, namespace: shop, labels: {istio.io/waypoint-for: workload}}" + spec, nil, own, byName, "workload", "", "Accepted"},
		{"takes what its class says", "metadata: {name: wp, namespace: shop}" + strings.Replace(spec, "istio-waypoint", "mine", 1), class, own, byName, "all", `{"protocol":"PROXY","port":15088}`, "Accepted"},
		{"overrides its class", "metadata: {name: wp, namespace: shop, labels: {istio.io/waypoint-for: none}, annotations: {ambient.istio.io/waypoint-inbound-binding: NONE}}" + strings.Replace(spec, "istio-waypoint", "mine", 1), class, own, byName, "none", `{}`, "Accepted"},
		{"names a bad binding", "metadata: {name: wp, namespace: shop, annotations: {ambient.istio.io/waypoint-inbound-binding: PROXY/0}}" + spec, nil, own, byName, "service", "", "UnsupportedValue"},
		{"names a missing listener", "metadata: {name: wp, namespace: shop}" + strings.Replace(spec, "HBONE", "HTTP", 1), nil, own, byName, "service", "", "UnsupportedValue"},
		{"is no waypoint of another class", "metadata: {name: wp, namespace: shop}" + strings.Replace(spec, "istio-waypoint", "istio", 1), nil, own, "", "", "", "NotImplemented"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w, conditions := Gateway(mesh, object[gatewayv1.Gateway](t, c.gateway), c.class, c.own)
			if conditions[0].Reason != c.reason {
				t.Errorf("conditions %v, want %s", conditions, c.reason)
			}
			if (w == nil) != (c.address == "") {
				t.Fatalf("got %v", w)
			}
			if w == nil {
				return
			}
			diff(t, w.Address, message(t, c.address, &workload.GatewayAddress{}))
			if w.Traffic != c.traffic {
				t.Errorf("takes %q, want %q", w.Traffic, c.traffic)
			}
			if (w.Tunnel == nil) != (c.tunnel == "") {
				t.Errorf("tunnel %v, want %s", w.Tunnel, c.tunnel)
			} else if w.Tunnel != nil {
				diff(t, w.Tunnel, message(t, c.tunnel, &workload.ApplicationTunnel{}))
			}
		})
	}
}

func TestBindService(t *testing.T) {
	waypoint := func(traffic string, from gatewayv1.FromNamespaces) *Waypoint {
		return &Waypoint{Namespace: "shop", Name: "wp", Traffic: traffic, from: from, Address: addressed.Address}
	}
	same, all := gatewayv1.NamespacesFromSame, gatewayv1.NamespacesFromAll
	for _, c := range []struct {
		name, service, namespace string
		waypoint                 *Waypoint
		bound                    bool
		reason                   string
	}{
		{"by its own label", "metadata: {name: a, namespace: shop, labels: {istio.io/use-waypoint: wp}}", "", waypoint("service", same), true, "Accepted"},
		{"by its namespace's label", "metadata: {name: a, namespace: shop}", "metadata: {name: shop, labels: {istio.io/use-waypoint: wp}}", waypoint("all", same), true, "Accepted"},
		{"not if it says none", "metadata: {name: a, namespace: shop, labels: {istio.io/use-waypoint: none}}", "metadata: {name: shop, labels: {istio.io/use-waypoint: wp}}", waypoint("all", same), false, "Accepted"},
		{"not if its label is empty, as in Istio", "metadata: {name: a, namespace: shop, labels: {istio.io/use-waypoint: \"\"}}", "metadata: {name: shop, labels: {istio.io/use-waypoint: wp}}", waypoint("all", same), false, "Accepted"},
		{"not by a namespace's empty label", "metadata: {name: a, namespace: shop}", "metadata: {name: shop, labels: {istio.io/use-waypoint: \"\"}}", waypoint("all", same), false, "Accepted"},
		{"not to one for workloads", "metadata: {name: a, namespace: shop, labels: {istio.io/use-waypoint: wp}}", "", waypoint("workload", same), false, "UnsupportedTrafficType"},
		{"not to one that is not there", "metadata: {name: a, namespace: shop, labels: {istio.io/use-waypoint: wp}}", "", nil, false, "WaypointIsNotReady"},
		{"in another namespace if admitted", "metadata: {name: a, namespace: other, labels: {istio.io/use-waypoint: wp, istio.io/use-waypoint-namespace: shop}}", "", waypoint("service", all), true, "Accepted"},
		{"not in another namespace if not", "metadata: {name: a, namespace: other, labels: {istio.io/use-waypoint: wp, istio.io/use-waypoint-namespace: shop}}", "", waypoint("service", same), false, "AttachmentDenied"},
		{"not in another namespace if its own alone sees it", "metadata: {name: a, namespace: other, annotations: {networking.istio.io/exportTo: .}, labels: {istio.io/use-waypoint: wp, istio.io/use-waypoint-namespace: shop}}", "", waypoint("service", all), false, "CrossNamespaceWaypointForbidden"},
		{"not the waypoint itself", "metadata: {name: wp, namespace: shop, labels: {istio.io/use-waypoint: wp}}", "", waypoint("service", same), false, "Accepted"},
		{"not what Istio made for a waypoint", "metadata: {name: x, namespace: shop, labels: {istio.io/use-waypoint: wp, gateway.istio.io/managed: istio.io-mesh-controller}}", "", waypoint("service", same), false, "Accepted"},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx := Context{Waypoints: waypoints(c.waypoint)}
			if c.namespace != "" {
				ctx.Namespace = object[corev1.Namespace](t, c.namespace)
			}
			s, conditions := Service(mesh, object[corev1.Service](t, c.service+"\nspec: {clusterIP: None, ports: [{port: 80}]}"), ctx)
			if (s.Waypoint != nil) != c.bound || conditions[0].Reason != c.reason || conditions[0].Status != "True" {
				t.Errorf("waypoint %v, conditions %v", s.Waypoint, conditions)
			}
		})
	}
}

func TestWeightedWaypoints(t *testing.T) {
	lookup := func(_, name string) *Waypoint {
		if name == "gone" {
			return nil
		}
		return &Waypoint{Namespace: "shop", Name: name, Traffic: "service", Address: &workload.GatewayAddress{HboneMtlsPort: uint32(len(name))}}
	}
	for annotations, want := range map[string]struct {
		canary string
		weight uint32
		reason string
	}{
		`istio.io/use-waypoint-canary-weight: "20"`: {"next", 20, "Accepted"},
		`x: y2`: {"next", 0, "Accepted"},
		`istio.io/use-waypoint-canary-weight: "101"`: {"next", 0, "CanaryInvalidWeight"},
		`istio.io/use-waypoint-canary-weight: "1"`:   {"wp", 0, "CanarySameAsPrimary"},
		`istio.io/use-waypoint-canary-weight: "2"`:   {"gone", 0, "WaypointIsNotReady"},
	} {
		svc := object[corev1.Service](t, "metadata: {name: a, namespace: shop, labels: {istio.io/use-waypoint: wp, istio.io/use-waypoint-canary: "+want.canary+"}, annotations: {"+annotations+"}}\nspec: {clusterIP: None, ports: [{port: 80}]}")
		s, conditions := Service(mesh, svc, Context{Waypoints: lookup})
		if conditions[0].Reason != want.reason {
			t.Errorf("%s: %v", annotations, conditions)
		}
		if want.reason != "Accepted" {
			if len(s.WeightedWaypoints) != 0 || s.Waypoint == nil {
				t.Errorf("%s: %v", annotations, s)
			}
			continue
		}
		if w := s.WeightedWaypoints; len(w) != 2 || w[0].Weight != 100-want.weight || w[1].Weight != want.weight || w[1].Destination.HboneMtlsPort != 4 {
			t.Errorf("%s: %v", annotations, w)
		}
	}
}

func TestBindsWorkloads(t *testing.T) {
	proxy := &Waypoint{Namespace: "shop", Name: "wp", Traffic: "service", Tunnel: &workload.ApplicationTunnel{Protocol: workload.ApplicationTunnel_PROXY, Port: 15088}, Address: addressed.Address}
	const head, spec = "metadata: {name: p, namespace: shop, labels: {", "}}\nspec: {serviceAccountName: default, containers: [{name: c}]}\nstatus: {podIP: 10.0.0.1}"
	w, _ := Workload(mesh, object[corev1.Pod](t, head+"gateway.networking.k8s.io/gateway-name: wp"+spec), WorkloadInput{Context: Context{Waypoints: waypoints(proxy)}})
	if w.ApplicationTunnel.GetPort() != 15088 || w.Waypoint != nil {
		t.Errorf("an instance of the waypoint: %v", w)
	}
	w, conditions := Workload(mesh, object[corev1.Pod](t, head+"istio.io/use-waypoint: wp"+spec), WorkloadInput{Context: Context{Waypoints: waypoints(proxy)}})
	if w.Waypoint != nil || conditions[0].Reason != "UnsupportedTrafficType" {
		t.Errorf("a waypoint for services: %v, %v", w.Waypoint, conditions)
	}
	// Inherited from the namespace the wish is meant for services and no fault.
	ns := object[corev1.Namespace](t, "metadata: {name: shop, labels: {istio.io/use-waypoint: wp}}")
	_, conditions = Workload(mesh, object[corev1.Pod](t, head+"a: b"+spec), WorkloadInput{Context: Context{Namespace: ns, Waypoints: waypoints(proxy)}})
	if conditions[0].Reason != "Accepted" {
		t.Errorf("an inherited waypoint for services: %v", conditions)
	}
	w, _ = Workload(mesh, object[corev1.Pod](t, head+"istio.io/use-waypoint: wp"+spec), WorkloadInput{Context: Context{Waypoints: waypoints(addressed)}})
	if w.Waypoint == nil {
		t.Error("a waypoint for everything is not used")
	}
	// An empty label of its own ends the search before the namespace's is looked at, and its author is told.
	w, conditions = Workload(mesh, object[corev1.Pod](t, head+`istio.io/use-waypoint: ""`+spec), WorkloadInput{Context: Context{Namespace: ns, Waypoints: waypoints(addressed)}})
	if w.Waypoint != nil || conditions[0].Reason != "Accepted" || !strings.Contains(conditions[0].Message, "istio.io/use-waypoint is empty") {
		t.Errorf("an empty label: waypoint %v, %v", w.Waypoint, conditions)
	}
}

func TestNetworkGateways(t *testing.T) {
	gw := object[gatewayv1.Gateway](t, "metadata: {name: far, namespace: istio-system, labels: {topology.istio.io/network: far}}\nspec: {gatewayClassName: istio-remote, listeners: [{name: m, protocol: HBONE, port: 15018}], addresses: [{value: 203.0.113.1}, {type: Hostname, value: gw.example.com}]}")
	got := NetworkGateways(mesh, gw)
	if len(got) != 2 || got[0].Network != "far" || got[0].Address.HboneMtlsPort != 15018 || got[0].Workload.ServiceAccount != "far-istio-remote" || got[1].Address.GetHostname().GetHostname() != "gw.example.com" {
		t.Errorf("got %v", got)
	}
	if _, conditions := Gateway(mesh, gw, nil, nil); conditions[0].Status != "True" {
		t.Errorf("conditions %v", conditions)
	}
	gw.Spec.GatewayClassName = "istio-east-west"
	gw.Labels["topology.istio.io/network"] = mesh.Network
	if got := NetworkGateways(mesh, gw); got != nil {
		t.Errorf("the own network's entrance leads to %v", got)
	}
}
