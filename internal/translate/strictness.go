package translate

import (
	"strings"

	securityv1 "istio.io/client-go/pkg/apis/security/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Strictness is the object that makes a workload refuse plaintext on a port.
type Strictness struct {
	PeerAuthentication *securityv1.PeerAuthentication
	OnPort             bool // its portLevelMtls says so, and not its mtls
}

// FindStrictness finds among all PeerAuthentications the one that is STRICT for a port of a workload with these labels. It returns
// false if none is. Like the control plane it asks, in this order: the oldest one that selects the workload, first for its port and then
// for all ports; the oldest one for the namespace; the oldest one for the mesh. Objects must be those that the control plane accepted.
func FindStrictness(all []*securityv1.PeerAuthentication, rootNamespace, namespace string, workload map[string]string, port uint32) (Strictness, bool) {
	oldest := func(counts func(*securityv1.PeerAuthentication) bool) *securityv1.PeerAuthentication {
		var candidates []*securityv1.PeerAuthentication
		for _, pa := range all {
			if counts(pa) {
				candidates = append(candidates, pa)
			}
		}
		return Oldest(candidates)
	}
	selecting := oldest(func(pa *securityv1.PeerAuthentication) bool {
		return pa.Namespace == namespace && Selects(pa) && labels.SelectorFromSet(pa.Spec.Selector.MatchLabels).Matches(labels.Set(workload))
	})
	if selecting != nil {
		if m := mode(selecting.Spec.PortLevelMtls[port]); m != Unset {
			return Strictness{selecting, true}, m == Strict
		}
	}
	wide := func(namespace string) *securityv1.PeerAuthentication {
		return oldest(func(pa *securityv1.PeerAuthentication) bool { return pa.Namespace == namespace && !Selects(pa) })
	}
	for _, pa := range []*securityv1.PeerAuthentication{selecting, wide(namespace), wide(rootNamespace)} {
		if pa == nil {
			continue
		}
		if m := mode(pa.Spec.Mtls); m != Unset {
			return Strictness{pa, false}, m == Strict
		}
	}
	return Strictness{}, false
}

// FromPeerAuthentication says whether a node proxy's policy of this name, without its namespace, stands for PeerAuthentications. own is the
// name of the one that it is made of; it is empty where the policy stands for any number of them.
func FromPeerAuthentication(policy string) (own string, is bool) {
	if policy == staticStrictName {
		return "", true
	}
	return strings.CutPrefix(policy, convertedNamePrefix)
}
