package agent

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"lateen.dev/lateen/internal/agent/diag"
	"lateen.dev/lateen/internal/agent/netns"
)

// Status is what the agent says of its node.
type Status struct {
	Node            string      `json:"node"`
	ProxyConnected  bool        `json:"proxyConnected"`
	EngineConnected bool        `json:"engineConnected"`
	Pods            []PodStatus `json:"pods"`
}

// PodStatus is what the agent says of one pod.
type PodStatus struct {
	UID       string    `json:"uid"`
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	State     State     `json:"state"`
	Reason    string    `json:"reason"`
	Since     time.Time `json:"since"`
	// UnmeshedConnections of a captured pod were opened before it was captured, and are still alive.
	UnmeshedConnections []UnmeshedConnection `json:"unmeshedConnections"`
	// Exceptions of a captured pod say what passes by the proxy, in words.
	Exceptions []string `json:"exceptions,omitempty"`
	// Refused are the annotations that ask for exceptions and have no effect, each with the reason.
	Refused []string `json:"refused,omitempty"`
}

// UnmeshedConnection is a connection that does not go through the proxy.
type UnmeshedConnection struct {
	Local        string         `json:"local"`
	Remote       string         `json:"remote"`
	Direction    diag.Direction `json:"direction"`
	OpenedBefore time.Time      `json:"openedBefore"`
}

// Status collects the state of all pods, ordered by namespace and name.
func (a *Agent) Status(ctx context.Context) (Status, error) {
	s := Status{Node: a.opts.Node, Pods: []PodStatus{}, EngineConnected: a.connected.Load()}
	var looks []look
	err := a.ask(ctx, func() {
		now := time.Now()
		s.ProxyConnected = a.zds.Connections() > 0
		for _, p := range a.pods {
			if p.state == Captured && len(p.unmeshed) > 0 && p.ns != nil {
				// The map is replaced, never changed, so it may be read outside the loop.
				looks = append(looks, look{index: len(s.Pods), ns: p.ns, cookies: p.unmeshed})
			}
			s.Pods = append(s.Pods, PodStatus{
				UID: p.UID, Namespace: p.Namespace, Name: p.Name, State: p.state, Reason: p.why(now), Since: p.since,
				UnmeshedConnections: []UnmeshedConnection{},
			})
			if p.state == Captured {
				last := &s.Pods[len(s.Pods)-1]
				last.Exceptions, last.Refused = p.settings.Exceptions(), p.refused
			}
		}
	})
	if err != nil {
		return Status{}, err
	}
	for index, found := range a.glances.list(ctx, looks, a.capturer.list) {
		p := &s.Pods[index]
		if p.UnmeshedConnections = found; found == nil {
			p.UnmeshedConnections = []UnmeshedConnection{}
			p.Reason = cmp.Or(p.Reason, "listing the pod's connections takes long; which were opened before it was captured is not known now")
		}
	}
	slices.SortFunc(s.Pods, func(a, b PodStatus) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
	})
	return s, nil
}

// look is a pod whose connections from before its capture are to be listed.
type look struct {
	index   int
	ns      *netns.Namespace
	cookies map[uint64]time.Time
}

const (
	// glanceTime is how long a status waits for what pods have in their networks, which takes as long as they like.
	glanceTime = 2 * time.Second
	// glancesAtOnce is how many of them are looked at at the same time.
	glancesAtOnce = 8
)

// glances are the networks that a status looks at, with the times since when.
type glances struct{ busy sync.Map }

// list lists the connections of pods, by their index; nil for a pod of which that is not done in time. A look that was not
// done in time goes on, and there is no second one beside it.
func (g *glances) list(
	ctx context.Context, looks []look, sockets func(*netns.Namespace) (diag.Listing, error),
) map[int][]UnmeshedConnection {
	type outcome struct {
		index int
		found []UnmeshedConnection
	}
	now := time.Now()
	ctx, cancel := context.WithTimeout(ctx, glanceTime)
	defer cancel()
	all, outcomes, turns := map[int][]UnmeshedConnection{}, make(chan outcome, len(looks)), make(chan struct{}, glancesAtOnce)
	begun := 0
	for _, l := range looks {
		all[l.index] = nil
		if since, busy := g.busy.LoadOrStore(l.ns, now); busy && now.Sub(since.(time.Time)) >= glanceTime {
			continue
		}
		begun++
		go func() {
			defer g.busy.CompareAndDelete(l.ns, now)
			o := outcome{index: l.index}
			defer func() { outcomes <- o }()
			select {
			case turns <- struct{}{}:
				defer func() { <-turns }()
			case <-ctx.Done():
				return
			}
			// A pod that goes away meanwhile has no connections left to list.
			o.found = []UnmeshedConnection{}
			if listing, err := sockets(l.ns); err == nil {
				o.found = alive(listing, l.cookies)
			}
		}()
	}
	for range begun {
		select {
		case o := <-outcomes:
			all[o.index] = o.found
		case <-ctx.Done():
			return all
		}
	}
	return all
}

func alive(l diag.Listing, cookies map[uint64]time.Time) []UnmeshedConnection {
	connections := []UnmeshedConnection{}
	for _, c := range l.Unmeshed() {
		if before, known := cookies[c.Cookie]; known {
			connections = append(connections, UnmeshedConnection{
				Local: c.Local.String(), Remote: c.Remote.String(), Direction: c.Direction, OpenedBefore: before,
			})
		}
	}
	slices.SortFunc(connections, func(a, b UnmeshedConnection) int {
		return cmp.Or(cmp.Compare(a.Local, b.Local), cmp.Compare(a.Remote, b.Remote))
	})
	return connections
}
