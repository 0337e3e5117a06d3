package compile

import (
	"slices"
	"strings"
	"testing"
	"time"

	"lateen.dev/lateen/internal/gen/l7"
	"lateen.dev/lateen/internal/gen/workload"
	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/resourcekind"
	"lateen.dev/lateen/internal/translate"
)

// readyMesh binds objects when their waypoints are ready.
var readyMesh = func() translate.Mesh {
	m := mesh
	m.BindWaypoints = translate.BindWhenReady
	return m
}()

const webName = "shop/web.shop.svc.cluster.local"

var webKey = model.ServiceKey("shop", "web")

// bindingPlane is a plane with a clock.
type bindingPlane struct {
	*plane
	now time.Time
}

func newBindingPlane(t testing.TB, assignments *Assignments) *bindingPlane {
	p := &bindingPlane{plane: newPlaneOf(t, readyMesh, assignments), now: time.Unix(1_700_000_000, 0)}
	p.ties.now = func() time.Time { return p.now }
	return p
}

func serviceWith(name, labels string) string {
	return "apiVersion: v1\nkind: Service\nmetadata: {name: " + name + ", namespace: shop, labels: {" + labels + "}}\nspec: {clusterIP: 10.96.0." + map[string]string{"web": "1", "db": "2"}[name] + ", ports: [{port: 80}]}\n---\n"
}

// waypointOf declares a Gateway of this mesh and the Service under which it is found.
func waypointOf(name, ip string) string {
	return "apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {name: " + name + ", namespace: shop}\nspec: {gatewayClassName: lateen-waypoint, listeners: [{name: m, protocol: HBONE, port: 15008}]}\n---\n" +
		"apiVersion: v1\nkind: Service\nmetadata: {name: " + name + ", namespace: shop, labels: {gateway.networking.k8s.io/gateway-name: " + name + "}}\nspec: {clusterIP: " + ip + ", ports: [{port: 15008}]}\n---\n"
}

// way is the waypoint that the Address of web names: the host, or "direct".
func (p *bindingPlane) way() string {
	p.t.Helper()
	w := p.service(webName).GetWaypoint()
	if w == nil {
		return "direct"
	}
	return strings.TrimSuffix(w.GetHostname().GetHostname(), ".shop.svc.cluster.local")
}

func (p *plane) binding(name string) *l7.Binding {
	var out *l7.Binding
	p.get(resourcekind.Binding, name, func(v any) { out = v.(*l7.Binding) })
	return out
}

func (p *bindingPlane) want(when, way string) {
	p.t.Helper()
	if got := p.way(); got != way {
		p.t.Errorf("%s: connections go %s, want %s", when, got, way)
	}
}

// told is what the author of web hears of its waypoint.
func (p *bindingPlane) told(when, status, text string) {
	p.t.Helper()
	if got := p.attached(webKey); !strings.HasPrefix(got, "WaypointBound "+status) || !strings.Contains(got, text) {
		p.t.Errorf("%s: told %q, want %s and %q", when, got, status, text)
	}
}

// acknowledge says that a proxy of a Gateway has acknowledged everything.
func (p *bindingPlane) acknowledge(gateway string, refused ...string) bool {
	return p.settle(p.proxy(gateway, p.log.Generation(), refused...))
}

// settle looks at what the proxies have acknowledged, and says whether something is waited for.
func (p *bindingPlane) settle(proxies ...GatewayProxy) (again bool) {
	acks, at := p.Settle(func() []GatewayProxy { return proxies })
	return acks || !at.IsZero()
}

func (p *bindingPlane) proxy(gateway string, through uint64, refused ...string) GatewayProxy {
	proxy := GatewayProxy{Gateway: "shop/" + gateway, Identity: "shop/" + gateway, Through: through, Refused: map[string]bool{}}
	for _, name := range refused {
		proxy.Refused[name] = true
	}
	return proxy
}

func TestAServiceThatGetsTheLabelGoesDirectUntilItsWaypointHasAcknowledgedIt(t *testing.T) {
	p := newBindingPlane(t, NewAssignments())
	p.put(serviceWith("web", "") + waypointOf("wp", "10.96.0.9"))
	p.want("without the label", "direct")
	p.put(serviceWith("web", "istio.io/use-waypoint: wp"))
	p.want("with the label", "direct")
	p.told("with the label", "False WaypointIsNotReady", "waypoint shop/wp has not acknowledged it yet; its connections go direct until it is bound")
	if b := p.binding(webName); b == nil || len(b.Parents) != 1 || b.Parents[0].Gateway != "shop/wp" {
		t.Fatalf("the waypoint is not told of it: %v", b)
	}
	before := p.log.Generation() - 1
	for _, c := range []struct {
		name  string
		proxy GatewayProxy
	}{
		{"one that has not heard of it", p.proxy("wp", before)},
		{"one that refuses it", p.proxy("wp", p.log.Generation(), webName)},
		{"one of another Gateway", p.proxy("other", p.log.Generation())},
		{"one with another identity", GatewayProxy{Gateway: "shop/wp", Identity: "shop/thief", Through: p.log.Generation()}},
	} {
		if again := p.settle(c.proxy); !again {
			t.Errorf("%s: nothing is waited for", c.name)
		}
		p.want(c.name, "direct")
	}
	p.acknowledge("wp")
	p.want("acknowledged", "wp")
	p.told("acknowledged", "True Accepted", "connections go through waypoint shop/wp")
	if again := p.acknowledge("wp"); again {
		t.Error("something is still waited for")
	}
}

func TestAWaypointIsNotUsedBeforeAPodOfItIsReady(t *testing.T) {
	p := newBindingPlane(t, NewAssignments())
	found := strings.Replace(waypointOf("wp", "10.96.0.9"), "clusterIP: 10.96.0.9,", "clusterIP: 10.96.0.9, selector: {app: wp},", 1)
	p.put(serviceWith("web", "") + found + pod("shop", "wp-1", "10.0.0.9", "wp"))
	p.put(serviceWith("web", "istio.io/use-waypoint: wp"))
	p.acknowledge("wp")
	p.want("acknowledged by a pod that is not ready", "direct")
	p.put(strings.Replace(pod("shop", "wp-1", "10.0.0.9", "wp"), "podIP: 10.0.0.9", "podIP: 10.0.0.9, conditions: [{type: Ready, status: \"True\"}]", 1))
	p.acknowledge("wp")
	p.want("the pod is ready", "wp")
}

func TestAGatewayWithoutAReadyPodIsTold(t *testing.T) {
	key := model.GatewayKey("shop", "wp")
	p := newBindingPlane(t, NewAssignments())
	unready := func(when string, want bool) {
		t.Helper()
		if e, ok := p.store.Entry(key); !ok || e.Unready() != want {
			t.Errorf("%s: unready is %v", when, e.Unready())
		}
	}
	ready := "podIP: 10.0.0.9, conditions: [{type: Ready, status: \"True\"}]"
	one := strings.Replace(pod("shop", "wp-1", "10.0.0.9", "wp"), "labels: {", "labels: {gateway.networking.k8s.io/gateway-name: wp, ", 1)
	if !strings.Contains(one, "gateway-name: wp") {
		t.Fatal(one)
	}
	p.put(waypointOf("wp", "10.96.0.9"))
	unready("nobody here knows its pods", false)
	p.put(strings.Replace(waypointOf("wp", "10.96.0.9"), "clusterIP: 10.96.0.9,", "clusterIP: 10.96.0.9, selector: {app: wp},", 1))
	unready("without a pod", true)
	p.put(one)
	unready("with a pod that is not ready", true)
	p.put(strings.Replace(one, "podIP: 10.0.0.9", ready, 1))
	unready("with a ready pod", false)
	p.remove(model.PodKey("shop", "wp-1"))
	unready("its pod is gone at once", true)
}

func TestOneThatIsSeenWithTheLabelFirstIsNeverReachedWithoutItsWaypoint(t *testing.T) {
	for name, first := range map[string]string{
		"its own label":   serviceWith("web", "istio.io/use-waypoint: wp"),
		"its namespace's": "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop, labels: {istio.io/use-waypoint: wp}}\n---\n" + serviceWith("web", ""),
	} {
		t.Run(name, func(t *testing.T) {
			p := newBindingPlane(t, NewAssignments())
			p.put(serviceWith("db", "")) // the first batch is not what it is about
			p.put(first)
			p.want("without a Gateway", "wp")
			p.told("without a Gateway", "False WaypointIsNotReady", "its connections are refused until the waypoint is ready; label it istio.io/use-waypoint=none")
			p.put(waypointOf("wp", "10.96.0.9"))
			p.want("with a Gateway", "wp")
			p.told("with a Gateway", "False WaypointIsNotReady", "has not acknowledged it yet; its connections are refused")
			p.acknowledge("wp")
			p.told("acknowledged", "True Accepted", "")
			p.remove(model.GatewayKey("shop", "wp"), model.ServiceKey("shop", "wp"))
			p.want("the Gateway is gone", "wp")
			p.told("the Gateway is gone", "False WaypointIsNotReady", "is not there")
		})
	}
}

func TestOnlyTheOwnerOfTheLabelTakesAServiceFromBehindItsWaypoint(t *testing.T) {
	const shop = "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop, labels: {istio.io/use-waypoint: wp}}\n---\n"
	for name, unbind := range map[string]string{
		"none":            serviceWith("web", "istio.io/use-waypoint: none"),
		"an empty label":  serviceWith("web", "istio.io/use-waypoint: ''"),
		"no label at all": "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n---\n" + serviceWith("web", ""),
	} {
		t.Run(name, func(t *testing.T) {
			p := newBindingPlane(t, NewAssignments())
			p.put(shop + serviceWith("web", "") + waypointOf("wp", "10.96.0.9"))
			p.acknowledge("wp")
			p.put(unbind)
			p.want("unbound", "direct")
			b := p.binding(webName)
			if b == nil || !slices.Equal(b.Leaving, []string{"shop/wp"}) {
				t.Fatalf("the waypoint does not keep the connections that it has: %v", b)
			}
			p.now = p.now.Add(leaveFor - time.Second)
			p.acknowledge("wp")
			if p.binding(webName) == nil {
				t.Error("the Binding ends too early")
			}
			p.now = p.now.Add(time.Second)
			if again := p.acknowledge("wp"); again || p.binding(webName) != nil {
				t.Errorf("the Binding stays: %v", p.binding(webName))
			}
		})
	}
	t.Run("a waypoint that takes other traffic now", func(t *testing.T) {
		p := newBindingPlane(t, NewAssignments())
		p.put(shop + serviceWith("web", "") + waypointOf("wp", "10.96.0.9"))
		p.acknowledge("wp")
		p.put(strings.Replace(waypointOf("wp", "10.96.0.9"), "name: wp, namespace: shop}", "name: wp, namespace: shop, labels: {istio.io/waypoint-for: workload}}", 1))
		p.want("it takes workloads", "wp")
		p.told("it takes workloads", "False UnsupportedTrafficType", "its connections are refused")
		q := newBindingPlane(t, p.assignments)
		q.Apply(p.everything())
		q.want("after a restart", "wp")
	})
	t.Run("one that never was for it", func(t *testing.T) {
		p := newBindingPlane(t, NewAssignments())
		p.put(serviceWith("db", ""))
		p.put(shop + serviceWith("web", ""))
		p.want("without a Gateway", "wp")
		p.put(strings.Replace(waypointOf("wp", "10.96.0.9"), "name: wp, namespace: shop}", "name: wp, namespace: shop, labels: {istio.io/waypoint-for: workload}}", 1))
		p.want("its Gateway takes workloads", "direct")
	})
}

// everything is what a source hands on at the start.
func (p *bindingPlane) everything() (out []model.Change) {
	for _, e := range p.store.Entries() {
		out = append(out, model.Change{Key: e.Object.Key, Object: e.Object})
	}
	return out
}

func TestABindingMovesToAnotherWaypointWithoutAGap(t *testing.T) {
	p := newBindingPlane(t, NewAssignments())
	const policy = "apiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\nmetadata: {name: web, namespace: shop}\nspec: {targetRefs: [{kind: Service, name: web}], rules: [{to: [{operation: {methods: [GET]}}]}]}\n---\n"
	p.put(serviceWith("web", "istio.io/use-waypoint: wp") + waypointOf("wp", "10.96.0.9") + waypointOf("next", "10.96.0.10") + policy)
	p.acknowledge("wp")
	parents := func(of []*l7.Parent) (names []string) {
		for _, parent := range of {
			names = append(names, parent.Gateway)
		}
		return names
	}
	policies := func() []string {
		var out []string
		p.get(resourcekind.RequestAuthorization, "shop/web", func(v any) { out = parents(v.(*l7.Authorization).Parents) })
		return out
	}
	p.put(serviceWith("web", "istio.io/use-waypoint: next"))
	p.want("asked for", "wp")
	p.told("asked for", "False", "its connections go through waypoint shop/wp until the other one is ready")
	both := []string{"shop/next", "shop/wp"}
	if b := p.binding(webName); !slices.Equal(parents(b.GetParents()), both) || len(b.Leaving) > 0 || !slices.Equal(policies(), both) {
		t.Errorf("%v, %v", b, policies())
	}
	p.acknowledge("next")
	p.want("acknowledged", "next")
	if b := p.binding(webName); !slices.Equal(parents(b.GetParents()), both) || !slices.Equal(b.GetLeaving(), []string{"shop/wp"}) || !slices.Equal(policies(), both) {
		t.Errorf("the first one serves what it has without policy: %v, %v", b, policies())
	}
	p.now = p.now.Add(leaveFor)
	p.acknowledge("next")
	if b := p.binding(webName); !slices.Equal(parents(b.GetParents()), both[:1]) || !slices.Equal(policies(), both[:1]) {
		t.Errorf("%v, %v", b, policies())
	}
}

func TestAProxyThatLagsIsWaitedForAWhile(t *testing.T) {
	p := newBindingPlane(t, NewAssignments())
	p.put(serviceWith("web", "") + waypointOf("wp", "10.96.0.9"))
	p.put(serviceWith("web", "istio.io/use-waypoint: wp"))
	two := func() { p.settle(p.proxy("wp", p.log.Generation()), p.proxy("wp", 0)) }
	two()
	p.want("one of two has acknowledged", "direct")
	p.now = p.now.Add(lagFor - time.Millisecond)
	two()
	p.want("a while later", "direct")
	p.now = p.now.Add(time.Millisecond)
	two()
	p.want("after the time for those that lag", "wp")
}

func TestAWaypointOfOthersIsReadyByItsObjects(t *testing.T) {
	foreign := func(status string) string {
		return "apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {name: wp, namespace: shop}\nspec: {gatewayClassName: istio-waypoint, listeners: [{name: m, protocol: HBONE, port: 15008}]}\n" + status + "---\n"
	}
	programmed := func(value string) string {
		return "status: {conditions: [{type: Programmed, status: \"" + value + "\", reason: Said, message: said, lastTransitionTime: \"2024-01-01T00:00:00Z\"}]}\n"
	}
	const found = "apiVersion: v1\nkind: Service\nmetadata: {name: wp, namespace: shop}\nspec: {clusterIP: 10.96.0.9, selector: {app: wp}, ports: [{port: 15008}]}\n---\n"
	ready := strings.Replace(pod("shop", "wp-1", "10.0.0.9", "wp"), "podIP: 10.0.0.9", "podIP: 10.0.0.9, conditions: [{type: Ready, status: \"True\"}]", 1)
	p := newBindingPlane(t, NewAssignments())
	p.put(serviceWith("web", "") + foreign(programmed("False")) + found)
	p.put(serviceWith("web", "istio.io/use-waypoint: wp"))
	p.settle()
	p.want("not programmed, without pods", "direct")
	p.told("not programmed", "False WaypointIsNotReady", "it needs the condition Programmed, an address, and a pod that is ready")
	p.put(foreign(programmed("True")))
	p.settle()
	p.want("programmed, without pods", "direct")
	p.put(pod("shop", "wp-1", "10.0.0.9", "wp"))
	p.settle()
	p.want("with a pod that is not ready", "direct")
	p.put(ready)
	p.settle()
	p.want("with a pod that is ready", "wp")
	p.told("ready", "True", "shop/wp: ready, not acknowledged")
	p.remove(model.PodKey("shop", "wp-1"))
	p.settle()
	p.want("its pod is gone", "wp")
}

func TestACanaryGetsItsShareWhenItHasAcknowledged(t *testing.T) {
	p := newBindingPlane(t, NewAssignments())
	p.put(serviceWith("web", "istio.io/use-waypoint: wp") + waypointOf("wp", "10.96.0.9") + waypointOf("next", "10.96.0.10"))
	p.acknowledge("wp")
	p.put(strings.Replace(serviceWith("web", "istio.io/use-waypoint: wp, istio.io/use-waypoint-canary: next"), "labels:", "annotations: {istio.io/use-waypoint-canary-weight: \"30\"}, labels:", 1))
	if w := p.service(webName).WeightedWaypoints; len(w) > 0 {
		t.Fatalf("before it has acknowledged: %v", w)
	}
	p.acknowledge("next")
	if w := p.service(webName).WeightedWaypoints; len(w) != 2 || w[1].Weight != 30 {
		t.Fatalf("after: %v", w)
	}
}

const canaryOfWeb = "istio.io/use-waypoint: wp, istio.io/use-waypoint-canary: next"

func TestACanaryThatIsTakenForReadyAtAStartHasToAcknowledge(t *testing.T) {
	p := newBindingPlane(t, NewAssignments())
	p.put(serviceWith("web", canaryOfWeb) + waypointOf("wp", "10.96.0.9") + waypointOf("next", "10.96.0.10"))
	shares := func() int { return len(p.service(webName).WeightedWaypoints) }
	if p.acknowledge("wp"); shares() != 2 {
		t.Errorf("at the start it has no share")
	}
	p.now = p.now.Add(assumeFor)
	if again := p.acknowledge("wp"); shares() != 0 || !again {
		t.Errorf("its proxies do not come: %d shares; something is waited for: %v", shares(), again)
	}
	if again := p.settle(p.proxy("wp", p.log.Generation()), p.proxy("next", p.log.Generation())); shares() != 2 || again {
		t.Errorf("they come: %d shares; something is waited for: %v", shares(), again)
	}
	p.now = p.now.Add(assumeFor)
	if p.acknowledge("wp"); shares() != 2 {
		t.Error("its share ends though it has acknowledged")
	}
}

func TestACanaryWhoseProxiesAreElsewhereGetsItsShare(t *testing.T) {
	p := newBindingPlane(t, ShareAssignments(&memoryStore{}, 1<<20))
	p.put(serviceWith("web", "istio.io/use-waypoint: wp") + waypointOf("wp", "10.96.0.9") + waypointOf("next", "10.96.0.10"))
	p.acknowledge("wp")
	p.put(serviceWith("web", canaryOfWeb))
	shares := func() int { return len(p.service(webName).WeightedWaypoints) }
	thief := GatewayProxy{Gateway: "shop/next", Identity: "shop/thief", Through: p.log.Generation()}
	if p.settle(p.proxy("wp", p.log.Generation()), thief); shares() != 0 {
		t.Error("it has a share before its proxies had time to acknowledge")
	}
	p.now = p.now.Add(assumeFor)
	if p.settle(p.proxy("wp", p.log.Generation()), p.proxy("next", 0)); shares() != 0 {
		t.Error("it has a share although a proxy of it is here and has not acknowledged")
	}
	if p.settle(p.proxy("wp", p.log.Generation()), thief); shares() != 0 {
		t.Error("it has a share because the stream of its proxy broke")
	}
	p.now = p.now.Add(assumeFor)
	if p.settle(p.proxy("wp", p.log.Generation()), thief); shares() != 2 {
		t.Error("it has no share although its proxies may all be connected to another control plane")
	}
}

func TestACanaryThatThePodsRefuseHasNoShare(t *testing.T) {
	p := newBindingPlane(t, NewAssignments())
	const primary, both = `"cluster.local/ns/shop/sa/wp"`, `"cluster.local/ns/shop/sa/wp", "cluster.local/ns/shop/sa/next"`
	allow := func(principals string) string {
		return authorization("shop", "waypoints", `rules: [{from: [{source: {principals: [`+principals+`]}}]}]`)
	}
	p.put(selecting("istio.io/use-waypoint: wp") + captured + waypointOf("wp", "10.96.0.9") + waypointOf("next", "10.96.0.10") + allow(primary))
	p.acknowledge("wp")
	p.put(selecting(canaryOfWeb))
	shares := func() int { return len(p.service(webName).WeightedWaypoints) }
	settle := func() { p.settle(p.proxy("wp", p.log.Generation()), p.proxy("next", p.log.Generation())) }
	if settle(); shares() != 0 {
		t.Error("its share goes to pods that refuse it")
	}
	p.put(allow(both))
	p.now = p.now.Add(lagFor)
	if settle(); shares() != 2 {
		t.Error("the pods admit it, and it has no share")
	}
}

func TestAWorkloadIsBoundLikeAService(t *testing.T) {
	p := newBindingPlane(t, NewAssignments())
	way := func() *workload.GatewayAddress { return p.workload("shop", "web-1").GetWaypoint() }
	all := strings.Replace(waypointOf("wp", "10.96.0.9"), "name: wp, namespace: shop}", "name: wp, namespace: shop, labels: {istio.io/waypoint-for: all}}", 1)
	p.put(pod("shop", "web-1", "10.0.0.1", "web") + all)
	p.put("apiVersion: v1\nkind: Namespace\nmetadata: {name: shop, labels: {istio.io/use-waypoint: wp}}\n---\n")
	if way() != nil {
		t.Error("before it was acknowledged it is named")
	}
	p.acknowledge("wp")
	if way() == nil {
		t.Error("acknowledged, and not named")
	}
	p.put(pod("shop", "web-2", "10.0.0.2", "web"))
	if p.workload("shop", "web-2").GetWaypoint() == nil {
		t.Error("a pod that is born behind the waypoint is reached without it")
	}
	p.remove(model.GatewayKey("shop", "wp"))
	if way() == nil {
		t.Error("without the Gateway it is reached directly")
	}
	services := newBindingPlane(t, NewAssignments())
	services.put("apiVersion: v1\nkind: Namespace\nmetadata: {name: shop, labels: {istio.io/use-waypoint: wp}}\n---\n" + pod("shop", "web-1", "10.0.0.1", "web"))
	if services.workload("shop", "web-1").GetWaypoint() != nil {
		t.Error("a namespace's label is for services unless the Gateway says otherwise")
	}
}

func TestWhatDoesNotFitIsRefusedRatherThanReachedDirectly(t *testing.T) {
	shared := &memoryStore{waiting: map[string]string{"Service other/" + strings.Repeat("x", MaxWaiting): ""}}
	p := newBindingPlane(t, ShareAssignments(shared, 1<<20))
	p.put(serviceWith("web", "") + waypointOf("wp", "10.96.0.9"))
	p.put(serviceWith("web", "istio.io/use-waypoint: wp"))
	p.want("no room", "wp")
	p.told("no room", "False", "refused")
}

func TestANamespaceWhoseObjectsWaitLeavesRoomForThoseOfOthers(t *testing.T) {
	shared := &memoryStore{waiting: map[string]string{"Service other/" + strings.Repeat("x", 3*MaxWaiting/4): ""}}
	p := newBindingPlane(t, ShareAssignments(shared, 1<<20))
	other := func(labels string) string {
		return strings.NewReplacer("namespace: shop", "namespace: other", "10.96.0.1", "10.96.0.3").Replace(serviceWith("web", labels))
	}
	p.put(serviceWith("web", "") + other("") + waypointOf("wp", "10.96.0.9"))
	p.put(other("istio.io/use-waypoint: none-there") + serviceWith("web", "istio.io/use-waypoint: wp"))
	if w := p.service("other/web.other.svc.cluster.local").GetWaypoint(); w == nil {
		t.Error("the namespace that has most of the room gets more of it")
	}
	p.want("there is room for others", "direct")
}

const captured = "apiVersion: v1\nkind: Pod\nmetadata: {name: web-1, namespace: shop, labels: {app: web}, annotations: {ambient.istio.io/redirection: enabled}}\nspec: {nodeName: n1, serviceAccountName: web, containers: [{name: c}]}\nstatus: {podIP: 10.0.0.1}\n---\n"

func TestAProxyThatRefusesThePolicyOfAServiceDoesNotGetItsConnections(t *testing.T) {
	p := newBindingPlane(t, NewAssignments())
	p.put(serviceWith("web", "") + waypointOf("wp", "10.96.0.9") + modelPolicy)
	p.put(serviceWith("web", "istio.io/use-waypoint: wp"))
	refusing := func(policy string) {
		proxy := p.proxy("wp", p.log.Generation())
		proxy.RefusedPolicies = map[string]bool{policy: true}
		p.settle(proxy)
	}
	refusing("shop/web")
	p.want("the policy is refused", "direct")
	refusing("shop/other")
	p.want("another one is refused", "wp")
}

func TestACanaryKeepsTheConnectionsThatItHas(t *testing.T) {
	p := newBindingPlane(t, NewAssignments())
	p.put(serviceWith("web", "istio.io/use-waypoint: wp") + waypointOf("wp", "10.96.0.9") + waypointOf("next", "10.96.0.10"))
	p.acknowledge("wp")
	p.put(serviceWith("web", "istio.io/use-waypoint: wp, istio.io/use-waypoint-canary: next"))
	p.settle(p.proxy("next", p.log.Generation()), p.proxy("next", 0))
	if w := p.service(webName).WeightedWaypoints; len(w) > 0 {
		t.Errorf("one proxy lags, and it is not waited for: %v", w)
	}
	p.now = p.now.Add(lagFor)
	p.settle(p.proxy("next", p.log.Generation()), p.proxy("next", 0))
	if w := p.service(webName).WeightedWaypoints; len(w) != 2 {
		t.Fatalf("one proxy lags: %v", w)
	}
	p.put(serviceWith("web", "istio.io/use-waypoint: wp"))
	if b := p.binding(webName); !slices.Equal(b.GetLeaving(), []string{"shop/next"}) {
		t.Errorf("without the canary: %v", b)
	}
	p.now = p.now.Add(leaveFor)
	p.settle()
	if b := p.binding(webName); len(b.GetParents()) != 1 || len(b.GetLeaving()) > 0 {
		t.Errorf("after a while: %v", b)
	}
}

func TestProxiesOfAnotherIdentityAcknowledgeAnew(t *testing.T) {
	p := newBindingPlane(t, NewAssignments())
	p.put(serviceWith("web", "istio.io/use-waypoint: wp") + waypointOf("wp", "10.96.0.9"))
	p.acknowledge("wp")
	p.told("acknowledged", "True", "")
	p.put(strings.Replace(waypointOf("wp", "10.96.0.9"), "name: wp, namespace: shop}", "name: wp, namespace: shop, annotations: {gateway.istio.io/service-account: next}}", 1))
	p.told("another account", "False", "has not acknowledged it yet")
	p.acknowledge("wp")
	p.told("the old proxies acknowledge", "False", "has not acknowledged it yet")
	p.settle(GatewayProxy{Gateway: "shop/wp", Identity: "shop/next", Through: p.log.Generation()})
	p.told("the new ones do", "True", "")
	p.want("all the time", "wp")
}

func TestAServiceThatWasHiddenComesBackBehindItsWaypoint(t *testing.T) {
	p := newBindingPlane(t, NewAssignments())
	p.put(serviceWith("web", "istio.io/use-waypoint: wp") + waypointOf("wp", "10.96.0.9"))
	p.acknowledge("wp")
	p.put(strings.Replace(serviceWith("web", "istio.io/use-waypoint: wp"), "labels:", "annotations: {networking.istio.io/exportTo: \"~\"}, labels:", 1))
	if p.service(webName) != nil {
		t.Fatal("it is not hidden")
	}
	p.put(serviceWith("web", "istio.io/use-waypoint: wp"))
	p.want("published again", "wp")
}

func TestNothingIsAcknowledgedOfAnObjectWithoutABinding(t *testing.T) {
	p := newBindingPlane(t, NewAssignments())
	entry := func(name, day, labels string) string {
		return strings.Replace(serviceEntry("shop", name, day, "hosts: [a.example.com], resolution: DNS"), "metadata: {", "metadata: {labels: {"+labels+"}, ", 1)
	}
	p.put(waypointOf("wp", "10.96.0.9") + entry("first", "01", "") + entry("second", "02", ""))
	p.put(entry("second", "02", "istio.io/use-waypoint: wp"))
	p.acknowledge("wp")
	if tie := p.ties.of["ServiceEntry shop/second"]; tie == nil || tie.ready {
		t.Errorf("it speaks for no host, and its waypoint is ready: %+v", tie)
	}
}
