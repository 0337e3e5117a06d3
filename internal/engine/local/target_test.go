package local

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"lateen.dev/lateen/internal/engine/api"
)

// A request for a pod right after it was applied finds the pod, though pods are made a moment later.
func TestAPodIsWaitedForThatWasJustApplied(t *testing.T) {
	s := newState(nil, nil)
	a := newPodAccess(s, nil, "")
	reconcile := func(pods ...*pod) {
		<-s.wakeup
		s.mu.Lock()
		s.pods = pods
		close(s.steered)
		s.steered = make(chan struct{})
		s.mu.Unlock()
	}
	find := func(ctx context.Context) (*pod, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		p, _, err := a.targetSteered(ctx, "shop", "counter")
		return p, err
	}
	counter := &pod{id: podIdentity{namespace: "shop", name: "counter"}}
	var missing *api.Error

	go reconcile()
	if _, err := find(t.Context()); !errors.As(err, &missing) || missing.Code != http.StatusNotFound {
		t.Errorf("a pod that nobody applied: %v", err)
	}
	go reconcile(counter)
	for range 2 { // the second time it is there, and nothing reconciles
		if p, err := find(t.Context()); p != counter || err != nil {
			t.Errorf("got %v, %v", p, err)
		}
	}
	s.pods = nil
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := find(ctx); !errors.As(err, &missing) {
		t.Errorf("whoever asks went away: %v", err)
	}
}
