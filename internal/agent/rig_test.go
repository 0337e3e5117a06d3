package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
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

// rig is an agent whose kernel, proxy, engine and clock are the test's.
type rig struct {
	t     *testing.T
	agent *Agent
	now   time.Time
	ctx   context.Context

	mu     sync.Mutex // what the agent calls it calls for several pods at once
	events []string   // what the agent did, in order

	deadline  time.Duration // for releases; negative for none
	stateFile string

	// The kernel.
	mode      redirect.Mode
	settings  redirect.Settings
	applyErr  error
	viewErr   error
	openErr   error
	istios    bool   // an Istio's rules are in the pod
	alone     bool   // no Istio captures pods
	marked    uint64 // packets of the pod's own that had the proxy's mark
	carried   int
	changed   int // connections whose port the kernel translates
	settleErr error
	meanwhile func() // what happens while rules are written
	older     []diag.Socket
	tracked   []redirect.Older // what connection tracking takes for open

	// The proxy.
	connected bool
	put       map[string]zds.Workload
	accepted  map[string]bool
	refusal   string
	known     bool // the proxy has not let go of what was dropped
	complete  bool

	// The engine.
	snapshot  source.Snapshot
	reportErr error
}

const unit = "u1"

func newRig(t *testing.T) *rig {
	r := &rig{
		t: t, now: time.Unix(1000, 0), ctx: t.Context(), connected: true, deadline: -1,
		put: map[string]zds.Workload{}, accepted: map[string]bool{},
	}
	r.start()
	r.snapshot = source.Snapshot{
		Pods:       []source.Pod{{UID: unit, Namespace: "default", Name: "a", NetNS: "/run/netns/a", Annotations: map[string]string{}}},
		Namespaces: map[string]source.Namespace{"default": {Labels: map[string]string{}}},
	}
	return r
}

// start makes an agent that knows nothing yet; the kernel, the proxy and the engine are as the last one left them.
func (r *rig) start() {
	a := New(r, r, Options{Node: "n1", Log: slog.New(slog.DiscardHandler), ReleaseDeadline: r.deadline, StateFile: r.stateFile, Alone: func() bool { return r.alone }})
	a.capturer.redirect = r
	// Its clock is the test's, and however busy the machine is, nothing here takes long.
	a.patience, a.slow = time.Hour, time.Hour
	// The test's own namespace stands for any pod's.
	a.capturer.networks = newNetworks(nil)
	a.capturer.networks.open = func(string) (*netns.Namespace, error) {
		if r.openErr != nil {
			return nil, r.openErr
		}
		// Any namespace does: nothing enters it.
		return netns.Open("/proc/self/ns/net")
	}
	a.capturer.list = func(*netns.Namespace) (diag.Listing, error) { return r.listing(), nil }
	r.agent = a
	// A new agent's ZDS server knows nothing either.
	r.put, r.complete = map[string]zds.Workload{}, false
}

func (r *rig) listing() diag.Listing {
	own := netip.MustParseAddr("10.0.0.1")
	l := diag.Listing{Own: []netip.Addr{own}, Sockets: slices.Clone(r.older)}
	for i := range r.carried {
		l.Sockets = append(l.Sockets, diag.Socket{
			Local:  netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), redirect.OutboundPort),
			Remote: netip.AddrPortFrom(own, uint16(40000+i)), State: diag.Established, Mark: redirect.ProxyMark,
		})
	}
	return l
}

func (r *rig) event(format string, args ...any) {
	r.events = append(r.events, fmt.Sprintf(format, args...))
}

// Redirector.

func (r *rig) Apply(_ *netns.Namespace, mode redirect.Mode, s redirect.Settings) (bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.meanwhile != nil {
		r.meanwhile()
	}
	if r.applyErr != nil {
		r.event("apply failed")
		return false, r.applyErr
	}
	changed := r.mode != mode || mode == redirect.Capturing && !r.settings.Equal(s)
	if changed {
		r.event("apply %v", mode)
	}
	r.mode, r.settings = mode, s
	return changed, nil
}

func (r *rig) Observe(*netns.Namespace) (redirect.Mode, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mode, r.viewErr
}

func (r *rig) Track(_ *netns.Namespace, older []redirect.Older) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(older) > 0 {
		r.event("track %v at %v", older, r.mode)
	}
	return nil
}

func (r *rig) Untranslated(*netns.Namespace) ([]redirect.Older, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.tracked), nil
}

func (r *rig) Untrack(_ *netns.Namespace, ended []redirect.Older) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(ended) > 0 {
		r.event("untrack %v at %v", ended, r.mode)
	}
	return nil
}

func (r *rig) Settle(*netns.Namespace) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.changed, r.settleErr
}

func (r *rig) Disowned(*netns.Namespace) (uint64, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.marked, nil
}

func (r *rig) Inherited(*netns.Namespace) (bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	had := r.istios
	if had {
		r.event("Istio's rules removed")
	}
	r.istios = false
	return had, nil
}

// Proxies.

func (r *rig) Put(w zds.Workload) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, there := r.put[w.UID]; !there {
		r.event("put %s", w.Name)
	}
	r.put[w.UID] = w
}

func (r *rig) Drop(uid string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, there := r.put[uid]; there {
		r.event("drop")
	}
	delete(r.put, uid)
	delete(r.accepted, uid)
}

func (r *rig) Status(uid string) zds.Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, put := r.put[uid]
	return zds.Status{
		Connected: r.connected, Accepted: r.connected && put && r.accepted[uid],
		Refusal: r.refusal, Known: r.connected && (put || r.known),
	}
}

func (r *rig) Connections() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.connected {
		return 1
	}
	return 0
}

func (r *rig) Complete() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.complete {
		r.event("complete")
		if _, there := r.put[unit]; r.mode == redirect.Capturing && !there && !r.snapshot.Pods[0].Ended {
			r.t.Error("the proxy would drop a captured pod")
		}
	}
	r.complete = true
}

func (r *rig) Changed() <-chan struct{} { return nil }

// Source.

func (r *rig) Run(context.Context, func(source.Snapshot), func(bool)) {}

func (r *rig) Report(_ context.Context, uid string, report source.Report) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.reportErr != nil {
		return r.reportErr
	}
	for i := range r.snapshot.Pods {
		if r.snapshot.Pods[i].UID == uid {
			r.snapshot.Pods[i].Annotations = map[string]string{wellknown.Redirection: string(report.State)}
		}
	}
	if report.Error != "" {
		r.event("report %s: %s", report.State, report.Error)
	} else {
		r.event("report %s", report.State)
	}
	return nil
}

// step lets time pass and the agent do what it does, until it has nothing more to do now.
func (r *rig) step(d time.Duration) {
	r.now = r.now.Add(d)
	r.settle()
}

func (r *rig) settle() {
	for range 10 {
		before := len(r.events)
		r.agent.round(r.ctx, r.now)
		r.drainReports()
		if len(r.events) == before {
			return
		}
	}
	r.t.Fatalf("the agent does not come to rest: %v", r.events)
}

// drainReports waits for the reports under way and gives the agent their results.
func (r *rig) drainReports() {
	for _, p := range r.agent.pods {
		if p.reporting {
			r.agent.settle(<-r.agent.reported, r.now)
		}
	}
}

// learn gives the agent the engine's snapshot.
func (r *rig) learn() {
	r.agent.learn(r.snapshot, r.now)
	r.settle()
}

func (r *rig) label(enrol bool) {
	labels := map[string]string{}
	if enrol {
		labels[wellknown.DataplaneMode] = "ambient"
	}
	r.snapshot.Namespaces = map[string]source.Namespace{"default": {Labels: labels}}
	r.learn()
}

func (r *rig) accept() {
	r.accepted[unit] = true
	r.settle()
}

func (r *rig) pod() *pod {
	r.t.Helper()
	p := r.agent.pods[unit]
	if p == nil {
		r.t.Fatal("the agent does not know the pod")
	}
	return p
}

// did fails the test unless the agent did exactly this since the last call.
func (r *rig) did(events ...string) {
	r.t.Helper()
	if !slices.Equal(events, r.events) {
		r.t.Errorf("did   %s\nwant  %s", strings.Join(r.events, " | "), strings.Join(events, " | "))
	}
	r.events = nil
}

func (r *rig) is(s State, reason string) {
	r.t.Helper()
	if p := r.pod(); p.state != s || !strings.Contains(p.reason, reason) || reason == "" && p.reason != "" {
		r.t.Errorf("pod is %s (%q), want %s (%q)", p.state, p.reason, s, reason)
	}
}

var errKernel = errors.New("the kernel says no")
