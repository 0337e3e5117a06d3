package compile

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	"lateen.dev/lateen/internal/gen/workload"
	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/resourcekind"
	"lateen.dev/lateen/internal/translate"
)

// gateways holds the waypoints and the entrances to other networks, and who asked for them: whoever asked is compiled again when the
// answer changes.
type gateways struct {
	*facts
	out       *publisher
	occupant  func(network string, addr netip.Addr) string
	index     *sourceIndex
	waypoints map[model.Key]*translate.Waypoint
	ready     map[model.Key]bool                // waypoints of which a pod can take connections, as far as their objects tell
	served    map[model.Key]*translate.Waypoint // those that this mesh's own proxies serve, whether they can be reached or not
	networks  map[model.Key][]translate.NetworkGateway
	resources map[model.Key]map[string]bool // Gateway → names of its resources in the log
	users     map[string]map[model.Key]bool // subject → objects that asked
	asked     map[model.Key]map[string]bool // object → subjects
}

func newGateways(f *facts, out *publisher, index *sourceIndex, occupant func(network string, addr netip.Addr) string) *gateways {
	return &gateways{facts: f, out: out, index: index, occupant: occupant, waypoints: map[model.Key]*translate.Waypoint{}, served: map[model.Key]*translate.Waypoint{}, ready: map[model.Key]bool{},
		networks:  map[model.Key][]translate.NetworkGateway{},
		resources: map[model.Key]map[string]bool{},
		users:     map[string]map[model.Key]bool{}, asked: map[model.Key]map[string]bool{}}
}

// The subjects that may be asked about.
func aboutWaypoint(gateway model.Key) string {
	return "waypoint " + gateway.Namespace + "/" + gateway.Name
}
func aboutNetwork(network string) string { return "network " + network }

func (g *gateways) ask(user model.Key, subject string) {
	if g.users[subject] == nil {
		g.users[subject] = map[model.Key]bool{}
	}
	g.users[subject][user] = true
	if g.asked[user] == nil {
		g.asked[user] = map[string]bool{}
	}
	g.asked[user][subject] = true
}

// forget drops what an object asked for, before it asks anew or because it is gone.
func (g *gateways) forget(user model.Key) {
	for subject := range g.asked[user] {
		if delete(g.users[subject], user); len(g.users[subject]) == 0 {
			delete(g.users, subject)
		}
	}
	delete(g.asked, user)
}

// answer has those compiled again who asked about a subject. A ServiceEntry asks as a service and for its endpoints.
func (g *gateways) answer(b *batch, subject string) {
	for user := range g.users[subject] {
		switch user.Kind {
		case "Service":
			b.mark(serviceOutput, user)
		case "ServiceEntry":
			b.mark(serviceOutput, user)
			b.workload(user)
		default:
			b.workload(user)
		}
	}
}

// settle works out what a Gateway is now and touches those who use it.
func (g *gateways) settle(b *batch, key model.Key) {
	var waypoint, served *translate.Waypoint
	var networks []translate.NetworkGateway
	hasProxy := false
	gw, exists := g.store.Gateway(key)
	if exists {
		class, _ := g.store.GatewayClass(string(gw.Spec.GatewayClassName))
		own, _ := g.store.Service(model.ServiceKey(key.Namespace, key.Name))
		w, conditions := translate.Gateway(g.mesh, gw, class, own)
		hasProxy = w != nil && g.hasProxy(w)
		g.out.report(b, key, model.Report{Conditions: conditions, Parts: &model.Parts{Listeners: translate.ListenerConditions(gw, class), Unready: w != nil && !hasProxy}})
		waypoint, networks = w, translate.NetworkGateways(g.mesh, gw)
		served = translate.Served(g.mesh, gw, class)
	}
	// What this mesh's proxies say of themselves counts before a condition, which is written after it.
	ready := waypoint != nil && (served != nil || translate.Programmed(gw)) && hasProxy
	if !translate.SameWaypoint(waypoint, g.waypoints[key]) || !translate.SameServer(served, g.served[key]) || ready != g.ready[key] {
		g.answer(b, aboutWaypoint(key))
	}
	if g.ready[key] = ready; !ready {
		delete(g.ready, key)
	}
	g.serve(b, key, served)
	if waypoint == nil {
		delete(g.waypoints, key)
	} else {
		g.waypoints[key] = waypoint
	}
	for _, list := range [][]translate.NetworkGateway{g.networks[key], networks} {
		for _, n := range list {
			g.answer(b, aboutNetwork(n.Network))
		}
	}
	names := map[string]bool{}
	for _, n := range networks {
		names[n.Workload.Uid] = true
		g.out.emit(b, resourcekind.Address, n.Workload.Uid, translate.WorkloadAliases(n.Workload), nil,
			&workload.Address{Type: &workload.Address_Workload{Workload: n.Workload}}, key)
	}
	for name := range g.resources[key] {
		if !names[name] {
			b.remove(resourcekind.Address, name)
		}
	}
	if len(networks) == 0 {
		delete(g.networks, key)
		delete(g.resources, key)
	} else {
		g.networks[key], g.resources[key] = networks, names
	}
}

// serve takes note of what a Gateway is to its own proxies, and touches the policies for it.
func (g *gateways) serve(b *batch, key model.Key, served *translate.Waypoint) {
	policy := func(policy model.Key) { b.mark(requestPolicyOutput, policy) }
	g.index.policiesFor(key, policy)
	before := g.served[key]
	if translate.SameServer(before, served) {
		return
	}
	b.mark(requestGatewayOutput, key)
	if g.mesh.AutoAllowWaypoints {
		if served != nil {
			policy := translate.AllowWaypoint(served, g.mesh.TrustDomain)
			g.out.emit(b, resourcekind.Authorization, translate.AllowWaypointName(served), nil, nil, policy, key)
		} else {
			b.remove(resourcekind.Authorization, translate.AllowWaypointName(before))
		}
	}
	for _, w := range []*translate.Waypoint{before, served} {
		if w != nil {
			for _, class := range w.Classes() {
				g.index.policiesFor(model.GatewayClassKey(class), policy)
			}
		}
	}
	if served == nil {
		delete(g.served, key)
	} else {
		g.served[key] = served
	}
}

// context is what an object's translation may ask for; what it asks is remembered.
func (g *gateways) context(key model.Key) translate.Context {
	ns, _ := g.store.Namespace(key.Namespace)
	return translate.Context{Namespace: ns, Occupant: g.occupant, Waypoints: func(namespace, name string) *translate.Waypoint {
		gateway := model.GatewayKey(namespace, name)
		g.ask(key, aboutWaypoint(gateway))
		return g.waypoints[gateway]
	}, Servers: func(namespace, name string) *translate.Waypoint {
		gateway := model.GatewayKey(namespace, name)
		g.ask(key, aboutWaypoint(gateway))
		return g.served[gateway]
	}}
}

// operational says whether a waypoint can take connections, as far as its objects tell.
func (g *gateways) operational(ref string) bool {
	namespace, name, _ := strings.Cut(ref, "/")
	return g.ready[model.GatewayKey(namespace, name)]
}

// hasProxy says whether a pod is ready behind a waypoint's Service. Of a waypoint at another address, or behind a Service without a selector, nobody
// here can tell.
func (g *gateways) hasProxy(w *translate.Waypoint) bool {
	host := w.Address.GetHostname()
	svc, ok := g.store.Service(model.ServiceKey(w.Namespace, w.Name))
	if host == nil || !ok || len(svc.Spec.Selector) == 0 || host.Hostname != g.mesh.ServiceHost(w.Namespace, w.Name) {
		return true
	}
	found := false
	g.index.selection.Chosen(svc.Namespace, svc.Spec.Selector, func(key model.Key) {
		pod, ok := g.store.Pod(key)
		found = found || ok && translate.PodReady(pod)
	})
	return found
}

// entrance finds the first entrance to a network, in the order of Gateways' names.
func (g *gateways) entrance(user model.Key, network string) *workload.GatewayAddress {
	g.ask(user, aboutNetwork(network))
	for _, key := range slices.SortedFunc(maps.Keys(g.networks), model.Key.Compare) {
		for _, n := range g.networks[key] {
			if n.Network == network {
				return n.Address
			}
		}
	}
	return nil
}
