package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"lateen.dev/lateen/internal/cli/term"
	"lateen.dev/lateen/internal/engine/api"
)

// heard is a stream that can be read while it is written.
type heard struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (h *heard) Write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.text.Write(p)
}

func (h *heard) String() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.text.String()
}

// acceptSIGHUP has the process receive SIGHUP, which it ignores where nohup started the tests.
func acceptSIGHUP(t *testing.T) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGHUP)
	t.Cleanup(func() { signal.Stop(signals) })
}

// awaitEnd waits until a signal has ended the context.
func awaitEnd(t *testing.T, ctx context.Context) {
	t.Helper()
	select {
	case <-ctx.Done():
	case <-time.After(time.Minute):
		t.Fatal("no signal ended the context")
	}
}

func sendToSelf(t *testing.T, s syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(os.Getpid(), s); err != nil {
		t.Fatal(err)
	}
}

func TestASignalEndsTheContextAndGivesItsExitCode(t *testing.T) {
	acceptSIGHUP(t)
	for _, tt := range []struct {
		signal syscall.Signal
		code   int
		text   string
	}{{syscall.SIGINT, 130, "interrupted"}, {syscall.SIGTERM, 143, "ended by SIGTERM"}, {syscall.SIGHUP, 129, "terminal was closed"}} {
		var stderr heard
		ctx, i := interruptible(&bytes.Buffer{}, &stderr, term.Style{})
		sendToSelf(t, tt.signal)
		awaitEnd(t, ctx)
		cause := context.Cause(ctx)
		if !errors.Is(cause, context.Canceled) || !strings.Contains(cause.Error(), tt.text) {
			t.Errorf("%s: cause %v", tt.signal, cause)
		}
		if code := i.stop(exitInterrupted); code != tt.code {
			t.Errorf("%s: exit code %d, want %d", tt.signal, code, tt.code)
		}
		if stderr.String() != "" {
			t.Errorf("%s: said %q", tt.signal, stderr.String())
		}
	}
}

func TestACommandThatEndsWellKeepsItsExitCode(t *testing.T) {
	ctx, i := interruptible(&bytes.Buffer{}, &bytes.Buffer{}, term.Style{})
	sendToSelf(t, syscall.SIGTERM)
	awaitEnd(t, ctx)
	if code := i.stop(ExitFindings); code != ExitFindings {
		t.Errorf("exit code %d", code)
	}
}

func TestASecondSignalSaysThatTheCommandCleansUp(t *testing.T) {
	acceptSIGHUP(t)
	var stderr heard
	ctx, i := interruptible(&bytes.Buffer{}, &stderr, term.Style{})
	i.cleansUp.Store(true)
	sendToSelf(t, syscall.SIGHUP)
	awaitEnd(t, ctx)
	sendToSelf(t, syscall.SIGHUP) // a shell passes the hang-up on that the kernel has sent already
	for range 2 {
		before := stderr.String()
		sendToSelf(t, syscall.SIGINT)
		for deadline := time.Now().Add(10 * time.Second); stderr.String() == before; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("nothing was said")
			}
		}
	}
	if got := stderr.String(); strings.Count(got, "still cleaning up") != 2 || strings.Count(got, "\n") != 2 {
		t.Errorf("said %q", got)
	}
	if code := i.stop(exitInterrupted); code != 129 {
		t.Errorf("exit code %d: the first signal is the one that counts", code)
	}
}

// pipes are two pipes; the reader of the first is gone.
func pipes(t *testing.T) (unreadOne, read *os.File) {
	t.Helper()
	var files []*os.File
	for range 2 {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _, _ = r.Close(), w.Close() })
		files = append(files, r, w)
	}
	_ = files[0].Close()
	return files[1], files[3]
}

// The kernel sends SIGPIPE for sockets too, such as those of a forwarded port whose client has gone.
func TestOnlyAClosedOutputEndsACommandByItsBrokenPipe(t *testing.T) {
	broken, good := pipes(t)
	ctx, i := interruptible(good, good, term.Style{})
	if _, err := broken.Write([]byte("x")); !errors.Is(err, syscall.EPIPE) {
		t.Fatalf("the write ended with %v", err)
	}
	sendToSelf(t, syscall.SIGPIPE)
	time.Sleep(50 * time.Millisecond)
	if ctx.Err() != nil {
		t.Errorf("ended: %v", context.Cause(ctx))
	}
	_ = i.stop(0)

	ctx, i = interruptible(good, broken, term.Style{})
	_, _ = broken.Write([]byte("x"))
	select {
	case <-ctx.Done():
	case <-time.After(10 * time.Second):
		t.Error("the context goes on after its output was closed")
	}
	if code := i.stop(exitInterrupted); code != 141 {
		t.Errorf("exit code %d", code)
	}
}

func TestACommandWhoseOutputNobodyReadsEndsQuietly(t *testing.T) {
	f := newFake(t)
	f.objects = sampleObjects()
	broken, _ := pipes(t)
	// Without a handler the runtime ends the test binary.
	_, i := interruptible(broken, broken, term.Style{})
	defer i.stop(0)
	var stderr bytes.Buffer
	env := Env{Stdout: broken, Stderr: &stderr, Connect: func(string) *api.Client { return api.NewAt("default", f.socket) }, Now: time.Now}
	if code := Run(t.Context(), env, []string{"get", "pods"}); code != 141 || stderr.String() != "" {
		t.Errorf("exit code %d, said %q", code, stderr.String())
	}
}

// A follower that waits for its next line would otherwise outlive `head -1` by hours.
func TestAFollowerEndsWhenNobodyReadsIt(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	a := &app{Env: Env{Stdout: w}}
	ctx, stop := a.untilUnread(t.Context())
	defer stop()
	if ctx.Err() != nil {
		t.Fatal("ended with a reader")
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-ctx.Done():
		if context.Cause(ctx) != errUnread {
			t.Errorf("cause %v", context.Cause(ctx))
		}
	case <-time.After(10 * time.Second):
		t.Error("it goes on")
	}
}

// A command that ends by itself does not wait for the next look at its reader.
func TestAnEndDoesNotWaitForTheReader(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	a := &app{Env: Env{Stdout: w}}
	// Each would take up to that long. The quickest of a few tells it from a machine that is busy for a moment.
	quickest := time.Hour
	for range 5 {
		_, stop := a.untilUnread(t.Context())
		time.Sleep(readerPoll / 10) // By now it waits for its reader.
		began := time.Now()
		stop()
		quickest = min(quickest, time.Since(began))
	}
	if quickest > readerPoll/10 {
		t.Errorf("the quickest of 5 commands took %s to end", quickest)
	}
}

// A named pipe without a writer keeps an open waiting.
func TestAReadOfAFileEndsWithTheCommand(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "fifo.yaml")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, cancel)
	var stderr heard
	code := Run(ctx, Env{Stdin: strings.NewReader(""), Stdout: &bytes.Buffer{}, Stderr: &stderr, Now: time.Now, Getwd: os.Getwd}, []string{"apply", "-f", fifo})
	if code != exitInterrupted {
		t.Errorf("exit code %d: %s", code, stderr.String())
	}
	w, err := os.OpenFile(fifo, os.O_WRONLY, 0) // the read that was left behind ends
	if err != nil {
		t.Fatal(err)
	}
	_ = w.Close()
}

// Nobody may ever type what apply -f - waits for.
func TestAReadOfStandardInputEndsWithTheCommand(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	ctx, cancel := context.WithCancel(t.Context())
	var stderr heard
	code := make(chan int, 1)
	go func() {
		code <- Run(ctx, Env{Stdin: r, Stdout: &bytes.Buffer{}, Stderr: &stderr, Now: time.Now, Getwd: os.Getwd}, []string{"apply", "-f", "-"})
	}()
	time.Sleep(20 * time.Millisecond)
	cancel()
	select {
	case got := <-code:
		if got != exitInterrupted || !strings.Contains(stderr.String(), "interrupted") {
			t.Errorf("exit code %d: %s", got, stderr.String())
		}
	case <-time.After(10 * time.Second):
		t.Error("it goes on reading")
	}
}

// A failure of the clean-up is told beside the interrupt, and the interrupt alone where nothing failed.
func TestAnInterruptDoesNotHideAFailedCleanUp(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(signalled{syscall.SIGTERM})
	wrapped := fmt.Errorf("read the log: %w", context.Canceled)
	for _, tt := range []struct {
		err  error
		want string
	}{
		{wrapped, "ended by SIGTERM"},
		{errors.Join(wrapped, errors.New("end the mesh lab-1: it does not end")), "ended by SIGTERM\nend the mesh lab-1: it does not end"},
	} {
		err := ended(ctx, Env{}, tt.err)
		if what, _ := explain(err); what != tt.want || exitCode(err) != exitInterrupted {
			t.Errorf("got %q, exit code %d", what, exitCode(err))
		}
	}
	if err := ended(ctx, Env{}, errors.New("x")); err.Error() != "x" {
		t.Errorf("got %v", err)
	}
}

func TestASecondSignalEndsACommandThatHasNothingToCleanUp(t *testing.T) {
	var stderr heard
	ctx, i := interruptible(&bytes.Buffer{}, &stderr, term.Style{})
	codes := make(chan int, 3)
	i.exit = func(code int) { codes <- code }
	i.hear(syscall.SIGINT)
	awaitEnd(t, ctx)
	i.hear(syscall.SIGINT) // the same one, sent to the process and to its group
	if len(codes) > 0 && time.Since(i.at) < sameSignal {
		t.Error("one signal that came twice ended the command at once")
	}
	i.at = i.at.Add(-time.Minute)
	i.hear(syscall.SIGTERM)
	select {
	case code := <-codes:
		if code != 130 {
			t.Errorf("exit code %d", code)
		}
	default:
		t.Error("the command goes on")
	}
	if stderr.String() != "" {
		t.Errorf("said %q", stderr.String())
	}
	i.stop(exitInterrupted)
}
