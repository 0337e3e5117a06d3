package translate

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/model/wellknown"
)

// ConflictedReason is the reason of the condition that an address belongs to another object.
const ConflictedReason = "Conflicted"

// OutsideReason is the reason of the remark that a pod's address is outside of its node's ranges.
const OutsideReason = "OutsidePodCIDRs"

// Fit says how a pod's addresses relate to the ranges that its node gives to pods (spec.podCIDRs).
type Fit byte

const (
	// FitUnknown is the fit of a pod on its node's network, of one without an address, and of one whose node has no range of a family.
	FitUnknown Fit = iota
	// FitInside is the fit of a pod whose addresses are all in its node's ranges.
	FitInside
	// FitOutside is the fit of a pod with an address outside, although its node has a range of that family.
	FitOutside
)

// PodFit compares a pod's addresses with its node's ranges. The ranges of a node do not change once they are set. Where the cluster sets
// them, they do not depend on the kubelet, unlike the status of its pods. Where the cluster does not, the kubelet can set them. node is
// nil if it is unknown.
func PodFit(pod *corev1.Pod, node *corev1.Node) Fit {
	if pod.Spec.HostNetwork || node == nil {
		return FitUnknown
	}
	addresses := OwnAddresses(pod)
	if len(addresses) == 0 {
		return FitUnknown
	}
	fit := FitInside
	for _, addr := range addresses {
		known, inside := inRanges(addr, node)
		switch {
		case known && !inside:
			return FitOutside
		case !known:
			fit = FitUnknown
		}
	}
	return fit
}

func isOutside(addr netip.Addr, node *corev1.Node) bool {
	known, inside := inRanges(addr, node)
	return known && !inside
}

// inRanges says whether a node has a range of an address's family, and whether the address is in one.
func inRanges(addr netip.Addr, node *corev1.Node) (known, inside bool) {
	for _, block := range PodRanges(node) {
		if block.Addr().BitLen() == addr.BitLen() {
			known = true
			inside = inside || block.Contains(addr)
		}
	}
	return known, inside
}

// The shortest prefixes that are accepted as a node's ranges for pods. Where the cluster does not set a node's ranges, the kubelet can set
// them once, and the API server accepts 0.0.0.0/0.
const (
	widest4 = 16
	widest6 = 48
)

// PodRanges are the ranges that a node gives to pods.
func PodRanges(node *corev1.Node) (out []netip.Prefix) {
	for _, text := range podCIDRs(node) {
		block, ok := ParseBlock(text)
		if ok && (block.Addr().Is4() && block.Bits() >= widest4 || block.Addr().Is6() && block.Bits() >= widest6) {
			out = append(out, block)
		}
	}
	return out
}

func podCIDRs(node *corev1.Node) []string {
	if len(node.Spec.PodCIDRs) == 0 && node.Spec.PodCIDR != "" {
		return []string{node.Spec.PodCIDR}
	}
	return node.Spec.PodCIDRs
}

// Captured says whether connections to a pod go through a tunnel, by the pod's label and annotation.
func Captured(pod *corev1.Pod) bool {
	return slices.Contains(strings.Split(pod.Labels[wellknown.Tunnel], ","), "http") || pod.Annotations[wellknown.Redirection] == "enabled"
}

// Leaving says whether a pod may have lost its addresses to a successor. It may if it is being deleted, or if its node is gone or silent. A
// pod that has ended has no addresses in any case. node is nil if there is none.
func Leaving(pod *corev1.Pod, node *corev1.Node) bool {
	if pod.DeletionTimestamp != nil || node == nil {
		return true
	}
	// Only the cluster's node controller says Unknown, of a node whose kubelet is silent.
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionUnknown
	})
}

// ownAddresses returns a pod's addresses without those that belong to another object. It notes those, and the addresses outside of the
// node's ranges.
func (in WorkloadInput) ownAddresses(pod *corev1.Pod, addresses [][]byte, v *verdict) (own [][]byte) {
	for _, raw := range addresses {
		addr, _ := netip.AddrFromSlice(raw)
		holder := ""
		if in.Holder != nil {
			holder = in.Holder(addr)
		}
		if holder != "" {
			v.note(ConflictedReason, fmt.Sprintf("status.podIPs: address %s of Pod %s/%s belongs to %s and stays with it, so no proxy is told that the pod is there; find out who gave it that address (the network plugin, or the kubelet of node %s), then delete the pod",
				addr, pod.Namespace, pod.Name, holder, pod.Spec.NodeName))
			continue
		}
		if in.PodCIDRs && PodFit(pod, in.Node) == FitOutside && isOutside(addr, in.Node) {
			v.note(OutsideReason, fmt.Sprintf("status.podIPs: address %s of Pod %s/%s is outside of the ranges that node %s gives to pods (spec.podCIDRs: %s), as hardly any pod's is in this cluster; make sure that the network plugin gave it that address",
				addr, pod.Namespace, pod.Name, pod.Spec.NodeName, strings.Join(podCIDRs(in.Node), ", ")))
		}
		own = append(own, raw)
	}
	return own
}

// Node returns the conditions of a node, which name its addresses that belong to another object. holder returns the name of that object;
// it is empty if there is none.
func Node(node *corev1.Node, holder func(netip.Addr) string) []model.Condition {
	v := newVerdict()
	for _, addr := range NodeAddresses(node) {
		if owner := holder(addr); owner != "" {
			v.note(ConflictedReason, fmt.Sprintf("status.addresses: address %s of Node %s belongs to %s and stays with it; find out why the kubelet or the cloud provider says that the node has it",
				addr, node.Name, owner))
		}
	}
	return v.conditions()
}
