package compile

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/translate"
)

// addresses holds which objects name which single address as theirs. Ranges are of no account: proxies look at them only where nothing
// has the very address.
type addresses struct {
	named map[model.Key][]netip.Addr
	by    map[netip.Addr][]model.Key
	right map[model.Key]claim // how they stood when they named them
}

func newAddresses() addresses {
	return addresses{named: map[model.Key][]netip.Addr{}, by: map[netip.Addr][]model.Key{}, right: map[model.Key]claim{}}
}

// put says which addresses an object names now and with what right, and tells of every other object that names one that came, went, or
// is named with another right.
func (a *addresses) put(right claim, now []netip.Addr, touch func(model.Key)) {
	key := right.key
	before := a.named[key]
	if slices.Equal(before, now) && a.right[key].equal(right) {
		return
	}
	a.right[key] = right
	for _, addr := range before {
		rest := slices.DeleteFunc(a.by[addr], func(k model.Key) bool { return k == key })
		if a.by[addr] = rest; len(rest) == 0 {
			delete(a.by, addr)
		}
		for _, other := range rest {
			touch(other)
		}
	}
	for _, addr := range now {
		for _, other := range a.by[addr] {
			touch(other)
		}
		a.by[addr] = append(a.by[addr], key)
	}
	if a.named[key] = now; len(now) == 0 {
		delete(a.named, key)
		delete(a.right, key)
	}
}

// settleClaims notes the addresses of what changed, and has the services compiled again that gain or lose one by it.
func (c *Compiler) settleClaims(b *batch) {
	touched, led := map[model.Key]bool{}, map[model.Key]bool{}
	for key := range b.workloads {
		if key.Kind != "Pod" {
			c.endpointsAt.put(c.claim(key), c.endpointAddresses(key), func(model.Key) {})
		}
	}
	put := func(key model.Key) {
		before := c.claims.named[key]
		c.claims.put(c.claim(key), c.namedAddresses(key), func(other model.Key) { touched[other] = true })
		if now := c.claims.named[key]; isPlace(key) && !slices.Equal(before, now) {
			for _, addr := range append(slices.Clone(before), now...) {
				for _, endpoint := range c.endpointsAt.by[addr] {
					led[endpoint] = true
				}
			}
		}
	}
	for key := range b.services {
		put(key)
	}
	for _, places := range []map[model.Key]bool{b.workloads, b.nodes} {
		for key := range places {
			if isPlace(key) {
				put(key)
			}
		}
	}
	for key := range led {
		b.workload(key)
		touched[key] = true
	}
	for key := range touched {
		if key.Kind == "Service" || key.Kind == "ServiceEntry" {
			b.services[key] = true
		}
	}
}

// isPlace says whether an object's addresses are where it is, rather than what somebody asks for.
func isPlace(key model.Key) bool { return key.Kind == "Node" || key.Kind == "Pod" }

// endpointAddresses lists the single addresses at which a WorkloadEntry or the endpoints of a ServiceEntry are said to be.
func (c *Compiler) endpointAddresses(key model.Key) (out []netip.Addr) {
	add := func(text string) {
		if addr, err := netip.ParseAddr(text); err == nil && !slices.Contains(out, addr.Unmap()) {
			out = append(out, addr.Unmap())
		}
	}
	if we, ok := c.store.WorkloadEntry(key); ok {
		add(we.Spec.Address)
	} else if se, ok := c.store.ServiceEntry(key); ok {
		for _, e := range se.Spec.Endpoints {
			add(e.GetAddress())
		}
	}
	return out
}

// occupant is the node or pod at an address; empty if there is none.
func (c *Compiler) occupant(addr netip.Addr) string {
	best, ok := c.holder(model.Key{}, addr)
	if !ok || !isPlace(best) {
		return ""
	}
	return best.String()
}

// namedAddresses lists the single addresses that an object names, each once.
func (c *Compiler) namedAddresses(key model.Key) []netip.Addr {
	if pod, ok := c.store.Pod(key); ok {
		return translate.OwnAddresses(pod)
	}
	if node, ok := c.store.Node(key.Name); ok && key.Kind == "Node" {
		return translate.NodeAddresses(node)
	}
	var texts []string
	if svc, ok := c.store.Service(key); ok && svc.Spec.Type != corev1.ServiceTypeExternalName {
		texts = translate.ClusterIPs(svc)
	} else if se, ok := c.store.ServiceEntry(key); ok {
		texts = se.Spec.Addresses
	}
	var out []netip.Addr
	for _, text := range texts {
		if block, ok := translate.ParseBlock(text); ok && block.IsSingleIP() && !slices.Contains(out, block.Addr()) {
			out = append(out, block.Addr())
		}
	}
	return out
}

// holder is who has an address with more right than a Service or ServiceEntry that names it: a node and a pod before services, since the
// address is where they are and a pod's peers expect its identity there; a Service before ServiceEntries and an older Service before others; and the owner
// of a virtual address that was chosen for it before entries of other namespaces. Otherwise anybody who may write one ServiceEntry could
// take over, or take out of mTLS, what belongs to somebody else.
func (c *Compiler) holder(key model.Key, addr netip.Addr) (best model.Key, ok bool) {
	right := func(k model.Key) int {
		return slices.Index([]string{"Node", "Pod", "Service", "ServiceEntry", ""}, k.Kind)
	}
	before := func(x, y model.Key) bool {
		if right(x) != right(y) {
			return right(x) < right(y)
		}
		if isPlace(x) {
			return x.Compare(y) < 0 // pods share their node's address; one of them is named
		}
		return x.Kind == "Service" && c.claim(x).before(c.claim(y))
	}
	best = key
	for _, other := range c.claims.by[addr] {
		if before(other, best) {
			best = other
		}
	}
	if best == key && key.Kind == "ServiceEntry" {
		if owner, chosen := c.hosts.owner(c.assignments.taken[addr]); chosen && owner.Namespace != key.Namespace {
			best = owner
		}
	}
	return best, best != key
}
