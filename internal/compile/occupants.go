package compile

import (
	"net/netip"

	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/translate"
)

// occupants records the owner of each address that several pods, nodes and Services claim, and how pods' addresses relate to their nodes'
// ranges.
//
// The claims of pods and nodes are trusted as little as possible. A kubelet itself writes the addresses of its pods and of its node, and can
// create any number of static pods. Kubernetes assigns a Service's cluster IP. A node's podCIDRs do not change once they are set. Where
// the cluster does not set them, the kubelet can.
type occupants struct {
	first   map[netip.Addr]model.Key // the owner of each address that several objects claim; an address of one object is not listed
	virtual map[netip.Addr]model.Key // pods' and nodes' addresses in the ranges of virtual addresses, and the entry that each is chosen for
	inside  int                      // number of pods whose addresses are in their nodes' ranges
	unknown int                      // number of pods whose nodes have no ranges
	outside map[model.Key]bool       // pods with an address outside of their nodes' ranges
}

func newOccupants() occupants {
	return occupants{first: map[netip.Addr]model.Key{}, virtual: map[netip.Addr]model.Key{}, outside: map[model.Key]bool{}}
}

// mostInside is the number of pods inside their nodes' ranges that must exist for each pod outside, before the pods outside get a remark.
const mostInside = 4

// honoured says whether the network plugin gives pods addresses of their nodes' ranges. Many plugins have ranges of their own instead. The
// pods of the whole cluster are counted, since a hostile kubelet can write the addresses of all pods of its node. At most one pod in
// five gets a remark.
func (o *occupants) honoured() bool { return o.inside > 0 && o.inside >= mostInside*len(o.outside) }

// ranged says whether the nodes of this cluster have ranges and the pods have addresses of these. Then a pod inside its node's range takes
// precedence over a pod whose node has no range. In other clusters a range may be the kubelet's own claim.
func (o *occupants) ranged() bool {
	return o.inside > 0 && o.inside >= mostInside*(len(o.outside)+o.unknown)
}

// count replaces a pod's former stake by its present one in the numbers of pods inside and outside.
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

// stake is the evidence for and against a pod's or a node's claim to the addresses that it names.
type stake struct {
	leaving  bool // the pod may have lost its addresses already
	captured bool // the pod is reached through a tunnel
	static   bool // the pod is static: its kubelet created it
	counts   bool // the pod is counted for honoured and ranged: it has a network of its own and is not static
	fit      translate.Fit
}

// places decides which object owns an address that several pods, nodes and Services claim.
type places struct {
	*facts
	hosts       *hosts
	assignments *Assignments
	claims      addresses // the addresses of nodes and pods, and the cluster IPs of Services
	occupants   occupants
	firsts      map[netip.Addr]model.Key // the owner of each address of several claimants; valid for one batch
	looked      int                      // number of claims that were examined
}

func newPlaces(f *facts, h *hosts, assignments *Assignments) *places {
	return &places{facts: f, hosts: h, assignments: assignments, claims: newAddresses(), occupants: newOccupants(), firsts: map[netip.Addr]model.Key{}}
}

// better says whether x comes before y among the objects that name an address. The order of the kinds is Services, pods with a network of
// their own, nodes, pods on a node's network. A pod of the last kind stands for a node that does not list the address itself.
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

// doubt is the weight of the evidence against a pod among the pods that name an address. The evidence, by falling weight:
//
//   - the address is outside of the node's range, where pods are usually inside: no successor has an address of another node;
//   - the pod is static, so it is its kubelet's own claim;
//   - the pod may have lost the address already;
//   - the address is outside of the node's range, or the range is unknown, where ranges are not the kubelet's claim.
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

// The kinds of objects that name an address, in the order in which better compares them.
const (
	ofService = iota
	ofPod
	ofNode
	ofHostPod
	kinds
)

// ofSeveral returns the owner of an address that several objects name. A Service comes before all others. A pod comes before a node if its
// node gives pods such addresses. It also does if connections to it go through a tunnel, unless pods have other addresses in this
// cluster. So a node's claim does not take a pod out of its tunnel. A pod's claim does not take a node's address, where the two can be
// told apart.
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

// owner returns the object that owns an address before the pod or node key that names it; ok is false if there is none. Pods on a node's
// network share its addresses. So does a pod that is its own node, as in a cluster with a machine for each pod.
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

// isItsNode says whether a pod has the address of the node that it runs on, in a cluster whose ranges do not contradict that.
func (p *places) isItsNode(key, owner model.Key) bool {
	pod, ok := p.store.Pod(key)
	return ok && owner == model.NodeKey(pod.Spec.NodeName) && !(p.claims.right[key].stake.fit == translate.FitOutside && p.occupants.honoured())
}

// ownerFor returns a function that names the owner of an address before the pod key. Its result is empty if there is no such owner.
func (p *places) ownerFor(key model.Key) func(netip.Addr) string {
	return func(addr netip.Addr) string {
		if owner, other := p.owner(key, addr); other {
			return owner.String()
		}
		return ""
	}
}

// settlePlaces finds the owners of the addresses that an object took or left. It marks the objects that gain or lose an address, so that
// they are compiled again.
func (p *places) settlePlaces(b *batch, moved map[netip.Addr]bool) {
	p.noteVirtual(moved)
	for addr := range moved {
		there := p.claims.by[addr]
		before, several := p.occupants.first[addr]
		now := there.one
		if len(there.more) == 0 {
			delete(p.occupants.first, addr)
			if !several {
				continue // one object had it all the time
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

// retellOutside marks the pods outside of their nodes' ranges, so that they are compiled again. It adds their addresses, and those that
// several objects name, to the moved ones. It is called when honoured or ranged has changed. The pods are one in five at most, either
// before the change or after it.
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

// noteVirtual records the addresses of pods and nodes that lie in the ranges of virtual addresses.
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

// settleVirtual marks the pods and nodes at an address in the ranges of virtual addresses, if a service got that address or gave it back.
// It runs after the services. It marks only the pods whose address changed its owner, since a kubelet can claim such addresses for
// many pods.
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

// place marks a pod to be compiled again, or a node to be told again.
func (b *batch) place(key model.Key) {
	switch key.Kind {
	case "Pod":
		b.workload(key)
	case "Node":
		b.mark(nodeOutput, key)
	}
}
