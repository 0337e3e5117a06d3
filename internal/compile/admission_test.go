package compile

import (
	"slices"
	"strings"
	"testing"
	"time"

	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/resourcekind"
	"lateen.dev/lateen/internal/translate"
)

func selecting(labels string) string {
	return "apiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: shop, labels: {" + labels + "}}\nspec: {clusterIP: 10.96.0.1, selector: {app: web}, ports: [{port: 80}]}\n---\n"
}

func TestAServiceWhosePodsWouldRefuseTheWaypointIsNotBound(t *testing.T) {
	clients := authorization("shop", "clients", `rules: [{from: [{source: {principals: ["cluster.local/ns/shop/sa/client"]}}]}]`)
	for name, c := range map[string]struct{ policies, want string }{
		"no policy":                  {"", ""},
		"an ALLOW for clients":       {clients, "AuthorizationPolicy shop/clients does not allow those of the waypoint, whose identity is cluster.local/ns/shop/sa/wp, at pod shop/web-1; add {from: [{source: {principals: [\"cluster.local/ns/shop/sa/wp\"]}}]}"},
		"and one for the waypoint":   {clients + authorization("shop", "waypoints", `selector: {matchLabels: {app: web}}, rules: [{from: [{source: {principals: ["cluster.local/ns/shop/sa/wp"]}}]}]`), ""},
		"an ALLOW for its namespace": {authorization("shop", "inside", `rules: [{from: [{source: {namespaces: [shop]}}]}]`), ""},
		"an ALLOW for other pods":    {authorization("shop", "db", `selector: {matchLabels: {app: db}}, rules: [{from: [{source: {namespaces: [other]}}]}]`), ""},
		"an ALLOW for a port":        {authorization("shop", "port", `rules: [{to: [{operation: {ports: ["80"]}}]}]`), ""},
		"an ALLOW of the whole mesh": {authorization("istio-system", "mesh", `rules: [{from: [{source: {namespaces: [other]}}]}]`), "istio-system/mesh does not allow"},
		"an ALLOW without rules":     {authorization("shop", "nobody", ""), "shop/nobody does not allow"},
		"a DENY for all of the mesh": {authorization("shop", "deny", `action: DENY, rules: [{from: [{source: {principals: ["*"]}}]}]`), "shop/deny denies those of the waypoint"},
		"a DENY for an address":      {authorization("shop", "deny", `action: DENY, rules: [{from: [{source: {ipBlocks: ["192.0.2.0/24"]}}]}]`), ""},
		"a DENY for others":          {authorization("shop", "deny", `action: DENY, rules: [{from: [{source: {notNamespaces: [shop]}}]}]`), ""},
		"a DENY for methods":         {authorization("shop", "deny", `action: DENY, rules: [{to: [{operation: {methods: [DELETE]}}]}]`), ""},
		"a DENY for paths from all":  {authorization("shop", "deny", `action: DENY, rules: [{from: [{source: {principals: ["*"]}}], to: [{operation: {paths: [/admin]}}]}]`), ""},
		"an ALLOW that is a dry run": {strings.Replace(clients, "namespace: shop}", "namespace: shop, annotations: {istio.io/dry-run: \"true\"}}", 1), ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := newBindingPlane(t, NewAssignments())
			p.put(selecting("") + captured + waypointOf("wp", "10.96.0.9") + c.policies)
			p.put(selecting("istio.io/use-waypoint: wp"))
			p.acknowledge("wp")
			if c.want == "" {
				p.want("acknowledged", "wp")
				return
			}
			p.want("acknowledged", "direct")
			p.told("acknowledged", "False PolicyRefusesWaypoint", c.want)
			for _, e := range p.store.Entries() {
				if e.Object.Key.Kind == "AuthorizationPolicy" {
					p.remove(e.Object.Key)
				}
			}
			p.acknowledge("wp")
			p.want("without the policy", "wp")
		})
	}
}

func TestASettingHasPodsAdmitTheirWaypoint(t *testing.T) {
	m := readyMesh
	m.AutoAllowWaypoints = true
	p := &bindingPlane{plane: newPlaneOf(t, m, NewAssignments()), now: time.Unix(1_700_000_000, 0)}
	p.ties.now = func() time.Time { return p.now }
	policies := func() []string { return p.workload("shop", "web-1").AuthorizationPolicies }
	p.put(selecting("") + captured + waypointOf("wp", "10.96.0.9") + authorization("shop", "clients", `rules: [{from: [{source: {principals: ["cluster.local/ns/shop/sa/client"]}}]}]`))
	p.put(selecting("istio.io/use-waypoint: wp"))
	if got := policies(); len(got) > 0 {
		t.Errorf("before it is bound clients would be refused: %v", got)
	}
	p.acknowledge("wp")
	p.want("acknowledged", "wp")
	const name = "shop/lateen_allow_waypoint_wp"
	if got := policies(); !slices.Equal(got, []string{name}) || p.log.Get(resourcekind.Authorization, name) == nil {
		t.Errorf("behind the waypoint: %v", got)
	}
	p.put(selecting("istio.io/use-waypoint: none"))
	if got := policies(); len(got) > 0 {
		t.Errorf("unbound: %v", got)
	}
	p.remove(model.GatewayKey("shop", "wp"))
	if p.log.Get(resourcekind.Authorization, name) != nil {
		t.Error("the policy outlives its Gateway")
	}
}

func TestPodsBehindAWaypointOfTheirOwnAdmitIt(t *testing.T) {
	gateway := strings.Replace(waypointOf("wp", "10.96.0.9"), "name: wp, namespace: shop}", "name: wp, namespace: shop, labels: {istio.io/waypoint-for: all}}", 1)
	labelled := strings.Replace(captured, "labels: {app: web", "labels: {app: web, istio.io/use-waypoint: wp", 1)
	const name = "shop/lateen_allow_waypoint_wp"
	for mode, bind := range map[string]translate.BindMode{"when ready": translate.BindWhenReady, "at once": translate.BindAtOnce} {
		t.Run(mode, func(t *testing.T) {
			m := readyMesh
			m.AutoAllowWaypoints, m.BindWaypoints = true, bind
			p := newPlaneOf(t, m, NewAssignments())
			p.put(gateway + labelled) // as at a start
			policies := func() []string { return p.workload("shop", "web-1").AuthorizationPolicies }
			if got := policies(); !slices.Equal(got, []string{name}) {
				t.Errorf("at the start: %v", got)
			}
			p.put(captured)
			if got := policies(); len(got) > 0 {
				t.Errorf("without the label it refuses those who come directly: %v", got)
			}
		})
	}
}

func TestPodsAdmitTheCanary(t *testing.T) {
	for mode, bind := range map[string]translate.BindMode{"when ready": translate.BindWhenReady, "at once": translate.BindAtOnce} {
		t.Run(mode, func(t *testing.T) {
			m := readyMesh
			m.AutoAllowWaypoints, m.BindWaypoints = true, bind
			p := newPlaneOf(t, m, NewAssignments())
			p.put(selecting(canaryOfWeb) + captured + waypointOf("wp", "10.96.0.9") + waypointOf("next", "10.96.0.10"))
			if got := p.workload("shop", "web-1").AuthorizationPolicies; !slices.Equal(got, []string{"shop/lateen_allow_waypoint_next", "shop/lateen_allow_waypoint_wp"}) {
				t.Errorf("the pod names %v", got)
			}
		})
	}
}

func TestPodsThatAServiceNamesByHandAdmitItsWaypoint(t *testing.T) {
	m := readyMesh
	m.AutoAllowWaypoints = true
	p := &bindingPlane{plane: newPlaneOf(t, m, NewAssignments()), now: time.Unix(1_700_000_000, 0)}
	p.ties.now = func() time.Time { return p.now }
	slice := sliceIn("shop", "web-hand", "web", "web-1", "10.0.0.1", true)
	p.put(serviceWith("web", "") + captured + waypointOf("wp", "10.96.0.9"))
	p.Apply([]model.Change{{Key: slice.Key, Object: slice}})
	p.put(serviceWith("web", "istio.io/use-waypoint: wp"))
	p.acknowledge("wp")
	p.want("acknowledged", "wp")
	if got := p.workload("shop", "web-1").AuthorizationPolicies; !slices.Equal(got, []string{"shop/lateen_allow_waypoint_wp"}) {
		t.Errorf("behind the waypoint: %v", got)
	}
}

func TestAWaypointThatDoesNotAdmitANamespaceHasNothingOfIt(t *testing.T) {
	const policy = "apiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\nmetadata: {name: web, namespace: shop}\nspec: {targetRefs: [{kind: Service, name: web}], rules: [{}]}\n---\n"
	guest := serviceWith("web", "istio.io/use-waypoint: wp, istio.io/use-waypoint-namespace: other")
	host := func(from string) string {
		return strings.ReplaceAll(modelGateway("wp", from), "namespace: shop", "namespace: other")
	}
	p := newBindingPlane(t, NewAssignments())
	p.put(host("Same") + policy)
	check := func(when, way string, admitted bool) {
		t.Helper()
		w := p.service(webName).GetWaypoint().GetHostname()
		if w.GetNamespace() != "other" || w.GetHostname() != way {
			t.Errorf("%s: connections go to %v, want %s", when, w, way)
		}
		if b := p.binding(webName); (b != nil) != admitted {
			t.Errorf("%s: the Binding is %v", when, b)
		}
		if has := p.log.Get(resourcekind.RequestAuthorization, "shop/web") != nil; has != admitted {
			t.Errorf("%s: it has the policy: %v", when, has)
		}
	}
	p.put(guest)
	check("seen with the label", "not-admitted.wp.other.svc.cluster.local", false)
	p.told("seen with the label", "False AttachmentDenied", "does not admit namespace shop; let its listener's allowedRoutes do so; its connections are refused")
	p.put(host("All"))
	check("admitted", "wp.other.svc.cluster.local", true)
	p.settle(GatewayProxy{Gateway: "other/wp", Identity: "other/wp", Through: p.log.Generation()})
	p.told("admitted", "True", "")
	p.put(host("Same"))
	check("admitted no more", "not-admitted.wp.other.svc.cluster.local", false)
	p.put(serviceWith("web", "istio.io/use-waypoint: none"))
	if b := p.binding(webName); b != nil {
		t.Errorf("one that was refused is unbound by and by: %v", b)
	}
}

func TestARefusedWaypointIsJudgedAgainOnlyWhenSomethingChanges(t *testing.T) {
	p := newBindingPlane(t, NewAssignments())
	judged, refusal := 0, p.ties.refusal
	p.ties.refusal = func(key model.Key, own bool, w *translate.Waypoint) (string, model.Key) {
		judged++
		return refusal(key, own, w)
	}
	clients := authorization("shop", "clients", `rules: [{from: [{source: {principals: ["cluster.local/ns/shop/sa/client"]}}]}]`)
	p.put(selecting("") + captured + waypointOf("wp", "10.96.0.9") + clients)
	p.put(selecting("istio.io/use-waypoint: wp"))
	if again := p.acknowledge("wp"); again || judged != 1 {
		t.Fatalf("judged %d times, and it is looked again: %v", judged, again)
	}
	for range 100 {
		p.acknowledge("wp")
		p.put(pod("shop", "db-1", "10.0.0.7", "db"))
		p.put(authorization("other", "x", ""))
	}
	if judged != 1 {
		t.Errorf("judged %d times although nothing has changed", judged)
	}
	for name, change := range map[string]func(){
		"a policy of the namespace": func() { p.put(authorization("shop", "more", "")) },
		"a policy of the mesh":      func() { p.put(authorization("istio-system", "more", "")) },
		"the pod":                   func() { p.put(strings.Replace(captured, "nodeName: n1", "nodeName: n2", 1)) },
		"the service":               func() { p.put(selecting("istio.io/use-waypoint: wp, a: b")) },
		"the pod is gone and back":  func() { p.remove(model.PodKey("shop", "web-1")); p.put(captured) },
	} {
		judged = 0
		change()
		for range 10 {
			p.acknowledge("wp")
		}
		if judged == 0 || judged > 2 {
			t.Errorf("%s: judged %d times", name, judged)
		}
		p.want(name, "direct")
	}
	p.put(selecting("istio.io/use-waypoint: wp, istio.io/use-waypoint-canary: next") + waypointOf("next", "10.96.0.10"))
	p.acknowledge("wp")
	judged = 0
	for range 10 {
		if again := p.acknowledge("wp"); !again {
			t.Error("the canary is not waited for")
		}
	}
	if judged != 0 {
		t.Errorf("judged %d times while the canary is waited for", judged)
	}
	p.remove(model.PodKey("shop", "web-1"))
	p.acknowledge("wp")
	p.want("without the pod", "wp")
}

func TestPodsAdmitAWaypointThatHasConnectionsLeft(t *testing.T) {
	m := readyMesh
	m.AutoAllowWaypoints = true
	p := &bindingPlane{plane: newPlaneOf(t, m, NewAssignments()), now: time.Unix(1_700_000_000, 0)}
	p.ties.now = func() time.Time { return p.now }
	p.put(selecting("istio.io/use-waypoint: wp") + captured + waypointOf("wp", "10.96.0.9") + waypointOf("next", "10.96.0.10"))
	p.acknowledge("wp")
	p.put(selecting("istio.io/use-waypoint: next"))
	p.acknowledge("next")
	p.want("moved", "next")
	policies := func() []string { return p.workload("shop", "web-1").AuthorizationPolicies }
	const next, first = "shop/lateen_allow_waypoint_next", "shop/lateen_allow_waypoint_wp"
	if got := policies(); !slices.Equal(got, []string{next, first}) {
		t.Errorf("moved: %v", got)
	}
	p.now = p.now.Add(leaveFor)
	p.acknowledge("next")
	if got := policies(); !slices.Equal(got, []string{next}) {
		t.Errorf("after a while: %v", got)
	}
}

func TestPodsThatAServiceNamesByHandAreJudged(t *testing.T) {
	p := newBindingPlane(t, NewAssignments())
	slice := sliceIn("shop", "web-hand", "web", "web-1", "10.0.0.1", true)
	p.put(serviceWith("web", "") + captured + waypointOf("wp", "10.96.0.9") + authorization("shop", "nobody", ""))
	p.Apply([]model.Change{{Key: slice.Key, Object: slice}})
	p.put(serviceWith("web", "istio.io/use-waypoint: wp"))
	p.acknowledge("wp")
	p.want("acknowledged", "direct")
	p.told("acknowledged", "False PolicyRefusesWaypoint", "at pod shop/web-1")
}
