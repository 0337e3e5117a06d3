package agent

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"lateen.dev/lateen/internal/agent/diag"
	"lateen.dev/lateen/internal/agent/netns"
	"lateen.dev/lateen/internal/agent/redirect"
	"lateen.dev/lateen/internal/agent/source"
)

// gate is a kernel that takes its time to redirect a pod's connections.
type gate struct {
	*tarpit
	asked   chan struct{} // there is one that waits
	open    chan struct{} // closed to let it pass
	applied chan redirect.Mode
}

func newGate(r *tarpit) *gate {
	return &gate{tarpit: r, asked: make(chan struct{}, 100), open: make(chan struct{}), applied: make(chan redirect.Mode, 1000)}
}

func (g *gate) Observe(*netns.Namespace) (redirect.Mode, error) { return redirect.Absent, nil }

func (g *gate) Apply(_ *netns.Namespace, m redirect.Mode, _ redirect.Settings) (bool, error) {
	if m == redirect.Capturing {
		g.asked <- struct{}{}
		<-g.open
	}
	g.applied <- m
	return true, nil
}

// through has an agent of a tarpit use the gate.
func (g *gate) through(t *testing.T, a *Agent) {
	t.Helper()
	if err := a.ask(t.Context(), func() { a.capturer.redirect, a.capturer.grace, a.capturer.poll = g, time.Millisecond, time.Millisecond }); err != nil {
		t.Fatal(err)
	}
}

func arrives[T any](t *testing.T, what string, from <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-from:
	case <-time.After(20 * time.Second):
		t.Fatalf("not within 20 s: %s", what)
	}
	return v
}

// A pod that is being captured when the mesh leaves is released too, however long the kernel takes.
func TestLeavingWaitsForACaptureThatIsUnderWay(t *testing.T) {
	r, release := newTarpit()
	defer release()
	g := newGate(r)
	a := r.start(t)
	g.through(t, a)
	r.deliver(podsOf(0, 1))
	arrives(t, "the pod is being captured", g.asked)
	left := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
		defer cancel()
		left <- a.Leave(ctx)
	}()
	// Longer than the loop waits for the pod.
	select {
	case err := <-left:
		t.Fatalf("it is left (%v), and the pod is being captured", err)
	case <-time.After(2 * patience):
	}
	close(g.open)
	if err := arrives(t, "the node is left", left); err != nil {
		t.Fatal(err)
	}
	var modes []redirect.Mode
	for len(g.applied) > 0 {
		modes = append(modes, <-g.applied)
	}
	if want := []redirect.Mode{redirect.Capturing, redirect.Draining, redirect.Absent}; !slices.Equal(modes, want) {
		t.Errorf("the rules were %v, want %v", modes, want)
	}
}

// What is not done when there is no more time is not done later: whoever removes what is left removes it before.
func TestNothingIsCapturedOnceTheMeshHasLeft(t *testing.T) {
	r, release := newTarpit()
	defer release()
	g := newGate(r)
	close(g.open)
	a := r.start(t)
	g.through(t, a)
	listing, listed := make(chan struct{}, 100), make(chan struct{})
	if err := a.ask(t.Context(), func() {
		a.capturer.list = func(*netns.Namespace) (diag.Listing, error) {
			listing <- struct{}{}
			<-listed
			return diag.Listing{}, nil
		}
	}); err != nil {
		t.Fatal(err)
	}
	r.deliver(podsOf(0, 1))
	arrives(t, "the pod's sockets are listed", listing)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if err := a.Leave(ctx); err == nil {
		t.Error("it is left while a pod is looked at")
	}
	if hung, err := a.hung(t.Context(), time.Now()); err != nil || fmt.Sprint(hung) != "[default/other0]" {
		t.Errorf("at work in %v, %v", hung, err)
	}
	close(listed)
	r.await(t, "the pod is given back", func() bool { return len(r.put) == 0 })
	for len(g.applied) > 0 {
		if m := <-g.applied; m == redirect.Capturing {
			t.Error("the pod was captured after that")
		}
	}
	// The pod is given back a moment before the work in it ends.
	var hung []string
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		var err error
		if hung, err = a.hung(t.Context(), time.Now()); err != nil {
			t.Fatal(err)
		}
		if len(hung) == 0 || time.Now().After(deadline) {
			break
		}
	}
	if len(hung) > 0 {
		t.Errorf("at work in %v", hung)
	}
}

// An agent that does not know the pods yet cannot say that they are released, nor one that has not looked at them.
func TestWhatIsNotKnownIsNotReleased(t *testing.T) {
	r, release := newTarpit()
	defer release()
	a := r.start(t)
	short := func() error {
		// The agent has to answer once within it, however late it is.
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		return a.Leave(ctx)
	}
	if err := short(); err == nil || !strings.Contains(err.Error(), "not learned") {
		t.Errorf("without any pods: %v", err)
	}
	r.deliver(podsOf(1, 0))
	r.await(t, "the pod is looked at", func() bool { return len(r.stuck) > 1 })
	if err := short(); err == nil || !strings.Contains(err.Error(), "1 pods") {
		t.Errorf("with a pod that is looked at: %v", err)
	}
	release()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := a.Leave(ctx); err != nil {
		t.Error(err)
	}
	for _, p := range []pod{
		{}, {progress: progress{observed: true, state: Plain}, working: true}, {progress: progress{observed: true, state: Plain}, reporting: true},
		{progress: progress{observed: true, state: Releasing}}, {progress: progress{observed: true, state: Plain}, told: source.Report{State: source.Enabled}},
	} {
		if !p.mayBeMeshed() {
			t.Errorf("%+v counts as released", p)
		}
	}
}
