package kube

import (
	"sync"
	"time"

	"lateen.dev/lateen/internal/model"
)

// queue holds the changes that have not been handed on. Of several changes of one object the last is kept: what was in between nobody saw.
type queue struct {
	wake chan struct{} // there may be something to hand on

	mu      sync.Mutex
	pending map[model.Key]*model.Object
	oldest  time.Time
}

func newQueue() *queue {
	return &queue{wake: make(chan struct{}, 1), pending: map[model.Key]*model.Object{}}
}

// put adds changes that belong together: they leave in one batch.
func (q *queue) put(changes []model.Change) {
	if len(changes) == 0 {
		return
	}
	q.mu.Lock()
	if len(q.pending) == 0 {
		q.oldest = time.Now()
	}
	for _, c := range changes {
		q.pending[c.Key] = c.Object
	}
	q.mu.Unlock()
	q.nudge()
}

// nudge has the queue looked at.
func (q *queue) nudge() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// take empties the queue. oldest is when the first of the changes came.
func (q *queue) take() (changes []model.Change, oldest time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	changes = make([]model.Change, 0, len(q.pending))
	for key, o := range q.pending {
		changes = append(changes, model.Change{Key: key, Object: o})
	}
	const small = 1024
	if len(q.pending) > small {
		q.pending = map[model.Key]*model.Object{} // a map keeps the size that it once had
	} else {
		clear(q.pending)
	}
	return changes, q.oldest
}
