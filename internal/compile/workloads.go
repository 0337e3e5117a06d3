package compile

import (
	"maps"
	"net/netip"
	"slices"

	securityv1 "istio.io/client-go/pkg/apis/security/v1"

	"lateen.dev/lateen/internal/gen/l7"
	"lateen.dev/lateen/internal/gen/workload"
	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/resourcekind"
	"lateen.dev/lateen/internal/translate"
)

// workloadCompiler compiles the workloads of pods, entries and slices, and the conditions of nodes.
type workloadCompiler struct {
	*facts
	out       *publisher
	index     *sourceIndex
	gateways  *gateways
	places    *places
	hosts     *hosts
	policies  *policyCompiler
	peers     *peerCompiler
	misplaced misplaced
	bindings  *bindings
	ties      *ties
	endpoints map[model.Key]map[string]bool // ServiceEntry or EndpointSlice → names of the workloads that its endpoints are
}

func newWorkloadCompiler(f *facts, out *publisher, index *sourceIndex, g *gateways, p *places, h *hosts, policies *policyCompiler, peers *peerCompiler, t *ties) *workloadCompiler {
	return &workloadCompiler{facts: f, out: out, index: index, gateways: g, places: p, hosts: h, policies: policies, peers: peers,
		misplaced: misplaced{}, bindings: newBindings(out), ties: t, endpoints: map[model.Key]map[string]bool{}}
}

// compile compiles a pod, a WorkloadEntry, or the endpoints of a ServiceEntry or an EndpointSlice.
func (c *workloadCompiler) compile(b *batch, key model.Key) {
	switch key.Kind {
	case "Pod":
		name := c.mesh.PodResource(key.Namespace, key.Name)
		pod, ok := c.store.Pod(key)
		if !ok {
			c.misplaced.note(key, nil)
			c.gateways.forget(key)
			c.peers.settleOwner(b, key, nil)
			b.remove(resourcekind.Address, name)
			c.bindings.publish(b, key, nil)
			c.ties.drop(name)
			return
		}
		in := c.workloadInput(b, key)
		in.Node, _ = c.store.Node(pod.Spec.NodeName)
		in.Holder, in.PodCIDRs = c.places.ownerFor(key), c.places.occupants.honoured() && c.places.claims.right[key].stake.counts
		d := c.decide(b, key, name, translate.WorkloadIntent(pod, in.Context), &in.Context)
		in.Policies = append(c.waypointPolicies(key, name), in.Policies...)
		w, conditions := translate.Workload(c.mesh, pod, in)
		c.misplaced.note(key, conditions)
		c.out.conditions(b, key, conditions)
		c.publish(b, key, name, w)
		c.bind(b, key, name, w, d)
	case "WorkloadEntry":
		name := c.mesh.WorkloadEntryResource(key.Namespace, key.Name)
		we, ok := c.store.WorkloadEntry(key)
		if !ok {
			c.gateways.forget(key)
			c.peers.settleOwner(b, key, nil)
			b.remove(resourcekind.Address, name)
			c.bindings.publish(b, key, nil)
			c.ties.drop(name)
			return
		}
		in := c.workloadInput(b, key)
		d := c.decide(b, key, name, translate.EntryWorkloadIntent(we, in.Context), &in.Context)
		in.Policies = append(c.waypointPolicies(key, name), in.Policies...)
		w, conditions := translate.WorkloadEntry(c.mesh, we, in)
		c.out.conditions(b, key, conditions)
		c.publish(b, key, name, w)
		c.bind(b, key, name, w, d)
	case "ServiceEntry":
		c.compileEndpoints(b, key)
	case "EndpointSlice":
		c.compileSlice(b, key)
	}
}

func (c *workloadCompiler) compileEndpoints(b *batch, key model.Key) {
	now := map[string]bool{}
	bound := map[string]*l7.Binding{}
	if se, ok := c.store.ServiceEntry(key); ok {
		in, hosts := c.workloadInput(b, key), c.hosts.owned(se, key)
		in.Decisions = map[string]*translate.Decision{}
		for uid, intent := range translate.EndpointIntents(c.mesh, se, hosts, in.Context) {
			ctx := in.Context
			d := c.decide(b, key, uid, intent, &ctx)
			in.Decisions[uid] = ctx.Decision
			if binding := translate.WorkloadBinding(uid, d.Gateways, d.Leaving); binding != nil {
				bound[uid] = binding
			}
		}
		for _, w := range translate.Endpoints(c.mesh, se, hosts, in) {
			now[w.Uid] = true
			c.publish(b, key, w.Uid, w)
		}
	}
	c.bindings.publish(b, key, bound)
	if len(now) == 0 {
		c.peers.settleOwner(b, key, nil)
	}
	c.replaceEndpoints(b, key, now)
}

// workloadInput gathers what bears on a workload: its namespace, the services that it serves, and the policies that choose it.
func (c *workloadCompiler) workloadInput(b *batch, key model.Key) translate.WorkloadInput {
	if key.Kind != "ServiceEntry" {
		c.gateways.forget(key) // an entry's questions as a service stay
	}
	in := translate.WorkloadInput{Context: c.gateways.context(key), Gateway: func(network string) *workload.GatewayAddress { return c.gateways.entrance(key, network) }}
	var selecting []*securityv1.PeerAuthentication
	for _, owner := range c.index.selection.ChosenBy(key) {
		switch owner.Kind {
		case "Service":
			if svc, ok := c.store.Service(owner); ok {
				in.Offers = append(in.Offers, translate.ServiceOffer(c.mesh, svc))
			}
		case "ServiceEntry":
			if se, ok := c.store.ServiceEntry(owner); ok {
				for _, h := range c.hosts.owned(se, owner) {
					in.Offers = append(in.Offers, translate.EntryOffer(se, h))
				}
			}
		case "AuthorizationPolicy":
			if name, ok := c.policies.published[owner]; ok {
				in.Policies = append(in.Policies, name)
			}
		case "PeerAuthentication":
			if pa, ok := c.store.PeerAuthentication(owner); ok {
				selecting = append(selecting, pa)
			}
		}
	}
	in.Offers = c.index.sliceOffers(key, in.Offers)
	c.peers.settleOwner(b, key, selecting)
	slices.Sort(in.Policies)
	in.Policies = append(in.Policies, c.peers.peerPolicies(selecting, key.Namespace)...)
	return in
}

// waypointPolicies are the names of the policies by which a pod or a WorkloadEntry admits the waypoints that it is behind, each once. name is the
// workload's own; which waypoint the workload itself is behind must have been decided.
func (c *workloadCompiler) waypointPolicies(key model.Key, name string) (names []string) {
	if !c.mesh.AutoAllowWaypoints {
		return nil
	}
	behind := []string{name}
	for _, owner := range c.index.selection.ChosenBy(key) {
		behind = append(behind, objectName(owner))
	}
	for service := range c.index.sliced(key) {
		behind = append(behind, objectName(service))
	}
	for _, name := range behind {
		for _, ref := range c.ties.behind(name) {
			w := c.gateways.context(key).Server(ref)
			if w != nil && !slices.Contains(names, translate.AllowWaypointName(w)) {
				names = append(names, translate.AllowWaypointName(w))
			}
		}
	}
	slices.Sort(names)
	return names
}

// publish puts an object's workload into the log, or takes it out if there is none.
func (c *workloadCompiler) publish(b *batch, key model.Key, name string, w *workload.Workload) {
	if w == nil {
		b.remove(resourcekind.Address, name)
		return
	}
	c.out.emit(b, resourcekind.Address, name, translate.WorkloadAliases(w), slices.Sorted(maps.Keys(w.Services)), &workload.Address{Type: &workload.Address_Workload{Workload: w}}, key)
}

// decide says which waypoint the Address of a workload names.
func (c *workloadCompiler) decide(b *batch, key model.Key, name string, intent translate.Intent, ctx *translate.Context) *translate.Decision {
	d := c.ties.decide(b, name, key, intent, c.out.log.Get(resourcekind.Address, name) != nil, *ctx)
	if c.mesh.BindWaypoints != translate.BindAtOnce {
		ctx.Decision = d
	}
	return d
}

// bind publishes through which Gateways a workload is to be reached, if there is one.
func (c *workloadCompiler) bind(b *batch, key model.Key, name string, w *workload.Workload, d *translate.Decision) {
	var bound map[string]*l7.Binding
	if binding := translate.WorkloadBinding(name, d.Gateways, d.Leaving); binding != nil && w != nil {
		bound = map[string]*l7.Binding{name: binding}
	}
	c.bindings.publish(b, key, bound)
}

// tellNode says which addresses of a node are somebody else's.
func (c *workloadCompiler) tellNode(b *batch, key model.Key) {
	n, ok := c.store.Node(key.Name)
	if !ok {
		c.misplaced.note(key, nil)
		return
	}
	conditions := translate.Node(n, func(addr netip.Addr) string {
		owner, other := c.places.owner(key, addr)
		if pod, ok := c.store.Pod(owner); !other || ok && pod.Spec.NodeName == key.Name {
			return "" // some clouds list the addresses of its pods as the node's
		}
		return owner.String()
	})
	c.misplaced.note(key, conditions)
	c.out.conditions(b, key, conditions)
}
