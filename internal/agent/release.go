package agent

import (
	"fmt"
	"time"

	"lateen.dev/lateen/internal/agent/redirect"
	"lateen.dev/lateen/internal/agent/source"
	"lateen.dev/lateen/internal/model/wellknown"
)

// release stops redirecting new connections. The proxy keeps the pod meanwhile: senders elsewhere still use its tunnel
// until they learn, and its meshed connections go on.
func (c *capturer) release(p *pod, now time.Time) {
	if p.failures > 0 && now.Before(p.again) || !c.hold(p, now) {
		return
	}
	if _, err := c.redirect.Apply(p.ns, redirect.Draining, redirect.Settings{}); err != nil {
		c.failed(p, stepRules, err, now)
		return
	}
	c.inherited(p)
	if _, err := c.redirect.Settle(p.ns); err != nil {
		// Ended connections that stay tracked make the release longer, not wrong: Settle runs again before the rules go.
		c.metrics.captureError(stepRules)
		c.log.Warn("ended connections of a released pod are tracked for longer", "pod", p.Namespace+"/"+p.Name, "err", err)
	}
	p.unmeshed = nil
	p.become(Releasing, "other proxies not updated yet", now)
	c.allow(p, now)
	c.log.Info("pod released; new connections are plain", "pod", p.Namespace+"/"+p.Name)
}

// allow sets how long senders may take to learn of a release, and how long connections may then go on.
func (c *capturer) allow(p *pod, now time.Time) {
	p.graceUntil = now.Add(c.grace)
	p.again = p.graceUntil
	p.cutAt = time.Time{}
	if c.releaseDeadline >= 0 {
		p.cutAt = now.Add(c.releaseDeadline)
	}
}

// finish takes the pod back from the proxy once its meshed connections have ended, and then removes the rest. Waiting
// first lets those end in peace behind any proxy: some cut what a pod has when it is taken back.
func (c *capturer) finish(p *pod, now time.Time) {
	if now.Before(p.again) || !c.hold(p, now) {
		return
	}
	l, err := c.sockets(p)
	if err != nil {
		c.failed(p, stepSockets, err, now)
		return
	}
	if n := l.Carried(); n > 0 {
		if c.awaits(p, "meshed connections", n, now) {
			return
		}
		if !p.takenBack {
			c.metrics.cut.Add(float64(n))
			c.log.Warn("meshed connections of a released pod are cut: they did not end in time", "pod", p.Namespace+"/"+p.Name,
				"connections", n, "deadline", c.releaseDeadline)
		}
	}
	if !p.takenBack {
		p.takenBack = true
		c.zds.Drop(p.UID)
	}
	if c.zds.Status(p.UID).Known {
		p.reason = "waiting for the node proxy to let go"
		return
	}
	if !c.settled(p, now) {
		return
	}
	if _, err := c.redirect.Apply(p.ns, redirect.Absent, redirect.Settings{}); err != nil {
		c.failed(p, stepRules, err, now)
		return
	}
	c.log.Info("pod is plain", "pod", p.Namespace+"/"+p.Name)
	c.letGo(p, now)
}

// awaits says whether connections of a released pod are waited for, and when it is looked at again.
func (c *capturer) awaits(p *pod, what string, n int, now time.Time) bool {
	if p.overdue(now) {
		return false
	}
	p.reason = fmt.Sprintf("waiting for %s to finish: %d", what, n)
	if !p.cutAt.IsZero() {
		p.reason += "; cut at " + p.cutAt.UTC().Format(time.TimeOnly)
	}
	p.again = now.Add(p.pause(c.poll))
	return true
}

// settled says whether the rules can go. A plain connection whose port the kernel changed, because another that it tracked
// had the same, lasts only with them.
func (c *capturer) settled(p *pod, now time.Time) bool {
	n, err := c.redirect.Settle(p.ns)
	if err != nil {
		if p.overdue(now) {
			c.log.Warn("connections whose port the kernel translates may be cut: they cannot be listed", "pod", p.Namespace+"/"+p.Name, "err", err)
			return true
		}
		c.failed(p, stepRules, err, now)
		return false
	}
	if n == 0 {
		return true
	}
	if c.awaits(p, "connections whose port the kernel translates", n, now) {
		return false
	}
	c.metrics.cut.Add(float64(n))
	c.log.Warn("connections whose port the kernel translates are cut: they did not end in time", "pod", p.Namespace+"/"+p.Name,
		"connections", n, "deadline", c.releaseDeadline)
	return true
}

// partLook is the time between two looks at what is open in a pod that has ended.
const partLook = 20 * time.Millisecond

// part takes a pod that has ended back from the proxy and waits until the ends of its connections have left: a peer that
// does not hear of an end before the pod's network goes waits for answers that nobody sends. How long that may take is
// the engine's affair.
func (c *capturer) part(p *pod, now time.Time) {
	if p.parted || now.Before(p.again) {
		return
	}
	if !p.takenBack {
		p.takenBack = true
		c.zds.Drop(p.UID)
	}
	if c.zds.Status(p.UID).Known {
		return // it says when that changes
	}
	if p.ns == nil && p.Annotations[wellknown.Redirection] == string(source.Enabled) {
		c.hold(p, now) // an earlier agent captured it
	}
	if p.ns != nil {
		if l, err := c.sockets(p); err == nil && l.Unheard() > 0 {
			p.again = now.Add(p.pause(partLook))
			return
		}
	}
	p.parted, p.again = true, time.Time{}
}

// letGo forgets what was held of a pod that is plain.
func (c *capturer) letGo(p *pod, now time.Time) {
	c.networks.abandon(p)
	p.unmeshed = nil
	p.become(Plain, "", now)
}
