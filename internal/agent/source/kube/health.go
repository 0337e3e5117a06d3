package kube

import (
	"context"
	"log/slog"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	apikube "lateen.dev/lateen/internal/kube"
)

// health knows whether the API server answers, and says so once.
type health struct {
	log *slog.Logger

	mu        sync.Mutex
	failing   map[string]bool
	connected func(bool)
}

func newHealth(log *slog.Logger) *health {
	return &health{log: log, failing: map[string]bool{}, connected: func(bool) {}}
}

func (h *health) tell(connected func(bool)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.connected = connected
}

func (h *health) note(ctx context.Context, kind string, err error) {
	if ctx.Err() != nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	before := len(h.failing)
	if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		return // it answers that what was asked from is too long ago, and is asked anew
	}
	if err != nil {
		h.failing[kind] = true
		if before == 0 {
			h.log.Warn(trouble(kind, err)+"; captured pods stay captured, and what is known of the node's pods goes on to hold", "kind", kind, "err", err)
			h.connected(false)
		}
		return
	}
	delete(h.failing, kind)
	if len(h.failing) > 0 {
		return
	}
	if before > 0 {
		h.log.Info("the API server answers again")
	}
	h.connected(true)
}

// trouble says what is wrong with the API server, or with what the agent may ask of it.
func trouble(kind string, err error) string {
	if refusal := apikube.Refusal(err, "", kind, "get", "list", "watch"); refusal != "" {
		return "the API server refuses the agent's watch: " + refusal
	}
	return "the API server does not answer"
}

func (h *health) ofList(kind string, list func(context.Context, metav1.ListOptions) (runtime.Object, error)) func(context.Context, metav1.ListOptions) (runtime.Object, error) {
	return func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		object, err := list(ctx, o)
		h.note(ctx, kind, err)
		return object, err
	}
}

func (h *health) ofWatch(kind string, begin func(context.Context, metav1.ListOptions) (watch.Interface, error)) func(context.Context, metav1.ListOptions) (watch.Interface, error) {
	return func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
		w, err := begin(ctx, o)
		h.note(ctx, kind, err)
		return w, err
	}
}
