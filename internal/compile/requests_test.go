package compile

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"lateen.dev/lateen/internal/gen/l7"
	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/resourcekind"
)

// attached is what an object is told beside its first condition: its further conditions, and how it stands to its parents.
func (p *plane) attached(key model.Key) string {
	p.t.Helper()
	e, ok := p.store.Entry(key)
	if !ok {
		return ""
	}
	var out []string
	say := func(c model.Condition) {
		out = append(out, fmt.Sprint(c.Type, " ", c.Status, " ", c.Reason, ": ", c.Message))
	}
	for _, c := range e.Conditions[min(1, len(e.Conditions)):] {
		say(c)
	}
	for _, parent := range e.Parents() {
		out = append(out, parent.Parent.Kind+" "+parent.Parent.Name)
		for _, c := range parent.Conditions {
			say(c)
		}
	}
	return strings.Join(out, "\n")
}

// requestMesh has a service behind a waypoint of this mesh, and a policy for each.
const requestMesh = `
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop, labels: {istio.io/use-waypoint: wp}}
spec: {clusterIP: 10.96.0.1, ports: [{port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: db, namespace: shop}
spec: {clusterIP: 10.96.0.2, ports: [{port: 80}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: wp, namespace: shop}
spec: {gatewayClassName: lateen-waypoint, listeners: [{name: m, protocol: HBONE, port: 15008}]}
---
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: web, namespace: shop}
spec: {targetRefs: [{kind: Service, name: web}], rules: [{to: [{operation: {methods: [GET]}}]}]}
---
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: all, namespace: shop}
spec: {targetRefs: [{group: gateway.networking.k8s.io, kind: Gateway, name: wp}], action: DENY, rules: [{to: [{operation: {paths: ["/admin/{**}"]}}]}]}
---
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: db, namespace: shop}
spec: {targetRefs: [{kind: Service, name: db}], rules: [{}]}
---
apiVersion: security.istio.io/v1
kind: RequestAuthentication
metadata: {name: jwt, namespace: shop}
spec: {targetRefs: [{kind: Service, name: web}], jwtRules: [{issuer: x}]}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: istio, namespace: istio-system}
data: {mesh: "accessLogFile: /dev/stdout"}
`

func requestPolicy(name string) model.Key {
	return model.Key{Group: model.SecurityGroup, Kind: "AuthorizationPolicy", Namespace: "shop", Name: name}
}

// requests lists the resources of proxies that read requests.
func (p *plane) requests() (names []string) {
	for _, typeURL := range []string{resourcekind.RequestAuthorization, resourcekind.RequestAuthentication, resourcekind.Gateway, resourcekind.Binding} {
		for _, r := range p.log.Live(typeURL) {
			names = append(names, p.log.Kinds().Label(typeURL)+" "+r.Name)
		}
	}
	slices.Sort(names)
	return names
}

func TestAWaypointsResourcesFollowTheObjects(t *testing.T) {
	p := newPlane(t)
	p.put(requestMesh)
	all := []string{"l7_authentication shop/jwt", "l7_authorization shop/all", "l7_authorization shop/web", "l7_binding shop/web.shop.svc.cluster.local", "l7_gateway shop/wp"}
	if got := p.requests(); !slices.Equal(got, all) {
		t.Fatalf("%v", got)
	}
	p.get(resourcekind.Binding, "shop/web.shop.svc.cluster.local", func(v any) {
		if b := v.(*l7.Binding); len(b.Parents) != 1 || b.Parents[0].Gateway != "shop/wp" || b.Parents[0].Identity != "shop/wp" {
			t.Errorf("%v", b)
		}
	})
	if got := p.attached(requestPolicy("db")); !strings.Contains(got, "NotBound") || !strings.Contains(got, "istio.io/use-waypoint") {
		t.Errorf("a service without waypoint: %s", got)
	}
	// The Service is labelled, and then is without the label again.
	labelled := "apiVersion: v1\nkind: Service\nmetadata: {name: db, namespace: shop, labels: {istio.io/use-waypoint: wp}}\nspec: {clusterIP: 10.96.0.2, ports: [{port: 80}]}\n"
	p.put(labelled)
	if got := p.requests(); len(got) != len(all)+2 || !strings.Contains(p.attached(requestPolicy("db")), "True Accepted") {
		t.Errorf("%v, %s", got, p.attached(requestPolicy("db")))
	}
	p.remove(model.ServiceKey("shop", "db"))
	if got := p.requests(); !slices.Equal(got, all) || !strings.Contains(p.attached(requestPolicy("db")), "TargetNotFound") {
		t.Errorf("%v, %s", got, p.attached(requestPolicy("db")))
	}
	// Without the Gateway no proxy has anything.
	p.remove(model.GatewayKey("shop", "wp"))
	if got := p.requests(); len(got) != 0 {
		t.Errorf("%v", got)
	}
	if got := p.attached(requestPolicy("all")); !strings.Contains(got, "TargetNotFound") {
		t.Errorf("%s", got)
	}
}

// A waypoint hears of policies before it hears that a Binding ends or begins. A policy that lost a Service's host in between would not hold for its
// requests.
func TestAPolicyKeepsTheHostOfAServiceThatGoes(t *testing.T) {
	const db = "apiVersion: v1\nkind: Service\nmetadata: {name: db, namespace: shop, labels: {istio.io/use-waypoint: wp}}\nspec: {clusterIP: 10.96.0.2, ports: [{port: 80}]}\n"
	p := newPlane(t)
	p.put(requestMesh)
	p.put(db + `---
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: both, namespace: shop}
spec: {targetRefs: [{kind: Service, name: web}, {kind: Service, name: db}], action: DENY, rules: [{}]}
`)
	targets := func() (hosts []string) {
		p.get(resourcekind.RequestAuthorization, "shop/both", func(v any) {
			for _, target := range v.(*l7.Authorization).GetTargets() {
				hosts = append(hosts, target.GetService())
			}
		})
		return hosts
	}
	want := []string{"shop/web.shop.svc.cluster.local", "shop/db.shop.svc.cluster.local"}
	told := p.attached(requestPolicy("both"))
	if got := targets(); !slices.Equal(got, want) || strings.Contains(told, "False") {
		t.Fatalf("%v: %s", got, told)
	}
	before := p.versions()[resourcekind.RequestAuthorization+" shop/both"]
	p.remove(model.ServiceKey("shop", "db"))
	if got := targets(); !slices.Equal(got, want) {
		t.Errorf("without the Service it is for %v", got)
	}
	if got := p.attached(requestPolicy("both")); !strings.Contains(got, "PartiallyInvalid") || !strings.Contains(got, "TargetNotFound") {
		t.Errorf("it is said %s", got)
	}
	p.put(db)
	if got := p.attached(requestPolicy("both")); got != told {
		t.Errorf("with the Service again it is said %s", got)
	}
	if now := p.versions()[resourcekind.RequestAuthorization+" shop/both"]; now != before {
		t.Errorf("proxies were told anew: %v after %v", now, before)
	}
}

// A policy keeps the hosts that a ServiceEntry loses while a waypoint may serve them. Another object that has a host takes it from the policy.
func TestAPolicyKeepsTheHostsOfAServiceEntryForAWhile(t *testing.T) {
	entryWith := func(name, label, hosts, exportTo string) string {
		return "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: " + name + ", namespace: shop, labels: {" + label + "}}\n" +
			"spec: {hosts: [" + hosts + "], exportTo: [" + exportTo + "], ports: [{number: 80, name: http, protocol: HTTP}], resolution: STATIC, endpoints: [{address: 10.0.9.9}]}\n"
	}
	entry := func(name, hosts string) string { return entryWith(name, "istio.io/use-waypoint: wp", hosts, "") }
	key := model.ServiceEntryKey("shop", "ext")
	p := newBindingPlane(t, NewAssignments())
	p.put(requestMesh)
	p.put(entry("ext", "a.example, b.example") + `---
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: both, namespace: shop}
spec: {targetRefs: [{kind: Service, name: web}, {kind: ServiceEntry, group: networking.istio.io, name: ext}], action: DENY, rules: [{}]}
`)
	targets := func(when string, hosts ...string) {
		t.Helper()
		got := []string{}
		p.get(resourcekind.RequestAuthorization, "shop/both", func(v any) {
			for _, target := range v.(*l7.Authorization).GetTargets()[1:] {
				got = append(got, strings.TrimPrefix(target.GetService(), "shop/"))
			}
		})
		if slices.Sort(got); !slices.Equal(got, hosts) {
			t.Errorf("%s the policy is for %v of the entry, want %v", when, got, hosts)
		}
	}
	targets("at first", "a.example", "b.example")
	p.put(entry("ext", "a.example"))
	targets("when a host goes", "a.example", "b.example")
	if p.binding("shop/b.example") != nil {
		t.Error("the Binding of the host stays")
	}
	p.put(entryWith("other", "app: other", "b.example", ""))
	targets("when another entry that is not bound has the host", "a.example", "b.example")
	p.put(entry("other", "b.example"))
	targets("when another entry has the host and its Binding", "a.example")
	p.remove(model.ServiceEntryKey("shop", "other"))
	targets("when nobody has it", "a.example")

	p.put(entryWith("ext", "istio.io/use-waypoint: wp", "a.example", `"~"`))
	targets("when nobody may see the entry", "a.example")
	if p.binding("shop/a.example") != nil {
		t.Error("the Binding of an entry that nobody may see stays")
	}
	p.put(entry("ext", "a.example"))
	p.remove(key)
	targets("without the entry", "a.example")
	if got := p.attached(requestPolicy("both")); !strings.Contains(got, "TargetNotFound") || !strings.Contains(got, "keeps the policy for half a minute") {
		t.Errorf("its author is told %s", got)
	}
	p.now = p.now.Add(leaveFor - time.Second)
	p.settle()
	targets("before its time", "a.example")
	p.now = p.now.Add(2 * time.Second)
	p.settle()
	targets("after its time")
	if got := p.attached(requestPolicy("both")); !strings.Contains(got, "no proxy enforces the policy for it") {
		t.Errorf("its author is told %s", got)
	}
	if len(p.services.departed.of)+len(p.services.departed.holder) > 0 {
		t.Errorf("what is kept: %v", p.services.departed)
	}

	p.put(entry("ext", "a.example"))
	p.remove(key)
	p.put(entry("ext", "a.example"))
	p.now = p.now.Add(leaveFor + time.Second)
	p.settle()
	targets("with the entry again", "a.example")
}

// A change touches what depends on it and nothing else.
func TestAChangeCompilesItsDependentsAlone(t *testing.T) {
	wp := "apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {name: wp, namespace: shop, annotations: {gateway.istio.io/service-account: other}}\nspec: {gatewayClassName: lateen-waypoint, listeners: [{name: m, protocol: HBONE, port: 15008}]}\n"
	for name, c := range map[string]struct {
		change string
		want   []string
	}{
		"a policy":            {"apiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\nmetadata: {name: web, namespace: shop}\nspec: {targetRefs: [{kind: Service, name: web}], rules: [{}]}\n", []string{"l7_authorization shop/web"}},
		"the mesh's settings": {"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: istio, namespace: istio-system}\ndata: {mesh: 'accessLogEncoding: JSON'}\n", []string{"l7_gateway shop/wp"}},
		"a Gateway's account": {wp, []string{"l7_authentication shop/jwt", "l7_authorization shop/all", "l7_authorization shop/web", "l7_binding shop/web.shop.svc.cluster.local", "l7_gateway shop/wp"}},
		"a service's ports":   {"apiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: shop, labels: {istio.io/use-waypoint: wp}}\nspec: {clusterIP: 10.96.0.1, ports: [{port: 81}]}\n", []string{"wds shop/web.shop.svc.cluster.local"}},
		"another ConfigMap":   {"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: istio, namespace: shop}\ndata: {mesh: 'accessLogEncoding: JSON'}\n", nil},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlane(t)
			p.put(requestMesh)
			before := p.versions()
			p.put(c.change)
			var changed []string
			for n, version := range p.versions() {
				if before[n] != version {
					typeURL, resource, _ := strings.Cut(n, " ")
					changed = append(changed, p.log.Kinds().Label(typeURL)+" "+resource)
				}
			}
			slices.Sort(changed)
			if !slices.Equal(changed, c.want) {
				t.Errorf("it changed %v, want %v", changed, c.want)
			}
		})
	}
}

func TestTheMeshsSettingsReachEachGateway(t *testing.T) {
	p := newPlane(t)
	p.put(requestMesh)
	settings := func() (s *l7.MeshSettings) {
		p.get(resourcekind.Gateway, "shop/wp", func(v any) { s = v.(*l7.Gateway).Settings })
		return s
	}
	if s := settings(); !s.GetAccessLog().GetEnabled() {
		t.Errorf("%v", s)
	}
	p.put("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: istio, namespace: istio-system}\ndata: {mesh: \"pathNormalization: {normalization: MERGE_SLASHES}\\nenableTracing: true\"}\n")
	config := mesh.ConfigKey()
	if s := settings(); s.GetAccessLog().GetEnabled() || s.GetPathNormalization() != l7.PathNormalization_MERGE_SLASHES {
		t.Errorf("%v", s)
	}
	if c := p.condition(config); c.Reason != "UnsupportedValue" || !strings.Contains(c.Message, "enableTracing") {
		t.Errorf("%+v", c)
	}
	p.remove(config)
	if s := settings(); s.GetPathNormalization() != l7.PathNormalization_BASE {
		t.Errorf("%v", s)
	}
}

// Waypoints of another controller have nothing to do with this mesh's proxies.
func TestAnothersGatewayHasNoResources(t *testing.T) {
	p := newPlane(t)
	p.put(strings.ReplaceAll(requestMesh, "lateen-waypoint", "istio-waypoint"))
	if got := p.requests(); len(got) != 0 {
		t.Errorf("%v", got)
	}
	if got := p.attached(requestPolicy("all")); !strings.Contains(got, "NotServed") || !strings.Contains(got, "istio-waypoint") {
		t.Errorf("%s", got)
	}
	if got := p.attached(requestPolicy("web")); !strings.Contains(got, "NotBound") {
		t.Errorf("%s", got)
	}
}

// A policy for Istio's class is one for all waypoints (ShouldAttachPolicy of Istio's pilot/pkg/model compares no class).
func TestAPolicyForIstiosClassIsOneForAllWaypoints(t *testing.T) {
	const policy = `
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: mesh-wide, namespace: istio-system}
spec: {targetRefs: [{group: gateway.networking.k8s.io, kind: GatewayClass, name: istio-waypoint}], action: DENY, rules: [{}]}
`
	key := model.Key{Group: model.SecurityGroup, Kind: "AuthorizationPolicy", Namespace: "istio-system", Name: "mesh-wide"}
	has := func(p *plane) bool { return slices.Contains(p.requests(), "l7_authorization istio-system/mesh-wide") }
	p := newPlane(t)
	p.put(policy)
	if got := p.attached(key); has(p) || !strings.Contains(got, "True Accepted") || !strings.Contains(got, "no Gateways") {
		t.Errorf("without a waypoint: %s", got)
	}
	p.put(requestMesh)
	if got := p.attached(key); !has(p) || !strings.Contains(got, "1 Gateways that are waypoints of this mesh") {
		t.Errorf("with a waypoint of another class: %s", got)
	}
	p.get(resourcekind.RequestAuthorization, "istio-system/mesh-wide", func(v any) {
		if a := v.(*l7.Authorization); len(a.Targets) != 1 || a.Targets[0].GetGateway() != "shop/wp" {
			t.Errorf("%v", a)
		}
	})
	p.remove(model.GatewayKey("shop", "wp"))
	if has(p) {
		t.Error("the policy is still there without a waypoint")
	}
}

// A pod's label binds what is sent to the pod itself, where the waypoint takes that.
func TestAWorkloadIsBound(t *testing.T) {
	p := newPlane(t)
	p.put(strings.Replace(requestMesh, "{name: wp, namespace: shop}", "{name: wp, namespace: shop, labels: {istio.io/waypoint-for: workload}}", 1) +
		"---\napiVersion: v1\nkind: Pod\nmetadata: {name: p, namespace: shop, labels: {istio.io/use-waypoint: wp}}\nspec: {nodeName: n1, containers: [{name: c}]}\nstatus: {podIP: 10.0.0.1}\n")
	uid := mesh.PodResource("shop", "p")
	bound := map[string]bool{}
	for _, r := range p.log.Live(resourcekind.Binding) {
		bound[r.Name] = true
	}
	if !maps.Equal(bound, map[string]bool{uid: true}) {
		t.Errorf("%v", bound)
	}
	p.remove(model.PodKey("shop", "p"))
	if n := p.log.Len(resourcekind.Binding); n != 0 {
		t.Errorf("%d Bindings are left", n)
	}
}
