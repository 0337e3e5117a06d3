package run

import (
	"sync"
	"testing"
	"time"
)

// After a hang-up the meshes of a run have to be gone within seconds, however many planes take part.
func TestPlanesAreTakenDownTogether(t *testing.T) {
	w, stage, options := newWorld(t, smallScenario)
	options.Rounds = 1
	var all sync.WaitGroup
	all.Add(3) // none, its witness and lateen
	w.down = func() {
		all.Done()
		begun := make(chan struct{})
		go func() { all.Wait(); close(begun) }()
		select {
		case <-begun:
		case <-time.After(30 * time.Second):
			t.Error("a plane waits until another one is down")
		}
	}
	if _, err := Run(t.Context(), stage, options); err != nil {
		t.Fatal(err)
	}
	for name, up := range w.up {
		if up {
			t.Errorf("%s is left", name)
		}
	}
}
