package compile

import (
	"maps"
	"slices"
	"strings"

	securityv1 "istio.io/client-go/pkg/apis/security/v1"

	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/translate"
)

// ownership records which PeerAuthentication is in force for each workload. Exactly one is, however many select the workload.
type ownership struct {
	standing map[model.Key]*standing
	// selecting lists, for each workload, the PeerAuthentications that select it.
	selecting map[model.Key][]model.Key
	// hostPods are the pods on their nodes' networks, by namespace. No PeerAuthentication applies to them.
	hostPods map[string]map[model.Key]bool
}

// standing counts the workloads of one PeerAuthentication, and names those for which it is not in force or not alone.
type standing struct {
	chosen int                     // number of workloads that it selects
	lost   map[model.Key]model.Key // workloads for which another PeerAuthentication is in force, and that one's key
	host   map[model.Key]bool      // workloads on their node's network
	// closed maps a workload to a stand-in. This PeerAuthentication is in force there, but the stand-in came first and refuses some
	// clients that this one admits.
	closed map[model.Key]model.Key
}

func newOwnership() ownership {
	return ownership{standing: map[model.Key]*standing{}, selecting: map[model.Key][]model.Key{}, hostPods: map[string]map[model.Key]bool{}}
}

func peerKey(pa *securityv1.PeerAuthentication) model.Key {
	return model.Key{Group: model.SecurityGroup, Kind: "PeerAuthentication", Namespace: pa.Namespace, Name: pa.Name}
}

// settleOwner records which PeerAuthentications select a workload; a workload that is gone has none. It marks the former and the present
// ones, so that they get new conditions.
func (c *peerCompiler) settleOwner(b *batch, workload model.Key, selecting []*securityv1.PeerAuthentication) {
	for _, key := range c.ownership.selecting[workload] {
		b.mark(verdictOutput, key)
		s := c.ownership.standing[key]
		s.chosen--
		delete(s.lost, workload)
		delete(s.host, workload)
		delete(s.closed, workload)
		if s.chosen == 0 {
			delete(c.ownership.standing, key)
		}
	}
	delete(c.ownership.selecting, workload)
	winner, standIns := c.counting(selecting)
	closer := closer(winner, standIns, c.scopes.inherited(workload.Namespace))
	if winner == nil && len(standIns) > 0 {
		winner = standIns[0]
	}
	onHost := c.noteHostPod(b, workload)
	for _, pa := range selecting {
		key := peerKey(pa)
		b.mark(verdictOutput, key)
		s := c.ownership.standing[key]
		if s == nil {
			s = &standing{lost: map[model.Key]model.Key{}, host: map[model.Key]bool{}, closed: map[model.Key]model.Key{}}
			c.ownership.standing[key] = s
		}
		s.chosen++
		if onHost {
			s.host[workload] = true
		}
		switch {
		case pa != winner:
			s.lost[workload] = peerKey(winner)
		case closer != nil && !c.standsIn(pa):
			s.closed[workload] = peerKey(closer)
		}
		c.ownership.selecting[workload] = append(c.ownership.selecting[workload], key)
	}
}

// noteHostPod records whether a workload is a pod on its node's network, and returns it. If that changes, the PeerAuthentication of the
// pod's namespace is marked for new conditions.
func (c *peerCompiler) noteHostPod(b *batch, workload model.Key) bool {
	is := false
	if workload.Kind == "Pod" {
		pod, ok := c.store.Pod(workload)
		is = ok && pod.Spec.HostNetwork
	}
	pods := c.ownership.hostPods[workload.Namespace]
	if pods[workload] == is {
		return is
	}
	if pa := c.scopes.namespaces[workload.Namespace]; pa != nil {
		b.mark(verdictOutput, peerKey(pa))
	}
	switch {
	case !is:
		delete(pods, workload)
	case pods == nil:
		c.ownership.hostPods[workload.Namespace] = map[model.Key]bool{workload: true}
	default:
		pods[workload] = true
	}
	return is
}

func podNames(pods map[model.Key]bool) (names []string) {
	for key := range pods {
		names = append(names, key.Namespace+"/"+key.Name)
	}
	slices.Sort(names)
	return names
}

// by lists the names of the objects in a map's values, sorted.
func by(which map[model.Key]model.Key) string {
	names := map[string]bool{}
	for _, key := range which {
		names[key.Namespace+"/"+key.Name] = true
	}
	return strings.Join(slices.Sorted(maps.Keys(names)), ", ")
}

// tell writes the conditions of the PeerAuthentications that changed. It runs after the owners of all workloads are settled.
func (c *peerCompiler) tell(b *batch) {
	for key, pa := range c.store.PeerAuthentications() {
		if len(b.stale[peerOutput]) == 0 && !b.stale[verdictOutput][key] {
			continue
		}
		var winner *securityv1.PeerAuthentication
		var standIns []*securityv1.PeerAuthentication
		inherited := translate.Permissive
		switch {
		case translate.Selects(pa):
		case pa.Namespace == c.mesh.RootNamespace:
			winner, standIns = c.scopes.mesh, c.scopes.standIns.mesh
		default:
			winner, standIns = c.scopes.namespaces[pa.Namespace], c.scopes.standIns.namespaces[pa.Namespace]
			inherited = translate.Inherited(c.scopes.mesh, nil)
		}
		conditions := translate.PeerAuthenticationConditions(pa, winner)
		if s := c.ownership.standing[key]; s != nil {
			conditions = translate.Overruled(conditions, by(s.lost), len(s.lost), s.chosen)
			conditions = translate.Uncaptured(pa, conditions, podNames(s.host), s.chosen)
			if len(s.closed) > 0 {
				conditions = translate.Closed(pa, conditions, by(s.closed), len(s.closed), s.chosen)
			}
		}
		if closer := closer(winner, standIns, inherited); closer != nil {
			conditions = translate.Closed(pa, conditions, closer.Namespace+"/"+closer.Name, 0, 0)
		}
		// A policy for the whole mesh is not told of its pods on nodes' networks: every cluster has some in its system namespaces.
		if !translate.Selects(pa) && pa.Namespace != c.mesh.RootNamespace {
			conditions = translate.Uncaptured(pa, conditions, podNames(c.ownership.hostPods[pa.Namespace]), 0)
		}
		if closing := c.scopes.standIns.closing[pa.Namespace]; closing != nil {
			conditions = translate.Shut(pa, conditions, closing)
		}
		c.out.conditions(b, key, conditions)
	}
}
