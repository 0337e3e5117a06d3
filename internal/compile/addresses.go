package compile

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/translate"
)

// addresses holds which objects name which single address as theirs.
type addresses struct {
	named map[model.Key][]netip.Addr
	by    map[netip.Addr]keys
	right map[model.Key]claim // how they stood when they named them
}

func newAddresses() addresses {
	return addresses{named: map[model.Key][]netip.Addr{}, by: map[netip.Addr]keys{}, right: map[model.Key]claim{}}
}

// put says which addresses an object names now and with what right, and tells of those that it named or names if either is another than
// before.
func (a *addresses) put(right claim, now []netip.Addr, moved func(netip.Addr)) {
	key := right.key
	before := a.named[key]
	if slices.Equal(before, now) && a.right[key].equal(right) {
		return
	}
	for _, addr := range before {
		if a.by[addr] = a.by[addr].without(key); a.by[addr].empty() {
			delete(a.by, addr)
		}
		moved(addr)
	}
	for _, addr := range now {
		a.by[addr] = a.by[addr].with(key)
		moved(addr)
	}
	if a.named[key], a.right[key] = now, right; len(now) == 0 {
		delete(a.named, key)
		delete(a.right, key)
	}
}

// keys is a set of objects: of one, mostly.
type keys struct {
	one  model.Key
	more map[model.Key]bool
}

func (k keys) empty() bool { return k.one == model.Key{} && len(k.more) == 0 }

func (k keys) with(key model.Key) keys {
	switch {
	case k.one == key:
	case k.one == model.Key{} && !k.more[key]:
		k.one = key
	case k.more == nil:
		k.more = map[model.Key]bool{key: true}
	default:
		k.more[key] = true
	}
	return k
}

func (k keys) without(key model.Key) keys {
	if k.one == key {
		k.one = model.Key{}
	}
	delete(k.more, key)
	return k
}

func (k keys) all(yield func(model.Key) bool) {
	if (k.one != model.Key{}) && !yield(k.one) {
		return
	}
	for key := range k.more {
		if !yield(key) {
			return
		}
	}
}

// settleClaims notes the addresses and ranges of what changed, settles each once, and has the services compiled again that gain or lose by it.
func (c *Compiler) settleClaims(b *batch) {
	touched, led := map[model.Key]bool{}, map[model.Key]bool{}
	for key := range b.stale[workloadOutput] {
		if key.Kind != "Pod" {
			c.endpointsAt.put(c.claim(key), c.endpointAddresses(key), func(netip.Addr) {})
		}
	}
	held, asked, blocks := map[netip.Addr]bool{}, map[netip.Addr]bool{}, map[netip.Prefix]bool{}
	block := func(p netip.Prefix) { blocks[p] = true }
	put := func(key model.Key) {
		if key.Kind == "ServiceEntry" {
			c.asks.put(c.claim(key), c.namedAddresses(key), func(addr netip.Addr) { asked[addr] = true })
			c.ranges.put(c.claim(key), c.namedRanges(key), block)
			return
		}
		before, right := c.claims.named[key], c.claim(key)
		c.occupants.count(key, c.claims.right[key].stake, right.stake)
		c.claims.put(right, c.namedAddresses(key), func(addr netip.Addr) { held[addr] = true })
		if isPlace(key) {
			c.ranges.place(key, c.site(key), func(p netip.Prefix, all bool) {
				if all || c.conflicts.nothingLeft(p) {
					block(p)
				}
			})
		}
		now := c.claims.named[key]
		if slices.Equal(before, now) {
			return
		}
		for _, addr := range append(slices.Clone(before), now...) {
			c.ranges.moved(addr, block)
			if isPlace(key) {
				for endpoint := range c.endpointsAt.by[addr].all {
					led[endpoint] = true
				}
			}
		}
	}
	honoured, ranged := c.occupants.honoured(), c.occupants.ranged()
	for key := range b.stale[serviceOutput] {
		put(key)
	}
	for _, places := range []map[model.Key]bool{b.stale[workloadOutput], b.stale[nodeOutput]} {
		for key := range places {
			if isPlace(key) {
				put(key)
			}
		}
	}
	if c.occupants.honoured() != honoured || c.occupants.ranged() != ranged {
		c.retellOutside(b, held)
	}
	c.settlePlaces(b, held)
	touch := func(key model.Key) { touched[key] = true }
	for addr := range held {
		for key := range c.claims.by[addr].all {
			touch(key) // the Services among them
		}
		asked[addr] = true
	}
	for addr := range asked {
		c.settleAddress(addr, touch)
	}
	for p := range blocks {
		c.settleRange(p, touch)
	}
	for key := range led {
		b.workload(key)
		touched[key] = true
	}
	for key := range touched {
		if key.Kind == "Service" || key.Kind == "ServiceEntry" {
			b.mark(serviceOutput, key)
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

// occupant is the node or pod at an address of a network; empty if there is none. All that the mesh sees are on its own network: the
// same address in another is somebody else's.
func (c *Compiler) occupant(network string, addr netip.Addr) string {
	best, ok := c.holder(model.Key{}, addr)
	if !ok || !isPlace(best) || network != c.mesh.Network {
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

// holder is who has an address with more right than a Service or ServiceEntry that names it: an older Service before others; Services, nodes
// and pods before ServiceEntries; and the owner of a virtual address that was chosen for it before entries of other namespaces. Otherwise anybody
// who may write one ServiceEntry could take over, or take out of mTLS, what belongs to somebody else.
func (c *Compiler) holder(key model.Key, addr netip.Addr) (best model.Key, ok bool) {
	if best, ok = c.first(addr); ok && best != key {
		return best, true
	}
	if key.Kind == "ServiceEntry" {
		if owner, chosen := c.chosenFor(addr); chosen && owner.Namespace != key.Namespace {
			return owner, true
		}
	}
	return key, false
}

// chosenFor is the entry for which a virtual address was chosen.
func (c *Compiler) chosenFor(addr netip.Addr) (owner model.Key, ok bool) {
	return c.hosts.owner(c.assignments.taken[addr])
}

// first is who has an address of all Services, pods and nodes that name it.
func (c *Compiler) first(addr netip.Addr) (best model.Key, ok bool) {
	there := c.claims.by[addr]
	if len(there.more) == 0 {
		return there.one, !there.empty()
	}
	if best, ok = c.conflicts.firsts[addr]; ok {
		return best, true
	}
	best = c.ofSeveral(there)
	c.conflicts.firsts[addr] = best
	return best, true
}
