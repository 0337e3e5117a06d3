package agent

import (
	"cmp"
	"context"
	"slices"
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
	type captured struct {
		index   int
		ns      *netns.Namespace
		cookies map[uint64]time.Time
	}
	s := Status{Node: a.opts.Node, Pods: []PodStatus{}, EngineConnected: a.connected.Load()}
	var look []captured
	err := a.ask(ctx, func() {
		s.ProxyConnected = a.zds.Connections() > 0
		for _, p := range a.pods {
			if p.state == Captured && len(p.unmeshed) > 0 && p.ns != nil {
				// The map is replaced, never changed, so it may be read outside the loop.
				look = append(look, captured{index: len(s.Pods), ns: p.ns, cookies: p.unmeshed})
			}
			s.Pods = append(s.Pods, PodStatus{
				UID: p.UID, Namespace: p.Namespace, Name: p.Name, State: p.state, Reason: p.reason, Since: p.since,
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
	for _, c := range look {
		// A pod that goes away meanwhile has no connections left to list.
		if l, err := a.list(c.ns); err == nil {
			s.Pods[c.index].UnmeshedConnections = alive(l, c.cookies)
		}
	}
	slices.SortFunc(s.Pods, func(a, b PodStatus) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
	})
	return s, nil
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
