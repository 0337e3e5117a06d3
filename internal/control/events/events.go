// Package events owns the Events that the control plane writes in a cluster: what its conditions say of an object that has no status, which is
// the ConfigMap of the mesh's settings. It runs in the replica that leads alone, and nothing depends on what it writes.
package events

import (
	"context"
	"fmt"
	"log/slog"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"lateen.dev/lateen/internal/kube"
	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/model/wellknown"
	kubesource "lateen.dev/lateen/internal/source/kube"
)

const (
	// repeatAfter is when an Event is written again while its cause lasts. API servers forget Events after an hour.
	repeatAfter = 45 * time.Minute
	// leastPause is the least time between two Events: an author who changes the object again and again has no more of them written.
	leastPause = 10 * time.Second
	// retryAfter is when an Event is tried again that could not be written.
	retryAfter     = time.Minute
	requestTimeout = 10 * time.Second
	// longestNote is what API servers admit of an Event's message, in bytes.
	longestNote = 1024
)

// accepted is the reason of a condition without a but.
const accepted = "Accepted"

// Options are what a writer needs.
type Options struct {
	Client corev1client.EventsGetter
	// Object is the one that Events are about.
	Object model.Key
	Store  *model.Store
	// Refusal is of an object whose present version is not taken.
	Refusal func(model.Key) (kubesource.Refused, bool)
	// Instance is the name of this replica's pod.
	Instance string
	Logger   *slog.Logger
	Now      func() time.Time
}

// Writer writes Events while it leads.
type Writer struct {
	Options
	feed   *model.Feed
	judged chan struct{}
}

// New returns a writer that does nothing until Lead.
func New(o Options) *Writer {
	return &Writer{Options: o, feed: o.Store.Follow(func(key model.Key) bool { return key == o.Object }), judged: make(chan struct{}, 1)}
}

// Judged hears that the present version of an object is refused, or is not any more. It does not block.
func (w *Writer) Judged(key model.Key) {
	if key != w.Object {
		return
	}
	select {
	case w.judged <- struct{}{}:
	default: // it is awake already
	}
}

// note is what an Event says; the zero one says nothing.
type note struct {
	uid             types.UID
	reason, message string
}

// warns says whether the author should change something.
func (n note) warns() bool { return n.reason != "" && n.reason != accepted }

// present is what is to be said of the object now.
func (w *Writer) present() note {
	if refused, is := w.Refusal(w.Object); is {
		return note{refused.UID, refused.Condition.Reason, refused.Condition.Message}
	}
	e, live := w.Store.Entry(w.Object)
	if !live {
		return note{}
	}
	o, is := e.Object.Value.(metav1.Object)
	if !is {
		return note{}
	}
	for _, c := range e.Conditions {
		if c.Status != model.True || c.Reason != accepted {
			return note{o.GetUID(), c.Reason, c.Message}
		}
	}
	return note{o.GetUID(), accepted, "the object is accepted as it is written"}
}

// course is what a writer has said so far, as long as it leads.
type course struct {
	told   note      // by the last Event that was written; the zero one before the first
	last   time.Time // when one was written, or tried, last
	failed string    // why the last one could not be written; empty if it was
}

// due says when an Event is to be written that says something; ok is false if there is no need for one. That all is well is said of an object
// of which an Event has said otherwise.
func (c course) due(n note) (at time.Time, ok bool) {
	switch {
	case !n.warns() && (n.reason == "" || !c.told.warns() || n.uid != c.told.uid):
		return time.Time{}, false
	case c.failed != "":
		return c.last.Add(retryAfter), true
	case n == c.told:
		return c.last.Add(repeatAfter), true
	case c.last.IsZero():
		return time.Time{}, true
	}
	return c.last.Add(leastPause), true
}

// Lead writes until ctx ends.
func (w *Writer) Lead(ctx context.Context) {
	var c course
	for ctx.Err() == nil {
		n := w.present()
		at, ok := c.due(n)
		if ok && !w.Now().Before(at) {
			c = w.attempt(ctx, c, n)
			continue
		}
		var timer <-chan time.Time
		stop := func() bool { return true }
		if ok {
			t := time.NewTimer(at.Sub(w.Now()))
			timer, stop = t.C, t.Stop
		}
		select {
		case <-ctx.Done():
		case <-w.feed.Wake():
			w.feed.Take()
		case <-w.judged:
		case <-timer:
		}
		stop()
	}
}

// attempt writes an Event and takes note of how that ended. Each reason of a failure is logged once.
func (w *Writer) attempt(ctx context.Context, c course, n note) course {
	c.last = w.Now()
	err := w.write(ctx, n)
	if err == nil {
		c.told, c.failed = n, ""
		return c
	}
	if ctx.Err() != nil {
		return c
	}
	reason := kube.Refusal(err, "", "events", "create")
	if reason == "" {
		reason = kube.Cause(err)
	}
	if reason != c.failed {
		w.Logger.Warn("events: an Event cannot be written; it is tried again, and nothing else depends on it", "object", w.Object.String(), "error", reason)
	}
	c.failed = reason
	return c
}

func (w *Writer) write(ctx context.Context, n note) error {
	ctx, cancel := context.WithTimeout(kube.Quiet(ctx), requestTimeout)
	defer cancel()
	now, kind := w.Now(), corev1.EventTypeNormal
	if n.warns() {
		kind = corev1.EventTypeWarning
	}
	_, err := w.Client.Events(w.Object.Namespace).Create(ctx, &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: w.Object.Namespace, Name: fmt.Sprintf("%s.%x", w.Object.Name, now.UnixNano())},
		InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: w.Object.Kind, Namespace: w.Object.Namespace, Name: w.Object.Name, UID: n.uid},
		Reason:         n.reason, Message: cut(n.message), Type: kind, Count: 1, FirstTimestamp: metav1.NewTime(now), LastTimestamp: metav1.NewTime(now),
		Source: corev1.EventSource{Component: "lateen-control"}, ReportingController: wellknown.ReportingControl, ReportingInstance: w.Instance,
	}, metav1.CreateOptions{})
	return err
}

// cut keeps as much of a message as an Event can have, and no part of a letter.
func cut(message string) string {
	if len(message) <= longestNote {
		return message
	}
	end := longestNote - len("…")
	for !utf8.RuneStart(message[end]) {
		end--
	}
	return message[:end] + "…"
}
