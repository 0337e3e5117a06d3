package agent

import (
	"errors"
	"time"

	"lateen.dev/lateen/internal/agent/source"
)

// rateLimit bounds how often the agent writes to one pod's object. A pod that somebody changes again and again must
// not use up what the agent may ask of the API server for all pods of the node.
type rateLimit struct {
	spent int       // writes that are not made up for yet
	since time.Time // when they were last counted
	held  bool      // a write waits

	failures int       // writes in a row that failed
	until    time.Time // not before then, after a write that failed
	failed   time.Time // when the last one of these did
}

const (
	// burstWrites is how many writes are made at once, refillEvery the time after which one more may be.
	burstWrites = 6
	refillEvery = 5 * time.Second

	// retryFirst is the time after which a write that failed is made again. It doubles each time: up to retryLongest, and up to
	// refusedLongest where the answer was a refusal, which hangs on the pod and not on the time.
	retryFirst     = time.Second
	retryLongest   = 30 * time.Second
	refusedLongest = 5 * time.Minute
)

// take says whether a write may be made now, and counts it.
func (p *rateLimit) take(now time.Time) bool {
	if p.spent == 0 {
		p.since = now
	}
	if made := int(now.Sub(p.since) / refillEvery); made > 0 {
		p.spent = max(p.spent-made, 0)
		p.since = p.since.Add(time.Duration(made) * refillEvery)
	}
	p.held = p.spent >= burstWrites || now.Before(p.until)
	if !p.held {
		p.spent++
	}
	return !p.held
}

// next is when a write that waits may be made; zero if none waits.
func (p *rateLimit) next() time.Time {
	if !p.held {
		return time.Time{}
	}
	next := p.until
	if more := p.since.Add(refillEvery); p.spent >= burstWrites && more.After(next) {
		next = more
	}
	return next
}

// went notes how a write went.
func (p *rateLimit) went(err error, now time.Time) {
	if err == nil {
		p.failures, p.until = 0, time.Time{}
		return
	}
	longest := retryLongest
	if errors.Is(err, source.ErrRefused) {
		longest = refusedLongest
	}
	p.until, p.failed = now.Add(min(retryFirst<<min(p.failures, 10), longest)), now
	p.failures++
}

// changed notes that the pod is another than when a write was last refused: that hangs on the pod no more, as far as is known.
func (p *rateLimit) changed() {
	if soon := p.failed.Add(retryLongest); p.until.After(soon) {
		p.until = soon
	}
}
