package agent

import (
	"cmp"
	"slices"
	"time"

	"lateen.dev/lateen/internal/agent/source"
)

// slowQueue counts, by namespace, the pods that are worked on and whose work takes long. How long, and whether it ends, is in the
// hands of whoever runs in such a pod: so every namespace has turns of its own, and only what is left is for all.
type slowQueue map[string]int

const (
	// slowAtOnce is how many such pods are worked on at the same time, beside the others.
	slowAtOnce = 4
	// slowOwn is how many of a namespace are, however many of others.
	slowOwn = 2
	// longWork is work that people are told of: it may be why a pod is not as they want it.
	longWork = 2 * time.Second
)

// enter takes a turn, if there is one.
func (l slowQueue) enter(namespace string) bool {
	all := 0
	for _, n := range l {
		all += n
	}
	if l[namespace] >= slowOwn && all >= slowAtOnce {
		return false
	}
	l[namespace]++
	return true
}

func (l slowQueue) leave(namespace string) {
	if l[namespace]--; l[namespace] == 0 {
		delete(l, namespace)
	}
}

// beginSlow begins with those that have turns among the pods whose work takes long. Somebody may wait for a pod that is to be
// captured, so these come first, and then who has waited longest.
func (a *Agent) beginSlow(called []*pod, now time.Time) {
	for _, p := range called {
		if p.waits.IsZero() {
			p.waits = now
		}
	}
	outside := func(p *pod) int {
		if p.want && p.state != Captured {
			return 0
		}
		return 1
	}
	slices.SortFunc(called, func(x, y *pod) int {
		return cmp.Or(cmp.Compare(outside(x), outside(y)), x.waits.Compare(y.waits), cmp.Compare(x.UID, y.UID))
	})
	for _, p := range called {
		if a.slowQueue.enter(p.Namespace) {
			a.begin(p, now, &job{slow: p.Namespace}, nil, nil)
		}
	}
}

// calls says whether a pod whose work takes long is to be advanced now.
func (p *pod) calls(now time.Time) bool {
	return !now.Before(p.work.rest) && (p.stirred || past(p.again, now) || past(p.probesBy, now))
}

// past says whether a time that is set has come.
func past(t, now time.Time) bool { return !t.IsZero() && !now.Before(t) }

// why says why the pod is not as its owner wants it, or what it waits for: work that takes long has not found out yet.
func (p *pod) why(now time.Time) string {
	switch {
	case p.working && now.Sub(p.began) >= longWork:
		return "looking at the pod's network, or changing it, takes long, as where much is in it or the node is busy; the agent is at it since " + p.began.UTC().Format(time.TimeOnly)
	case !p.working && !p.waits.IsZero() && now.Sub(p.waits) >= longWork:
		return "looking at the pod's network took long, and the agent is at work in others of the namespace that take long"
	}
	return p.reason
}

// explains says whether the source is to hear why a pod on which work takes long is not captured. Of one that may be captured
// nothing new is known.
func (p *pod) explains(now time.Time) bool {
	return now.Sub(p.began) >= longWork && p.want && !p.Ended && (p.state == Plain || p.state == Pending) && p.told.State == source.Disabled
}
