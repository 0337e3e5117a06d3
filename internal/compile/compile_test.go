package compile

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	networkingapi "istio.io/api/networking/v1alpha3"
	networkingv1 "istio.io/client-go/pkg/apis/networking/v1"

	"lateen.dev/lateen/internal/gen/security"
	"lateen.dev/lateen/internal/gen/workload"
	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/resourcelog"
	"lateen.dev/lateen/internal/source/files"
	"lateen.dev/lateen/internal/translate"
	"lateen.dev/lateen/internal/wirekind"
)

var mesh = translate.Mesh{TrustDomain: "cluster.local", ClusterID: "Kubernetes", RootNamespace: "istio-system", DomainSuffix: "cluster.local"}

// plane is a compiler with its store and log.
type plane struct {
	t     testing.TB
	store *model.Store
	log   *resourcelog.Log
	*Compiler
}

func newPlane(t testing.TB) *plane { return newPlaneWith(t, NewAssignments()) }

func newPlaneWith(t testing.TB, assignments *Assignments) *plane {
	p := &plane{t: t, store: model.NewStore(), log: resourcelog.New(time.Now, wirekind.Mesh)}
	p.Compiler = New(mesh, p.store, p.log, assignments, slog.New(slog.DiscardHandler), nil)
	return p
}

func decode(t testing.TB, text string) []files.Object {
	t.Helper()
	objects, problems := files.Decode("test", []byte(text))
	for _, p := range problems {
		if p.Severity == files.Refused {
			t.Fatal(p)
		}
	}
	return objects
}

func changes(t testing.TB, text string) (out []model.Change) {
	t.Helper()
	for _, o := range decode(t, text) {
		out = append(out, model.Change{Key: o.Key, Object: &o})
	}
	return out
}

// put compiles objects, and has what they want written down if somebody else chooses, too.
func (p *plane) put(text string) {
	p.t.Helper()
	p.Apply(changes(p.t, text))
	_ = p.Keep(context.Background()) // the shelf may be away
}

func (p *plane) remove(keys ...model.Key) {
	var changes []model.Change
	for _, k := range keys {
		changes = append(changes, model.Change{Key: k})
	}
	p.Apply(changes)
}

func (p *plane) workload(namespace, name string) *workload.Workload {
	p.t.Helper()
	a := &workload.Address{}
	p.get(wirekind.Address, mesh.PodResource(namespace, name), func(v any) { a = v.(*workload.Address) })
	return a.GetWorkload()
}

func (p *plane) get(typeURL, name string, take func(any)) {
	p.t.Helper()
	r := p.log.Get(typeURL, name)
	if r == nil {
		return
	}
	d, err := r.Decode()
	if err != nil {
		p.t.Fatal(err)
	}
	m, err := d.Resource.UnmarshalNew()
	if err != nil {
		p.t.Fatal(err)
	}
	take(m)
}

func (p *plane) versions() map[string]string {
	out := map[string]string{}
	for _, t := range p.log.Types() {
		for _, r := range p.log.Live(t) {
			out[t+" "+r.Name] = r.Version
		}
	}
	return out
}

func (p *plane) condition(key model.Key) model.Condition {
	p.t.Helper()
	for _, e := range p.store.Entries() {
		if e.Object.Key == key && len(e.Conditions) == 1 {
			return e.Conditions[0]
		}
	}
	p.t.Fatalf("%s has no condition", key)
	return model.Condition{}
}

// said is the first condition of every object.
func (p *plane) said() map[model.Key]model.Condition {
	out := map[model.Key]model.Condition{}
	for _, e := range p.store.Entries() {
		if len(e.Conditions) > 0 {
			out[e.Object.Key] = e.Conditions[0]
		}
	}
	return out
}

func pod(namespace, name, ip, app string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s, namespace: %s, labels: {app: %s}}\nspec: {nodeName: n1, containers: [{name: c}]}\nstatus: {podIP: %s}\n---\n", name, namespace, app, ip)
}

func authorization(namespace, name, selector string) string {
	return fmt.Sprintf("apiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\nmetadata: {name: %s, namespace: %s}\nspec: {%s}\n---\n", name, namespace, selector)
}

func peerAuthentication(namespace, name, spec string) string {
	return fmt.Sprintf("apiVersion: security.istio.io/v1\nkind: PeerAuthentication\nmetadata: {name: %s, namespace: %s}\nspec: {%s}\n---\n", name, namespace, spec)
}

func policyKey(kind, namespace, name string) model.Key {
	return model.Key{Group: model.SecurityGroup, Kind: kind, Namespace: namespace, Name: name}
}

func TestPoliciesReachThePodsTheySelect(t *testing.T) {
	p := newPlane(t)
	p.put(pod("shop", "web-1", "10.0.0.1", "web") + pod("shop", "db-1", "10.0.0.2", "db") + pod("other", "web-1", "10.0.0.3", "web"))
	p.put(authorization("shop", "web", "selector: {matchLabels: {app: web}}") + authorization("istio-system", "all-web", "selector: {matchLabels: {app: web}}") +
		authorization("shop", "everyone", "action: DENY, rules: [{}]"))
	want := map[string][]string{"shop/web-1": {"istio-system/all-web", "shop/web"}, "shop/db-1": nil, "other/web-1": {"istio-system/all-web"}}
	check := func() {
		t.Helper()
		for name, policies := range want {
			ns, pod, _ := strings.Cut(name, "/")
			if got := p.workload(ns, pod).GetAuthorizationPolicies(); !slices.Equal(got, policies) {
				t.Errorf("%s carries %v, want %v", name, got, policies)
			}
		}
	}
	check()
	p.put(authorization("shop", "web", "selector: {matchLabels: {app: db}}"))
	// Bound to others it has another name: what proxies know as shop/web must not meet those that it was not meant for.
	renamed := p.published[policyKey("AuthorizationPolicy", "shop", "web")]
	if !strings.HasPrefix(renamed, "shop/web~") || p.log.Get(wirekind.Authorization, renamed) == nil || p.log.Get(wirekind.Authorization, "shop/web") != nil {
		t.Errorf("the policy is known as %q", renamed)
	}
	want["shop/web-1"], want["shop/db-1"] = []string{"istio-system/all-web"}, []string{renamed}
	check()
	// A policy that node proxies cannot enforce is not named: there is no resource of it.
	p.put(authorization("shop", "web", "selector: {matchLabels: {app: db}}, action: AUDIT"))
	want["shop/db-1"] = nil
	check()
	if p.log.Get(wirekind.Authorization, "shop/web") != nil || p.log.Get(wirekind.Authorization, renamed) != nil {
		t.Error("the policy is still there")
	}
	p.remove(policyKey("AuthorizationPolicy", "istio-system", "all-web"))
	want["shop/web-1"], want["other/web-1"] = nil, nil
	check()
}

func TestStrictModeReachesThePodsThatInheritIt(t *testing.T) {
	const strict = "istio-system/istio_converted_static_strict"
	p := newPlane(t)
	p.put(pod("shop", "web-1", "10.0.0.1", "web") + pod("shop", "db-1", "10.0.0.2", "db") + pod("other", "x", "10.0.0.3", "x"))
	policies := func(ns, name string) []string { return p.workload(ns, name).GetAuthorizationPolicies() }
	p.put(peerAuthentication("istio-system", "default", "mtls: {mode: STRICT}"))
	for _, n := range [][2]string{{"shop", "web-1"}, {"shop", "db-1"}, {"other", "x"}} {
		if got := policies(n[0], n[1]); !slices.Equal(got, []string{strict}) {
			t.Errorf("%v carries %v", n, got)
		}
	}
	p.put(peerAuthentication("shop", "default", "mtls: {mode: PERMISSIVE}"))
	if got := policies("shop", "web-1"); len(got) != 0 {
		t.Errorf("the namespace is permissive; web carries %v", got)
	}
	p.put(peerAuthentication("shop", "web", "selector: {matchLabels: {app: web}}, portLevelMtls: {8080: {mode: STRICT}}"))
	if got := policies("shop", "web-1"); !slices.Equal(got, []string{"shop/converted_peer_authentication_web"}) {
		t.Errorf("web carries %v", got)
	}
	found := false
	p.get(wirekind.Authorization, "shop/converted_peer_authentication_web", func(v any) { found = v.(*security.Authorization).Action == security.Action_DENY })
	if !found {
		t.Error("its policy is missing")
	}
	if c := p.condition(policyKey("PeerAuthentication", "shop", "web")); c.Status != model.True || c.Generation != 4 {
		t.Errorf("condition %+v", c)
	}
	p.remove(policyKey("PeerAuthentication", "istio-system", "default"), policyKey("PeerAuthentication", "shop", "default"), policyKey("PeerAuthentication", "shop", "web"))
	if n := p.log.Len(wirekind.Authorization); n != 0 {
		t.Errorf("%d policies are left", n)
	}
	if got := policies("shop", "web-1"); len(got) != 0 {
		t.Errorf("web carries %v", got)
	}
}

func TestASelectorInTheRootNamespaceSpeaksForItsOwnWorkloads(t *testing.T) {
	p := newPlane(t)
	p.put(pod("shop", "web-1", "10.0.0.1", "web") + pod("istio-system", "web-1", "10.0.0.2", "web") + pod("istio-system", "db-1", "10.0.0.3", "db"))
	p.put(peerAuthentication("istio-system", "web", "selector: {matchLabels: {app: web}}, mtls: {mode: STRICT}, portLevelMtls: {80: {mode: PERMISSIVE}}"))
	for name, want := range map[string][]string{"istio-system/web-1": {"istio-system/converted_peer_authentication_web"}, "istio-system/db-1": nil, "shop/web-1": nil} {
		ns, pod, _ := strings.Cut(name, "/")
		if got := p.workload(ns, pod).GetAuthorizationPolicies(); !slices.Equal(got, want) {
			t.Errorf("%s carries %v, want %v", name, got, want)
		}
	}
	if c := p.condition(policyKey("PeerAuthentication", "istio-system", "web")); c.Status != model.True || c.Reason != "Accepted" {
		t.Errorf("condition %+v", c)
	}
}

func TestServicesNodesAndNamespacesReachWhatTheyBearOn(t *testing.T) {
	p := newPlane(t)
	const svc = "shop/web.shop.svc.cluster.local"
	p.put(pod("shop", "web-1", "10.0.0.1", "web"))
	p.put("apiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: shop}\nspec: {clusterIP: 10.96.0.1, selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}\n")
	if got := p.workload("shop", "web-1").GetServices()[svc].GetPorts(); len(got) != 1 || got[0].TargetPort != 8080 {
		t.Errorf("services %v", got)
	}
	if got := p.log.Lookup(wirekind.Address, "/10.96.0.1"); len(got) != 2 {
		t.Errorf("%d resources behind the service's address, want the service and its pod", len(got))
	}
	p.put("apiVersion: v1\nkind: Node\nmetadata: {name: n1, labels: {topology.kubernetes.io/zone: z1}}\n")
	if got := p.workload("shop", "web-1").GetLocality().GetZone(); got != "z1" {
		t.Errorf("zone %q", got)
	}
	p.put("apiVersion: v1\nkind: Namespace\nmetadata: {name: shop, annotations: {networking.istio.io/traffic-distribution: PreferClose}}\n")
	mode := workload.LoadBalancing_UNSPECIFIED_MODE
	p.get(wirekind.Address, svc, func(v any) { mode = v.(*workload.Address).GetService().GetLoadBalancing().GetMode() })
	if mode != workload.LoadBalancing_FAILOVER {
		t.Errorf("mode %v", mode)
	}
	p.remove(model.ServiceKey("shop", "web"))
	if got := p.workload("shop", "web-1").GetServices(); len(got) != 0 || p.log.Get(wirekind.Address, svc) != nil {
		t.Errorf("services %v after the service is gone", got)
	}
	p.remove(model.PodKey("shop", "web-1"))
	if p.log.Len(wirekind.Address) != 0 {
		t.Error("the pod is still there")
	}
}

func TestKindsWithoutEffectSaySo(t *testing.T) {
	p := newPlane(t)
	p.put("apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: v, namespace: shop}\nspec: {hosts: [a]}\n")
	c := p.condition(model.Key{Group: "networking.istio.io", Kind: "VirtualService", Namespace: "shop", Name: "v"})
	if c.Status != model.False || c.Reason != "NotImplemented" {
		t.Errorf("condition %+v", c)
	}
}

func TestOnlyWhatAChangeTouchesIsSentAgain(t *testing.T) {
	p := newPlane(t)
	var all strings.Builder
	for i := range 100 {
		all.WriteString(pod("shop", fmt.Sprint("p", i), fmt.Sprint("10.0.0.", i), fmt.Sprint("app", i%10)))
	}
	p.put(all.String())
	cursor := p.log.Open(wirekind.Address)
	defer cursor.Close()
	head, _ := p.log.Head(wirekind.Address)
	cursor.Seek(head)
	p.put(authorization("shop", "a", "selector: {matchLabels: {app: app3}}"))
	n := 0
	cursor.Read(resourcelog.Forever, func(resourcelog.Event) bool { n++; return true })
	if n != 10 {
		t.Errorf("%d workloads changed, want the 10 that are selected", n)
	}
}

// TestStepByStepEndsWhereAllAtOnceDoes applies random edits one after another and compares the log with that of a compiler which sees the
// outcome only, as after a restart: with the assignments that the first one kept. So a restart changes no version of anything.
func TestStepByStepEndsWhereAllAtOnceDoes(t *testing.T) {
	for seed := range uint64(25) {
		rng := rand.New(rand.NewPCG(seed, 5))
		namespaces := []string{"shop", "other", "istio-system"}
		pick := func(options ...string) string { return options[rng.IntN(len(options))] }
		live := map[model.Key]model.Object{}
		file := filepath.Join(t.TempDir(), "assignments.json")
		kept, err := LoadAssignments(file, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		p := newPlaneWith(t, kept)
		for range 120 {
			var changes []model.Change
			for range 1 + rng.IntN(3) {
				ns := pick(namespaces...)
				selector := pick("", "selector: {matchLabels: {app: a}}, ", "selector: {matchLabels: {app: b}}, ")
				var text string
				waypoint := pick("", "", "istio.io/use-waypoint: wp", "istio.io/use-waypoint: none", `istio.io/use-waypoint: ""`, "istio.io/use-waypoint: wp, istio.io/use-waypoint-namespace: other")
				var slice *model.Object
				switch rng.IntN(13) {
				case 12:
					slice = sliceIn(ns, fmt.Sprint("es", rng.IntN(3)), fmt.Sprint("s", rng.IntN(3)), fmt.Sprint("p", rng.IntN(5)), fmt.Sprint("10.0.0.", rng.IntN(9)), rng.IntN(4) > 0)
				case 7, 8:
					text = fmt.Sprintf("apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: se%d, namespace: %s, labels: {app: a, %s}, creationTimestamp: 2026-01-0%dT00:00:00Z}\nspec: {hosts: [%s], ports: [{number: 80, name: http, protocol: HTTP}], %s}\n",
						rng.IntN(3), ns, waypoint, 1+rng.IntN(3), pick("a.example.com", "b.example.com", "s1.shop.svc.cluster.local", "a.example.com, b.example.com", `"*.example.com", b.example.com`),
						pick("resolution: DNS, endpoints: [{address: e.example.com}]", "resolution: STATIC, endpoints: [{address: 192.0.2.1}, {address: 192.0.2.2, network: far}]", "resolution: STATIC, endpoints: [{network: far}, {network: farther}, {network: far, weight: 2}]", "resolution: STATIC, workloadSelector: {labels: {app: a}}",
							"resolution: NONE, addresses: [192.0.2.0/24]", "resolution: STATIC, exportTo: [.], workloadSelector: {labels: {app: b}}", "resolution: STATIC, addresses: [240.240.1.1], workloadSelector: {labels: {app: c}}"))
				case 9:
					text = fmt.Sprintf("apiVersion: networking.istio.io/v1\nkind: WorkloadEntry\nmetadata: {name: we%d, namespace: %s, labels: {app: %s, %s}}\nspec: {%s}\n", rng.IntN(3), ns, pick("a", "b"), waypoint, pick("network: far", fmt.Sprintf("address: 192.0.2.%d, network: %s", rng.IntN(9), pick(`""`, "far"))))
				case 10:
					text = fmt.Sprintf("apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {name: %s, namespace: %s, labels: {istio.io/waypoint-for: %s}}\nspec: {gatewayClassName: %s, listeners: [{name: m, protocol: HBONE, port: 15008, allowedRoutes: {namespaces: {from: %s}}}]}\nstatus: {addresses: [%s]}\n",
						pick("wp", "s1"), ns, pick("service", "workload", "all", "none"), pick("istio-waypoint", "lateen-waypoint", "other"), pick("Same", "All", "Selector, selector: {matchLabels: {x: z}}"), pick("", "{type: IPAddress, value: 10.9.9.9}"))
				case 11:
					text = fmt.Sprintf("apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {name: far%d, namespace: %s, labels: {topology.istio.io/network: far}}\nspec: {gatewayClassName: istio-remote, listeners: [{name: m, protocol: HBONE, port: 15008}]}\nstatus: {addresses: [{value: 203.0.113.%d}]}\n", rng.IntN(2), ns, rng.IntN(3))
				case 0, 1:
					text = pod(ns, fmt.Sprint("p", rng.IntN(5)), fmt.Sprint("10.0.0.", rng.IntN(9)), pick("a", "b", "c"))
				case 2:
					text = fmt.Sprintf("apiVersion: v1\nkind: Service\nmetadata: {name: s%d, namespace: %s, labels: {%s}}\nspec: {%sclusterIP: None, ports: [{port: %d}]}\n", rng.IntN(3), ns, waypoint, pick("", "selector: {app: a}, ", "selector: {app: b}, "), 80+rng.IntN(2))
				case 3:
					text = authorization(ns, fmt.Sprint("ap", rng.IntN(4)), selector+"action: "+pick("ALLOW", "DENY", "AUDIT"))
				case 4:
					ports := ""
					if selector != "" {
						ports = pick("", "portLevelMtls: {80: {mode: STRICT}}, ", "portLevelMtls: {80: {mode: PERMISSIVE}, 81: {mode: STRICT}}, ")
					}
					text = peerAuthentication(ns, fmt.Sprint("pa", rng.IntN(3)), selector+ports+"mtls: {mode: "+pick("UNSET", "STRICT", "PERMISSIVE", "DISABLE")+"}")
				case 5:
					text = fmt.Sprintf("apiVersion: v1\nkind: Node\nmetadata: {name: n1, labels: {topology.kubernetes.io/zone: %s}}\n", pick("z1", "z2"))
				case 6:
					text = fmt.Sprintf("apiVersion: v1\nkind: Namespace\nmetadata: {name: %s, labels: {%s}, annotations: {networking.istio.io/traffic-distribution: %s}}\n", ns, pick(waypoint, "x: z"), pick("PreferClose", "PreferSameNode", "none"))
				}
				var o model.Object
				if slice != nil {
					o = *slice
				} else {
					o = decode(t, text)[0]
				}
				if se, ok := o.Value.(*networkingv1.ServiceEntry); ok && rng.IntN(2) == 0 { // as Istio left it
					se.Status.Addresses = []*networkingapi.ServiceEntryAddress{{Host: "a.example.com", Value: pick("240.240.1.1", "240.240.1.2")}, {Host: "b.example.com", Value: pick("240.240.1.2", "2001:2::1")}}
				}
				if rng.IntN(4) == 0 {
					delete(live, o.Key)
					changes = append(changes, model.Change{Key: o.Key})
				} else {
					live[o.Key] = o
					changes = append(changes, model.Change{Key: o.Key, Object: &o})
				}
			}
			p.Apply(changes)
		}
		again, err := LoadAssignments(file, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		fresh := newPlaneWith(t, again)
		var all []model.Change
		for _, key := range slices.SortedFunc(maps.Keys(live), model.Key.Compare) {
			o := live[key]
			all = append(all, model.Change{Key: key, Object: &o})
		}
		fresh.Apply(all)
		if got, want := p.versions(), fresh.versions(); !maps.Equal(got, want) {
			for k, v := range want {
				if got[k] != v {
					t.Errorf("seed %d: %s is %q, want %q", seed, k, got[k], v)
				}
			}
			for k := range got {
				if _, ok := want[k]; !ok {
					t.Errorf("seed %d: %s should be gone", seed, k)
				}
			}
		}
		said, want := p.said(), fresh.said()
		for key := range live {
			if a, b := said[key], want[key]; a == (model.Condition{}) || a.Reason != b.Reason || a.Message != b.Message {
				t.Errorf("seed %d: %s is told %q, want %q", seed, key, a.Message, b.Message)
			}
		}
	}
}
