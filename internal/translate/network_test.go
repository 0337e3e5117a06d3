package translate

import (
	"strings"
	"testing"

	networkingapi "istio.io/api/networking/v1alpha3"
	networkingv1 "istio.io/client-go/pkg/apis/networking/v1"

	"lateen.dev/lateen/internal/gen/workload"
)

// far finds the entrance to network "far" alone.
func far(network string) *workload.GatewayAddress {
	if network != "far" {
		return nil
	}
	return &workload.GatewayAddress{HboneMtlsPort: 15008, Destination: &workload.GatewayAddress_Address{Address: &workload.NetworkAddress{Network: "far", Address: []byte{203, 0, 113, 1}}}}
}

// The API's own example: where it is on its network, the network's gateway knows.
func TestAWorkloadEntryWithANetworkNeedsNoAddress(t *testing.T) {
	se := object[networkingv1.ServiceEntry](t, "metadata: {name: api, namespace: shop}\nspec: {hosts: [api.example.com], resolution: STATIC, ports: [{number: 80, name: http, protocol: HTTP}]}")
	in := WorkloadInput{Offers: []Offer{EntryOffer(se, "api.example.com")}, Gateway: far}
	we := object[networkingv1.WorkloadEntry](t, "metadata: {name: vm, namespace: shop, labels: {app: a}}\nspec: {network: far, serviceAccount: sa, ports: {http: 8080}}")
	got, conditions := WorkloadEntry(mesh, we, in)
	if len(conditions) != 1 || conditions[0].Status != "True" || conditions[0].Reason != "Accepted" {
		t.Errorf("conditions %v", conditions)
	}
	diff(t, got, message(t, `
uid: Kubernetes/networking.istio.io/WorkloadEntry/shop/vm
name: vm
namespace: shop
network: far
networkGateway: {address: {network: far, address: ywBxAQ==}, hboneMtlsPort: 15008}
clusterId: Kubernetes
serviceAccount: sa
workloadType: POD
workloadName: vm
canonicalName: a
canonicalRevision: latest
services: {shop/api.example.com: {ports: [{servicePort: 80, targetPort: 8080}]}}
`, &workload.Workload{}))

	we.Spec.Network = "farther"
	if got, conditions := WorkloadEntry(mesh, we, in); got == nil || conditions[0].Status != "True" || conditions[0].Reason != "NoNetworkGateway" {
		t.Errorf("without a gateway: %v, %v", got, conditions)
	}
	own := mesh
	own.Network = "farther"
	if got, conditions := WorkloadEntry(own, we, in); got != nil || conditions[0].Status != "False" || conditions[0].Reason != "NoAddress" {
		t.Errorf("on the mesh's own network: %v, %v", got, conditions)
	}
	we.Spec.Network = ""
	if got, conditions := WorkloadEntry(own, we, in); got != nil || conditions[0].Status != "False" || !strings.Contains(conditions[0].Message, "spec.network") {
		t.Errorf("without either: %v, %v", got, conditions)
	}
}

func TestEndpointsWithANetworkNeedNoAddress(t *testing.T) {
	entry := func(endpoints string) *networkingv1.ServiceEntry {
		return object[networkingv1.ServiceEntry](t, "metadata: {name: api, namespace: shop}\nspec: {hosts: [api.example.com], resolution: STATIC, ports: [{number: 80, name: http, protocol: HTTP}], endpoints: ["+endpoints+"]}")
	}
	const head = "Kubernetes/networking.istio.io/ServiceEntry/shop/api/"
	uids := func(se *networkingv1.ServiceEntry) map[string]*workload.Workload {
		out := map[string]*workload.Workload{}
		for _, w := range Endpoints(mesh, se, []string{"api.example.com"}, WorkloadInput{Gateway: far}) {
			if out[w.Uid] != nil {
				t.Errorf("two endpoints have uid %s", w.Uid)
			}
			out[w.Uid] = w
		}
		return out
	}
	// Two of one network are two ways to weigh it: each counts.
	got := uids(entry("{network: far, weight: 2}, {address: 192.0.2.1}, {network: far, weight: 3, ports: {http: 8080}}, {network: other}, {}, {address: \"unix:///x\"}"))
	if len(got) != 4 {
		t.Errorf("%d endpoints, want the two of far, that of other, and the address: %v", len(got), got)
	}
	first, second := got[head+"network/1/far"], got[head+"network/2/far"]
	if first.GetCapacity().GetValue() != 2 || second.GetCapacity().GetValue() != 3 || second.GetServices()["shop/api.example.com"].GetPorts()[0].GetTargetPort() != 8080 {
		t.Errorf("of far: %v, %v", first, second)
	}
	if first.GetNetworkGateway() == nil || first.GetHostname() != "" || len(first.GetAddresses()) > 0 {
		t.Errorf("it is reached otherwise than by its network's gateway: %v", first)
	}
	if got[head+"192.0.2.1"] == nil || got[head+"network/1/other"] == nil {
		t.Errorf("%v", got)
	}
	// Other entries of the list change no name.
	if again := uids(entry("{address: 192.0.2.9}, {network: other}, {network: far, weight: 2}")); again[head+"network/1/far"] == nil || again[head+"network/1/other"] == nil {
		t.Errorf("names that were, are not: %v", again)
	}
	// A network is free text.
	if odd := uids(entry("{network: 2/far}, {network: far}, {network: far}")); len(odd) != 3 {
		t.Errorf("%v", odd)
	}
}

// An entry says of which of its endpoints nothing comes.
func TestAnEntryTellsOfEndpointsThatNobodyReaches(t *testing.T) {
	for endpoints, want := range map[string]struct{ reason, says string }{
		"{network: far}": {"Accepted", "the object is accepted as it is written"},
		"{network: far}, {network: b}, {network: a}, {address: 192.0.2.1, network: b}": {"NoNetworkGateway", "networks a, b"},
		"{address: 192.0.2.1}, {}":                  {"NoAddress", "spec.endpoints[1]"},
		"{address: \"unix:///x\"}, {network: \"\"}": {"NoAddress", "spec.endpoints[0], spec.endpoints[1]"},
	} {
		se := object[networkingv1.ServiceEntry](t, "metadata: {name: api, namespace: shop}\nspec: {hosts: [api.example.com], addresses: [192.0.2.9], resolution: STATIC, ports: [{number: 80, name: http, protocol: HTTP}], endpoints: ["+endpoints+"]}")
		_, conditions := ServiceEntry(mesh, EntryInput{Entry: se, Gateway: far})
		if c := conditions[0]; c.Status != "True" || c.Reason != want.reason || !strings.Contains(c.Message, want.says) {
			t.Errorf("%s: %s, %q; want %s, %q", endpoints, c.Reason, c.Message, want.reason, want.says)
		}
	}
	se := object[networkingv1.ServiceEntry](t, "metadata: {name: api, namespace: shop}\nspec: {hosts: [api.example.com], addresses: [192.0.2.9], resolution: STATIC}")
	for range 40 {
		se.Spec.Endpoints = append(se.Spec.Endpoints, &networkingapi.WorkloadEntry{})
	}
	if _, conditions := ServiceEntry(mesh, EntryInput{Entry: se}); len(conditions[0].Message) > 400 {
		t.Errorf("it is told of each: %s", conditions[0].Message)
	}
}
