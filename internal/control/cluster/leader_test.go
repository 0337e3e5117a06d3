package cluster

import (
	"context"
	"sync/atomic"
	"testing"
	"time"
)

func TestOneLeadsAndGivesWayAtOnce(t *testing.T) {
	api := newAPI()
	var at atomic.Int64
	type one struct {
		*Leader
		cancel  context.CancelFunc
		done    chan struct{}
		working atomic.Bool
	}
	begin := func(name string) *one {
		ctx, cancel := context.WithCancel(t.Context())
		o := &one{Leader: NewLeader(api, home, name, (&said{}).logger()), cancel: cancel, done: make(chan struct{})}
		o.lease, o.renew, o.retry = 20*time.Second, 10*time.Second, 20*time.Millisecond
		o.While(func(ctx context.Context) {
			if at.Add(1) != 1 {
				t.Error("two work at once")
			}
			o.working.Store(true)
			<-ctx.Done()
			time.Sleep(10 * o.retry) // it has something to finish
			o.working.Store(false)
			at.Add(-1)
		})
		go func() { defer close(o.done); o.Run(ctx) }()
		return o
	}
	a := begin("a")
	eventually(t, "the first leads", func() bool { return a.Leads() && a.working.Load() })
	b := begin("b")
	time.Sleep(100 * time.Millisecond)
	if b.Leads() {
		t.Fatal("two lead")
	}
	a.cancel()
	<-a.done
	if a.Leads() || a.working.Load() {
		t.Error("the first goes on after its end")
	}
	began := time.Now()
	eventually(t, "the second leads", func() bool { return b.Leads() && b.working.Load() })
	if d := time.Since(began); d > 15*time.Second {
		t.Errorf("the first kept it for %s", d)
	}
	b.cancel()
	<-b.done
}
