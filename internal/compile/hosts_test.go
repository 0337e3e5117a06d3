package compile

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"lateen.dev/lateen/internal/gen/workload"
	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/resourcekind"
)

func serviceEntry(namespace, name, day, spec string) string {
	return fmt.Sprintf("apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: %s, namespace: %s, creationTimestamp: 2026-01-%sT00:00:00Z}\nspec: {ports: [{number: 80, name: http, protocol: HTTP}], %s}\n---\n", name, namespace, day, spec)
}

func (p *plane) service(name string) *workload.Service {
	p.t.Helper()
	a := &workload.Address{}
	p.get(resourcekind.Address, name, func(v any) { a = v.(*workload.Address) })
	return a.GetService()
}

func TestOneObjectSpeaksForAHost(t *testing.T) {
	p := newPlane(t)
	const host = "web.shop.svc.cluster.local"
	p.put(serviceEntry("shop", "young", "03", "hosts: ["+host+"], resolution: DNS") + serviceEntry("shop", "old", "01", "hosts: ["+host+"], resolution: DNS") +
		serviceEntry("other", "copy", "02", "hosts: ["+host+"], resolution: DNS"))
	if s := p.service("shop/" + host); s.GetName() != "old" || !s.Canonical {
		t.Errorf("shop: %v, want the older entry, and for everybody", s)
	}
	if s := p.service("other/" + host); s.GetName() != "copy" || s.Canonical {
		t.Errorf("other: %v, want its own entry, for itself", s)
	}
	if c := p.said()[model.ServiceEntryKey("shop", "young")]; c.Status != model.False || !strings.Contains(c.Message, "ServiceEntry shop/old") {
		t.Errorf("the younger entry is told %v", c)
	}
	p.put("apiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: shop}\nspec: {clusterIP: 10.96.0.9, ports: [{port: 80}]}\n")
	if s := p.service("shop/" + host); s.GetName() != "web" || !s.Canonical {
		t.Errorf("shop: %v, want the Service", s)
	}
	p.remove(model.ServiceKey("shop", "web"), model.ServiceEntryKey("shop", "old"))
	if s := p.service("shop/" + host); s.GetName() != "young" || !s.Canonical {
		t.Errorf("shop: %v, want the entry that is left, and for everybody: the name is this namespace's", s)
	}
	if s := p.service("other/" + host); s.GetCanonical() {
		t.Errorf("other: %v speaks for everybody", s)
	}
	p.remove(model.ServiceEntryKey("shop", "young"), model.ServiceEntryKey("other", "copy"))
	if n := p.log.Len(resourcekind.Address); n != 0 {
		t.Errorf("%d resources are left", n)
	}
}

func TestAServiceThatNobodySeesSpeaksForNoHost(t *testing.T) {
	p := newPlane(t)
	const host = "web.shop.svc.cluster.local"
	const hidden = "apiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: shop, annotations: {networking.istio.io/exportTo: \"~\"}}\nspec: {clusterIP: 10.96.0.9, ports: [{port: 80}]}\n"
	p.put("apiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: shop}\nspec: {clusterIP: 10.96.0.9, ports: [{port: 80}]}\n---\n" +
		serviceEntry("shop", "stand-in", "01", "hosts: ["+host+"], resolution: DNS"))
	if s := p.service("shop/" + host); s.GetName() != "web" {
		t.Errorf("%v, want the Service", s)
	}
	p.put(hidden)
	if s := p.service("shop/" + host); s.GetName() != "stand-in" {
		t.Errorf("with the Service hidden: %v, want the entry", s)
	}
}

func TestVirtualAddressesSurviveARestart(t *testing.T) {
	file := filepath.Join(t.TempDir(), "assignments.json")
	start := func() *plane {
		t.Helper()
		a, err := LoadAssignments(file, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		return newPlaneWith(t, a)
	}
	address := func(p *plane, name string) string {
		t.Helper()
		var out []string
		for _, a := range p.service(name).GetAddresses() {
			ip, _ := netip.AddrFromSlice(a.Address)
			out = append(out, ip.String())
		}
		return strings.Join(out, " ")
	}
	entries := serviceEntry("shop", "a", "01", "hosts: [a.example.com], resolution: DNS") + serviceEntry("shop", "b", "01", "hosts: [b.example.com], resolution: DNS")
	p := start()
	p.put(entries)
	a, b := address(p, "shop/a.example.com"), address(p, "shop/b.example.com")
	if !strings.HasPrefix(a, "240.240.") || !strings.Contains(a, " 2001:2:") || a == b {
		t.Fatalf("addresses %q and %q", a, b)
	}
	// Somebody writes down b's address: b has to take another, and keeps that.
	taken, _, _ := strings.Cut(b, " ")
	claim := serviceEntry("shop", "c", "02", "hosts: [c.example.com], resolution: STATIC, addresses: ["+taken+"]")
	p.put(claim)
	moved := address(p, "shop/b.example.com")
	if moved == b || address(p, "shop/c.example.com") != taken {
		t.Fatalf("b has %q, c %q", moved, address(p, "shop/c.example.com"))
	}
	p.remove(model.ServiceEntryKey("shop", "c"))
	again := start()
	again.put(entries)
	if x, y := address(again, "shop/a.example.com"), address(again, "shop/b.example.com"); x != a || y != moved {
		t.Errorf("after a restart %q and %q, want %q and %q", x, y, a, moved)
	}
	again.remove(model.ServiceEntryKey("shop", "a"))
	if _, kept := again.assignments.Addresses["shop/a.example.com"]; kept {
		t.Error("the address of an entry that is gone is kept")
	}
}

// Damaged state stops nothing: it is set aside, whole, and what it held is chosen and kept anew.
func TestDamagedAssignmentsAreSetAside(t *testing.T) {
	write := func(text string) func(string) error {
		return func(file string) error { return os.WriteFile(file, []byte(text), 0o600) }
	}
	for name, make := range map[string]func(file string) error{
		"truncated":         write("{"),
		"empty":             write(""),
		"garbage":           write("\x00\xff\x00"),
		"another range":     write(`{"addresses": {"a/b": ["10.0.0.1"]}}`),
		"one address twice": write(`{"addresses": {"a/b": ["240.240.0.1"], "a/c": ["240.240.0.1"]}}`),
		"half good":         write(`{"addresses": {"a/b": ["240.240.0.1"]}, "policies": 7}`),
		"a directory":       func(file string) error { return os.Mkdir(file, 0o700) },
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "assignments.json")
			if err := make(file); err != nil {
				t.Fatal(err)
			}
			a, damage := LoadAssignments(file, time.Unix(0, 0))
			aside := file + ".damaged-19700101T000000Z"
			if damage == nil || !strings.Contains(damage.Error(), aside) || len(a.Addresses)+len(a.Policies)+len(a.taken) != 0 {
				t.Fatalf("%v; %+v", damage, a)
			}
			if _, err := os.Lstat(aside); err != nil {
				t.Error(err)
			}
			p := newPlaneWith(t, a)
			p.put(serviceEntry("shop", "a", "01", "hosts: [a.example.com], resolution: DNS"))
			again, damage := LoadAssignments(file, time.Unix(0, 0))
			if damage != nil || len(again.Addresses["shop/a.example.com"]) != 2 {
				t.Errorf("what was chosen anew is not kept: %+v, %v", again, damage)
			}
		})
	}
}

// FuzzAssignments reads any bytes: no panic, and what is taken can be written and read again.
func FuzzAssignments(f *testing.F) {
	f.Add([]byte(`{"addresses": {"shop/a": ["240.240.0.1", "2001:2::1"]}, "policies": {"x": {"plain": "a", "bound": "b", "name": "c"}}}`))
	f.Add([]byte(`{"addresses": null}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		a := NewAssignments()
		if a.read(data) != nil {
			return
		}
		a.path, a.dirty = filepath.Join(t.TempDir(), "a"), true
		if err := a.save(); err != nil {
			t.Fatal(err)
		}
		if _, err := LoadAssignments(a.path, time.Now()); err != nil {
			t.Fatal(err)
		}
	})
}

func TestEntriesAreServedByPodsAndWorkloadEntries(t *testing.T) {
	p := newPlane(t)
	p.put(serviceEntry("shop", "api", "01", "hosts: [api.example.com], resolution: STATIC, workloadSelector: {labels: {app: api}}"))
	p.put(pod("shop", "api-1", "10.0.0.1", "api") + "apiVersion: networking.istio.io/v1\nkind: WorkloadEntry\nmetadata: {name: vm, namespace: shop}\nspec: {address: 192.0.2.1, labels: {app: api}}\n---\n" + pod("other", "api-1", "10.0.0.2", "api"))
	if s := p.workload("shop", "api-1").GetServices(); s["shop/api.example.com"] == nil {
		t.Errorf("the pod serves %v", s)
	}
	if s := p.workload("other", "api-1").GetServices(); len(s) != 0 {
		t.Errorf("a pod of another namespace serves %v", s)
	}
	vm := &workload.Address{}
	p.get(resourcekind.Address, mesh.WorkloadEntryResource("shop", "vm"), func(v any) { vm = v.(*workload.Address) })
	if vm.GetWorkload().GetServices()["shop/api.example.com"] == nil {
		t.Errorf("the WorkloadEntry is %v", vm)
	}
	if found := p.log.Lookup(resourcekind.Address, "shop/api.example.com"); len(found) != 3 {
		t.Errorf("asking for the host finds %d resources, want it and both that serve it", len(found))
	}
}

func TestAWaypointThatComesAndGoesReachesThoseThatUseIt(t *testing.T) {
	p := newPlane(t)
	p.put("apiVersion: v1\nkind: Namespace\nmetadata: {name: shop, labels: {istio.io/use-waypoint: wp}}\n---\n" +
		"apiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: shop}\nspec: {clusterIP: 10.96.0.9, ports: [{port: 80}]}\n---\n" +
		serviceEntry("shop", "api", "01", "hosts: [api.example.com], resolution: DNS") + pod("shop", "web-1", "10.0.0.1", "web"))
	const gateway = "apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {name: wp, namespace: shop, labels: {istio.io/waypoint-for: all}}\nspec: {gatewayClassName: istio-waypoint, listeners: [{name: m, protocol: HBONE, port: 15008}]}\n---\n"
	bound := func() []bool {
		return []bool{p.service("shop/web.shop.svc.cluster.local").Waypoint != nil, p.service("shop/api.example.com").Waypoint != nil, p.workload("shop", "web-1").Waypoint != nil}
	}
	none, all := []bool{false, false, false}, []bool{true, true, true}
	expect := func(when string, want []bool) {
		t.Helper()
		if got := bound(); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", when, got, want)
		}
	}
	expect("without the Gateway", none)
	p.put(gateway)
	expect("without an address", none)
	p.put("apiVersion: v1\nkind: Service\nmetadata: {name: wp, namespace: shop}\nspec: {clusterIP: 10.96.0.15, ports: [{port: 15008}]}\n")
	expect("with its service", all)
	if c := p.said()[model.ServiceKey("shop", "web")]; c.Reason != "Accepted" {
		t.Errorf("web is told %v", c)
	}
	p.put("apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n")
	expect("without the label", none)
	p.put("apiVersion: v1\nkind: Namespace\nmetadata: {name: shop, labels: {istio.io/use-waypoint: wp}}\n")
	expect("with the label again", all)
	p.remove(model.GatewayKey("shop", "wp"))
	expect("without the Gateway again", none)
}

func TestNamesOfPoliciesThatAreGoneAreForgottenInTheEnd(t *testing.T) {
	p := newPlane(t)
	for i := range 5000 {
		p.assignments.policyName(fmt.Sprint("AuthorizationPolicy shop/gone-", i), "x", "b", "c", false, false)
	}
	p.put(pod("shop", "web-1", "10.0.0.1", "web") + authorization("shop", "kept", "selector: {matchLabels: {app: web}}"))
	for i := range 5000 {
		p.assignments.policyName(fmt.Sprint("AuthorizationPolicy shop/gone-", i), "x", "b", "c", false, false)
	}
	p.put(pod("shop", "web-2", "10.0.0.2", "web"))
	if n := len(p.assignments.Policies); n != 1 {
		t.Errorf("%d names are kept", n)
	}
	if _, kept := p.assignments.Policies["AuthorizationPolicy shop/kept"]; !kept {
		t.Error("the name of a policy that is there is forgotten")
	}
}

// A network's gateway may come after what is reached through it, and go again; the entry's author is told each time.
func TestEndpointsOfANetworkFollowItsGateway(t *testing.T) {
	p := newPlane(t)
	p.put(serviceEntry("shop", "api", "01", "hosts: [api.example.com], addresses: [192.0.2.9], resolution: STATIC, endpoints: [{network: far}]") +
		"apiVersion: networking.istio.io/v1\nkind: WorkloadEntry\nmetadata: {name: vm, namespace: shop}\nspec: {network: far}\n")
	const gateway = "apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {name: far, namespace: istio-system, labels: {topology.istio.io/network: far}}\nspec: {gatewayClassName: istio-remote, addresses: [{value: 203.0.113.1}], listeners: [{name: m, protocol: HBONE, port: 15008}]}\n"
	expect := func(when string, has bool) {
		t.Helper()
		for _, name := range []string{"Kubernetes/networking.istio.io/ServiceEntry/shop/api/network/1/far", "Kubernetes/networking.istio.io/WorkloadEntry/shop/vm"} {
			a := &workload.Address{}
			p.get(resourcekind.Address, name, func(v any) { a = v.(*workload.Address) })
			if w := a.GetWorkload(); w.GetNetwork() != "far" || (w.GetNetworkGateway() != nil) != has {
				t.Errorf("%s: %s is %v", when, name, w)
			}
		}
		for _, key := range []model.Key{model.ServiceEntryKey("shop", "api"), {Group: model.NetworkGroup, Kind: "WorkloadEntry", Namespace: "shop", Name: "vm"}} {
			if c := p.condition(key); c.Status != model.True || (c.Reason == "Accepted") != has {
				t.Errorf("%s: %s is told %v", when, key, c)
			}
		}
	}
	expect("before", false)
	p.put(gateway)
	expect("with the gateway", true)
	p.remove(model.GatewayKey("istio-system", "far"))
	expect("after", false)
}
