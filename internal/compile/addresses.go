package compile

import (
	"net/netip"
	"slices"

	"lateen.dev/lateen/internal/model"
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

// settle notes the addresses and ranges of what changed, settles each once, and has the services compiled again that gain or lose by it.
func (a *arbiter) settle(b *batch) {
	touched, led := map[model.Key]bool{}, map[model.Key]bool{}
	for key := range b.stale[workloadOutput] {
		if key.Kind != "Pod" {
			a.endpointsAt.put(a.claim(key), a.endpointAddresses(key), func(netip.Addr) {})
		}
	}
	held, asked, blocks := map[netip.Addr]bool{}, map[netip.Addr]bool{}, map[netip.Prefix]bool{}
	block := func(p netip.Prefix) { blocks[p] = true }
	put := func(key model.Key) {
		if key.Kind == "ServiceEntry" {
			a.asks.put(a.claim(key), a.namedAddresses(key), func(addr netip.Addr) { asked[addr] = true })
			a.ranges.put(a.claim(key), a.namedRanges(key), block)
			return
		}
		before, right := a.places.claims.named[key], a.claim(key)
		a.places.occupants.count(key, a.places.claims.right[key].stake, right.stake)
		a.places.claims.put(right, a.namedAddresses(key), func(addr netip.Addr) { held[addr] = true })
		if isPlace(key) {
			a.ranges.place(key, a.site(key), func(p netip.Prefix, all bool) {
				if all || a.conflicts.nothingLeft(p) {
					block(p)
				}
			})
		}
		now := a.places.claims.named[key]
		if slices.Equal(before, now) {
			return
		}
		for _, addr := range append(slices.Clone(before), now...) {
			a.ranges.moved(addr, block)
			if isPlace(key) {
				for endpoint := range a.endpointsAt.by[addr].all {
					led[endpoint] = true
				}
			}
		}
	}
	honoured, ranged := a.places.occupants.honoured(), a.places.occupants.ranged()
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
	if a.places.occupants.honoured() != honoured || a.places.occupants.ranged() != ranged {
		a.places.retellOutside(b, held)
	}
	a.places.settlePlaces(b, held)
	touch := func(key model.Key) { touched[key] = true }
	for addr := range held {
		for key := range a.places.claims.by[addr].all {
			touch(key) // the Services among them
		}
		asked[addr] = true
	}
	for addr := range asked {
		a.settleAddress(addr, touch)
	}
	for p := range blocks {
		a.settleRange(p, touch)
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

// occupant is the node or pod at an address of a network; empty if there is none. All that the mesh sees are on its own network: the
// same address in another is somebody else's.
func (p *places) occupant(network string, addr netip.Addr) string {
	best, ok := p.holder(model.Key{}, addr)
	if !ok || !isPlace(best) || network != p.mesh.Network {
		return ""
	}
	return best.String()
}

// holder is who has an address with more right than a Service or ServiceEntry that names it: an older Service before others; Services, nodes
// and pods before ServiceEntries; and the owner of a virtual address that was chosen for it before entries of other namespaces. Otherwise anybody
// who may write one ServiceEntry could take over, or take out of mTLS, what belongs to somebody else.
func (p *places) holder(key model.Key, addr netip.Addr) (best model.Key, ok bool) {
	if best, ok = p.first(addr); ok && best != key {
		return best, true
	}
	if key.Kind == "ServiceEntry" {
		if owner, chosen := p.chosenFor(addr); chosen && owner.Namespace != key.Namespace {
			return owner, true
		}
	}
	return key, false
}

// chosenFor is the entry for which a virtual address was chosen.
func (p *places) chosenFor(addr netip.Addr) (owner model.Key, ok bool) {
	return p.hosts.owner(p.assignments.taken[addr])
}

// first is who has an address of all Services, pods and nodes that name it.
func (p *places) first(addr netip.Addr) (best model.Key, ok bool) {
	there := p.claims.by[addr]
	if len(there.more) == 0 {
		return there.one, !there.empty()
	}
	if best, ok = p.firsts[addr]; ok {
		return best, true
	}
	best = p.ofSeveral(there)
	p.firsts[addr] = best
	return best, true
}
