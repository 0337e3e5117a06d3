package agent

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"slices"
	"time"

	"lateen.dev/lateen/internal/agent/source"
	"lateen.dev/lateen/internal/model/wellknown"
)

// waiter waits for a pod to be captured in a network namespace. It belongs to the agent's loop but for done.
type waiter struct {
	uid, netns string
	done       chan error
}

// answer ends the waits that are over.
func (a *Agent) answer() {
	a.waiting = slices.DeleteFunc(a.waiting, func(w *waiter) bool {
		p := a.pods[w.uid]
		if p == nil || p.NetNS != w.netns {
			return false // the source has not told yet
		}
		if !p.asWanted() {
			return false
		}
		w.done <- nil
		return true
	})
}

// Await returns when the pod is captured in the network namespace at path, or is known there and not to be captured.
// When ctx ends first the error says what it was waiting for.
func (a *Agent) Await(ctx context.Context, uid, path string) error {
	w := &waiter{uid: uid, netns: path, done: make(chan error, 1)}
	if err := a.ask(ctx, func() { a.waiting = append(a.waiting, w) }); err != nil {
		return err
	}
	select {
	case err := <-w.done:
		return err
	case <-ctx.Done():
	}
	reason := "the agent has not learned of the pod"
	last, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	err := a.ask(last, func() {
		a.waiting = slices.DeleteFunc(a.waiting, func(o *waiter) bool { return o == w })
		if p := a.pods[uid]; p != nil {
			reason = cmp.Or(p.why(time.Now()), "the agent has not begun to capture the pod")
			if p.Unjudged {
				reason = unjudged
			}
		}
	})
	if err != nil {
		reason = "the agent is busy or ends"
	}
	select {
	case err := <-w.done:
		return err
	default:
		return errors.New(reason)
	}
}

// Captured says whether a pod is as the user wants it, and why not.
func (a *Agent) Captured(ctx context.Context, uid string) (ok bool, reason string, err error) {
	err = a.ask(ctx, func() {
		p := a.pods[uid]
		ok = p == nil || p.asWanted()
		if p != nil {
			reason = p.why(time.Now())
		}
		if !ok && p.Unjudged {
			reason = unjudged
		}
	})
	return ok, reason, err
}

// tellProbed says which addresses of pods are probed: of captured ones, and of those that are to be, since the rules are to stand before.
// Pods that are being released do not count: their new connections pass by the proxy, probes among them.
func (a *Agent) tellProbed() {
	for _, p := range a.pods {
		if probing := p.isProbed(); probing != p.announced.probes {
			p.announced.probes, a.probed = probing, true
		}
	}
	if !a.probed {
		return
	}
	a.probed = false
	var all []netip.AddrPort
	for _, p := range a.pods {
		if p.announced.probes {
			all = append(all, p.Probed...)
		}
	}
	slices.SortFunc(all, netip.AddrPort.Compare)
	a.capturer.probes.Set(all)
}

func (p *pod) isProbed() bool {
	switch {
	case p.state == Captured:
		return true
	case p.want && (p.state == Pending || p.state == Releasing):
		return true
	}
	// A pod that an earlier agent captured may not have been observed yet.
	return !p.observed && p.Annotations[wellknown.Redirection] == string(source.Enabled)
}
