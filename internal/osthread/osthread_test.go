package osthread

import (
	"errors"
	"os"
	"runtime"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// The first thread is taken by whoever comes while nobody else wants it: many come, and from many sides.
func TestTheFirstThreadIsNeverChanged(t *testing.T) {
	// The test's own thread may be the first one; it must be free.
	home, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	for range 200 {
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				err := Run(func() error {
					if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
						return err
					}
					runtime.Gosched()
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if now, err := os.Readlink("/proc/self/ns/net"); err != nil || now != home {
			t.Fatalf("the process is in %s now (%v), it was in %s", now, err, home)
		}
	}
}

func TestErrorsAndEndsAreReported(t *testing.T) {
	want := errors.New("no")
	if err := Run(func() error { return want }); !errors.Is(err, want) {
		t.Errorf("got %v", err)
	}
	if err := Run(func() error { runtime.Goexit(); return nil }); err == nil {
		t.Error("a function that did not return left no error")
	}
}
