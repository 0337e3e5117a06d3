package compile

import (
	"net/netip"
	"slices"

	securityv1 "istio.io/client-go/pkg/apis/security/v1"
	corev1 "k8s.io/api/core/v1"

	"lateen.dev/lateen/internal/gen/workload"
	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/translate"
)

// facts reads from the store what one source object says of itself: its hosts, its addresses, and its standing against others.
type facts struct {
	mesh  translate.Mesh
	store *model.Store
}

// declares lists the hosts that an object declares now.
func (f *facts) declares(key model.Key) []string {
	if svc, ok := f.store.Service(key); ok && svc.Spec.Type != corev1.ServiceTypeExternalName {
		if _, published := translate.ServiceVisibility(svc); !published {
			return nil // what nobody sees speaks for nothing
		}
		return []string{f.mesh.ServiceHost(svc.Namespace, svc.Name)}
	}
	if se, ok := f.store.ServiceEntry(key); ok {
		if _, published := translate.EntryVisibility(se); published {
			return translate.EntryHosts(se)
		}
	}
	return nil
}

func (f *facts) claim(key model.Key) claim {
	if svc, ok := f.store.Service(key); ok {
		return claim{key: key, created: svc.CreationTimestamp.Time, published: true, public: true}
	}
	if se, ok := f.store.ServiceEntry(key); ok {
		visibility, published := translate.EntryVisibility(se)
		return claim{key: key, created: se.CreationTimestamp.Time, published: published, public: visibility == workload.Service_PUBLIC}
	}
	if pod, ok := f.store.Pod(key); ok {
		return claim{key: key, created: pod.CreationTimestamp.Time, stake: f.stake(pod)}
	}
	if node, ok := f.store.Node(key.Name); ok && key.Kind == "Node" {
		return claim{key: key, created: node.CreationTimestamp.Time}
	}
	return claim{key: key}
}

func (f *facts) stake(pod *corev1.Pod) stake {
	node, _ := f.store.Node(pod.Spec.NodeName)
	s := stake{leaving: translate.Leaving(pod, node), captured: translate.Captured(pod), static: model.Static(pod), fit: translate.PodFit(pod, node)}
	s.counts = !s.static && !pod.Spec.HostNetwork && len(translate.OwnAddresses(pod)) > 0
	return s
}

// machine is the node that an object is, or on whose network a pod is; empty for any other object.
func (f *facts) machine(key model.Key) string {
	if key.Kind == "Node" {
		return key.Name
	}
	if pod, ok := f.store.Pod(key); ok && pod.Spec.HostNetwork {
		return pod.Spec.NodeName
	}
	return ""
}

func (f *facts) order(key model.Key) int {
	switch {
	case key.Kind == "Service":
		return ofService
	case key.Kind == "Node":
		return ofNode
	case f.machine(key) != "":
		return ofHostPod
	}
	return ofPod
}

// endpointAddresses lists the single addresses at which a WorkloadEntry or the endpoints of a ServiceEntry are said to be.
func (f *facts) endpointAddresses(key model.Key) (out []netip.Addr) {
	add := func(text string) {
		if addr, err := netip.ParseAddr(text); err == nil && !slices.Contains(out, addr.Unmap()) {
			out = append(out, addr.Unmap())
		}
	}
	if we, ok := f.store.WorkloadEntry(key); ok {
		add(we.Spec.Address)
	} else if se, ok := f.store.ServiceEntry(key); ok {
		for _, e := range se.Spec.Endpoints {
			add(e.GetAddress())
		}
	}
	return out
}

// namedAddresses lists the single addresses that an object names, each once.
func (f *facts) namedAddresses(key model.Key) []netip.Addr {
	if pod, ok := f.store.Pod(key); ok {
		return translate.OwnAddresses(pod)
	}
	if node, ok := f.store.Node(key.Name); ok && key.Kind == "Node" {
		return translate.NodeAddresses(node)
	}
	var texts []string
	if svc, ok := f.store.Service(key); ok && svc.Spec.Type != corev1.ServiceTypeExternalName {
		texts = translate.ClusterIPs(svc)
	} else if se, ok := f.store.ServiceEntry(key); ok {
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

// namedRanges lists the ranges that a ServiceEntry names, each once.
func (f *facts) namedRanges(key model.Key) (out []netip.Prefix) {
	se, ok := f.store.ServiceEntry(key)
	if !ok {
		return nil
	}
	for _, text := range se.Spec.Addresses {
		if block, ok := translate.ParseBlock(text); ok && !block.IsSingleIP() && !slices.Contains(out, block) {
			out = append(out, block)
		}
	}
	return out
}

// site lists the blocks that are a node's and its pods', and the addresses of a pod on its node's network.
func (f *facts) site(key model.Key) (out []netip.Prefix) {
	add := func(block netip.Prefix) {
		if !slices.Contains(out, block) {
			out = append(out, block)
		}
	}
	var addresses []netip.Addr
	if node, ok := f.store.Node(key.Name); ok && key.Kind == "Node" {
		addresses = translate.NodeAddresses(node)
		for _, block := range translate.PodRanges(node) {
			add(block)
		}
	} else if pod, ok := f.store.Pod(key); ok && pod.Spec.HostNetwork {
		addresses = translate.OwnAddresses(pod)
	}
	for _, addr := range addresses {
		add(netip.PrefixFrom(addr, addr.BitLen()))
	}
	return out
}

func (f *facts) standsIn(pa *securityv1.PeerAuthentication) bool {
	e, ok := f.store.Entry(peerKey(pa))
	return ok && e.Object.Refused != ""
}

// closes says whether one stands in for one that selected workloads, and nobody can tell which.
func (f *facts) closes(pa *securityv1.PeerAuthentication) bool {
	return pa.Spec.Selector != nil && !translate.Selects(pa) && f.standsIn(pa)
}

// counting picks of a scope's PeerAuthentications the one that counts, nil if none does, and those that stand in beside it, oldest first: all
// that came before it. One that came later counted for nothing in its earlier versions either.
func (f *facts) counting(candidates []*securityv1.PeerAuthentication) (counts *securityv1.PeerAuthentication, standIns []*securityv1.PeerAuthentication) {
	for left := slices.Clone(candidates); len(left) > 0; {
		first := translate.Oldest(left)
		if !f.standsIn(first) {
			return first, standIns
		}
		standIns = append(standIns, first)
		left = slices.DeleteFunc(left, func(pa *securityv1.PeerAuthentication) bool { return pa == first })
	}
	return nil, standIns
}
