package compile

import (
	"slices"

	securityv1 "istio.io/client-go/pkg/apis/security/v1"

	"lateen.dev/lateen/internal/translate"
)

// strictFallbacks are PeerAuthentications that stand in for versions that are refused. They hold beside what would count without them, and whom
// any of these keeps out is kept out: a stand-in closes, and opens nothing.
type strictFallbacks struct {
	mesh       []*securityv1.PeerAuthentication
	namespaces map[string][]*securityv1.PeerAuthentication
	// closing are those of which the selector is lost, by namespace: every workload of it refuses plaintext, whatever else counts for it.
	closing map[string]*securityv1.PeerAuthentication
}

func newStrictFallbacks() strictFallbacks {
	return strictFallbacks{namespaces: map[string][]*securityv1.PeerAuthentication{}, closing: map[string]*securityv1.PeerAuthentication{}}
}

// beside are all that hold of a scope: what counts, nil if what is inherited does, and what stands in.
func beside(counts *securityv1.PeerAuthentication, standIns []*securityv1.PeerAuthentication) []*securityv1.PeerAuthentication {
	return append([]*securityv1.PeerAuthentication{counts}, standIns...)
}

// peerPolicies names the policies that PeerAuthentications give a workload which some of them select.
func (c *peerCompiler) peerPolicies(selecting []*securityv1.PeerAuthentication, namespace string) (names []string) {
	add := func(selecting *securityv1.PeerAuthentication, inherited translate.Mode) {
		for _, n := range translate.PeerAuthenticationPolicies(c.mesh, selecting, inherited) {
			if present, ok := c.scopes.names[n]; ok {
				n = present
			}
			if !slices.Contains(names, n) {
				names = append(names, n)
			}
		}
	}
	for _, pa := range beside(c.counting(selecting)) {
		add(pa, c.scopes.inherited(namespace))
	}
	if c.scopes.standIns.closing[namespace] != nil {
		add(nil, translate.Strict)
	}
	return names
}

// closer is the first of a scope's stand-ins that keeps out anybody whom what counts lets in; nil if none does. inherited is what holds where
// they say nothing.
func closer(counts *securityv1.PeerAuthentication, standIns []*securityv1.PeerAuthentication, inherited translate.Mode) *securityv1.PeerAuthentication {
	for _, pa := range standIns {
		if translate.Closes(pa, counts, inherited) {
			return pa
		}
	}
	return nil
}
