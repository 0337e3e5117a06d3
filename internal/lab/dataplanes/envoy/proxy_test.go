package envoy

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"lateen.dev/lateen/internal/agent/netns"
	"lateen.dev/lateen/internal/agent/netns/netnstest"
)

// The test's own program stands in for Envoy where it is started as one: it answers on the socket that its configuration names
// and carries nothing.
func TestMain(m *testing.M) {
	if i := slices.Index(os.Args, "--config-path"); i > 0 {
		if err := standIn(os.Args[i+1]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

func standIn(config string) error {
	text, err := os.ReadFile(config)
	if err != nil {
		return err
	}
	var c struct {
		Admin struct {
			Address struct{ Pipe struct{ Path string } }
		}
	}
	if err := json.Unmarshal(text, &c); err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(filepath.Dir(config), "refuse")); err == nil {
		return errors.New("the stand-in refuses its configuration")
	}
	l, err := net.Listen("unix", c.Admin.Address.Pipe.Path)
	if err != nil {
		return err
	}
	http.HandleFunc("/ready", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "LIVE\n") })
	http.HandleFunc("/stats", func(w http.ResponseWriter, r *http.Request) {
		id, err := netns.Identify("/proc/self/ns/net")
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		if strings.Contains(r.FormValue("filter"), "worker") {
			io.WriteString(w, "listener.0.0.0.0_15001.worker_1.downstream_cx_active: 5\nlistener.0.0.0.0_15001.worker_0.downstream_cx_active: 3\n")
			return
		}
		fmt.Fprintf(w, "filter: %q\nuid: %d\nnetwork: %d\nrequests: P0(1,2)\n", r.FormValue("filter"), os.Getuid(), id.Inode)
	})
	return http.Serve(l, nil)
}

// bed is a pod with the directory and the program that the proxy's user may read.
func bed(t *testing.T) (*Launcher, *netns.Namespace, string, Pod) {
	t.Helper()
	dir, err := os.MkdirTemp("", "lateen-envoy-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "envoy")
	if err := errors.Join(os.Chmod(dir, 0o755), os.WriteFile(program, text, 0o755)); err != nil {
		t.Fatal(err)
	}
	p := pod("default/client-1")
	p.Dir = filepath.Join(dir, "1")
	if err := errors.Join(os.Mkdir(p.Dir, 0o700), os.Chown(p.Dir, UserID, UserID)); err != nil {
		t.Fatal(err)
	}
	return NewLauncher(), netnstest.New(t), program, p
}

// eventually waits for a condition, far longer than it takes.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within 30 s", what)
		}
	}
}

func alive(pid int) bool { return syscall.Kill(pid, 0) == nil }

func TestAProxyRunsInItsPodAsItsOwnUserUntilItIsStopped(t *testing.T) {
	launcher, ns, program, p := bed(t)
	defer launcher.Close()
	proxy, err := Start(launcher, ns, program, Workers, p)
	if err != nil {
		t.Fatal(err)
	}
	if err := proxy.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	seen, err := proxy.Stats(t.Context(), "^x$")
	if err != nil {
		t.Fatal(err)
	}
	if want := map[string]uint64{"uid": UserID, "network": ns.ID().Inode}; fmt.Sprint(seen) != fmt.Sprint(want) {
		t.Errorf("it runs as %v, want %v", seen, want)
	}
	if shares, err := proxy.WorkerConnections(t.Context(), OutboundPort, 2); err != nil || !slices.Equal(shares, []float64{3, 5}) {
		t.Errorf("its workers have %v (%v), want 3 and 5", shares, err)
	}
	if _, err := proxy.WorkerConnections(t.Context(), OutboundPort, 3); err == nil || !strings.Contains(err.Error(), "worker_2") {
		t.Errorf("error %v does not name the worker that is missing", err)
	}
	first, err := proxy.PID()
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(first, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	second := 0
	eventually(t, "killed, it is started again", func() bool {
		if second, err = proxy.PID(); err != nil {
			t.Fatal(err)
		}
		return second != 0 && second != first
	})
	if err := proxy.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	proxy.Stop()
	if pid, err := proxy.PID(); pid != 0 || err != nil || alive(second) {
		t.Errorf("stopped: process %d (%v), %d alive: %v", pid, err, second, alive(second))
	}
}

func TestAProxyThatDoesNotComeUpIsGivenUpWithItsLastWords(t *testing.T) {
	launcher, ns, program, p := bed(t)
	defer launcher.Close()
	if err := os.WriteFile(filepath.Join(p.Dir, "refuse"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	proxy, err := Start(launcher, ns, program, Workers, p)
	if err != nil {
		t.Fatal(err)
	}
	defer proxy.Stop()
	if err := proxy.Ready(t.Context()); err == nil || !strings.Contains(err.Error(), "the proxy of pod default/client-1 ended") ||
		!strings.Contains(err.Error(), "the stand-in refuses its configuration") {
		t.Errorf("error %v does not say which proxy ended with what words", err)
	}
	if _, err := proxy.PID(); err == nil {
		t.Error("nothing says that it has been given up")
	}
}

func TestAProxyThatItsUserMayNotRunIsRefusedWithTheFix(t *testing.T) {
	launcher, ns, program, p := bed(t)
	defer launcher.Close()
	if err := os.Chmod(program, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := Start(launcher, ns, program, Workers, p); err == nil || !strings.Contains(err.Error(), "copy it to a directory that is open to all") {
		t.Errorf("error %v names no fix", err)
	}
}

// Should the lab end without a word, its threads end as well.
func TestProxiesEndWithTheThreadThatStartedThem(t *testing.T) {
	launcher, ns, program, p := bed(t)
	proxy, err := Start(launcher, ns, program, Workers, p)
	if err != nil {
		t.Fatal(err)
	}
	if err := proxy.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	pid, err := proxy.PID()
	if err != nil {
		t.Fatal(err)
	}
	launcher.Close()
	eventually(t, "its proxy ends", func() bool { return !alive(pid) })
	proxy.Stop()
}
