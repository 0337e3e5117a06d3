package cluster

import (
	"context"
	"sync"
	"time"
)

// turns bounds how many do something at once, in all and for each who wants it: an address, a namespace.
type turns struct {
	all     chan struct{}
	perEach int

	mu   sync.Mutex
	each map[string]*line
}

// line is those of one; waiting counts who holds or wants a turn.
type line struct {
	turns   chan struct{}
	waiting int
}

func newTurns(all, perEach int) *turns {
	return &turns{all: make(chan struct{}, all), perEach: perEach, each: map[string]*line{}}
}

// take waits for a turn; it is false if that lasted too long. One's own comes first, so that those who wait for it hold up nobody else.
func (t *turns) take(ctx context.Context, who string, patience time.Duration) bool {
	t.mu.Lock()
	q := t.each[who]
	if q == nil {
		q = &line{turns: make(chan struct{}, t.perEach)}
		t.each[who] = q
	}
	q.waiting++
	t.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	select {
	case q.turns <- struct{}{}:
	case <-ctx.Done():
		t.leave(who, q)
		return false
	}
	select {
	case t.all <- struct{}{}:
		return true
	case <-ctx.Done():
		<-q.turns
		t.leave(who, q)
		return false
	}
}

func (t *turns) give(who string) {
	<-t.all
	t.mu.Lock()
	q := t.each[who]
	t.mu.Unlock()
	<-q.turns
	t.leave(who, q)
}

func (t *turns) leave(who string, q *line) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if q.waiting--; q.waiting == 0 {
		delete(t.each, who)
	}
}
