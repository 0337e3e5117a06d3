package compile

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"

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

func (c *Compiler) stake(pod *corev1.Pod) stake {
	node, _ := c.store.Node(pod.Spec.NodeName)
	s := stake{leaving: translate.Leaving(pod, node), captured: translate.Captured(pod), static: model.Static(pod), fit: translate.PodFit(pod, node)}
	s.counts = !s.static && !pod.Spec.HostNetwork && len(translate.OwnAddresses(pod)) > 0
	return s
}

// machine is the node that an object is, or on whose network a pod is; empty for any other object.
func (c *Compiler) machine(key model.Key) string {
	if key.Kind == "Node" {
		return key.Name
	}
	if pod, ok := c.store.Pod(key); ok && pod.Spec.HostNetwork {
		return pod.Spec.NodeName
	}
	return ""
}

// better chooses one of two objects that name an address. The kinds come one after the other: Services, pods with a network of their
// own, nodes, and pods on a node's network, which vouch for a node that does not say that it has the address.
func (c *Compiler) better(x, y model.Key) bool {
	a, b := c.claims.right[x], c.claims.right[y]
	if p, q := c.order(x), c.order(y); p != q {
		return p < q
	}
	if x.Kind == "Pod" {
		if m, n := c.doubt(a.stake), c.doubt(b.stake); m != n {
			return m < n
		}
	}
	return a.before(b)
}

// doubt is how little speaks for a pod among those that name an address. What weighs most comes first: a range, where it is usual to be in it, since
// no successor has an address of another node's; that a static pod is its kubelet's own; that a pod may have lost the address already; and a
// range, where that is another thing than the kubelet's word.
func (c *Compiler) doubt(s stake) (n int) {
	for _, against := range []bool{
		s.fit == translate.FitOutside && c.occupants.honoured(),
		s.static,
		s.leaving,
		s.fit == translate.FitOutside || s.fit == translate.FitUnknown && c.occupants.ranged(),
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

func (c *Compiler) order(key model.Key) int {
	switch {
	case key.Kind == "Service":
		return ofService
	case key.Kind == "Node":
		return ofNode
	case c.machine(key) != "":
		return ofHostPod
	}
	return ofPod
}

// ofSeveral is who has an address that several name: a Service before all others. Of a pod and a node, the pod has it if its node gives
// pods such addresses, and if connections to it go through a tunnel, unless pods have other addresses in this cluster. So a node's claim
// takes no pod out of its tunnel, and a pod's takes no node's address where that can be told.
func (c *Compiler) ofSeveral(there keys) (first model.Key) {
	var best [kinds]model.Key
	for key := range there.all {
		c.looked++
		kind := c.order(key)
		if (best[kind] == model.Key{}) || c.better(key, best[kind]) {
			best[kind] = key
		}
	}
	if (best[ofNode] == model.Key{}) {
		best[ofNode] = best[ofHostPod]
	}
	none, pod := model.Key{}, c.claims.right[best[ofPod]].stake
	switch {
	case best[ofService] != none:
		return best[ofService]
	case best[ofNode] == none:
		return best[ofPod]
	case best[ofPod] == none:
		return best[ofNode]
	case pod.fit == translate.FitInside && c.occupants.ranged(), pod.captured && !(pod.fit == translate.FitOutside && c.occupants.honoured()):
		return best[ofPod]
	}
	return best[ofNode]
}

// owner is who has an address with more right than a pod or node that names it; not ok if nobody has. Pods on a node's network share its addresses, and so
// does a pod that is its node, as where each pod has a machine of its own.
func (c *Compiler) owner(key model.Key, addr netip.Addr) (owner model.Key, ok bool) {
	if owner, ok = c.chosenFor(addr); ok {
		return owner, true
	}
	owner, ok = c.first(addr)
	if machine := c.machine(key); !ok || owner == key || machine != "" && machine == c.machine(owner) || c.isItsNode(key, owner) {
		return key, false
	}
	return owner, true
}

// isItsNode says whether a pod is at the address of the very node that it runs on, in a cluster where nothing speaks against that.
func (c *Compiler) isItsNode(key, owner model.Key) bool {
	pod, ok := c.store.Pod(key)
	return ok && owner == model.NodeKey(pod.Spec.NodeName) && !(c.claims.right[key].stake.fit == translate.FitOutside && c.occupants.honoured())
}

// ownerFor names who has an address with more right than a pod that names it; empty if nobody has.
func (c *Compiler) ownerFor(key model.Key) func(netip.Addr) string {
	return func(addr netip.Addr) string {
		if owner, other := c.owner(key, addr); other {
			return owner.String()
		}
		return ""
	}
}

// settlePlaces finds whose the addresses are now that somebody came to or left, and has those compiled again that gain or lose by it.
func (c *Compiler) settlePlaces(b *batch, moved map[netip.Addr]bool) {
	c.noteVirtual(moved)
	for addr := range moved {
		there := c.claims.by[addr]
		before, several := c.occupants.first[addr]
		now := there.one
		if len(there.more) == 0 {
			delete(c.occupants.first, addr)
			if !several {
				continue // it was one object's all the time
			}
		} else if now, _ = c.first(addr); several && now == before {
			continue
		} else {
			c.occupants.first[addr] = now
		}
		for key := range there.all {
			b.place(key)
		}
	}
}

// retellOutside has the pods outside of their nodes' ranges compiled again, and their addresses and those that several name settled, when what these
// ranges mean in the cluster is another thing than before. They are one in five pods at most, before or after.
func (c *Compiler) retellOutside(b *batch, moved map[netip.Addr]bool) {
	for key := range c.occupants.outside {
		b.workload(key)
		for _, addr := range c.claims.named[key] {
			moved[addr] = true
		}
	}
	for addr := range c.occupants.first {
		moved[addr] = true
	}
}

// noteVirtual keeps the addresses that pods and nodes name in the ranges from which virtual ones are chosen.
func (c *Compiler) noteVirtual(moved map[netip.Addr]bool) {
	for addr := range moved {
		if !autoPrefix4.Contains(addr) && !autoPrefix6.Contains(addr) {
			continue
		}
		if delete(c.occupants.virtual, addr); !c.claims.by[addr].empty() {
			c.occupants.virtual[addr] = model.Key{}
		}
	}
}

// settleVirtual has pods compiled again that name addresses of the ranges from which virtual ones are chosen: after services, since any of them
// may have got or given back such an address. Those alone of which that is so: a kubelet may say of many pods that they are there.
func (c *Compiler) settleVirtual(b *batch) {
	for addr, before := range c.occupants.virtual {
		owner, _ := c.chosenFor(addr)
		if owner == before {
			continue
		}
		c.occupants.virtual[addr] = owner
		for key := range c.claims.by[addr].all {
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

// tellNode says which addresses of a node are somebody else's.
func (c *Compiler) tellNode(b *batch, key model.Key) {
	n, ok := c.store.Node(key.Name)
	if !ok {
		c.misplaced.note(key, nil)
		return
	}
	conditions := translate.Node(n, func(addr netip.Addr) string {
		owner, other := c.owner(key, addr)
		if pod, ok := c.store.Pod(owner); !other || ok && pod.Spec.NodeName == key.Name {
			return "" // some clouds list the addresses of its pods as the node's
		}
		return owner.String()
	})
	c.misplaced.note(key, conditions)
	c.conditions(b, key, conditions)
}
