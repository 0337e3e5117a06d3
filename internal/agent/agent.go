// Package agent captures the pods of one node: it hands their network namespaces to the node proxy and redirects their
// connections through it, and releases them again. It does not know where pods come from, and what the proxy does with
// a connection is not its business.
package agent

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"lateen.dev/lateen/internal/agent/diag"
	"lateen.dev/lateen/internal/agent/netns"
	"lateen.dev/lateen/internal/agent/redirect"
	"lateen.dev/lateen/internal/agent/source"
	"lateen.dev/lateen/internal/agent/zds"
	"lateen.dev/lateen/internal/model/wellknown"
)

// Source is where the node's pods come from.
type Source interface {
	// Run delivers a snapshot at first and after every change until ctx ends.
	Run(ctx context.Context, deliver func(source.Snapshot), connected func(bool))
	// Report tells of a pod's redirection; source.ErrGone if nobody knows the pod any more.
	Report(ctx context.Context, uid string, r source.Report) error
}

// Proxies are the node proxies that pods are handed to.
type Proxies interface {
	Put(w zds.Workload)
	Drop(uid string)
	Status(uid string) zds.Status
	Connections() int
	Complete()
	Changed() <-chan struct{}
}

// Keeper holds what proxies listen on beyond their lives.
type Keeper interface {
	Forget(uid string)
	Terminating(uid string)
}

// noKeeper is the keeper of an agent without one.
type noKeeper struct{}

func (noKeeper) Forget(string)      {}
func (noKeeper) Terminating(string) {}

// Redirector changes and reads the rules in a pod's namespace.
type Redirector interface {
	Apply(ns *netns.Namespace, mode redirect.Mode, s redirect.Settings) (changed bool, err error)
	Observe(ns *netns.Namespace) (redirect.Mode, error)
}

// kernel is the Redirector of this machine.
type kernel struct{}

func (kernel) Apply(ns *netns.Namespace, mode redirect.Mode, s redirect.Settings) (bool, error) {
	return redirect.Apply(ns, mode, s)
}
func (kernel) Observe(ns *netns.Namespace) (redirect.Mode, error) { return redirect.Observe(ns) }

// Options are an agent's settings; zero durations mean the defaults.
type Options struct {
	Node    string
	Log     *slog.Logger
	Metrics *Metrics
	Grace   time.Duration // between a release and taking the pod back from the proxy; 2 s
	Poll    time.Duration // between looks at a released pod's meshed connections; 500 ms
	Verify  time.Duration // between looks at a captured pod's rules; 30 s
	// ReleaseDeadline is how long a released pod's meshed connections may go on before they are cut; 1 h. Negative: for ever.
	ReleaseDeadline time.Duration
	// StateFile keeps across restarts what the kernel cannot tell again; empty for none.
	StateFile string
	// Explain is how long a pod is pending before the engine is told why; 300 ms.
	Explain time.Duration
	// Keeper holds what proxies listen on; none if nil.
	Keeper Keeper
	// Exceptions of every pod; a pod's annotations add to them.
	Exceptions redirect.Settings
}

// Agent is the agent of one node. One goroutine owns its pods.
type Agent struct {
	opts     Options
	log      *slog.Logger
	metrics  *Metrics
	source   Source
	zds      Proxies
	redirect Redirector
	keeper   Keeper
	open     func(path string) (*netns.Namespace, error)
	list     func(*netns.Namespace) (diag.Listing, error)

	snapshots chan source.Snapshot // the newest one not yet looked at
	reported  chan reportResult
	questions chan func()
	reports   sync.WaitGroup

	connected atomic.Bool // to the source
	ready     atomic.Bool // a first snapshot has been worked through

	pods map[string]*pod
	kept memory // what the state file says
}

// New makes an agent that captures pods on this machine.
func New(s Source, proxies Proxies, opts Options) *Agent {
	set := func(d *time.Duration, value time.Duration) {
		if *d == 0 {
			*d = value
		}
	}
	set(&opts.Grace, 2*time.Second)
	set(&opts.Poll, 500*time.Millisecond)
	set(&opts.Verify, 30*time.Second)
	set(&opts.ReleaseDeadline, time.Hour)
	set(&opts.Explain, 300*time.Millisecond)
	if opts.Log == nil {
		opts.Log = slog.Default()
	}
	if opts.Metrics == nil {
		opts.Metrics = NewMetrics()
	}
	if opts.Keeper == nil {
		opts.Keeper = noKeeper{}
	}
	kept, err := recall(opts.StateFile)
	if err != nil {
		opts.Log.Warn("what an earlier agent noted is lost; connections from before enrolment count from now", "err", err)
	}
	return &Agent{
		kept: kept,
		opts: opts, log: opts.Log, metrics: opts.Metrics, keeper: opts.Keeper,
		source: s, zds: proxies, redirect: kernel{}, open: netns.Open, list: diag.List,
		snapshots: make(chan source.Snapshot, 1), reported: make(chan reportResult), questions: make(chan func()),
		pods: map[string]*pod{},
	}
}

// Run captures and releases pods until ctx ends. Captured pods then stay captured: the proxy goes on without an agent.
func (a *Agent) Run(ctx context.Context) {
	var watching sync.WaitGroup
	watching.Go(func() { a.source.Run(ctx, a.deliver, a.connected.Store) })
	defer func() {
		watching.Wait()
		a.reports.Wait()
		for _, p := range a.pods {
			if p.ns != nil {
				p.ns.Close()
			}
		}
	}()
	for {
		// A timer of its own for each round: the next time to look differs.
		timer := time.NewTimer(a.round(ctx, time.Now()))
		select {
		case s := <-a.snapshots:
			a.learn(s, time.Now())
		case r := <-a.reported:
			a.settle(r, time.Now())
		case answer := <-a.questions:
			answer()
		case <-a.zds.Changed():
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
		timer.Stop()
	}
}

// deliver keeps only the newest snapshot: each is complete.
func (a *Agent) deliver(s source.Snapshot) {
	for {
		select {
		case a.snapshots <- s:
			return
		default:
		}
		select {
		case <-a.snapshots:
		default:
		}
	}
}

// learn takes over what a snapshot says of the node's pods.
func (a *Agent) learn(s source.Snapshot, now time.Time) {
	present := make(map[string]bool, len(s.Pods))
	for _, object := range s.Pods {
		present[object.UID] = true
		if object.ServiceAccount == "" {
			object.ServiceAccount = "default"
		}
		p := a.pods[object.UID]
		if p == nil {
			p = &pod{state: Plain, since: now}
			a.pods[object.UID] = p
		}
		a.update(p, object, enrolled(object, s.Namespaces[object.Namespace]), now)
	}
	for uid, p := range a.pods {
		if present[uid] {
			continue
		}
		a.zds.Drop(uid)
		if p.ns != nil {
			p.ns.Close()
		}
		a.keeper.Forget(uid)
		delete(a.pods, uid)
	}
	// The proxies may be told that they know all pods once every pod has been looked at.
	a.advanceAll(now)
	a.zds.Complete()
	a.ready.Store(true)
}

func (a *Agent) update(p *pod, object source.Pod, want bool, now time.Time) {
	if a.moved(p, object.NetNS) {
		// The old namespace, and all in it, is history.
		a.log.Info("pod has a new network namespace", "pod", object.Namespace+"/"+object.Name)
		p.ns.Close()
		// What is kept of it would keep that namespace alive for as long as the pod.
		a.keeper.Forget(p.UID)
		*p = pod{state: Plain, since: now, reporting: p.reporting, told: p.told}
	}
	if want != p.want || object.NetNS != p.NetNS {
		p.again, p.failures, p.wantSince = time.Time{}, 0, now
		if p.state == Releasing && !want {
			p.again = p.graceUntil
		}
	}
	if object.Terminating && !p.Terminating && p.state != Plain {
		// Before its network goes: peers are to leave its tunnels while they still can.
		a.keeper.Terminating(p.UID)
	}
	if object.Ended && !p.Ended {
		p.takenBack, p.again = false, time.Time{}
	}
	p.Pod, p.want = object, want
	if settings, refused := settingsOf(a.opts.Exceptions, object.Annotations); !settings.Equal(p.settings) || !slices.Equal(refused, p.refused) {
		p.settings, p.refused = settings, refused
		if p.state == Captured {
			p.again = time.Time{}
		}
		for _, why := range refused {
			a.log.Warn("an exception from capture is refused; the pod is captured without it", "pod", object.Namespace+"/"+object.Name, "err", why)
		}
	}
	says := source.Disabled
	if object.Annotations[wellknown.Redirection] == string(source.Enabled) {
		says = source.Enabled
	}
	if p.told.State == "" {
		p.told.State = says
	}
	// A snapshot can be older than the last report; saying it once more is harmless, never saying it is not.
	p.repeat = says != p.told.State && p.told.State != source.Parted
}

// moved says whether the pod has been given another network namespace than the one that is held.
func (a *Agent) moved(p *pod, path string) bool {
	if p.ns == nil || path == "" {
		return false
	}
	if id, err := netns.Identify(path); err != nil || id == p.ns.ID() {
		return false
	}
	// Not the same, but perhaps only unmounted: what is held then is still the pod's.
	other, err := a.open(path)
	if err != nil {
		return false
	}
	defer other.Close()
	return other.ID() != p.ns.ID()
}

// round brings every pod forward and returns how long nothing is due.
func (a *Agent) round(ctx context.Context, now time.Time) time.Duration {
	const idle = time.Minute
	next := now.Add(idle)
	due := func(t time.Time) {
		if t.After(now) && t.Before(next) {
			next = t
		}
	}
	states := map[State]int{}
	a.advanceAll(now)
	for _, p := range a.pods {
		a.report(ctx, p, now)
		states[p.state]++
		due(p.again)
		due(p.reportAt)
		if p.want {
			due(p.wantSince.Add(a.opts.Explain))
		}
	}
	a.metrics.observe(states, a.zds.Connections(), a.connected.Load())
	return next.Sub(now)
}

// atOnce is how many pods are worked on at the same time: most of the work is waiting for the kernel.
const atOnce = 16

// advanceAll advances every pod, several at once: they have nothing in common but what is safe to share.
func (a *Agent) advanceAll(now time.Time) {
	var all sync.WaitGroup
	slots := make(chan struct{}, atOnce)
	for _, p := range a.pods {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			a.advance(p, now)
		})
	}
	all.Wait()
	a.remember()
}

// ask runs a function in the goroutine that owns the pods.
func (a *Agent) ask(ctx context.Context, question func()) error {
	done := make(chan struct{})
	select {
	case a.questions <- func() { question(); close(done) }:
	case <-ctx.Done():
		return ctx.Err()
	}
	<-done
	return nil
}
