package compile

import (
	"maps"
	"slices"

	networkingv1 "istio.io/client-go/pkg/apis/networking/v1"
	securityv1 "istio.io/client-go/pkg/apis/security/v1"

	"lateen.dev/lateen/internal/gen/workload"
	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/translate"
	"lateen.dev/lateen/internal/wirekind"
)

// compileWorkload compiles a pod, a WorkloadEntry, or the endpoints of a ServiceEntry or an EndpointSlice.
func (c *Compiler) compileWorkload(b *batch, key model.Key) {
	switch key.Kind {
	case "Pod":
		name := c.mesh.PodResource(key.Namespace, key.Name)
		pod, ok := c.store.Pod(key)
		if !ok {
			c.misplaced.note(key, nil)
			c.gateways.forget(key)
			c.settleOwner(b, key, nil)
			b.remove(wirekind.Address, name)
			return
		}
		in := c.workloadInput(b, key)
		in.Node, _ = c.store.Node(pod.Spec.NodeName)
		in.Holder, in.PodCIDRs = c.ownerFor(key), c.occupants.honoured() && c.claims.right[key].stake.counts
		w, conditions := translate.Workload(c.mesh, pod, in)
		c.misplaced.note(key, conditions)
		c.conditions(b, key, conditions)
		c.publish(b, key, name, w)
	case "WorkloadEntry":
		name := c.mesh.WorkloadEntryResource(key.Namespace, key.Name)
		we, ok := c.store.WorkloadEntry(key)
		if !ok {
			c.gateways.forget(key)
			c.settleOwner(b, key, nil)
			b.remove(wirekind.Address, name)
			return
		}
		w, conditions := translate.WorkloadEntry(c.mesh, we, c.workloadInput(b, key))
		c.conditions(b, key, conditions)
		c.publish(b, key, name, w)
	case "ServiceEntry":
		c.compileEndpoints(b, key)
	case "EndpointSlice":
		c.compileSlice(b, key)
	}
}

func (c *Compiler) compileEndpoints(b *batch, key model.Key) {
	now := map[string]bool{}
	if se, ok := c.store.ServiceEntry(key); ok {
		for _, w := range translate.Endpoints(c.mesh, se, c.owned(se, key), c.workloadInput(b, key)) {
			now[w.Uid] = true
			c.publish(b, key, w.Uid, w)
		}
	}
	if len(now) == 0 {
		c.settleOwner(b, key, nil)
	}
	c.replaceEndpoints(b, key, now)
}

// owned are the hosts of a ServiceEntry that it speaks for.
func (c *Compiler) owned(se *networkingv1.ServiceEntry, key model.Key) []string {
	return slices.DeleteFunc(translate.EntryHosts(se), func(h string) bool { return !c.hosts.speaks(key, h) })
}

// workloadInput gathers what bears on a workload: its namespace, the services that it serves, and the policies that choose it.
func (c *Compiler) workloadInput(b *batch, key model.Key) translate.WorkloadInput {
	if key.Kind != "ServiceEntry" {
		c.gateways.forget(key) // an entry's questions as a service stay
	}
	in := translate.WorkloadInput{Context: c.context(key), Gateway: func(network string) *workload.GatewayAddress { return c.entrance(key, network) }}
	var selecting []*securityv1.PeerAuthentication
	for _, owner := range c.selection.ChosenBy(key) {
		switch owner.Kind {
		case "Service":
			if svc, ok := c.store.Service(owner); ok {
				in.Offers = append(in.Offers, translate.ServiceOffer(c.mesh, svc))
			}
		case "ServiceEntry":
			if se, ok := c.store.ServiceEntry(owner); ok {
				for _, h := range c.owned(se, owner) {
					in.Offers = append(in.Offers, translate.EntryOffer(se, h))
				}
			}
		case "AuthorizationPolicy":
			if name, ok := c.published[owner]; ok {
				in.Policies = append(in.Policies, name)
			}
		case "PeerAuthentication":
			if pa, ok := c.store.PeerAuthentication(owner); ok {
				selecting = append(selecting, pa)
			}
		}
	}
	in.Offers = c.sliceOffers(key, in.Offers)
	c.settleOwner(b, key, selecting)
	slices.Sort(in.Policies)
	in.Policies = append(in.Policies, c.peerPolicies(selecting, key.Namespace)...)
	return in
}

// publish puts an object's workload into the log, or takes it out if there is none.
func (c *Compiler) publish(b *batch, key model.Key, name string, w *workload.Workload) {
	if w == nil {
		b.remove(wirekind.Address, name)
		return
	}
	c.emit(b, wirekind.Address, name, translate.WorkloadAliases(w), slices.Sorted(maps.Keys(w.Services)), &workload.Address{Type: &workload.Address_Workload{Workload: w}}, key)
}
