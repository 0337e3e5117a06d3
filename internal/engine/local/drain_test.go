package local

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"lateen.dev/lateen/internal/engine/local/fabric"
	"lateen.dev/lateen/internal/engine/local/names"
)

// The end of a pod waits until nobody is sent to it any more, however long it takes to write the lists of endpoints.
func TestAPodIsDrainedOnceTheListsAreWritten(t *testing.T) {
	l := &lifecycle{log: slog.New(slog.DiscardHandler)}
	told, drained := make(chan struct{}), make(chan struct{})
	go func() { defer close(drained); l.drain(&pod{id: podIdentity{namespace: "shop", name: "counter"}}, told) }()
	select {
	case <-drained:
		t.Fatal("it is asked to end while others are sent to it")
	case <-time.After(2 * drainDelay):
	}
	close(told)
	<-drained
}

// The lists of endpoints are written when every node's kernel has them; who waits for what was so before does so until then.
func TestWhatIsSoIsToldWhenTheKernelsHaveIt(t *testing.T) {
	dir := runDir(t.TempDir())
	if err := os.MkdirAll(dir.engineObjects(), 0o755); err != nil {
		t.Fatal(err)
	}
	families := []*fabric.Family{fabric.IPv4}
	s := newState(nil, newStore(dir.userObjects(), families, time.Now, newUID))
	r := newReconciler(s, newAgentFeed(s, dir), nil, &names.Server{}, families, dir, false, slog.New(slog.DiscardHandler))
	s.nodes = []*node{{name: "n1", Node: fabric.Node{NetNS: filepath.Join(string(dir), "missing")}}}
	first := s.told
	if err := r.reconcile(t.Context()); err == nil || closed(first) {
		t.Fatalf("told although a kernel does not have it: %v", err)
	}
	second := s.told
	s.nodes = nil
	if err := r.reconcile(t.Context()); err != nil || !closed(first) || !closed(second) || closed(s.told) {
		t.Errorf("it has happened: %v, told %v, %v, and what comes later %v", err, closed(first), closed(second), closed(s.told))
	}
}
