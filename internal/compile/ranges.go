package compile

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/translate"
)

// narrowBits is how many bits of an address a range may leave open to be about what is there: with 256 addresses or fewer it is another
// way to write them down. A wider one is about the world outside, whatever else is in it.
const narrowBits = 8

func isNarrow(block netip.Prefix) bool { return block.Addr().BitLen()-block.Bits() <= narrowBits }

// ranges holds which ServiceEntries have which ranges of addresses, and what nodes and their pods have.
type ranges struct {
	named map[model.Key][]netip.Prefix
	by    map[netip.Prefix]map[model.Key]bool
	right map[model.Key]claim // how they stood when they named them
	sites map[model.Key][]netip.Prefix
	nodes map[netip.Prefix]map[model.Key]bool
}

func newRanges() ranges {
	return ranges{named: map[model.Key][]netip.Prefix{}, by: map[netip.Prefix]map[model.Key]bool{}, right: map[model.Key]claim{},
		sites: map[model.Key][]netip.Prefix{}, nodes: map[netip.Prefix]map[model.Key]bool{}}
}

// put records the ranges of an entry and its right to them. If either has changed, it reports the old and the new ranges.
func (r *ranges) put(right claim, now []netip.Prefix, moved func(netip.Prefix)) {
	key := right.key
	if slices.Equal(r.named[key], now) && r.right[key].equal(right) {
		return
	}
	for _, block := range r.named[key] {
		drop(r.by, block, key)
		moved(block)
	}
	for _, block := range now {
		enter(r.by, block, key)
		moved(block)
	}
	if r.named[key], r.right[key] = now, right; len(now) == 0 {
		delete(r.named, key)
		delete(r.right, key)
	}
}

// place records the blocks that belong to a node, or to a pod on its network, and reports the named ranges that overlap a changed block. If
// all is false, only ranges of which nothing is left are affected: their conditions name the owner.
func (r *ranges) place(key model.Key, now []netip.Prefix, moved func(block netip.Prefix, all bool)) {
	before := r.sites[key]
	if slices.Equal(before, now) {
		return
	}
	changed := map[netip.Prefix]bool{}
	for _, block := range before {
		changed[block] = changed[block] || drop(r.nodes, block, key)
	}
	for _, block := range now {
		changed[block] = enter(r.nodes, block, key) != changed[block]
	}
	if r.sites[key] = now; len(now) == 0 {
		delete(r.sites, key)
	}
	for block, changed := range changed {
		for named := range r.by {
			if named.Overlaps(block) {
				moved(named, changed)
			}
		}
	}
}

// moved reports the named narrow ranges around an address whose owner came or went.
func (r *ranges) moved(addr netip.Addr, moved func(netip.Prefix)) {
	for bits := addr.BitLen() - narrowBits; bits < addr.BitLen(); bits++ {
		if block, err := addr.Prefix(bits); err == nil && len(r.by[block]) > 0 {
			moved(block)
		}
	}
}

// enter and drop report whether the block is new, or gone.
func enter(by map[netip.Prefix]map[model.Key]bool, block netip.Prefix, key model.Key) (first bool) {
	if by[block] == nil {
		by[block] = map[model.Key]bool{}
		first = true
	}
	by[block][key] = true
	return first
}

func drop(by map[netip.Prefix]map[model.Key]bool, block netip.Prefix, key model.Key) (last bool) {
	delete(by[block], key)
	if last = len(by[block]) == 0; last {
		delete(by, block)
	}
	return last
}

// part is what a ServiceEntry has of a range that it names. A narrow one in which there is a node, or another namespace's pod or Service,
// is refused, and is told whose it is; of any other it does not have what belongs to nodes and their pods. It is not enough that
// proxies prefer what they know at an address: not all look at pods first, and a node without pods on its network is not known to them.
func (a *arbiter) part(key model.Key, block netip.Prefix) translate.Remains {
	s := a.conflicts.blocks[block]
	if s == nil {
		return translate.Remains{}
	}
	if holder := s.keptOut(key.Namespace); holder != "" {
		return translate.Remains{Holder: holder}
	}
	if len(s.left.Blocks) == 0 {
		return translate.Remains{Holder: s.owner.String() + " or pods there"}
	}
	return s.left
}

// inRange settles who has what of a range, without those who contend for it.
func (a *arbiter) inRange(block netip.Prefix) *rangeClaimants {
	s := &rangeClaimants{}
	for _, auto := range []netip.Prefix{autoPrefix4, autoPrefix6} {
		if auto.Bits() <= block.Bits() && auto.Overlaps(block) {
			s.mesh = fmt.Sprintf("the mesh, which chooses virtual addresses from %s", auto)
			return s
		}
	}
	if isNarrow(block) {
		a.within(block, s)
	}
	if s.left = translate.Without(block, slices.Collect(maps.Keys(a.ranges.nodes))); len(s.left.Blocks) > 0 {
		return s
	}
	for place, keys := range a.ranges.nodes {
		if place.Overlaps(block) {
			for other := range keys {
				s.owner = least(s.owner, other)
			}
		}
	}
	return s
}

// within finds the node, and the pods or Services of two namespaces, that come first of all with an address in a narrow range.
func (a *arbiter) within(block netip.Prefix, s *rangeClaimants) {
	for addr := block.Addr(); block.Contains(addr); addr = addr.Next() {
		a.places.looked++
		for other := range a.places.claims.by[addr].all {
			a.places.looked++
			pod, isPod := a.store.Pod(other)
			switch {
			case other.Kind == "Node", isPod && pod.Spec.HostNetwork:
				s.place = least(s.place, other)
			case s.tenant == model.Key{} || other.Namespace == s.tenant.Namespace:
				s.tenant = least(s.tenant, other)
			case other.Compare(s.tenant) < 0:
				s.tenant, s.second = other, s.tenant
			default:
				s.second = least(s.second, other)
			}
		}
	}
}

// least is the one that comes first; no key at all comes last.
func least(x, y model.Key) model.Key {
	if (x == model.Key{}) || (y != model.Key{} && y.Compare(x) < 0) {
		return y
	}
	return x
}
