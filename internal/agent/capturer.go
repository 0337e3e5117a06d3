package agent

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"lateen.dev/lateen/internal/agent/diag"
	"lateen.dev/lateen/internal/agent/netns"
	"lateen.dev/lateen/internal/agent/redirect"
	"lateen.dev/lateen/internal/agent/source"
	"lateen.dev/lateen/internal/model/wellknown"
)

// capturer advances pods between plain and captured: it changes what stands in their networks and what the proxy serves. Workers
// call it for different pods at the same time. It keeps nothing of a pod, whose progress belongs to its caller.
type capturer struct {
	log      *slog.Logger
	metrics  *Metrics
	zds      Proxies
	redirect Redirector
	probes   Probes
	networks *networks
	list     func(*netns.Namespace) (diag.Listing, error)
	alone    func() bool // no Istio captures pods on this node; nil if that is not known

	grace           time.Duration // between a release and taking the pod back from the proxy
	poll            time.Duration // between looks at a released pod's meshed connections
	verify          time.Duration // between looks at a captured pod's rules
	releaseDeadline time.Duration // how long a released pod's meshed connections may go on; negative for ever

	leaving atomic.Bool // the mesh leaves the node: every pod is to be plain
}

// newCapturer makes a capturer of this machine's kernel. The options have their defaults already.
func newCapturer(proxies Proxies, opts Options) *capturer {
	return &capturer{
		log: opts.Log, metrics: opts.Metrics, zds: proxies, redirect: kernel{}, probes: opts.Probes, networks: newNetworks(ownNetworks()), list: diag.List, alone: opts.Alone,
		grace: opts.Grace, poll: opts.Poll, verify: opts.Verify, releaseDeadline: opts.ReleaseDeadline,
	}
}

// advance takes the pod as far towards what the user wants as it can go now.
func (c *capturer) advance(p *pod, now time.Time) {
	if p.Ended {
		c.part(p, now)
		return
	}
	if !p.observed && (now.Before(p.again) || !c.observe(p, now)) {
		return
	}
	switch p.state {
	case Plain:
		if p.want && !p.Terminating {
			p.become(Pending, "", now)
			c.capture(p, now)
		}
	case Pending:
		if !p.want {
			c.zds.Drop(p.UID)
			c.letGo(p, now)
			return
		}
		c.capture(p, now)
	case Captured:
		// One that an earlier agent captured, and that cannot be judged, may lack the annotation that says so.
		if !p.want && (!p.Unjudged || c.leaving.Load()) {
			c.release(p, now)
			return
		}
		c.uphold(p, now)
	case Releasing:
		if p.want {
			c.capture(p, now)
			return
		}
		c.finish(p, now)
	}
}

// observe learns from the namespace what an earlier agent left in it, and takes over from there.
func (c *capturer) observe(p *pod, now time.Time) bool {
	p.looked = true
	believed := p.Annotations[wellknown.Redirection] == string(source.Enabled)
	if p.HostNetwork || p.NetNS == "" && !believed {
		p.observed = true
		return true
	}
	mode := redirect.Absent
	held := c.hold(p, now)
	if held {
		var err error
		if mode, err = c.redirect.Observe(p.ns); err != nil {
			c.failed(p, stepRules, err, now)
			held = false
		}
	}
	if !held {
		if believed {
			// Its rules stand where they cannot be read now. The proxy is to keep it, whatever happens next.
			c.zds.Put(p.workload())
		}
		return false
	}
	p.observed = true
	switch mode {
	case redirect.Capturing:
		p.become(Captured, "", now)
		c.zds.Put(p.workload())
		c.adoptUnmeshed(p, now)
	case redirect.Draining:
		p.become(Releasing, "", now)
		c.allow(p, now)
		c.zds.Put(p.workload())
	default:
		p.reason = ""
		if !p.want {
			c.letGo(p, now)
		}
	}
	return true
}

// hold opens the pod's namespace, unless it is open.
func (c *capturer) hold(p *pod, now time.Time) bool {
	if p.ns != nil {
		return true
	}
	if p.NetNS == "" {
		p.fail(cmp.Or(p.Lost, "the pod has no network yet"), now)
		return false
	}
	if err := c.networks.enter(p); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("%w; the pod has no network yet, or is gone", err)
		}
		c.failed(p, stepNamespace, err, now)
		return false
	}
	return true
}

// probesTime is how long a pod waits for the rules that let the kubelet's probes pass. Rules that cannot be written keep it from being probed
// where a policy wants to know who comes, but not from the mesh.
const probesTime = 2 * time.Second

// probesPass says whether probes of the pod will pass once it is captured, or have been waited for long enough.
func (c *capturer) probesPass(p *pod, now time.Time) bool {
	if c.probes.Stand(p.Probed) {
		return true
	}
	if p.probesBy.IsZero() {
		p.probesBy = now.Add(probesTime)
	}
	if now.Before(p.probesBy) {
		return false
	}
	c.log.Warn("pod is captured without waiting any longer for the rules that let the kubelet's probes pass", "pod", p.Namespace+"/"+p.Name)
	return true
}

// capture hands the pod to the proxy and, once the proxy listens in it, redirects its connections: traffic is never
// led to where nobody listens.
func (c *capturer) capture(p *pod, now time.Time) {
	p.takenBack = false
	if p.Terminating && p.state == Pending {
		p.reason = "the pod is being deleted"
		return
	}
	if now.Before(p.again) || !c.hold(p, now) {
		return
	}
	c.zds.Put(p.workload())
	switch status := c.zds.Status(p.UID); {
	case status.Accepted:
	case !status.Connected:
		p.reason = "no node proxy is connected; connections stay plain until one is"
		return
	case status.Refusal != "":
		if p.reason != "the node proxy refused: "+status.Refusal {
			p.reason = "the node proxy refused: " + status.Refusal
			c.metrics.captureError(stepProxy)
			c.log.Warn("pod not captured", "pod", p.Namespace+"/"+p.Name, "err", p.reason)
		}
		return
	default:
		p.reason = "waiting for the node proxy to listen in the pod"
		return
	}
	if !c.probesPass(p, now) {
		p.reason = "waiting for the node's rules that let the kubelet's probes pass"
		return
	}
	before, err := c.sockets(p)
	if err != nil {
		c.failed(p, stepSockets, err, now)
		return
	}
	tracked := c.track(p, before)
	if c.leaving.Load() {
		c.uncaptured(p, tracked)
		// The caller that waits for the release may have waited long enough.
		p.reason = leaves
		return
	}
	if _, err := c.redirect.Apply(p.ns, redirect.Capturing, p.settings); err != nil {
		c.uncaptured(p, tracked)
		c.failed(p, stepRules, err, now)
		return
	}
	c.inherited(p)
	p.applied, p.disowned = p.settings, 0
	after, err := c.sockets(p)
	if err != nil {
		// It is captured; that its older connections cannot be listed must not undo it.
		c.metrics.captureError(stepSockets)
		c.log.Warn("connections opened before enrolment cannot be listed", "pod", p.Namespace+"/"+p.Name, "err", err)
	} else {
		c.untrack(p, tracked, after)
	}
	c.track(p, after)
	p.unmeshed, p.capturedAt, p.forget = older(before, after, now), now, true
	p.become(Captured, "", now)
	p.again = now.Add(min(c.verify, forgetAfter))
	c.log.Info("pod captured", "pod", p.Namespace+"/"+p.Name, "unmeshed", len(p.unmeshed), "exceptions", strings.Join(p.settings.Exceptions(), "; "))
}

// inherited removes what Istio left in a pod that is captured, or no longer: once our rules do not, its own would lead new connections to
// where nobody listens. That it cannot be removed must not undo anything; it is tried again.
func (c *capturer) inherited(p *pod) {
	if c.alone == nil || !c.alone() {
		return
	}
	had, err := c.redirect.Inherited(p.ns)
	if err != nil {
		c.metrics.captureError(stepRules)
		c.log.Warn("what Istio left in a pod stays there for now", "pod", p.Namespace+"/"+p.Name, "err", err)
	} else if had {
		c.log.Info("removed what Istio left in a pod", "pod", p.Namespace+"/"+p.Name)
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
func (c *capturer) adoptUnmeshed(p *pod, now time.Time) {
	if kept := p.before; kept != nil {
		p.capturedAt, p.unmeshed = kept.Since, map[uint64]time.Time{}
		for _, cookie := range kept.Older {
			p.unmeshed[cookie] = kept.Since
		}
		p.again = now.Add(c.verify)
		return
	}
	p.capturedAt = now
	l, err := c.sockets(p)
	if err != nil {
		c.metrics.captureError(stepSockets)
		c.log.Warn("connections opened before enrolment cannot be listed", "pod", p.Namespace+"/"+p.Name, "err", err)
		return
	}
	p.unmeshed = older(l, diag.Listing{}, p.capturedAt)
	p.again = now.Add(c.verify)
}

// uphold keeps a captured pod captured: it repairs rules that somebody damaged. A proxy that is away changes nothing
// but the reason; connections wait or fail, they do not become plain.
func (c *capturer) uphold(p *pod, now time.Time) {
	switch status := c.zds.Status(p.UID); {
	case status.Accepted:
		p.reason = ""
	case !status.Connected:
		p.reason = "no node proxy is connected; new connections fail until one is"
	case status.Refusal != "":
		p.reason = "the node proxy refused: " + status.Refusal
	default:
		p.reason = "waiting for the node proxy to listen in the pod"
	}
	if now.Before(p.again) || c.leaving.Load() || !c.hold(p, now) {
		return
	}
	// The namespace may have been out of reach before.
	c.zds.Put(p.workload())
	p.again, p.failures = now.Add(c.verify), 0
	c.expose(p)
	changed, err := c.redirect.Apply(p.ns, redirect.Capturing, p.settings)
	if err != nil {
		c.failed(p, stepRules, err, now)
		return
	}
	if changed {
		p.disowned = 0
	}
	c.inherited(p)
	if p.forget {
		c.forgetEnded(p)
	}
	asked, excepted := !p.settings.Equal(p.applied), !p.settings.ExceptsLike(p.applied)
	p.applied = p.settings
	switch {
	case changed && asked && !excepted:
		c.log.Debug("pod's cgroup is known; what it marks as the node proxy's is captured, too", "pod", p.Namespace+"/"+p.Name)
	case changed && asked:
		c.log.Info("pod's exceptions from capture changed", "pod", p.Namespace+"/"+p.Name, "exceptions", p.settings.Exceptions())
	case changed:
		c.metrics.repairs.Inc()
		c.log.Warn("repaired the redirection: somebody else changed it", "pod", p.Namespace+"/"+p.Name)
	}
}

// expose tells of a pod whose processes mark what they send as the proxy's. That is no accident, and leads them nowhere but to the proxy.
func (c *capturer) expose(p *pod) {
	if !p.applied.Own.Known() {
		return
	}
	n, err := c.redirect.Disowned(p.ns)
	if err != nil || n <= p.disowned {
		return // rules that cannot be read are told of by who writes them
	}
	c.metrics.disowned.Add(float64(n - p.disowned))
	c.log.Warn("a process of the pod marks its connections as the node proxy's, which would leave the mesh; they are captured all the same. Take CAP_NET_RAW and CAP_NET_ADMIN from its containers",
		"pod", p.Namespace+"/"+p.Name, "packets", n-p.disowned)
	p.disowned = n
}

func (c *capturer) failed(p *pod, step string, err error, now time.Time) {
	if !p.want && p.state == Plain {
		// The pod is not to be captured, so nobody waits for it; its namespace just cannot be observed yet.
		p.fail("", now)
		return
	}
	c.metrics.captureError(step)
	if p.reason != err.Error() {
		c.log.Warn("pod not as wanted", "pod", p.Namespace+"/"+p.Name, "state", p.state, "step", step, "err", err)
	}
	p.fail(err.Error(), now)
}
