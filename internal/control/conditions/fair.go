package conditions

import (
	"k8s.io/client-go/util/workqueue"

	"lateen.dev/lateen/internal/model"
)

// fair is the order in which objects have their turn: one of each namespace, again and again. Whoever changes thousands of his own holds up
// himself. The queue around it holds a lock.
type fair struct {
	waiting map[string][]model.Key // by namespace, in the order of their coming
	turns   []string               // the namespaces of those, the next one first
	sum     int
}

var _ workqueue.Queue[model.Key] = (*fair)(nil)

// newQueue has one object's failures spaced by themselves; the pace of all is somebody else's.
func newQueue(limiter workqueue.TypedRateLimiter[model.Key]) workqueue.TypedRateLimitingInterface[model.Key] {
	ordered := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[model.Key]{Queue: &fair{waiting: map[string][]model.Key{}}})
	delaying := workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[model.Key]{Queue: ordered})
	return workqueue.NewTypedRateLimitingQueueWithConfig(limiter, workqueue.TypedRateLimitingQueueConfig[model.Key]{DelayingQueue: delaying})
}

// Touch implements workqueue.Queue: what waits keeps its place.
func (f *fair) Touch(model.Key) {}

// Push implements workqueue.Queue.
func (f *fair) Push(key model.Key) {
	if len(f.waiting[key.Namespace]) == 0 {
		f.turns = append(f.turns, key.Namespace)
	}
	f.waiting[key.Namespace] = append(f.waiting[key.Namespace], key)
	f.sum++
}

// Len implements workqueue.Queue.
func (f *fair) Len() int { return f.sum }

// Pop implements workqueue.Queue; it is called only if there is something.
func (f *fair) Pop() model.Key {
	namespace := f.turns[0]
	f.turns = f.turns[1:]
	line := f.waiting[namespace]
	key := line[0]
	if line = line[1:]; len(line) == 0 {
		delete(f.waiting, namespace)
	} else {
		f.waiting[namespace] = line
		f.turns = append(f.turns, namespace)
	}
	f.sum--
	return key
}
