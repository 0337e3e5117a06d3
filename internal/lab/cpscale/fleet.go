package cpscale

import (
	"context"
	"crypto/tls"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	// proxiesPerAddress stays below what the control plane takes from one address.
	proxiesPerAddress = 200
	// dialsAtOnce bounds the handshakes under way.
	dialsAtOnce = 32
)

// fleet is all proxies, and the changes that they are to hear of.
type fleet struct {
	proxies []*proxy
	done    sync.WaitGroup
	closing atomic.Bool
	// failed is why the first proxy that lost its stream did.
	failed chan error

	missing  atomic.Int64 // proxies that do not have everything yet
	complete chan time.Time

	mu      sync.RWMutex
	changes map[string]*change // by resource, those under way
}

// change is one under way.
type change struct {
	made time.Time
	// written is how long it took to make it.
	written time.Duration
	// delays is how long it took each proxy, in ns; 0 while it has not.
	delays  []atomic.Int64
	waiting atomic.Int64
	done    chan struct{}
}

func newFleet(n int) *fleet {
	f := &fleet{failed: make(chan error, 1), complete: make(chan time.Time, 1), changes: map[string]*change{}}
	for i := range n {
		f.proxies = append(f.proxies, &proxy{index: i, fleet: f})
	}
	f.missing.Store(int64(n))
	return f
}

// connect dials them all. token makes the token of a node's proxy.
func (f *fleet) connect(ctx context.Context, address string, config *tls.Config, token func(i int) (string, error)) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(dialsAtOnce)
	for i, p := range f.proxies {
		group.Go(func() error {
			t, err := token(i)
			if err != nil {
				return err
			}
			if err := p.dial(ctx, address, t, config); err != nil {
				return err
			}
			f.done.Go(func() {
				if err := p.serve(); err != nil && !f.closing.Load() {
					select {
					case f.failed <- fmt.Errorf("proxy %d: %w", i+1, err):
					default: // one reason is enough
					}
				}
			})
			return nil
		})
	}
	return group.Wait()
}

// whole hears that a proxy has everything.
func (f *fleet) whole(at time.Time) {
	if f.missing.Add(-1) == 0 {
		f.complete <- at
	}
}

// expect says that a change of a resource is about to be made. The resource has no other one under way.
func (f *fleet) expect(resource string) (*change, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.changes[resource] != nil {
		return nil, fmt.Errorf("the control plane has not told all proxies of a change of %s since it was changed last: the rate is far beyond what it carries; use a lower one", resource)
	}
	c := &change{made: time.Now(), delays: make([]atomic.Int64, len(f.proxies)), done: make(chan struct{})}
	c.waiting.Store(int64(len(f.proxies)))
	f.changes[resource] = c
	return c, nil
}

// acknowledged hears that a proxy has acknowledged a resource.
func (f *fleet) acknowledged(proxy int, resource string, at time.Time) {
	f.mu.RLock()
	c := f.changes[resource]
	f.mu.RUnlock()
	if c == nil || !c.delays[proxy].CompareAndSwap(0, max(1, int64(at.Sub(c.made)))) {
		return
	}
	if c.waiting.Add(-1) == 0 {
		f.mu.Lock()
		delete(f.changes, resource)
		f.mu.Unlock()
		close(c.done)
	}
}

// received is what all proxies have read so far, in bytes, and how many answers they gave.
func (f *fleet) received() (bytes, answers int64) {
	for _, p := range f.proxies {
		bytes += p.received.Load()
		answers += p.answers.Load()
	}
	return bytes, answers
}

// wait waits for something, for a lost proxy or for the context.
func (f *fleet) wait(ctx context.Context, what string, patience time.Duration, done <-chan struct{}) error {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-done:
		return nil
	case err := <-f.failed:
		return fmt.Errorf("a proxy lost its stream: %w", err)
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return fmt.Errorf("gave up waiting for %s after %s", what, patience)
	}
}

// close ends all connections and waits for their goroutines.
func (f *fleet) close() {
	f.closing.Store(true)
	for _, p := range f.proxies {
		if p.conn != nil {
			_ = p.conn.Close() // it is gone either way
		}
	}
	f.done.Wait()
}
