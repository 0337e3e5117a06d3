package compile

import (
	"net/netip"

	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/translate"
)

// occupants holds whose an address is that several pods, nodes and Services name, and how pods stand to their nodes' ranges.
//
// Pods and nodes are believed as little as possible: a kubelet writes the addresses of its pods and of its node itself, and makes as many static pods
// as it likes. Kubernetes assigns a Service's cluster IP. A node's podCIDRs do not change once they are set, but where nothing sets
// them the kubelet may.
type occupants struct {
	first   map[netip.Addr]model.Key // who has it, of several; addresses that one object names are not here
	virtual map[netip.Addr]model.Key // addresses of pods in the ranges of chosen virtual addresses, mostly none, and for which entry each is chosen
	inside  int                      // pods whose addresses are in their nodes' ranges
	unknown int                      // pods whose nodes have no ranges
	outside map[model.Key]bool       // pods with an address that is not
}

func newOccupants() occupants {
	return occupants{first: map[netip.Addr]model.Key{}, virtual: map[netip.Addr]model.Key{}, outside: map[model.Key]bool{}}
}

// mostInside is how many pods must be inside their nodes' ranges for each that is outside, before that is worth a remark.
const mostInside = 4

// honoured says whether the network plugin gives pods addresses of their nodes' ranges: many do not, and have ranges of their own. The pods of the
// whole cluster are counted, not those of a node, since a hostile kubelet writes the addresses of all pods of its node. At most
// one pod in five is remarked upon.
func (o *occupants) honoured() bool { return o.inside > 0 && o.inside >= mostInside*len(o.outside) }

// ranged says whether nodes have ranges in this cluster, and pods addresses of these, so that a pod inside is believed before one of which nothing
// is known. Elsewhere a range is its kubelet's own word.
func (o *occupants) ranged() bool {
	return o.inside > 0 && o.inside >= mostInside*(len(o.outside)+o.unknown)
}

// count notes how a pod's addresses relate to its node's ranges now.
func (o *occupants) count(key model.Key, before, now stake) {
	note := func(s stake, by int) {
		switch {
		case !s.counts:
		case s.fit == translate.FitInside:
			o.inside += by
		case s.fit == translate.FitUnknown:
			o.unknown += by
		}
	}
	note(before, -1)
	note(now, 1)
	if delete(o.outside, key); now.counts && now.fit == translate.FitOutside {
		o.outside[key] = true
	}
}

// stake is how a pod or a node stands to the addresses that it names.
type stake struct {
	leaving  bool // a pod that may have lost them already
	captured bool // a pod that is reached through a tunnel
	static   bool // a pod that its kubelet made up
	counts   bool // a pod that says where pods are in this cluster: with a network of its own, and not static
	fit      translate.Fit
}

// places decides whose an address is that several pods, nodes and Services name.
type places struct {
	*facts
	hosts       *hosts
	assignments *Assignments
	claims      addresses // where nodes and pods are, and the cluster IPs of Services
	occupants   occupants
	firsts      map[netip.Addr]model.Key // for one batch only: the first of several at an address
	looked      int                      // claims that were examined
}

func newPlaces(f *facts, h *hosts, assignments *Assignments) *places {
	return &places{facts: f, hosts: h, assignments: assignments, claims: newAddresses(), occupants: newOccupants(), firsts: map[netip.Addr]model.Key{}}
}

// better chooses one of two objects that name an address. The kinds come one after the other: Services, pods with a network of their
// own, nodes, and pods on a node's network, which vouch for a node that does not say that it has the address.
func (p *places) better(x, y model.Key) bool {
	a, b := p.claims.right[x], p.claims.right[y]
	if p, q := p.order(x), p.order(y); p != q {
		return p < q
	}
	if x.Kind == "Pod" {
		if m, n := p.doubt(a.stake), p.doubt(b.stake); m != n {
			return m < n
		}
	}
	return a.before(b)
}

// doubt is how little speaks for a pod among those that name an address. What weighs most comes first: a range, where it is usual to be in it, since
// no successor has an address of another node's; that a static pod is its kubelet's own; that a pod may have lost the address already; and a
// range, where that is another thing than the kubelet's word.
func (p *places) doubt(s stake) (n int) {
	for _, against := range []bool{
		s.fit == translate.FitOutside && p.occupants.honoured(),
		s.static,
		s.leaving,
		s.fit == translate.FitOutside || s.fit == translate.FitUnknown && p.occupants.ranged(),
	} {
		if n *= 2; against {
			n++
		}
	}
	return n
}

// The kinds of those that name an address, as better compares them.
const (
	ofService = iota
	ofPod
	ofNode
	ofHostPod
	kinds
)

// ofSeveral is who has an address that several name: a Service before all others. Of a pod and a node, the pod has it if its node gives
// pods such addresses, and if connections to it go through a tunnel, unless pods have other addresses in this cluster. So a node's claim
// takes no pod out of its tunnel, and a pod's takes no node's address where that can be told.
func (p *places) ofSeveral(there keys) (first model.Key) {
	var best [kinds]model.Key
	for key := range there.all {
		p.looked++
		kind := p.order(key)
		if (best[kind] == model.Key{}) || p.better(key, best[kind]) {
			best[kind] = key
		}
	}
	if (best[ofNode] == model.Key{}) {
		best[ofNode] = best[ofHostPod]
	}
	none, pod := model.Key{}, p.claims.right[best[ofPod]].stake
	switch {
	case best[ofService] != none:
		return best[ofService]
	case best[ofNode] == none:
		return best[ofPod]
	case best[ofPod] == none:
		return best[ofNode]
	case pod.fit == translate.FitInside && p.occupants.ranged(), pod.captured && !(pod.fit == translate.FitOutside && p.occupants.honoured()):
		return best[ofPod]
	}
	return best[ofNode]
}

// owner is who has an address with more right than a pod or node that names it; not ok if nobody has. Pods on a node's network share its addresses, and so
// does a pod that is its node, as where each pod has a machine of its own.
func (p *places) owner(key model.Key, addr netip.Addr) (owner model.Key, ok bool) {
	if owner, ok = p.chosenFor(addr); ok {
		return owner, true
	}
	owner, ok = p.first(addr)
	if machine := p.machine(key); !ok || owner == key || machine != "" && machine == p.machine(owner) || p.isItsNode(key, owner) {
		return key, false
	}
	return owner, true
}

// isItsNode says whether a pod is at the address of the very node that it runs on, in a cluster where nothing speaks against that.
func (p *places) isItsNode(key, owner model.Key) bool {
	pod, ok := p.store.Pod(key)
	return ok && owner == model.NodeKey(pod.Spec.NodeName) && !(p.claims.right[key].stake.fit == translate.FitOutside && p.occupants.honoured())
}

// ownerFor names who has an address with more right than a pod that names it; empty if nobody has.
func (p *places) ownerFor(key model.Key) func(netip.Addr) string {
	return func(addr netip.Addr) string {
		if owner, other := p.owner(key, addr); other {
			return owner.String()
		}
		return ""
	}
}

// settlePlaces finds whose the addresses are now that somebody came to or left, and has those compiled again that gain or lose by it.
func (p *places) settlePlaces(b *batch, moved map[netip.Addr]bool) {
	p.noteVirtual(moved)
	for addr := range moved {
		there := p.claims.by[addr]
		before, several := p.occupants.first[addr]
		now := there.one
		if len(there.more) == 0 {
			delete(p.occupants.first, addr)
			if !several {
				continue // it was one object's all the time
			}
		} else if now, _ = p.first(addr); several && now == before {
			continue
		} else {
			p.occupants.first[addr] = now
		}
		for key := range there.all {
			b.place(key)
		}
	}
}

// retellOutside has the pods outside of their nodes' ranges compiled again, and their addresses and those that several name settled, when what these
// ranges mean in the cluster is another thing than before. They are one in five pods at most, before or after.
func (p *places) retellOutside(b *batch, moved map[netip.Addr]bool) {
	for key := range p.occupants.outside {
		b.workload(key)
		for _, addr := range p.claims.named[key] {
			moved[addr] = true
		}
	}
	for addr := range p.occupants.first {
		moved[addr] = true
	}
}

// noteVirtual keeps the addresses that pods and nodes name in the ranges from which virtual ones are chosen.
func (p *places) noteVirtual(moved map[netip.Addr]bool) {
	for addr := range moved {
		if !autoPrefix4.Contains(addr) && !autoPrefix6.Contains(addr) {
			continue
		}
		if delete(p.occupants.virtual, addr); !p.claims.by[addr].empty() {
			p.occupants.virtual[addr] = model.Key{}
		}
	}
}

// settleVirtual has pods compiled again that name addresses of the ranges from which virtual ones are chosen: after services, since any of them
// may have got or given back such an address. Those alone of which that is so: a kubelet may say of many pods that they are there.
func (p *places) settleVirtual(b *batch) {
	for addr, before := range p.occupants.virtual {
		owner, _ := p.chosenFor(addr)
		if owner == before {
			continue
		}
		p.occupants.virtual[addr] = owner
		for key := range p.claims.by[addr].all {
			b.place(key)
		}
	}
}

// place has a pod compiled again or a node told again.
func (b *batch) place(key model.Key) {
	switch key.Kind {
	case "Pod":
		b.workload(key)
	case "Node":
		b.mark(nodeOutput, key)
	}
}
