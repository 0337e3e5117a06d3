package compile

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"lateen.dev/lateen/internal/gen/security"
	"lateen.dev/lateen/internal/gen/workload"
	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/resourcekind"
	"lateen.dev/lateen/internal/resourcelog"
	"lateen.dev/lateen/internal/source/files"
	"lateen.dev/lateen/internal/translate"
)

// mesh names waypoints at once, so that what is published depends on the objects alone and not on what was there before; see ties_test.go.
var mesh = translate.Mesh{TrustDomain: "cluster.local", ClusterID: "Kubernetes", RootNamespace: "istio-system", DomainSuffix: "cluster.local", BindWaypoints: translate.BindAtOnce}

// plane is a compiler with its store and log.
type plane struct {
	t     testing.TB
	store *model.Store
	log   *resourcelog.Log
	*Compiler
}

func newPlane(t testing.TB) *plane { return newPlaneWith(t, NewAssignments()) }

func newPlaneWith(t testing.TB, assignments *Assignments) *plane {
	return newPlaneOf(t, mesh, assignments)
}

func newPlaneOf(t testing.TB, mesh translate.Mesh, assignments *Assignments) *plane {
	p := &plane{t: t, store: model.NewStore(), log: resourcelog.New(time.Now, resourcekind.Mesh)}
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
	_ = p.Keep(context.Background()) // the store may be away
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
	p.get(resourcekind.Address, mesh.PodResource(namespace, name), func(v any) { a = v.(*workload.Address) })
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
	renamed := p.policies.published[policyKey("AuthorizationPolicy", "shop", "web")]
	if !strings.HasPrefix(renamed, "shop/web~") || p.log.Get(resourcekind.Authorization, renamed) == nil || p.log.Get(resourcekind.Authorization, "shop/web") != nil {
		t.Errorf("the policy is known as %q", renamed)
	}
	want["shop/web-1"], want["shop/db-1"] = []string{"istio-system/all-web"}, []string{renamed}
	check()
	// A policy that node proxies cannot enforce is not named: there is no resource of it.
	p.put(authorization("shop", "web", "selector: {matchLabels: {app: db}}, action: AUDIT"))
	want["shop/db-1"] = nil
	check()
	if p.log.Get(resourcekind.Authorization, "shop/web") != nil || p.log.Get(resourcekind.Authorization, renamed) != nil {
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
	p.get(resourcekind.Authorization, "shop/converted_peer_authentication_web", func(v any) { found = v.(*security.Authorization).Action == security.Action_DENY })
	if !found {
		t.Error("its policy is missing")
	}
	if c := p.condition(policyKey("PeerAuthentication", "shop", "web")); c.Status != model.True || c.Generation != 4 {
		t.Errorf("condition %+v", c)
	}
	p.remove(policyKey("PeerAuthentication", "istio-system", "default"), policyKey("PeerAuthentication", "shop", "default"), policyKey("PeerAuthentication", "shop", "web"))
	if n := p.log.Len(resourcekind.Authorization); n != 0 {
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
	if got := p.log.Lookup(resourcekind.Address, "/10.96.0.1"); len(got) != 2 {
		t.Errorf("%d resources behind the service's address, want the service and its pod", len(got))
	}
	p.put("apiVersion: v1\nkind: Node\nmetadata: {name: n1, labels: {topology.kubernetes.io/zone: z1}}\n")
	if got := p.workload("shop", "web-1").GetLocality().GetZone(); got != "z1" {
		t.Errorf("zone %q", got)
	}
	p.put("apiVersion: v1\nkind: Namespace\nmetadata: {name: shop, annotations: {networking.istio.io/traffic-distribution: PreferClose}}\n")
	mode := workload.LoadBalancing_UNSPECIFIED_MODE
	p.get(resourcekind.Address, svc, func(v any) { mode = v.(*workload.Address).GetService().GetLoadBalancing().GetMode() })
	if mode != workload.LoadBalancing_FAILOVER {
		t.Errorf("mode %v", mode)
	}
	p.remove(model.ServiceKey("shop", "web"))
	if got := p.workload("shop", "web-1").GetServices(); len(got) != 0 || p.log.Get(resourcekind.Address, svc) != nil {
		t.Errorf("services %v after the service is gone", got)
	}
	p.remove(model.PodKey("shop", "web-1"))
	if p.log.Len(resourcekind.Address) != 0 {
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
	cursor := p.log.Open(resourcekind.Address)
	defer cursor.Close()
	head, _ := p.log.Head(resourcekind.Address)
	cursor.Seek(head)
	p.put(authorization("shop", "a", "selector: {matchLabels: {app: app3}}"))
	n := 0
	cursor.Read(resourcelog.Forever, func(resourcelog.Event) bool { n++; return true })
	if n != 10 {
		t.Errorf("%d workloads changed, want the 10 that are selected", n)
	}
}
