package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"lateen.dev/lateen/internal/agent/diag"
	"lateen.dev/lateen/internal/agent/netns"
	"lateen.dev/lateen/internal/agent/redirect"
	"lateen.dev/lateen/internal/agent/source"
	"lateen.dev/lateen/internal/agent/zds"
	"lateen.dev/lateen/internal/model/wellknown"
)

// crowd is a node with many pods, whose kernel is so slow that no pod is captured before several others are under way.
type crowd struct {
	mu       sync.Mutex
	put      map[string]bool
	inFlight int
	together chan struct{} // closed once enough are in flight
}

const enough = 8

func (c *crowd) Apply(*netns.Namespace, redirect.Mode, redirect.Settings) (bool, error) {
	c.mu.Lock()
	if c.inFlight++; c.inFlight == enough {
		close(c.together)
	}
	c.mu.Unlock()
	select {
	case <-c.together:
		return true, nil
	case <-time.After(20 * time.Second):
		return false, errors.New("nobody else is being captured meanwhile")
	}
}
func (c *crowd) Observe(*netns.Namespace) (redirect.Mode, error)         { return redirect.Absent, nil }
func (*crowd) Disowned(*netns.Namespace) (uint64, error)                 { return 0, nil }
func (c *crowd) Inherited(*netns.Namespace) (bool, error)                { return false, nil }
func (c *crowd) Track(*netns.Namespace, []redirect.Older) error          { return nil }
func (c *crowd) Untranslated(*netns.Namespace) ([]redirect.Older, error) { return nil, nil }
func (c *crowd) Untrack(*netns.Namespace, []redirect.Older) error        { return nil }
func (c *crowd) Settle(*netns.Namespace) (int, error)                    { return 0, nil }
func (c *crowd) Put(w zds.Workload) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.put[w.UID] = true
}
func (c *crowd) Drop(string) {}
func (c *crowd) Status(uid string) zds.Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	return zds.Status{Connected: true, Accepted: c.put[uid], Known: c.put[uid]}
}
func (c *crowd) Connections() int                                       { return 1 }
func (c *crowd) Complete()                                              {}
func (c *crowd) Changed() <-chan struct{}                               { return nil }
func (c *crowd) Run(context.Context, func(source.Snapshot), func(bool)) {}
func (c *crowd) Report(context.Context, string, source.Report) error    { return nil }

func TestPodsAreCapturedSeveralAtOnce(t *testing.T) {
	c := &crowd{put: map[string]bool{}, together: make(chan struct{})}
	a := New(c, c, Options{Node: "n1", Log: slog.New(slog.DiscardHandler)})
	a.capturer.redirect = c
	a.capturer.networks.open = func(string) (*netns.Namespace, error) { return netns.New() }
	a.capturer.list = func(*netns.Namespace) (diag.Listing, error) { return diag.Listing{}, nil }
	s := source.Snapshot{Namespaces: map[string]source.Namespace{"default": {Labels: map[string]string{wellknown.DataplaneMode: "ambient"}}}}
	for i := range 3 * enough {
		s.Pods = append(s.Pods, source.Pod{UID: fmt.Sprint(i), Namespace: "default", Name: fmt.Sprint("p", i), NetNS: fmt.Sprint("/run/netns/", i)})
	}
	a.learn(s, time.Now())
	for uid, p := range a.pods {
		if p.state != Captured {
			t.Errorf("pod %s is %s: %s", uid, p.state, p.reason)
		}
		a.capturer.networks.abandon(p)
	}
}
