package local

import (
	"slices"
	"strings"
	"sync"

	"lateen.dev/lateen/internal/engine/api"
	"lateen.dev/lateen/internal/model"
)

// state is what the engine knows about the mesh: its objects, nodes and pods. The parts of the engine share it. mu guards the fields
// below it, and what changes of the nodes, pods and containers.
type state struct {
	nodes  nodeList      // never changed
	wakeup chan struct{} // something is in it when reconcile is to run soon

	mu         sync.Mutex
	store      *store
	pods       []*pod
	stopping   bool
	complaints map[model.Key]string    // why the pods of an object cannot be made, or a Gateway is not deployed
	made       map[model.Key]model.Key // objects that were made for a Gateway, and that Gateway
	steered    chan struct{}           // closed, and made anew, when the objects have their pods
	told       chan struct{}           // closed once control plane, resolver and kernel have been told of what is now
}

func newState(nodes nodeList, objects *store) *state {
	return &state{nodes: nodes, store: objects, wakeup: make(chan struct{}, 1), complaints: map[model.Key]string{}, made: map[model.Key]model.Key{},
		steered: make(chan struct{}), told: make(chan struct{})}
}

// update changes state under the lock and has the world told about it.
func (s *state) update(change func()) {
	s.mu.Lock()
	change()
	s.mu.Unlock()
	s.kick()
}

// kick has reconcile run soon.
func (s *state) kick() {
	select {
	case s.wakeup <- struct{}{}:
	default:
	}
}

// enrolled says whether a pod is in the mesh. The lock must be held.
func (s *state) enrolled(p *pod) bool {
	var labels map[string]string
	if ns := s.store.find(api.Key{Kind: "Namespace", Name: p.id.namespace}); ns != nil {
		labels = ns.labels()
	}
	return enrolled(p.id.spec.HostNetwork, p.labels, labels)
}

// podsOf are the pods that an object asked for. The lock must be held.
func (s *state) podsOf(k model.Key) []*pod {
	var pods []*pod
	for _, p := range s.pods {
		if p.id.owner == k {
			pods = append(pods, p)
		}
	}
	return pods
}

// ownerUID is the uid of the object that asked for a pod. The lock must be held.
func (s *state) ownerUID(p *pod) string {
	if o := s.store.objects[p.id.owner]; o != nil {
		return o.uid
	}
	return "gone"
}

// hostsPods says whether pods share the node's network.
func (s *state) hostsPods(n *node) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.pods {
		if p.id.node == n && p.id.spec.HostNetwork {
			return true
		}
	}
	return false
}

// unmade are the objects whose pods cannot be made, and the Gateways that are not deployed, and why.
func (s *state) unmade() []api.Problem {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []api.Problem
	for k, why := range s.complaints {
		if s.store.objects[k] != nil {
			out = append(out, complaint(k, why))
		}
	}
	slices.SortFunc(out, func(a, b api.Problem) int { return strings.Compare(a.Object, b.Object) })
	return out
}

// complaint is a problem of an object's author.
func complaint(k model.Key, why string) api.Problem {
	what := "its pods cannot be made: "
	if k.Kind == "Gateway" {
		what = "the waypoint is not deployed: "
	}
	return api.Problem{Object: k.String(), Message: what + why}
}

// accountUID is the uid of the proxies' service account.
func (s *state) accountUID() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.store.list("ServiceAccount") {
		if o.Key.Namespace == meshNamespace && o.Key.Name == proxyAccount {
			return o.uid
		}
	}
	return ""
}
