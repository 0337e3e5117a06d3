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
	touched := map[model.Key]bool{}
	touch := func(key model.Key) {
		if key.Kind != "Pod" {
			touched[key] = true
		}
	}
	for key := range b.services {
		c.claims.put(c.claim(key), c.namedAddresses(key), touch)
	}
	for key := range b.workloads {
		if key.Kind == "Pod" {
			c.claims.put(c.claim(key), c.namedAddresses(key), touch)
		}
	}
	for key := range touched {
		b.services[key] = true
	}
}

// namedAddresses lists the single addresses that an object names, each once.
func (c *Compiler) namedAddresses(key model.Key) []netip.Addr {
	if pod, ok := c.store.Pod(key); ok {
		return translate.OwnAddresses(pod)
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

// holder is who has an address with more right than a Service or ServiceEntry that names it: a pod before services, since the address is
// where it is and its peers expect its identity there; a Service before ServiceEntries and an older Service before others; and the owner
// of a virtual address that was chosen for it before entries of other namespaces. Otherwise anybody who may write one ServiceEntry could
// take over, or take out of mTLS, what belongs to somebody else.
func (c *Compiler) holder(key model.Key, addr netip.Addr) (best model.Key, ok bool) {
	right := func(k model.Key) int { return slices.Index([]string{"Pod", "Service", "ServiceEntry"}, k.Kind) }
	before := func(x, y model.Key) bool {
		if right(x) != right(y) {
			return right(x) < right(y)
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
