// Package agent captures the pods of one node: it hands their network namespaces to the node proxy and redirects their
// connections through it, and releases them again. It does not know where pods come from, and what the proxy does with
// a connection is not its business.
package agent

import (
	"context"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

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

// ListenerStore holds duplicates of the listeners of node proxies, so that the next proxy can take them over.
type ListenerStore interface {
	Forget(uid string)
	Terminating(uid string)
}

// noListenerStore is the ListenerStore of an agent that keeps no listeners.
type noListenerStore struct{}

func (noListenerStore) Forget(string)      {}
func (noListenerStore) Terminating(string) {}

// Probes are the rules that let the node's prober connect to captured pods directly.
type Probes interface {
	// Set is told, when it may have changed, which addresses of pods that are captured or to be captured are probed.
	Set(probed []netip.AddrPort)
	// Stand says whether the rules for the addresses are in place, or never will be.
	Stand(probed []netip.AddrPort) bool
	// Changed has a value when Stand may have come to say something else.
	Changed() <-chan struct{}
}

// noProbes is where probes need no rules of each pod.
type noProbes struct{}

func (noProbes) Set([]netip.AddrPort)        {}
func (noProbes) Stand([]netip.AddrPort) bool { return true }
func (noProbes) Changed() <-chan struct{}    { return nil }

// Redirector changes and reads the rules in a pod's namespace.
type Redirector interface {
	Apply(ns *netns.Namespace, mode redirect.Mode, s redirect.Settings) (changed bool, err error)
	Observe(ns *netns.Namespace) (redirect.Mode, error)
	// Track keeps connections that are older than the rules apart from what the proxy delivers under them.
	Track(ns *netns.Namespace, older []redirect.Older) error
	// Untranslated lists the connections that are tracked as open and that no rule translates.
	Untranslated(ns *netns.Namespace) ([]redirect.Older, error)
	// Untrack forgets those that ended before the rules stood.
	Untrack(ns *netns.Namespace, ended []redirect.Older) error
	// Settle readies a pod that is being released for the end of its rules, and counts the connections that need them still.
	Settle(ns *netns.Namespace) (translated int, err error)
	// Inherited removes what an Istio that is gone left there.
	Inherited(ns *netns.Namespace) (had bool, err error)
	// Disowned counts what the pod's own processes marked as the proxy's since the rules were written.
	Disowned(ns *netns.Namespace) (packets uint64, err error)
}

// kernel is the Redirector of this machine.
type kernel struct{}

func (kernel) Apply(ns *netns.Namespace, mode redirect.Mode, s redirect.Settings) (bool, error) {
	return redirect.Apply(ns, mode, s)
}
func (kernel) Observe(ns *netns.Namespace) (redirect.Mode, error) { return redirect.Observe(ns) }
func (kernel) Track(ns *netns.Namespace, older []redirect.Older) error {
	return redirect.Track(ns, older)
}
func (kernel) Untranslated(ns *netns.Namespace) ([]redirect.Older, error) {
	return redirect.Untranslated(ns)
}
func (kernel) Untrack(ns *netns.Namespace, ended []redirect.Older) error {
	return redirect.Untrack(ns, ended)
}
func (kernel) Settle(ns *netns.Namespace) (int, error)      { return redirect.Settle(ns) }
func (kernel) Inherited(ns *netns.Namespace) (bool, error)  { return redirect.Inherited(ns) }
func (kernel) Disowned(ns *netns.Namespace) (uint64, error) { return redirect.Disowned(ns) }

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
	// ListenerStore holds duplicates of the listeners of proxies; none if nil.
	ListenerStore ListenerStore
	// Exceptions of every pod; a pod's annotations add to them.
	Exceptions redirect.Settings
	// Probes let the node's prober connect to captured pods directly; nothing is to be waited for if nil.
	Probes Probes
	// Alone says that no Istio captures pods on this node (any more): what one left in captured pods goes. If nil it is not looked for.
	Alone func() bool
}

// Agent is the agent of one node. One goroutine owns its pods.
type Agent struct {
	opts          Options
	log           *slog.Logger
	metrics       *Metrics
	source        Source
	zds           Proxies
	listenerStore ListenerStore
	capturer      *capturer

	snapshots chan source.Snapshot // the newest one not yet looked at
	reported  chan reportResult
	questions chan func()
	reports   sync.WaitGroup

	connected atomic.Bool              // to the source
	ready     atomic.Bool              // a first snapshot has been worked through
	held      atomic.Pointer[[]string] // pods that an Istio holds and that keep the agent from being ready; nil once there were none

	pods    map[string]*pod
	learned time.Time // when the first snapshot came
	kept    memory    // content of the state file
	waiting []*waiter
	probed  bool // the set of probed addresses may have changed

	rounds    int // of the loop
	finished  finished
	slowQueue slowQueue
	glances   glances
	patience  time.Duration
	slow      time.Duration
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
	if opts.ListenerStore == nil {
		opts.ListenerStore = noListenerStore{}
	}
	if opts.Probes == nil {
		opts.Probes = noProbes{}
	}
	kept, err := readMemory(opts.StateFile)
	if err != nil {
		opts.Log.Warn("what an earlier agent noted is lost; connections from before enrolment count from now", "err", err)
	}
	a := &Agent{
		kept: kept,
		opts: opts, log: opts.Log, metrics: opts.Metrics, listenerStore: opts.ListenerStore,
		source: s, zds: proxies, capturer: newCapturer(proxies, opts),
		snapshots: make(chan source.Snapshot, 1), reported: make(chan reportResult), questions: make(chan func()),
		pods: map[string]*pod{}, finished: finished{wake: make(chan struct{}, 1)}, slowQueue: slowQueue{},
		patience: patience, slow: slow,
	}
	a.held.Store(&[]string{})
	return a
}

// Run captures and releases pods until ctx ends. Captured pods then stay captured: the proxy goes on without an agent.
func (a *Agent) Run(ctx context.Context) {
	var watching sync.WaitGroup
	watching.Go(func() { a.source.Run(ctx, a.deliver, a.connected.Store) })
	defer func() {
		watching.Wait()
		a.reports.Wait()
		for _, p := range a.pods {
			a.capturer.networks.abandon(p)
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
			a.stir()
		case <-a.capturer.probes.Changed():
			a.stir()
		case <-a.finished.wake:
			a.takeOver(time.Now())
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
	disputed := disputes(s.Pods)
	for _, object := range s.Pods {
		present[object.UID] = true
		if object.ServiceAccount == "" {
			object.ServiceAccount = "default"
		}
		p := a.pods[object.UID]
		if p == nil {
			p = &pod{progress: progress{state: Plain, since: now}}
			a.pods[object.UID] = p
		}
		if p.ns == nil {
			disputed.settle(&object)
		}
		enrolled := source.Enrolled(object, s.Namespaces[object.Namespace])
		if object.Unjudged {
			enrolled = p.enrolledSoFar(object)
		}
		want := !a.capturer.leaving.Load() && enrolled
		if p.working {
			p.news = &news{object: object, want: want}
			continue
		}
		a.update(p, object, want, now)
	}
	for uid, p := range a.pods {
		switch {
		case present[uid]:
		case p.working:
			p.news = &news{gone: true}
		default:
			a.forget(p)
		}
	}
	if a.learned.IsZero() {
		// An empty set of probed addresses is reported as well, since an earlier agent may have reported another set.
		a.learned, a.probed = now, true
	}
	a.advanceAll(now)
	a.finishLearning(now)
}

// forget lets go of a pod that is no more.
func (a *Agent) forget(p *pod) {
	a.zds.Drop(p.UID)
	a.capturer.networks.abandon(p)
	a.listenerStore.Forget(p.UID)
	delete(a.pods, p.UID)
	a.probed = true
}

// update takes over what a snapshot says of one pod.
func (a *Agent) update(p *pod, object source.Pod, want bool, now time.Time) {
	p.stirred = true
	if p.Ended && !object.Ended && p.ns == nil {
		// The runtime made it a new sandbox.
		p.anew(now)
	}
	if a.capturer.networks.moved(p, object) {
		// The old namespace, and all in it, is history.
		a.log.Info("pod has a new network namespace", "pod", object.Namespace+"/"+object.Name)
		a.capturer.networks.abandon(p)
		// The stored listeners would keep that namespace alive for as long as the pod.
		a.listenerStore.Forget(p.UID)
		p.anew(now)
	}
	if want != p.want || object.NetNS != p.NetNS {
		p.again, p.failures, p.wantSince = time.Time{}, 0, now
		if p.state == Releasing && !want {
			p.again = p.graceUntil
		}
	}
	if object.Ended && !p.Ended {
		p.takenBack, p.again = false, time.Time{}
	}
	if !slices.Equal(p.Probed, object.Probed) {
		a.probed = true
	}
	if object.Version != p.Version {
		p.writes.changed()
	}
	// Unchanged annotations are not parsed again.
	read := p.read && object.Cgroup == p.Cgroup && maps.Equal(p.Annotations, object.Annotations) && slices.Equal(p.Refused, object.Refused)
	p.Pod, p.want, p.read = object, want, true
	a.announceEnd(p)
	if !read {
		a.except(p)
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

// announceEnd tells the proxies of a pod that is being deleted. They are told before the pod's network goes, so that peers can still leave its
// tunnels. An agent that has started learns of the deletion before it has found the pod captured, so it tells them after that.
func (a *Agent) announceEnd(p *pod) {
	if p.Terminating && p.state != Plain && !p.announced.end {
		p.announced.end = true
		a.listenerStore.Terminating(p.UID)
	}
}

// except reads what is to pass by the proxy of the pod.
func (a *Agent) except(p *pod) {
	settings, refused := settingsOf(a.opts.Exceptions, p.Annotations)
	refused = append(refused, p.Refused...)
	if settings.Own = p.Cgroup; !settings.Own.Known() {
		// A pod whose cgroup is not found now keeps the one that was found before: its processes are still there.
		settings.Own = p.settings.Own
	}
	if settings.Equal(p.settings) && slices.Equal(refused, p.refused) {
		return
	}
	p.settings, p.refused = settings, refused
	if p.state == Captured {
		p.again = time.Time{}
	}
	for _, why := range refused {
		a.log.Warn("an exception from capture is refused; the pod is captured without it", "pod", p.Namespace+"/"+p.Name, "err", why)
	}
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
	states, excepted := map[State]int{}, 0
	a.advanceAll(now)
	a.finishLearning(now)
	if !a.ready.Load() {
		due(now.Add(100 * time.Millisecond))
	}
	a.relieve()
	a.tellProbed()
	a.answer()
	for _, p := range a.pods {
		states[p.state]++
		if p.state == Captured && !p.settings.ExceptsLike(a.opts.Exceptions) {
			excepted++
		}
		if p.working {
			// It says when it is done, and others why that takes so long.
			if p.explains(now) {
				a.report(ctx, p, now)
			}
			due(p.began.Add(longWork))
			due(p.reportAt)
			due(p.writes.next())
			continue
		}
		a.report(ctx, p, now)
		due(p.again)
		due(p.probesBy)
		due(p.work.rest)
		due(p.reportAt)
		due(p.writes.next())
		if p.want {
			due(p.wantSince.Add(a.opts.Explain))
		}
	}
	a.metrics.observe(states, excepted, a.zds.Connections(), a.connected.Load())
	return next.Sub(now)
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
