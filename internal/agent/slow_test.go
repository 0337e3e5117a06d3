package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
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

// tarpit is a node some of whose pods have networks that nobody can read in time.
type tarpit struct {
	mu       sync.Mutex
	stuck    map[*netns.Namespace]chan struct{} // closed to let go
	put      map[string]zds.Workload
	changed  chan struct{}
	complete chan struct{}
	reports  map[string]source.State
	errors   map[string]string
	deliver  func(source.Snapshot)
}

func (r *tarpit) wait(ns *netns.Namespace) {
	r.mu.Lock()
	until := r.stuck[ns]
	r.mu.Unlock()
	if until != nil {
		<-until
	}
}

func (r *tarpit) Apply(ns *netns.Namespace, _ redirect.Mode, _ redirect.Settings) (bool, error) {
	r.wait(ns)
	return true, nil
}

func (r *tarpit) Observe(ns *netns.Namespace) (redirect.Mode, error) {
	r.wait(ns)
	return redirect.Absent, nil
}

func (*tarpit) Disowned(*netns.Namespace) (uint64, error)                 { return 0, nil }
func (r *tarpit) Inherited(*netns.Namespace) (bool, error)                { return false, nil }
func (r *tarpit) Track(*netns.Namespace, []redirect.Older) error          { return nil }
func (r *tarpit) Untranslated(*netns.Namespace) ([]redirect.Older, error) { return nil, nil }
func (r *tarpit) Untrack(*netns.Namespace, []redirect.Older) error        { return nil }
func (r *tarpit) Settle(*netns.Namespace) (int, error)                    { return 0, nil }

func (r *tarpit) Put(w zds.Workload) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.put[w.UID] = w
	select {
	case r.changed <- struct{}{}:
	default:
	}
}

func (r *tarpit) Drop(uid string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.put, uid)
}

func (r *tarpit) Status(uid string) zds.Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, known := r.put[uid]
	return zds.Status{Connected: true, Accepted: known, Known: known}
}

func (r *tarpit) Connections() int         { return 1 }
func (r *tarpit) Complete()                { close(r.complete) }
func (r *tarpit) Changed() <-chan struct{} { return r.changed }

func (r *tarpit) Run(ctx context.Context, deliver func(source.Snapshot), connected func(bool)) {
	connected(true)
	r.mu.Lock()
	r.deliver = deliver
	r.mu.Unlock()
	<-ctx.Done()
}

func (r *tarpit) Report(_ context.Context, uid string, report source.Report) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reports[uid], r.errors[uid] = report.State, report.Error
	return nil
}

// start runs an agent on the node. The namespaces of the pods whose names begin with stuck are so.
func (r *tarpit) start(t *testing.T) *Agent {
	t.Helper()
	a := New(r, r, Options{Node: "n1", Log: slog.New(slog.DiscardHandler)})
	a.capturer.redirect = r
	a.capturer.networks.open = func(path string) (*netns.Namespace, error) {
		ns, err := netns.New()
		if err == nil && strings.HasPrefix(path, "/stuck") {
			r.mu.Lock()
			r.stuck[ns] = r.stuck[nil]
			r.mu.Unlock()
		}
		return ns, err
	}
	a.capturer.list = func(ns *netns.Namespace) (diag.Listing, error) {
		r.wait(ns)
		return diag.Listing{}, nil
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); a.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	r.await(t, "the source runs", func() bool { return r.deliver != nil })
	return a
}

func (r *tarpit) await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(2 * time.Millisecond) {
		r.mu.Lock()
		ok := holds()
		r.mu.Unlock()
		if ok {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not within 20 s: %s", what)
		}
	}
}

func newTarpit() (*tarpit, func()) {
	until := make(chan struct{})
	r := &tarpit{
		stuck: map[*netns.Namespace]chan struct{}{nil: until}, put: map[string]zds.Workload{}, changed: make(chan struct{}, 1),
		complete: make(chan struct{}), reports: map[string]source.State{}, errors: map[string]string{},
	}
	return r, sync.OnceFunc(func() { close(until) })
}

func podsOf(stuck, others int) source.Snapshot {
	s := source.Snapshot{Namespaces: map[string]source.Namespace{"default": {Labels: map[string]string{wellknown.DataplaneMode: "ambient"}}}}
	add := func(name string) {
		s.Pods = append(s.Pods, source.Pod{UID: name, Namespace: "default", Name: name, NetNS: "/" + name, Annotations: map[string]string{}})
	}
	for i := range stuck {
		add(fmt.Sprint("stuck", i))
	}
	for i := range others {
		add(fmt.Sprint("other", i))
	}
	return s
}

// A pod may have so much in its network that looking at it takes for ever: other pods are born and captured meanwhile.
func TestPodsThatTakeLongHoldUpNobody(t *testing.T) {
	r, release := newTarpit()
	defer release()
	a := r.start(t)
	// More than are advanced at once.
	snapshot := podsOf(2*atOnce, 8)
	// One of them was captured by an earlier agent.
	snapshot.Pods[0].Annotations[wellknown.Redirection] = "enabled"
	r.deliver(snapshot)
	r.await(t, "the others are captured and told of", func() bool {
		for i := range 8 {
			if r.reports[fmt.Sprint("other", i)] != source.Enabled {
				return false
			}
		}
		return true
	})
	select {
	case <-r.complete:
	case <-time.After(20 * time.Second):
		t.Fatal("the proxies wait for pods that take long")
	}
	r.mu.Lock()
	_, kept := r.put["stuck0"]
	r.mu.Unlock()
	if !kept {
		t.Error("a proxy would drop a captured pod that takes long to look at")
	}

	// A pod is born now.
	snapshot.Pods = append(snapshot.Pods, source.Pod{UID: "born", Namespace: "default", Name: "born", NetNS: "/born", Annotations: map[string]string{}})
	r.deliver(snapshot)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := a.Await(ctx, "born", "/born"); err != nil {
		t.Errorf("a pod that is born: %v", err)
	}
	// What is asked of the agent is answered.
	if s, err := a.Status(ctx); err != nil || len(s.Pods) != len(snapshot.Pods) {
		t.Errorf("status of %d pods, %v", len(s.Pods), err)
	}

	// Some of the slow are deleted while they are looked at, and one is to be plain.
	snapshot.Pods = snapshot.Pods[1:]
	snapshot.Pods[0].Labels = map[string]string{wellknown.DataplaneMode: "none"}
	r.deliver(snapshot)
	release()
	r.await(t, "the rest is captured once it can be", func() bool {
		for i := 2; i < 2*atOnce; i++ {
			if r.reports[fmt.Sprint("stuck", i)] != source.Enabled {
				return false
			}
		}
		return r.reports["stuck1"] != source.Enabled
	})
	r.await(t, "the deleted one is dropped", func() bool { _, there := r.put["stuck0"]; return !there })
	r.await(t, "and the one that is to be plain", func() bool { _, there := r.put["stuck1"]; return !there })
	if s, err := a.Status(ctx); err != nil || len(s.Pods) != len(snapshot.Pods) {
		t.Errorf("status of %d pods, %v; want %d", len(s.Pods), err, len(snapshot.Pods))
	}
}

// The agent ends although a pod does not let it.
func TestTheAgentEndsInSpiteOfAPodThatTakesLong(t *testing.T) {
	r, release := newTarpit()
	defer release()
	a := New(r, r, Options{Node: "n1", Log: slog.New(slog.DiscardHandler)})
	a.capturer.redirect = r
	a.capturer.networks.open = func(string) (*netns.Namespace, error) {
		<-r.stuck[nil]
		return nil, errors.New("too late")
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); a.Run(ctx) }()
	r.await(t, "the source runs", func() bool { return r.deliver != nil })
	r.deliver(podsOf(1, 0))
	runtime.Gosched()
	cancel()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		t.Fatal("it does not")
	}
}

// A look that takes long is not repeated at once: the pod would have the agent do nothing else.
func TestLooksArePacedByWhatTheyTake(t *testing.T) {
	for _, c := range []struct{ took, least, want time.Duration }{
		{0, partLook, partLook},
		{time.Millisecond, partLook, partLook},
		{100 * time.Millisecond, partLook, time.Second},
		{100 * time.Millisecond, 2 * time.Second, 2 * time.Second},
		{time.Hour, partLook, 10 * time.Second},
	} {
		p := pod{progress: progress{listing: c.took}}
		if got := p.pause(c.least); got != c.want {
			t.Errorf("after a look of %v the next is in %v, want %v", c.took, got, c.want)
		}
	}
}
