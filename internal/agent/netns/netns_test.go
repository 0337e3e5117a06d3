package netns

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

func here(t *testing.T) ID {
	t.Helper()
	// The thread must not change between the two calls.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	id, err := Identify("/proc/thread-self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func make2(t *testing.T) (*Namespace, *Namespace) {
	t.Helper()
	var made [2]*Namespace
	for i := range made {
		ns, err := New()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { ns.Close() })
		made[i] = ns
	}
	return made[0], made[1]
}

func TestRunsInTheNamespaceAndNowhereElse(t *testing.T) {
	outside := here(t)
	a, b := make2(t)
	if a.ID() == b.ID() || a.ID() == outside {
		t.Fatalf("not three namespaces: %v, %v, %v", a.ID(), b.ID(), outside)
	}
	var all sync.WaitGroup
	for range 50 {
		for _, ns := range []*Namespace{a, b} {
			all.Go(func() {
				err := ns.Do(func() error {
					if got := here(t); got != ns.ID() {
						t.Errorf("ran in %v, want %v", got, ns.ID())
					}
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			})
			all.Go(func() {
				if got := here(t); got != outside {
					t.Errorf("an innocent goroutine runs in %v", got)
				}
			})
		}
	}
	all.Wait()
}

func TestGivesBackWhatTheFunctionReturns(t *testing.T) {
	ns, _ := make2(t)
	want := errors.New("no")
	if got := ns.Do(func() error { return want }); got != want {
		t.Errorf("got %v", got)
	}
	if err := ns.Do(func() error { runtime.Goexit(); return nil }); err == nil {
		t.Error("a function that never returned counts as done")
	}
}

func TestOpensOnlyNetworkNamespaces(t *testing.T) {
	file := filepath.Join(t.TempDir(), "left-over")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{file, "/proc/self/ns/mnt", "/nonexistent", "/"} {
		if ns, err := Open(path); err == nil {
			ns.Close()
			t.Errorf("opened %s", path)
		}
	}
}

func TestIdentifyAgreesWithOpen(t *testing.T) {
	ns, err := Open("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	id, err := Identify("/proc/self/ns/net")
	if err != nil || id != ns.ID() {
		t.Errorf("%v, %v; want %v", id, err, ns.ID())
	}
}

func TestAClosedNamespaceIsNotUsed(t *testing.T) {
	ns, _ := make2(t)
	if err := ns.Close(); err != nil {
		t.Fatal(err)
	}
	ran := false
	if err := ns.Do(func() error { ran = true; return nil }); err == nil || ran {
		t.Errorf("ran %v, err %v", ran, err)
	}
}

func TestADescriptorStaysValidWhileInUse(t *testing.T) {
	ns, _ := make2(t)
	err := ns.WithFD(func(fd int) error {
		closed := make(chan struct{})
		go func() { ns.Close(); close(closed) }()
		<-closed
		kind, err := unix.IoctlRetInt(fd, unix.NS_GET_NSTYPE)
		if err == nil && kind != unix.CLONE_NEWNET {
			err = errors.New("the descriptor names something else now")
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
