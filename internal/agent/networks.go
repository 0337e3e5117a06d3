package agent

import (
	"errors"
	"fmt"
	"sync"

	"lateen.dev/lateen/internal/agent/netns"
	"lateen.dev/lateen/internal/agent/source"
)

// networks are the network namespaces that the agent's pods hold. None is held by two pods, and the node's own by none:
// whoever is told of a pod can be told wrongly, and rules in a network that is not the pod's are somebody else's outage.
type networks struct {
	open  func(path string) (*netns.Namespace, error)
	never map[netns.ID]bool

	mu   sync.Mutex
	held map[netns.ID]string // by uid
}

func newNetworks(never map[netns.ID]bool) *networks {
	return &networks{open: netns.Open, never: never, held: map[netns.ID]string{}}
}

// ownNetworks are the agent's own, which is the node's, and that of the machine's first process.
func ownNetworks() map[netns.ID]bool {
	own := map[netns.ID]bool{}
	for _, path := range []string{"/proc/thread-self/ns/net", "/proc/1/ns/net"} {
		if id, err := netns.Identify(path); err == nil {
			own[id] = true
		}
	}
	return own
}

// take notes that the pod holds a namespace.
func (n *networks) take(id netns.ID, uid string) error {
	if n.never[id] {
		return errors.New("what is said to be the pod's network is the node's own")
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if other, taken := n.held[id]; taken && other != uid {
		return errors.New("what is said to be the pod's network is another pod's")
	}
	n.held[id] = uid
	return nil
}

func (n *networks) leave(id netns.ID, uid string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.held[id] == uid {
		delete(n.held, id)
	}
}

// enter opens the pod's network namespace and holds it.
func (n *networks) enter(p *pod) error {
	ns, err := n.reach(p.Pod)
	if err != nil {
		return err
	}
	if err := n.take(ns.ID(), p.UID); err != nil {
		return errors.Join(fmt.Errorf("%w: %s", err, p.NetNS), ns.Close())
	}
	p.ns = ns
	return nil
}

// reach opens the network namespace that a pod is said to have.
func (n *networks) reach(object source.Pod) (*netns.Namespace, error) {
	if object.Held != nil {
		return object.Held.Clone()
	}
	ns, err := n.open(object.NetNS)
	if err != nil {
		return nil, err
	}
	if known := object.Network; known != (netns.ID{}) && ns.ID() != known {
		return nil, errors.Join(fmt.Errorf("%s leads to another network than the pod's; the pod may be gone", object.NetNS), ns.Close())
	}
	return ns, nil
}

// abandon lets go of the pod's network namespace.
func (n *networks) abandon(p *pod) {
	if p.ns != nil {
		n.leave(p.ns.ID(), p.UID)
		p.ns.Close()
		p.ns = nil
	}
}

// moved says whether the pod has been given another network namespace than the one that is held.
func (n *networks) moved(p *pod, object source.Pod) bool {
	if p.ns == nil || object.NetNS == "" {
		return false
	}
	if object.Network != (netns.ID{}) {
		// The source knows which it is, wherever the path leads by now.
		return object.Network != p.ns.ID()
	}
	if id, err := netns.Identify(object.NetNS); err != nil || id == p.ns.ID() {
		return false
	}
	// Two different namespaces mean a new network, unless the path was only unmounted: then the held one is still the pod's.
	other, err := n.open(object.NetNS)
	if err != nil {
		return false
	}
	defer other.Close()
	return other.ID() != p.ns.ID() && !n.never[other.ID()]
}

// disputed are the paths and networks that more than one pod is said to have.
type disputed struct {
	paths    map[string]int
	networks map[netns.ID]int
}

func disputes(pods []source.Pod) disputed {
	d := disputed{map[string]int{}, map[netns.ID]int{}}
	for _, p := range pods {
		if p.NetNS == "" || p.HostNetwork || p.Ended {
			continue
		}
		d.paths[p.NetNS]++
		if p.Network != (netns.ID{}) {
			d.networks[p.Network]++
		}
	}
	return d
}

// settle takes the network from a pod that is not the only one to have it. A pod that holds it already keeps it.
func (d disputed) settle(object *source.Pod) {
	if d.paths[object.NetNS] < 2 && d.networks[object.Network] < 2 {
		return
	}
	object.NetNS, object.Network, object.Held = "", netns.ID{}, nil
	object.Lost = "the network that is said to be the pod's is said to be another pod's as well"
}
