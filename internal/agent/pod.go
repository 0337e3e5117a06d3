package agent

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"lateen.dev/lateen/internal/agent/diag"
	"lateen.dev/lateen/internal/agent/netns"
	"lateen.dev/lateen/internal/agent/redirect"
	"lateen.dev/lateen/internal/agent/source"
	"lateen.dev/lateen/internal/agent/zds"
	"lateen.dev/lateen/internal/model/wellknown"
)

// State is where a pod stands between plain and captured.
type State string

// States.
const (
	Plain     State = "plain"     // not enrolled, and nothing of ours is in its namespace
	Pending   State = "pending"   // to be captured; its connections are still plain
	Captured  State = "captured"  // its new connections go through the proxy
	Releasing State = "releasing" // new connections are plain; meshed ones are finishing
)

// pod is one pod of the node. It belongs to the agent's loop.
type pod struct {
	source.Pod
	want      bool
	wantSince time.Time // when want last changed

	settings redirect.Settings // what passes by the proxy, once captured
	refused  []string          // what asks for more of that and cannot be followed, and why
	read     bool              // both are what the annotations say

	progress

	working bool          // it is being advanced: progress is what it was when that began
	began   time.Time     // when that was
	waits   time.Time     // since when it waits for a turn, as one whose work takes long; zero if it does not
	news    *news         // what a snapshot said meanwhile
	took    time.Duration // to advance it, when there last was something to do
	rest    time.Time     // not before then, if that was long
	stirred bool          // something has happened since it was last advanced
	before  *remembered   // what an earlier agent noted

	probing   bool          // its probed addresses count
	told      source.Report // what the engine was told last
	repeat    bool          // the engine's object says something else
	reporting bool          // a report is under way
	reportAt  time.Time     // not before then, after a failed report
	pace      pace          // of its reports
}

// progress is how far the pod has come: what advancing it changes, and nothing else.
type progress struct {
	state  State
	reason string // why the state is not what the user wants, or what it waits for
	since  time.Time

	applied redirect.Settings // what the rules were last made from

	ns       *netns.Namespace // held from the first attempt to capture until the release
	looked   bool             // it was tried to learn what stands in its namespace
	observed bool             // what stands in its namespace is known
	again    time.Time        // when to look again, apart from events
	probesBy time.Time        // until when the rules for its probes are waited for, once it could be captured otherwise
	failures int              // attempts in a row that failed
	listing  time.Duration    // what it last took to list its sockets

	graceUntil time.Time            // while releasing: when senders have learned
	cutAt      time.Time            // while releasing: when meshed connections are not waited for any longer; zero for never
	takenBack  bool                 // while releasing: the proxy has been told to let go
	unmeshed   map[uint64]time.Time // captured: cookies of connections that are older than the capture, and its time
	disowned   uint64               // captured: how many packets of its own had the proxy's mark, since the rules were written
	capturedAt time.Time            // captured: when, also across restarts of the agent
	forget     bool                 // captured: connections that only ended under the rules are still to be looked for

	parted bool // the pod has ended, and nothing of the proxy's in it is open
}

// anew begins with a pod as if it were another: its network is. So what work in the old one took says nothing any more.
func (p *pod) anew(now time.Time) {
	*p = pod{progress: progress{state: Plain, since: now}, reporting: p.reporting, told: p.told, pace: p.pace, probing: p.probing, stirred: true}
}

// The steps of capture at which things fail, as the metric names them.
const (
	stepNamespace = "namespace"
	stepProxy     = "proxy"
	stepRules     = "rules"
	stepSockets   = "sockets"
	stepReport    = "report"
	stepPlugin    = "plugin" // the CNI plugin cannot be installed
)

func (p *pod) become(s State, reason string, now time.Time) {
	if p.state != s {
		p.state, p.since = s, now
		p.failures, p.takenBack = 0, false
	}
	p.reason = reason
	p.again, p.probesBy = time.Time{}, time.Time{}
}

// fail notes why nothing was done, and sets the time of the next attempt.
func (p *pod) fail(reason string, now time.Time) {
	p.reason = reason
	const first, longest = 200 * time.Millisecond, 10 * time.Second
	p.again = now.Add(min(first<<min(p.failures, 10), longest))
	p.failures++
}

// advance takes the pod as far towards what the user wants as it can go now.
func (a *Agent) advance(p *pod, now time.Time) {
	if p.Ended {
		a.part(p, now)
		return
	}
	if !p.observed && (now.Before(p.again) || !a.observe(p, now)) {
		return
	}
	switch p.state {
	case Plain:
		if p.want && !p.Terminating {
			p.become(Pending, "", now)
			a.capture(p, now)
		}
	case Pending:
		if !p.want {
			a.zds.Drop(p.UID)
			a.letGo(p, now)
			return
		}
		a.capture(p, now)
	case Captured:
		if !p.want {
			a.release(p, now)
			return
		}
		a.uphold(p, now)
	case Releasing:
		if p.want {
			a.capture(p, now)
			return
		}
		a.finish(p, now)
	}
}

// observe learns from the namespace what an earlier agent left in it, and takes over from there.
func (a *Agent) observe(p *pod, now time.Time) bool {
	p.looked = true
	believed := p.Annotations[wellknown.Redirection] == string(source.Enabled)
	if p.HostNetwork || p.NetNS == "" && !believed {
		p.observed = true
		return true
	}
	mode := redirect.Absent
	held := a.hold(p, now)
	if held {
		var err error
		if mode, err = a.redirect.Observe(p.ns); err != nil {
			a.failed(p, stepRules, err, now)
			held = false
		}
	}
	if !held {
		if believed {
			// Its rules stand where they cannot be read now. The proxy is to keep it, whatever happens next.
			a.zds.Put(a.workload(p))
		}
		return false
	}
	p.observed = true
	switch mode {
	case redirect.Capturing:
		p.become(Captured, "", now)
		a.zds.Put(a.workload(p))
		a.adoptUnmeshed(p, now)
	case redirect.Draining:
		p.become(Releasing, "", now)
		a.allow(p, now)
		a.zds.Put(a.workload(p))
	default:
		p.reason = ""
		if !p.want {
			a.letGo(p, now)
		}
	}
	return true
}

// hold opens the pod's namespace, unless it is open.
func (a *Agent) hold(p *pod, now time.Time) bool {
	if p.ns != nil {
		return true
	}
	if p.NetNS == "" {
		p.fail(cmp.Or(p.Lost, "the pod has no network yet"), now)
		return false
	}
	if err := a.enter(p); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("%w; the pod has no network yet, or is gone", err)
		}
		a.failed(p, stepNamespace, err, now)
		return false
	}
	return true
}

// capture hands the pod to the proxy and, once the proxy listens in it, redirects its connections: traffic is never
// led to where nobody listens.
func (a *Agent) capture(p *pod, now time.Time) {
	p.takenBack = false
	if p.Terminating && p.state == Pending {
		p.reason = "the pod is being deleted"
		return
	}
	if now.Before(p.again) || !a.hold(p, now) {
		return
	}
	a.zds.Put(a.workload(p))
	switch status := a.zds.Status(p.UID); {
	case status.Accepted:
	case !status.Connected:
		p.reason = "no node proxy is connected; connections stay plain until one is"
		return
	case status.Refusal != "":
		if p.reason != "the node proxy refused: "+status.Refusal {
			p.reason = "the node proxy refused: " + status.Refusal
			a.metrics.captureError(stepProxy)
			a.log.Warn("pod not captured", "pod", p.Namespace+"/"+p.Name, "err", p.reason)
		}
		return
	default:
		p.reason = "waiting for the node proxy to listen in the pod"
		return
	}
	if !a.probesPass(p, now) {
		p.reason = "waiting for the node's rules that let the kubelet's probes pass"
		return
	}
	before, err := a.sockets(p)
	if err != nil {
		a.failed(p, stepSockets, err, now)
		return
	}
	tracked := a.track(p, before)
	if a.leaving.Load() {
		a.uncaptured(p, tracked)
		// Who waits for the pods to be released may have waited long enough.
		p.reason = leaves
		return
	}
	if _, err := a.redirect.Apply(p.ns, redirect.Capturing, p.settings); err != nil {
		a.uncaptured(p, tracked)
		a.failed(p, stepRules, err, now)
		return
	}
	a.inherited(p)
	p.applied, p.disowned = p.settings, 0
	after, err := a.sockets(p)
	if err != nil {
		// It is captured; that its older connections cannot be listed must not undo it.
		a.metrics.captureError(stepSockets)
		a.log.Warn("connections opened before enrolment cannot be listed", "pod", p.Namespace+"/"+p.Name, "err", err)
	} else {
		a.untrack(p, tracked, after)
	}
	a.track(p, after)
	p.unmeshed, p.capturedAt, p.forget = older(before, after, now), now, true
	p.become(Captured, "", now)
	p.again = now.Add(min(a.opts.Verify, forgetAfter))
	a.log.Info("pod captured", "pod", p.Namespace+"/"+p.Name, "unmeshed", len(p.unmeshed), "exceptions", strings.Join(p.settings.Exceptions(), "; "))
}

// inherited removes what Istio left in a pod that is captured, or no longer: once our rules do not, its own would lead new connections to
// where nobody listens. That it cannot be removed must not undo anything; it is tried again.
func (a *Agent) inherited(p *pod) {
	if a.opts.Alone == nil || !a.opts.Alone() {
		return
	}
	had, err := a.redirect.Inherited(p.ns)
	if err != nil {
		a.metrics.captureError(stepRules)
		a.log.Warn("what Istio left in a pod stays there for now", "pod", p.Namespace+"/"+p.Name, "err", err)
	} else if had {
		a.log.Info("removed what Istio left in a pod", "pod", p.Namespace+"/"+p.Name)
	}
}

// track has the kernel keep the connections that clients have open already apart from those that the proxy will deliver
// from the same clients. Without it a delivery may meet one that is idle, and break it: no reason not to capture the pod.
func (a *Agent) track(p *pod, l diag.Listing) (older []redirect.Older) {
	for _, c := range l.Unmeshed() {
		if c.Direction == diag.Inbound {
			older = append(older, redirect.Older{Client: c.Remote, Pod: c.Local})
		}
	}
	if err := a.redirect.Track(p.ns, older); err != nil {
		a.metrics.captureError(stepRules)
		a.log.Warn("connections opened before enrolment may break if they are idle", "pod", p.Namespace+"/"+p.Name, "err", err)
	}
	return older
}

// uncaptured takes back what track did in a pod without rules: nothing sees its connections end. One that is being released has some.
func (a *Agent) uncaptured(p *pod, tracked []redirect.Older) {
	if p.state == Pending {
		a.untrack(p, tracked, diag.Listing{})
	}
}

// forgetAfter is how long after a capture its connections are looked through once. What was about to end then has ended.
const forgetAfter = 2 * time.Second

// forgetEnded has connection tracking forget what it takes for open and what has no socket in the pod: it saw only the second half of
// such a connection, and what the pod opens from the same port would not be redirected, and would be dropped.
func (a *Agent) forgetEnded(p *pod) {
	p.forget = false
	// The sockets come second: what is tracked now and has none then has ended.
	open, err := a.redirect.Untranslated(p.ns)
	if err == nil && len(open) > 0 {
		var now diag.Listing
		if now, err = a.sockets(p); err == nil {
			a.untrack(p, open, now)
		}
	}
	if err != nil {
		a.metrics.captureError(stepSockets)
		a.log.Warn("connections that ended while the pod was captured may keep their ports from new ones for some minutes", "pod", p.Namespace+"/"+p.Name, "err", err)
	}
}

// untrack takes back what track did for connections that are there no longer: nothing saw them end before the rules stood.
func (a *Agent) untrack(p *pod, tracked []redirect.Older, now diag.Listing) {
	if now.Omitted > 0 {
		return // which are there is not known
	}
	there := map[redirect.Older]bool{}
	for _, s := range now.Sockets {
		there[redirect.Older{Client: s.Remote, Pod: s.Local}] = true
		there[redirect.Older{Client: s.Local, Pod: s.Remote}] = true
	}
	ended := slices.DeleteFunc(tracked, func(o redirect.Older) bool { return there[o] })
	if err := a.redirect.Untrack(p.ns, ended); err != nil {
		a.metrics.captureError(stepRules)
		a.log.Warn("clients of connections that ended during enrolment may not be able to use the same ports for some days", "pod", p.Namespace+"/"+p.Name, "err", err)
	}
}

// older names the connections that the rules came too late for: those established before, and those that were opened
// in the moment between the first listing and the rules.
func older(before, after diag.Listing, now time.Time) map[uint64]time.Time {
	cookies := map[uint64]time.Time{}
	for _, l := range []diag.Listing{before, after} {
		for _, c := range l.Unmeshed() {
			cookies[c.Cookie] = now
		}
	}
	return cookies
}

// adoptUnmeshed finds the older connections of a pod that an earlier agent captured.
func (a *Agent) adoptUnmeshed(p *pod, now time.Time) {
	if c := p.before; c != nil {
		p.capturedAt, p.unmeshed = c.Since, map[uint64]time.Time{}
		for _, cookie := range c.Older {
			p.unmeshed[cookie] = c.Since
		}
		p.again = now.Add(a.opts.Verify)
		return
	}
	p.capturedAt = now
	l, err := a.sockets(p)
	if err != nil {
		a.metrics.captureError(stepSockets)
		a.log.Warn("connections opened before enrolment cannot be listed", "pod", p.Namespace+"/"+p.Name, "err", err)
		return
	}
	p.unmeshed = older(l, diag.Listing{}, p.capturedAt)
	p.again = now.Add(a.opts.Verify)
}

// uphold keeps a captured pod captured: it repairs rules that somebody damaged. A proxy that is away changes nothing
// but the reason; connections wait or fail, they do not become plain.
func (a *Agent) uphold(p *pod, now time.Time) {
	switch status := a.zds.Status(p.UID); {
	case status.Accepted:
		p.reason = ""
	case !status.Connected:
		p.reason = "no node proxy is connected; new connections fail until one is"
	case status.Refusal != "":
		p.reason = "the node proxy refused: " + status.Refusal
	default:
		p.reason = "waiting for the node proxy to listen in the pod"
	}
	if now.Before(p.again) || a.leaving.Load() || !a.hold(p, now) {
		return
	}
	// The namespace may have been out of reach before.
	a.zds.Put(a.workload(p))
	p.again, p.failures = now.Add(a.opts.Verify), 0
	a.expose(p)
	changed, err := a.redirect.Apply(p.ns, redirect.Capturing, p.settings)
	if err != nil {
		a.failed(p, stepRules, err, now)
		return
	}
	if changed {
		p.disowned = 0
	}
	a.inherited(p)
	if p.forget {
		a.forgetEnded(p)
	}
	asked, excepted := !p.settings.Equal(p.applied), !p.settings.ExceptsLike(p.applied)
	p.applied = p.settings
	switch {
	case changed && asked && !excepted:
		a.log.Debug("pod's cgroup is known; what it marks as the node proxy's is captured, too", "pod", p.Namespace+"/"+p.Name)
	case changed && asked:
		a.log.Info("pod's exceptions from capture changed", "pod", p.Namespace+"/"+p.Name, "exceptions", p.settings.Exceptions())
	case changed:
		a.metrics.repairs.Inc()
		a.log.Warn("repaired the redirection: somebody else changed it", "pod", p.Namespace+"/"+p.Name)
	}
}

// expose tells of a pod whose processes mark what they send as the proxy's. That is no accident, and leads them nowhere but to the proxy.
func (a *Agent) expose(p *pod) {
	if !p.applied.Own.Known() {
		return
	}
	n, err := a.redirect.Disowned(p.ns)
	if err != nil || n <= p.disowned {
		return // rules that cannot be read are told of by who writes them
	}
	a.metrics.disowned.Add(float64(n - p.disowned))
	a.log.Warn("a process of the pod marks its connections as the node proxy's, which would leave the mesh; they are captured all the same. Take CAP_NET_RAW and CAP_NET_ADMIN from its containers",
		"pod", p.Namespace+"/"+p.Name, "packets", n-p.disowned)
	p.disowned = n
}

// release stops redirecting new connections. The proxy keeps the pod meanwhile: senders elsewhere still use its tunnel
// until they learn, and its meshed connections go on.
func (a *Agent) release(p *pod, now time.Time) {
	if p.failures > 0 && now.Before(p.again) || !a.hold(p, now) {
		return
	}
	if _, err := a.redirect.Apply(p.ns, redirect.Draining, redirect.Settings{}); err != nil {
		a.failed(p, stepRules, err, now)
		return
	}
	a.inherited(p)
	if _, err := a.redirect.Settle(p.ns); err != nil {
		// Ended connections that stay tracked make the release longer, not wrong: Settle runs again before the rules go.
		a.metrics.captureError(stepRules)
		a.log.Warn("ended connections of a released pod are tracked for longer", "pod", p.Namespace+"/"+p.Name, "err", err)
	}
	p.unmeshed = nil
	p.become(Releasing, "other proxies not updated yet", now)
	a.allow(p, now)
	a.log.Info("pod released; new connections are plain", "pod", p.Namespace+"/"+p.Name)
}

// allow sets how long senders may take to learn of a release, and how long connections may then go on.
func (a *Agent) allow(p *pod, now time.Time) {
	p.graceUntil = now.Add(a.opts.Grace)
	p.again = p.graceUntil
	p.cutAt = time.Time{}
	if a.opts.ReleaseDeadline >= 0 {
		p.cutAt = now.Add(a.opts.ReleaseDeadline)
	}
}

// finish takes the pod back from the proxy once its meshed connections have ended, and then removes the rest. Waiting
// first lets those end in peace behind any proxy: some cut what a pod has when it is taken back.
func (a *Agent) finish(p *pod, now time.Time) {
	if now.Before(p.again) || !a.hold(p, now) {
		return
	}
	l, err := a.sockets(p)
	if err != nil {
		a.failed(p, stepSockets, err, now)
		return
	}
	if n := l.Carried(); n > 0 {
		if a.awaits(p, "meshed connections", n, now) {
			return
		}
		if !p.takenBack {
			a.metrics.cut.Add(float64(n))
			a.log.Warn("meshed connections of a released pod are cut: they did not end in time", "pod", p.Namespace+"/"+p.Name,
				"connections", n, "deadline", a.opts.ReleaseDeadline)
		}
	}
	if !p.takenBack {
		p.takenBack = true
		a.zds.Drop(p.UID)
	}
	if a.zds.Status(p.UID).Known {
		p.reason = "waiting for the node proxy to let go"
		return
	}
	if !a.settled(p, now) {
		return
	}
	if _, err := a.redirect.Apply(p.ns, redirect.Absent, redirect.Settings{}); err != nil {
		a.failed(p, stepRules, err, now)
		return
	}
	a.log.Info("pod is plain", "pod", p.Namespace+"/"+p.Name)
	a.letGo(p, now)
}

// awaits says whether connections of a released pod are waited for, and when it is looked at again.
func (a *Agent) awaits(p *pod, what string, n int, now time.Time) bool {
	if p.overdue(now) {
		return false
	}
	p.reason = fmt.Sprintf("waiting for %s to finish: %d", what, n)
	if !p.cutAt.IsZero() {
		p.reason += "; cut at " + p.cutAt.UTC().Format(time.TimeOnly)
	}
	p.again = now.Add(p.pause(a.opts.Poll))
	return true
}

// overdue says whether a released pod's connections are not waited for any longer.
func (p *pod) overdue(now time.Time) bool { return !p.cutAt.IsZero() && !now.Before(p.cutAt) }

// settled says whether the rules can go. A plain connection whose port the kernel changed, because another that it tracked
// had the same, lasts only with them.
func (a *Agent) settled(p *pod, now time.Time) bool {
	n, err := a.redirect.Settle(p.ns)
	if err != nil {
		if p.overdue(now) {
			a.log.Warn("connections whose port the kernel translates may be cut: they cannot be listed", "pod", p.Namespace+"/"+p.Name, "err", err)
			return true
		}
		a.failed(p, stepRules, err, now)
		return false
	}
	if n == 0 {
		return true
	}
	if a.awaits(p, "connections whose port the kernel translates", n, now) {
		return false
	}
	a.metrics.cut.Add(float64(n))
	a.log.Warn("connections whose port the kernel translates are cut: they did not end in time", "pod", p.Namespace+"/"+p.Name,
		"connections", n, "deadline", a.opts.ReleaseDeadline)
	return true
}

// part takes a pod that has ended back from the proxy and waits until the ends of its connections have left: a peer that
// does not hear of an end before the pod's network goes waits for answers that nobody sends. How long that may take is
// the engine's affair.
func (a *Agent) part(p *pod, now time.Time) {
	if p.parted || now.Before(p.again) {
		return
	}
	if !p.takenBack {
		p.takenBack = true
		a.zds.Drop(p.UID)
	}
	if a.zds.Status(p.UID).Known {
		return // it says when that changes
	}
	if p.ns == nil && p.Annotations[wellknown.Redirection] == string(source.Enabled) {
		a.hold(p, now) // an earlier agent captured it
	}
	if p.ns != nil {
		if l, err := a.sockets(p); err == nil && l.Unheard() > 0 {
			p.again = now.Add(p.pause(partLook))
			return
		}
	}
	p.parted, p.again = true, time.Time{}
}

// sockets lists the pod's, and notes what that took.
func (a *Agent) sockets(p *pod) (diag.Listing, error) {
	began := time.Now()
	l, err := a.list(p.ns)
	p.listing = time.Since(began)
	return l, err
}

// pause is the time until the next look: longer where a look takes long, so that it is never most of what is done.
func (p *pod) pause(least time.Duration) time.Duration {
	const share, longest = 10, 10 * time.Second
	return max(least, min(share*p.listing, longest))
}

// partLook is the time between two looks at what is open in a pod that has ended.
const partLook = 20 * time.Millisecond

// letGo forgets what was held of a pod that is plain.
func (a *Agent) letGo(p *pod, now time.Time) {
	a.abandon(p)
	p.unmeshed = nil
	p.become(Plain, "", now)
}

func (a *Agent) failed(p *pod, step string, err error, now time.Time) {
	if !p.want && p.state == Plain {
		// Nobody waits for it; it only cannot be looked at yet.
		p.fail("", now)
		return
	}
	a.metrics.captureError(step)
	if p.reason != err.Error() {
		a.log.Warn("pod not as wanted", "pod", p.Namespace+"/"+p.Name, "state", p.state, "step", step, "err", err)
	}
	p.fail(err.Error(), now)
}

func (a *Agent) workload(p *pod) zds.Workload {
	return zds.Workload{UID: p.UID, Namespace: p.Namespace, Name: p.Name, ServiceAccount: p.ServiceAccount, NetNS: p.ns}
}
