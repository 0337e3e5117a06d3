package agent

import (
	"slices"
	"time"

	"lateen.dev/lateen/internal/agent/diag"
	"lateen.dev/lateen/internal/agent/redirect"
)

// track has the kernel keep the connections that clients have open already apart from those that the proxy will deliver
// from the same clients. Without it a delivery may meet one that is idle, and break it: no reason not to capture the pod.
func (c *capturer) track(p *pod, l diag.Listing) (older []redirect.Older) {
	for _, socket := range l.Unmeshed() {
		if socket.Direction == diag.Inbound {
			older = append(older, redirect.Older{Client: socket.Remote, Pod: socket.Local})
		}
	}
	if err := c.redirect.Track(p.ns, older); err != nil {
		c.metrics.captureError(stepRules)
		c.log.Warn("connections opened before enrolment may break if they are idle", "pod", p.Namespace+"/"+p.Name, "err", err)
	}
	return older
}

// uncaptured takes back what track did in a pod without rules: nothing sees its connections end. One that is being released has some.
func (c *capturer) uncaptured(p *pod, tracked []redirect.Older) {
	if p.state == Pending {
		c.untrack(p, tracked, diag.Listing{})
	}
}

// forgetAfter is how long after a capture its connections are looked through once. What was about to end then has ended.
const forgetAfter = 2 * time.Second

// forgetEnded has connection tracking forget what it takes for open and what has no socket in the pod: it saw only the second half of
// such a connection, and what the pod opens from the same port would not be redirected, and would be dropped.
func (c *capturer) forgetEnded(p *pod) {
	p.forget = false
	// The sockets come second: what is tracked now and has none then has ended.
	open, err := c.redirect.Untranslated(p.ns)
	if err == nil && len(open) > 0 {
		var now diag.Listing
		if now, err = c.sockets(p); err == nil {
			c.untrack(p, open, now)
		}
	}
	if err != nil {
		c.metrics.captureError(stepSockets)
		c.log.Warn("connections that ended while the pod was captured may keep their ports from new ones for some minutes", "pod", p.Namespace+"/"+p.Name, "err", err)
	}
}

// untrack takes back what track did for connections that are there no longer: nothing saw them end before the rules stood.
func (c *capturer) untrack(p *pod, tracked []redirect.Older, now diag.Listing) {
	if now.Omitted > 0 {
		return // the listing is incomplete, so it does not show which connections are gone
	}
	there := map[redirect.Older]bool{}
	for _, s := range now.Sockets {
		there[redirect.Older{Client: s.Remote, Pod: s.Local}] = true
		there[redirect.Older{Client: s.Local, Pod: s.Remote}] = true
	}
	ended := slices.DeleteFunc(tracked, func(o redirect.Older) bool { return there[o] })
	if err := c.redirect.Untrack(p.ns, ended); err != nil {
		c.metrics.captureError(stepRules)
		c.log.Warn("clients of connections that ended during enrolment may not be able to use the same ports for some days", "pod", p.Namespace+"/"+p.Name, "err", err)
	}
}

// sockets lists the pod's, and notes what that took.
func (c *capturer) sockets(p *pod) (diag.Listing, error) {
	began := time.Now()
	l, err := c.list(p.ns)
	p.listing = time.Since(began)
	return l, err
}
