package compile

import (
	"slices"

	securityv1 "istio.io/client-go/pkg/apis/security/v1"

	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/resourcekind"
	"lateen.dev/lateen/internal/resourcelog"
	"lateen.dev/lateen/internal/translate"
)

// peerScopes holds which PeerAuthentication counts for the mesh and for each namespace.
type peerScopes struct {
	mesh       *securityv1.PeerAuthentication
	namespaces map[string]*securityv1.PeerAuthentication
	// standIns hold beside those.
	standIns strictFallbacks
	// converted are the names of the policies that exist because of PeerAuthentications.
	converted map[string]bool
	// names are those by which workloads name them, where these differ from the ones that translation gives.
	names map[string]string
}

func newPeerScopes() peerScopes {
	return peerScopes{namespaces: map[string]*securityv1.PeerAuthentication{}, standIns: newStrictFallbacks(), converted: map[string]bool{}, names: map[string]string{}}
}

// inherited is the mode of a namespace's workloads that no PeerAuthentication selects.
func (p *peerScopes) inherited(namespace string) translate.Mode {
	strictest := translate.Permissive
	for _, mesh := range beside(p.mesh, p.standIns.mesh) {
		for _, own := range beside(p.namespaces[namespace], p.standIns.namespaces[namespace]) {
			strictest = max(strictest, translate.Inherited(mesh, own))
		}
	}
	return strictest
}

// peerCompiler compiles PeerAuthentications, and records which of them counts for each workload.
type peerCompiler struct {
	*facts
	out       *publisher
	policies  *policyCompiler
	scopes    peerScopes
	ownership ownership
}

func newPeerCompiler(f *facts, out *publisher, policies *policyCompiler) *peerCompiler {
	return &peerCompiler{facts: f, out: out, policies: policies, scopes: newPeerScopes(), ownership: newOwnership()}
}

// compile settles the scopes and the policies that PeerAuthentications become. There are few of these objects, so all are looked at.
func (c *peerCompiler) compile(b *batch) {
	scopes := map[string][]*securityv1.PeerAuthentication{}
	closing := map[string][]*securityv1.PeerAuthentication{}
	all := []*securityv1.PeerAuthentication{}
	for key, pa := range c.store.PeerAuthentications() {
		all = append(all, pa)
		switch {
		case translate.Selects(pa):
		case c.closes(pa):
			closing[key.Namespace] = append(closing[key.Namespace], pa)
		default:
			scopes[key.Namespace] = append(scopes[key.Namespace], pa)
		}
	}
	old := c.scopes
	c.scopes = newPeerScopes()
	for namespace, candidates := range scopes {
		winner, standIns := c.counting(candidates)
		if namespace == c.mesh.RootNamespace {
			c.scopes.mesh, c.scopes.standIns.mesh = winner, standIns
		} else {
			c.scopes.namespaces[namespace], c.scopes.standIns.namespaces[namespace] = winner, standIns
		}
	}
	for namespace, candidates := range closing {
		c.scopes.standIns.closing[namespace] = translate.Oldest(candidates)
	}
	for _, pa := range all {
		c.compilePeerAuthentication(b, pa)
	}
	if len(all) > 0 {
		strict := translate.StaticStrict(c.mesh)
		name := strict.Namespace + "/" + strict.Name
		c.scopes.converted[name] = true
		sources := make([]model.Key, len(all))
		for i, pa := range all {
			sources[i] = peerKey(pa)
		}
		slices.SortFunc(sources, model.Key.Compare)
		c.out.emit(b, resourcekind.Authorization, name, nil, nil, strict, sources...)
	}
	for name := range old.converted {
		if !c.scopes.converted[name] {
			b.changes = append(b.changes, resourcelog.Change{Type: resourcekind.Authorization, Name: name})
		}
	}
}

func (c *peerCompiler) compilePeerAuthentication(b *batch, pa *securityv1.PeerAuthentication) {
	if policy := translate.PeerAuthentication(pa, c.scopes.inherited(pa.Namespace)); policy != nil {
		own := policy.Namespace + "/" + policy.Name
		name := c.policies.publishPolicy(b, peerKey(pa), policy, true, pa.Spec.Selector.GetMatchLabels())
		c.scopes.converted[name] = true
		c.scopes.names[own] = name
	}
}
