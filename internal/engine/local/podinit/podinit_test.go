package podinit

import (
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func pair(t *testing.T) (a, b *net.UnixConn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]*net.UnixConn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "end")
		c, err := net.FileConn(f)
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		ends[i] = c.(*net.UnixConn)
	}
	return ends[0], ends[1]
}

func openFiles(t *testing.T) int {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(fds)
}

func TestMessagesCarryFiles(t *testing.T) {
	a, b := pair(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := send(a, request{ID: 4, Start: &Command{Args: []string{"x"}, UID: 7}}, w, w, w); err != nil {
		t.Fatal(err)
	}
	w.Close()
	var got request
	files, err := receive(b, make([]byte, maxMessage), &got)
	if err != nil || got.ID != 4 || got.Start.UID != 7 || len(files) != 3 {
		t.Fatalf("%+v, %d files, %v", got, len(files), err)
	}
	if _, err := files[2].WriteString("hi"); err != nil {
		t.Fatal(err)
	}
	closeAll(files)
	if s, err := io.ReadAll(r); err != nil || string(s) != "hi" {
		t.Errorf("%q, %v", s, err)
	}
}

func TestBadMessagesLeaveNoFilesOpen(t *testing.T) {
	a, b := pair(t)
	before := openFiles(t)
	for name, msg := range map[string]string{"not JSON": "{", "of another shape": `{"id":"x"}`, "longer than allowed": `{"id":1,"start":{"dir":"` + strings.Repeat("x", 200) + `"}}`} {
		if _, _, err := a.WriteMsgUnix([]byte(msg), unix.UnixRights(0, 1, 2), nil); err != nil {
			t.Fatal(err)
		}
		if _, err := receive(b, make([]byte, 100), &request{}); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if _, _, err := a.WriteMsgUnix([]byte(`{"id":1}`), unix.UnixRights(0, 1, 2, 0, 1, 2), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := receive(b, make([]byte, 100), &request{}); err == nil {
		t.Error("more files than a start has: no error")
	}
	if after := openFiles(t); after != before {
		t.Errorf("%d files open, %d before", after, before)
	}
}

func TestTooLargeAMessageIsRefusedBeforeItIsSent(t *testing.T) {
	a, _ := pair(t)
	err := send(a, request{Start: &Command{Env: []string{strings.Repeat("x", maxMessage)}}})
	if err == nil || !strings.Contains(err.Error(), "shorten command or environment") {
		t.Errorf("got %v", err)
	}
}

func TestTheEndOfTheEngineIsSeen(t *testing.T) {
	a, b := pair(t)
	a.Close()
	if _, err := receive(b, make([]byte, 100), &request{}); !errors.Is(err, io.EOF) {
		t.Errorf("got %v", err)
	}
}

func TestLookPath(t *testing.T) {
	first, second := t.TempDir(), t.TempDir()
	for path, mode := range map[string]os.FileMode{
		filepath.Join(first, "data"): 0o644, filepath.Join(second, "data"): 0o755, filepath.Join(second, "tool"): 0o755,
	} {
		if err := os.WriteFile(path, nil, mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(first, "tool"), 0o755); err != nil {
		t.Fatal(err)
	}
	env := []string{"PATH=/nowhere", "X=1", "PATH=" + first + ":" + second}
	for name, want := range map[string]string{
		"tool":                        filepath.Join(second, "tool"), // not the directory of that name
		"data":                        filepath.Join(second, "data"), // not the file that cannot be run
		filepath.Join(second, "tool"): filepath.Join(second, "tool"),
	} {
		if got, err := lookPath(name, env); err != nil || got != want {
			t.Errorf("%s: %s, %v; want %s", name, got, err, want)
		}
	}
	for _, name := range []string{"absent", "/no/such/tool", "./absent"} {
		if got, err := lookPath(name, env); err == nil {
			t.Errorf("%s: %s", name, got)
		}
	}
}

func TestMainIsNotForHands(t *testing.T) {
	if os.Getpid() == 1 {
		t.Fatal("this test must not be the first process of a pid namespace")
	}
	if code := Main(); code != 64 {
		t.Errorf("exit code %d", code)
	}
}
