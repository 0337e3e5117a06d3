package compile

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"lateen.dev/lateen/internal/gen/workload"
	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/resourcekind"
)

func texts(s *workload.Service) []string {
	var out []string
	for _, a := range s.GetAddresses() {
		ip, _ := netip.AddrFromSlice(a.Address)
		text := ip.String()
		if a.Length != nil {
			text = netip.PrefixFrom(ip, int(*a.Length)).String()
		}
		out = append(out, text)
	}
	return out
}

func TestNobodyTakesOverTheAddressOfAPodOrAService(t *testing.T) {
	const victims = "apiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: shop}\nspec: {clusterIP: 10.96.0.9, ports: [{port: 80}]}\n---\n"
	greedy := serviceEntry("attic", "greedy", "01", "hosts: [g.example.com], resolution: NONE, addresses: [10.96.0.9, \"::ffff:10.0.0.1\", 192.0.2.1, 10.0.0.0/8]")
	for name, order := range map[string][]string{
		"entry first": {greedy, victims + pod("shop", "web-1", "10.0.0.1", "web")},
		"entry last":  {victims + pod("shop", "web-1", "10.0.0.1", "web"), greedy},
		"at once":     {greedy + victims + pod("shop", "web-1", "10.0.0.1", "web")},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlane(t)
			for _, text := range order {
				p.put(text)
			}
			entry := func() []string { return texts(p.service("attic/g.example.com")) }
			if got := entry(); !slices.Equal(got, []string{"192.0.2.1", "10.0.0.0/8"}) {
				t.Errorf("the entry has %v", got)
			}
			if got := texts(p.service("shop/web.shop.svc.cluster.local")); !slices.Equal(got, []string{"10.96.0.9"}) {
				t.Errorf("the Service has %v", got)
			}
			said := p.said()[model.ServiceEntryKey("attic", "greedy")]
			if said.Reason != "Conflicted" || !strings.Contains(said.Message, "Service shop/web") || !strings.Contains(said.Message, "Pod shop/web-1") {
				t.Errorf("its author is told %v", said)
			}
			p.remove(model.PodKey("shop", "web-1"), model.ServiceKey("shop", "web"))
			if got := entry(); len(got) != 4 {
				t.Errorf("with nobody else there the entry has %v", got)
			}
			if said := p.said()[model.ServiceEntryKey("attic", "greedy")]; said.Reason != "Accepted" {
				t.Errorf("its author is still told %v", said)
			}
		})
	}
}

func TestOfTwoServicesTheOlderHasTheAddress(t *testing.T) {
	p := newPlane(t)
	service := func(namespace, day string) string {
		return "apiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: " + namespace + ", creationTimestamp: 2026-01-" + day + "T00:00:00Z}\nspec: {clusterIP: 10.96.0.9, ports: [{port: 80}]}\n---\n"
	}
	p.put(service("attic", "02"))
	p.put(service("shop", "01"))
	if got := texts(p.service("shop/web.shop.svc.cluster.local")); len(got) != 1 {
		t.Errorf("the older has %v", got)
	}
	if got := texts(p.service("attic/web.attic.svc.cluster.local")); len(got) != 0 {
		t.Errorf("the younger has %v", got)
	}
	if said := p.said()[model.ServiceKey("attic", "web")]; said.Reason != "Conflicted" {
		t.Errorf("the younger is told %v", said)
	}
}

func TestAChosenAddressIsNotTakenByAnotherNamespace(t *testing.T) {
	p := newPlane(t)
	p.put(serviceEntry("shop", "api", "02", "hosts: [api.example.com], resolution: DNS"))
	chosen := texts(p.service("shop/api.example.com"))
	p.put(serviceEntry("attic", "thief", "01", "hosts: [t.example.com], resolution: STATIC, addresses: ["+chosen[0]+"]"))
	if got := texts(p.service("shop/api.example.com")); !slices.Equal(got, chosen) {
		t.Errorf("the owner has %v, had %v", got, chosen)
	}
	if got := texts(p.service("attic/t.example.com")); len(got) != 0 {
		t.Errorf("the other has %v", got)
	}
	if said := p.said()[model.ServiceEntryKey("attic", "thief")]; said.Reason != "Conflicted" {
		t.Errorf("the other is told %v", said)
	}
	p.remove(model.ServiceEntryKey("shop", "api"))
	if got := texts(p.service("attic/t.example.com")); !slices.Equal(got, chosen[:1]) {
		t.Errorf("with the owner gone the other has %v", got)
	}
}

const nodeOne = "apiVersion: v1\nkind: Node\nmetadata: {name: n1}\nstatus: {addresses: [{type: Hostname, address: n1}, {type: InternalIP, address: 10.243.0.11}]}\n---\n"

func hostPod(namespace, name string) string {
	return strings.Replace(pod(namespace, name, "10.243.0.11", "hdb"), "spec: {", "spec: {hostNetwork: true, ", 1)
}

func TestNobodyTakesOverTheAddressOfANode(t *testing.T) {
	entry := serviceEntry("attic", "e", "01", "hosts: [e.example.com], resolution: STATIC, addresses: [10.243.0.11, 192.0.2.1]")
	for name, owner := range map[string]struct {
		text, said string
		key        model.Key
	}{
		"a node":                      {nodeOne, "Node n1", model.NodeKey("n1")},
		"a pod on the node's network": {hostPod("shop", "hdb-1"), "Pod shop/hdb-1", model.PodKey("shop", "hdb-1")},
	} {
		for _, order := range [][]string{{entry, owner.text}, {owner.text, entry}, {entry + owner.text}} {
			t.Run(name, func(t *testing.T) {
				p := newPlane(t)
				for _, text := range order {
					p.put(text)
				}
				if got := texts(p.service("attic/e.example.com")); !slices.Equal(got, []string{"192.0.2.1"}) {
					t.Errorf("the entry has %v", got)
				}
				said := p.said()[model.ServiceEntryKey("attic", "e")]
				if said.Reason != "Conflicted" || !strings.Contains(said.Message, "address 10.243.0.11 belongs to "+owner.said) {
					t.Errorf("its author is told %v", said)
				}
				p.remove(owner.key)
				if got := texts(p.service("attic/e.example.com")); len(got) != 2 {
					t.Errorf("with nobody else there the entry has %v", got)
				}
			})
		}
	}
}

func TestNobodyLeadsConnectionsToANodeOrPodIntoATunnel(t *testing.T) {
	const annotated = "annotations: {ambient.istio.io/redirection: enabled}"
	machine := "apiVersion: networking.istio.io/v1\nkind: WorkloadEntry\nmetadata: {name: m, namespace: attic, " + annotated + "}\nspec: {address: 10.243.0.11}\n---\n"
	entry := "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: e, namespace: attic, " + annotated + "}\n" +
		"spec: {hosts: [e.example.com], resolution: STATIC, ports: [{number: 80, name: http, protocol: HTTP}], endpoints: [{address: 10.243.0.11}]}\n---\n"
	for resource, at := range map[string]struct {
		text string
		key  model.Key
	}{
		mesh.WorkloadEntryResource("attic", "m"):           {machine, model.Key{Group: model.NetworkGroup, Kind: "WorkloadEntry", Namespace: "attic", Name: "m"}},
		mesh.EndpointResource("attic", "e", "10.243.0.11"): {entry, model.ServiceEntryKey("attic", "e")},
	} {
		for name, owner := range map[string]struct {
			text string
			key  model.Key
		}{
			"node":     {nodeOne, model.NodeKey("n1")},
			"host pod": {hostPod("shop", "hdb-1"), model.PodKey("shop", "hdb-1")},
			"pod":      {pod("shop", "web-1", "10.243.0.11", "web"), model.PodKey("shop", "web-1")},
		} {
			for _, order := range [][]string{{at.text, owner.text}, {owner.text, at.text}} {
				t.Run(at.key.Kind+" at a "+name, func(t *testing.T) {
					p := newPlane(t)
					for _, text := range order {
						p.put(text)
					}
					tunnel := func() workload.TunnelProtocol {
						var a *workload.Address
						p.get(resourcekind.Address, resource, func(v any) { a = v.(*workload.Address) })
						return a.GetWorkload().GetTunnelProtocol()
					}
					if got := tunnel(); got != workload.TunnelProtocol_NONE {
						t.Errorf("it speaks %v", got)
					}
					if said := p.said()[at.key]; said.Reason != "Conflicted" || !strings.Contains(said.Message, owner.key.String()) {
						t.Errorf("its author is told %v", said)
					}
					p.remove(owner.key)
					if got := tunnel(); got != workload.TunnelProtocol_HBONE {
						t.Errorf("with nobody else there it speaks %v", got)
					}
					if said := p.said()[at.key]; said.Reason != "Accepted" {
						t.Errorf("its author is still told %v", said)
					}
				})
			}
		}
	}
}

// The same address in two networks is two places.
func TestAMachineOfAnotherNetworkIsNotWhereANodeIs(t *testing.T) {
	machine := func(name, network string) string {
		return "apiVersion: networking.istio.io/v1\nkind: WorkloadEntry\nmetadata: {name: " + name + ", namespace: attic, annotations: {ambient.istio.io/redirection: enabled}}\n" +
			"spec: {address: 10.243.0.11" + network + "}\n---\n"
	}
	p := newPlane(t)
	p.put(nodeOne + machine("here", "") + machine("there", ", network: far"))
	for name, want := range map[string]workload.TunnelProtocol{"here": workload.TunnelProtocol_NONE, "there": workload.TunnelProtocol_HBONE} {
		var a *workload.Address
		p.get(resourcekind.Address, mesh.WorkloadEntryResource("attic", name), func(v any) { a = v.(*workload.Address) })
		if got := a.GetWorkload().GetTunnelProtocol(); got != want {
			t.Errorf("%s speaks %v, want %v", name, got, want)
		}
		said := p.said()[model.Key{Group: model.NetworkGroup, Kind: "WorkloadEntry", Namespace: "attic", Name: name}]
		if (said.Reason == "Conflicted") != (name == "here") {
			t.Errorf("%s is told %v", name, said)
		}
	}
}
