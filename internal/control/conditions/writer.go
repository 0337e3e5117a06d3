// Package conditions owns what the control plane writes into the status of a cluster's objects: its own conditions, and nothing else of
// them. It decides neither what an object is good for nor whether the proxies have it, and runs in the replica that leads alone.
package conditions

import (
	"context"
	"log/slog"
	"maps"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/util/workqueue"

	"lateen.dev/lateen/internal/control/conditions/withdraw"
	"lateen.dev/lateen/internal/kube"
	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/replica"
	kubesource "lateen.dev/lateen/internal/source/kube"
	"lateen.dev/lateen/internal/translate"
)

// fieldManager is how the API server remembers whose a field is.
const fieldManager = withdraw.FieldManager

// Limits of writing: so many objects a second in all, so many at once after a pause, by so many at the same time. Namespaces have their turns
// one after the other.
const (
	writesPerSecond = 20
	writeBurst      = 50
	writers         = 4
)

const (
	// settleTime is how long an object is left to change before anything is written: most are with all proxies by then, and one write says so.
	settleTime = 300 * time.Millisecond
	// leastPause is the least time between two writes of one object; rewordPause the same if only the message is another.
	leastPause, rewordPause = time.Second, 10 * time.Second
	// reviewEvery is how often all that is written is read again: somebody may have written over it.
	reviewEvery = 30 * time.Minute
	// requestTimeout bounds one request.
	requestTimeout = 10 * time.Second
	// maxMessage is what of a message is written, in bytes. The Gateway API admits eight times that.
	maxMessage = 4 << 10
)

// Cluster is what the source knows of the API server's objects.
type Cluster interface {
	// Resource is as what a kind is followed at present; false if it is not.
	Resource(group, kind string) (schema.GroupVersionResource, bool)
	// Refusal is of an object whose present version is not taken.
	Refusal(key model.Key) (kubesource.Refused, bool)
}

// Observer hears how it goes, for metrics.
type Observer interface {
	// StatusWritten counts an attempt to write: result is "written", or why not.
	StatusWritten(kind, result string)
	// StatusLag is how long after the first change of an object its status was written.
	StatusLag(time.Duration)
}

// Options are what a writer needs.
type Options struct {
	Client  dynamic.Interface
	Cluster Cluster
	Store   *model.Store
	// Programmed says whether the proxies of all replicas have a version of an object.
	Programmed func(model.Key, replica.Version) replica.Verdict
	// Versions says which version of an object each other replica has; the zero one if none.
	Versions func(model.Key) map[string]replica.Version
	// Prepare waits until Programmed knows of the other replicas, but not long.
	Prepare func(context.Context)
	// Mesh is what the model's objects are translated for.
	Mesh translate.Mesh
	// Controllers are the names of controllers whose GatewayClasses are this mesh's own.
	Controllers []string
	Observer    Observer
	Logger      *slog.Logger
	Now         func() time.Time
}

// Writer writes conditions while it leads. What is to be written is worked out when its turn comes: it keeps no more than the keys of the
// objects that have changed, however long the API server is away.
type Writer struct {
	Options
	feed    *model.Feed
	limiter *rate.Limiter

	mu sync.Mutex // guards all below
	// queue is nil while another replica leads.
	queue     workqueue.TypedRateLimitingInterface[model.Key]
	written   map[model.Key]written
	at        map[model.Key]time.Time // of the last write of an object, for a while
	dirty     map[model.Key]time.Time // since when an object waits
	given     map[model.Key]bool      // Gateways from which this mesh's conditions were removed; none is read again before the next review
	unsettled map[model.Key]bool      // objects that the proxies do not have, as far as is written
	troubles  map[schema.GroupResource]*trouble
}

// New returns a writer that does nothing until Lead.
func New(o Options) *Writer {
	return &Writer{Options: o, feed: o.Store.Follow(kinds), limiter: rate.NewLimiter(writesPerSecond, writeBurst)}
}

// Waiting is how many objects wait for a write, or for a look whether they need one.
func (w *Writer) Waiting() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.dirty)
}

// Changed hears that something else may have to be said of some objects, or of all that are not settled. It never blocks on the API server.
func (w *Writer) Changed(keys []model.Key, everything bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.queue == nil {
		return
	}
	for _, key := range keys {
		w.put(key, settleTime)
	}
	if everything {
		for key := range w.unsettled {
			w.put(key, settleTime)
		}
	}
}

// Judged hears that an object's present version is refused, or is not any more.
func (w *Writer) Judged(key model.Key) { w.Changed([]model.Key{key}, false) }

// put has an object looked at soon. The lock is held.
func (w *Writer) put(key model.Key, after time.Duration) {
	if !kinds(key) {
		return
	}
	if _, waits := w.dirty[key]; !waits {
		w.dirty[key] = w.Now()
	}
	w.queue.AddAfter(key, after)
}

// Lead writes until ctx ends.
func (w *Writer) Lead(ctx context.Context) {
	w.mu.Lock()
	w.queue = newQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[model.Key](500*time.Millisecond, time.Minute))
	w.written, w.at, w.dirty = map[model.Key]written{}, map[model.Key]time.Time{}, map[model.Key]time.Time{}
	w.given, w.unsettled, w.troubles = map[model.Key]bool{}, map[model.Key]bool{}, map[schema.GroupResource]*trouble{}
	queue := w.queue
	w.mu.Unlock()
	var running sync.WaitGroup
	defer running.Wait()
	defer func() {
		w.mu.Lock()
		w.queue, w.written, w.at, w.dirty, w.given, w.unsettled, w.troubles = nil, nil, nil, nil, nil, nil, nil
		w.mu.Unlock()
		queue.ShutDown()
	}()
	// What is written already is read first, so that a new leader writes only what is not so any more.
	w.Prepare(ctx)
	if !w.review(ctx) {
		return
	}
	for range writers {
		running.Go(func() { w.work(ctx, queue) })
	}
	review := time.NewTicker(reviewEvery)
	defer review.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.feed.Wake():
			w.mu.Lock()
			for key := range w.feed.Take() {
				w.put(key, settleTime)
				switch key.Kind {
				case "GatewayClass":
					w.putGateways(key.Name)
				case "Service":
					w.putGateway(model.GatewayKey(key.Namespace, key.Name))
				}
			}
			w.mu.Unlock()
		case <-review.C:
			if !w.review(ctx) {
				return
			}
		}
	}
}

// putGateways has those looked at that are of a class: it says whose they are. The lock is held.
func (w *Writer) putGateways(class string) {
	for key, gateway := range w.Store.Gateways() {
		if string(gateway.Spec.GatewayClassName) == class {
			w.put(key, settleTime)
		}
	}
}

// putGateway has the Gateway looked at, if there is one, that is found under a Service. The lock is held.
func (w *Writer) putGateway(key model.Key) {
	if _, is := w.Store.Gateway(key); is {
		w.put(key, settleTime)
	}
}

func (w *Writer) work(ctx context.Context, queue workqueue.TypedRateLimitingInterface[model.Key]) {
	for {
		key, shutdown := queue.Get()
		if shutdown {
			return
		}
		if ctx.Err() == nil {
			w.one(ctx, queue, key)
		}
		queue.Done(key)
	}
}

// one brings an object's status up to date, or has it tried again later.
func (w *Writer) one(ctx context.Context, queue workqueue.TypedRateLimitingInterface[model.Key], key model.Key) {
	gvr, served := w.Cluster.Resource(key.Group, key.Kind)
	if !served {
		w.forget(key) // its objects come anew when the kind does
		return
	}
	w.mu.Lock()
	present, isRead := w.written[key]
	last, given := w.at[key], w.given[key]
	since, waits := w.dirty[key]
	pause := w.pause(gvr.GroupResource(), key)
	w.mu.Unlock()
	want, exists := w.want(key, present)
	if !exists {
		if gives := w.givesUp(key, present); !gives || given && !isRead {
			w.forget(key)
			if !gives {
				w.mu.Lock()
				delete(w.given, key)
				w.mu.Unlock()
			}
			return
		}
	}
	if present.uid != want.uid && want.uid != "" {
		present = written{} // another object had the name
	}
	w.settle(key, want)
	if exists && present.says(want) {
		w.done(key)
		queue.Forget(key)
		return
	}
	least := leastPause
	if want.gateway == nil && len(want.parents) == 0 && same(reworded(present.conditions), reworded(want.conditions)) {
		least = rewordPause
	}
	if rest := least - w.Now().Sub(last); rest > 0 && !last.IsZero() {
		pause = max(pause, rest)
	}
	if pause > 0 {
		queue.AddAfter(key, pause)
		return
	}
	if w.limiter.Wait(ctx) != nil {
		return
	}
	result, err := w.write(ctx, key, gvr)
	w.Observer.StatusWritten(key.Kind, result)
	again := w.heard(gvr.GroupResource(), key, result, err)
	switch {
	case result == resultWritten && waits:
		w.Observer.StatusLag(w.Now().Sub(since))
		fallthrough
	case result == resultWritten, result == resultUnchanged, result == resultGone:
		queue.Forget(key)
		w.done(key)
		if !exists {
			w.forget(key)
		}
	case again > 0:
		queue.AddAfter(key, again)
	default:
		queue.AddRateLimited(key)
	}
}

// reworded are conditions without their messages.
func reworded(conditions []Condition) []Condition {
	out := make([]Condition, len(conditions))
	for i, c := range conditions {
		c.Message, c.Since = "", ""
		out[i] = c
	}
	return out
}

// settle takes note of whether it matters for an object what proxies acknowledge.
func (w *Writer) settle(key model.Key, want wanted) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.queue == nil {
		return
	}
	delete(w.unsettled, key)
	for _, c := range want.conditions {
		if !c.settled() {
			w.unsettled[key] = true
		}
	}
}

func (w *Writer) done(key model.Key) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.dirty, key)
}

func (w *Writer) forget(key model.Key) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.dirty, key)
	delete(w.written, key)
	delete(w.at, key)
	delete(w.unsettled, key)
	for of, t := range w.troubles {
		// It was about this object, and another one for the same reason is to be told of.
		if t.over(key, false) && len(t.told) == 0 {
			delete(w.troubles, of)
		}
	}
}

// trouble is why the statuses of a kind cannot be written, or read.
type trouble struct {
	// told are the reasons that were logged, each with the object that it was about; that is empty if it was about a list.
	told map[cause]model.Key
	// failing are those whose objects have failed since one was written last, by namespace.
	failing map[string]bool
	// whole says that it is not some objects' alone, and unreachable that it is not those of some namespaces'.
	whole, unreachable bool
	backoff            func() time.Duration
	until              time.Time
}

// cause is a reason for which one object's status, or those of the whole kind, cannot be written.
type cause struct {
	reason string
	whole  bool
}

// mostTold bounds how many reasons of a kind are remembered.
const mostTold = 16

func newTrouble() *trouble {
	backoff := kube.Backoff()
	return &trouble{told: map[cause]model.Key{}, failing: map[string]bool{}, backoff: backoff.Step}
}

// over forgets the reasons that were about an object, and with whole those that were about the kind. It says whether there were any.
func (t *trouble) over(key model.Key, whole bool) bool {
	before := len(t.told)
	maps.DeleteFunc(t.told, func(c cause, of model.Key) bool { return c.whole && whole || !c.whole && of == key })
	return len(t.told) < before
}

// pause is how long an object is left alone because of others of its kind. One of a namespace of which none has failed is tried all the same: it
// may be all well with it. The lock is held.
func (w *Writer) pause(of schema.GroupResource, key model.Key) time.Duration {
	if t := w.troubles[of]; t != nil && t.whole && (t.unreachable || t.failing[whose(key)]) {
		return max(0, t.until.Sub(w.Now()))
	}
	return 0
}
