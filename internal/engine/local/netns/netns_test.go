package netns

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("this test makes network namespaces and needs root: run it with sudo")
	}
}

func current(t *testing.T) string {
	t.Helper()
	s, err := os.Readlink(threadNS)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestDoRunsInsideAndNobodyElseDoes(t *testing.T) {
	needRoot(t)
	path := filepath.Join(t.TempDir(), "ns")
	if err := Create(path); err != nil {
		t.Fatal(err)
	}
	defer Remove(path)
	home := current(t)
	var wg sync.WaitGroup
	for range 32 {
		wg.Go(func() {
			for range 20 {
				inside := ""
				if err := Do(path, func() error {
					var err error
					inside, err = os.Readlink(threadNS)
					return err
				}); err != nil || inside == home {
					t.Errorf("ran in %s, %v", inside, err)
				}
				if outside, err := os.Readlink(threadNS); err != nil || outside != home {
					t.Errorf("came back to %s, %v; want %s", outside, err, home)
				}
			}
		})
	}
	wg.Wait()
	// A thread answers before it ends. Once all such threads have ended, every thread that the runtime may pick is at home.
	deadline := time.Now().Add(time.Minute)
	for away := threadsOutside(t, home); len(away) > 0; away = threadsOutside(t, home) {
		if time.Now().After(deadline) {
			t.Fatalf("threads stay outside: %v", away)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// threadsOutside returns the threads whose network namespace is not home, with the one that each is in.
func threadsOutside(t *testing.T, home string) map[string]string {
	t.Helper()
	tasks, err := filepath.Glob("/proc/self/task/*/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	away := map[string]string{}
	for _, task := range tasks {
		if ns, err := os.Readlink(task); err == nil && ns != home {
			away[task] = ns
		}
	}
	return away
}

func TestDoPassesErrorsOn(t *testing.T) {
	needRoot(t)
	path := filepath.Join(t.TempDir(), "ns")
	if err := Create(path); err != nil {
		t.Fatal(err)
	}
	boom := errors.New("boom")
	if err := Do(path, func() error { return boom }); !errors.Is(err, boom) {
		t.Errorf("got %v", err)
	}
	if err := Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := Do(path, func() error { return nil }); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("after removal: %v", err)
	}
}

func TestNamesAreTakenOnceAndGivenBack(t *testing.T) {
	needRoot(t)
	path := filepath.Join(t.TempDir(), "ns")
	if err := Create(path); err != nil {
		t.Fatal(err)
	}
	if err := Create(path); !errors.Is(err, os.ErrExist) {
		t.Errorf("the same name twice: %v", err)
	}
	if err := Remove(path); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile("/proc/self/mountinfo"); err != nil || strings.Contains(string(b), path) {
		t.Errorf("the mount is left, %v", err)
	}
	if err := Remove(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("removed twice: %v", err)
	}
}

// A socket's group is what packet rules see; the thread that made it must have its own again.
func TestDialsAsAGroup(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ns")
	if err := Create(path); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { Remove(path) })
	if _, err := DialAs(t.Context(), 4711, path, "tcp4", "127.0.0.1:1", nil); err == nil {
		t.Fatal("connected to nothing")
	}
	for range 50 {
		if err := Do(path, func() error {
			if now, _, _ := unix.RawSyscall(unix.SYS_SETFSGID, ^uintptr(0), 0, 0); int(now) != os.Getegid() {
				t.Errorf("a thread kept group %d", now)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
}
