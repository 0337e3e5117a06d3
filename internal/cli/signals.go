package cli

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"lateen.dev/lateen/internal/cli/term"
	"lateen.dev/lateen/internal/install"
)

// signalled is why a command's context ended: a signal, which is a cancellation to everything that asks.
type signalled struct{ syscall.Signal }

func (s signalled) Error() string {
	switch s.Signal {
	case syscall.SIGINT:
		return "interrupted"
	case syscall.SIGHUP:
		return "ended because its terminal was closed (SIGHUP)"
	case syscall.SIGPIPE:
		return "ended because nothing reads its output any more (SIGPIPE)"
	}
	return "ended by " + unix.SignalName(s.Signal)
}

// Is makes a signal a cancellation.
func (signalled) Is(target error) bool { return target == context.Canceled }

// exitStatusOf is the code that shells give to a program that this signal ended.
func exitStatusOf(s syscall.Signal) int { return 128 + int(s) }

// errUnread ends the context of a command that writes until it is ended, once nothing reads its output.
var errUnread = signalled{syscall.SIGPIPE}

// interrupts ends a context at the first signal that asks the program to end, and says at further ones that it cleans up. A
// command ends what it started when its context ends; a program that died at the signal would leave meshes behind.
type interrupts struct {
	outputs []io.Writer
	say     func(text string)
	cancel  context.CancelCauseFunc
	exit    func(code int)
	signals chan os.Signal
	done    sync.WaitGroup
	// cleansUp tells whether the command changes a machine or a cluster, and must be waited for after the first signal.
	cleansUp atomic.Bool
	// editing tells whether an editor has the terminal. Its end ends the command, which then says where the changes are.
	editing atomic.Bool

	mu    sync.Mutex
	first syscall.Signal // 0 until there is one
	at    time.Time      // of the first
}

// sameSignal is the time within which two signals are one request to end.
const sameSignal = 200 * time.Millisecond

// cleaning are the commands that end or undo what they have started when they are interrupted.
var cleaning = []string{"up", "down", "demo", "lab", "install", "uninstall"}

// interruptible returns a context that a signal ends, and the interrupts that do so. Their stop must be called.
func interruptible(stdout, stderr io.Writer, style term.Style) (context.Context, *interrupts) {
	ctx, cancel := context.WithCancelCause(context.Background())
	i := &interrupts{
		outputs: []io.Writer{stdout, stderr}, cancel: cancel, signals: make(chan os.Signal, 8), exit: os.Exit,
		say: func(text string) { term.Interject(stderr, style, text) },
	}
	heard := []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGPIPE}
	if !signal.Ignored(syscall.SIGHUP) { // nohup lets a program go on without its terminal
		heard = append(heard, syscall.SIGHUP)
	}
	signal.Notify(i.signals, heard...)
	i.done.Go(func() {
		for s := range i.signals {
			i.hear(s.(syscall.Signal))
		}
	})
	return ctx, i
}

// hear takes one signal.
func (i *interrupts) hear(s syscall.Signal) {
	// The kernel sends SIGPIPE for sockets too, whose ends are the business of their users.
	if s == syscall.SIGPIPE && !unread(i.outputs...) {
		return
	}
	i.mu.Lock()
	first := i.first
	if first == 0 {
		i.first, i.at = s, time.Now()
	}
	i.mu.Unlock()
	switch {
	case first == 0:
		i.cancel(signalled{s})
		// From now on SIGQUIT is the way to end at once: the runtime would write the state of every goroutine.
		signal.Notify(i.signals, syscall.SIGQUIT)
	case s == syscall.SIGQUIT:
		i.say("ended during the clean-up; `lateen down --name MESH` ends a mesh that is left")
		i.exit(exitStatusOf(s))
	case (s == syscall.SIGINT || s == syscall.SIGTERM) && i.editing.Load():
	case (s == syscall.SIGINT || s == syscall.SIGTERM) && !i.cleansUp.Load():
		// Programs such as timeout send one signal to the process and to its group: that is no second request.
		if time.Since(i.at) >= sameSignal {
			i.exit(exitStatusOf(first))
		}
	case s == syscall.SIGINT || s == syscall.SIGTERM:
		i.say(`still cleaning up; Ctrl-\ (SIGQUIT) ends the command at once and may leave a mesh behind`)
	}
}

// stop restores the signals' usual effects and returns the exit code of a command that ended with this one.
func (i *interrupts) stop(code int) int {
	signal.Stop(i.signals)
	close(i.signals)
	i.done.Wait()
	i.cancel(nil)
	if code == exitInterrupted && i.first != 0 {
		return exitStatusOf(i.first)
	}
	return code
}

// unread tells whether one of these is a pipe or a socket whose reader is gone.
func unread(outputs ...io.Writer) bool {
	for _, w := range outputs {
		if file, ok := w.(*os.File); ok && readerGone(file, 0) {
			return true
		}
	}
	return false
}

// readerGone waits until the reader of a pipe or a socket is gone, for a time at most, and tells whether it is.
func readerGone(file *os.File, within time.Duration, others ...unix.PollFd) bool {
	fds := append([]unix.PollFd{{Fd: int32(file.Fd())}}, others...) // no event is asked for: errors and hang-ups are always told
	n, err := unix.Poll(fds, int(within.Milliseconds()))
	return err == nil && n > 0 && fds[0].Revents&(unix.POLLERR|unix.POLLHUP) != 0
}

// readerPoll is how long a look for the reader of the output waits; the kernel ends it early when the reader goes or the command ends.
const readerPoll = 500 * time.Millisecond

// untilUnread is a context that ends when nothing reads standard output any more, for commands that write until they are
// ended: `lateen logs -f | head -1` would otherwise run until the next line comes. The function must be called at the end.
func (a *app) untilUnread(ctx context.Context) (context.Context, func()) {
	file, ok := a.Stdout.(*os.File)
	if !ok {
		return ctx, func() {}
	}
	if info, err := file.Stat(); err != nil || info.Mode()&(fs.ModeNamedPipe|fs.ModeSocket) == 0 {
		return ctx, func() {}
	}
	wake, end, err := os.Pipe()
	if err != nil {
		return ctx, func() {}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	var done sync.WaitGroup
	done.Go(func() {
		for ctx.Err() == nil {
			if readerGone(file, readerPoll, unix.PollFd{Fd: int32(wake.Fd())}) {
				cancel(errUnread)
			}
		}
	})
	return ctx, func() {
		cancel(nil)
		_ = end.Close() // the poll ends at the hang-up
		done.Wait()
		_ = wake.Close()
	}
}

// cancellable reads until a context ends: a read from a terminal would otherwise outlast every signal.
type cancellable struct {
	ctx  context.Context
	from io.Reader
}

func (c cancellable) Read(p []byte) (int, error) {
	type result struct {
		data []byte
		err  error
	}
	done := make(chan result, 1)
	go func() {
		buffer := make([]byte, len(p)) // p is the caller's again when the context has ended
		n, err := c.from.Read(buffer)
		done <- result{buffer[:n], err}
	}()
	select {
	case r := <-done:
		return copy(p, r.data), r.err
	case <-c.ctx.Done():
		return 0, c.ctx.Err()
	}
}

// readFile reads a whole file until the command's context ends: opening and reading a named pipe wait for its writer.
func (a *app) readFile(name string) ([]byte, error) {
	ctx := context.Background()
	if input, ok := a.input.(cancellable); ok {
		ctx = input.ctx
	}
	type result struct {
		data []byte
		err  error
	}
	done := make(chan result, 1)
	go func() {
		data, err := os.ReadFile(name)
		done <- result{data, err}
	}()
	select {
	case r := <-done:
		return r.data, r.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// cancelled is a cancellation for people: its cause, and what else went wrong until the command had ended.
type cancelled struct {
	cause error
	rest  []error
}

func (c cancelled) Error() string { return errors.Join(append([]error{c.cause}, c.rest...)...).Error() }

func (cancelled) Is(target error) bool { return target == context.Canceled }

// ended is the error of a command that has ended, as it is told: nothing is left of it if nothing reads the output.
func ended(ctx context.Context, env Env, err error) error {
	unreadStatus := exitStatus(exitStatusOf(syscall.SIGPIPE))
	cause := signalled{syscall.SIGINT} // that of a context that nobody gave a cause
	errors.As(context.Cause(ctx), &cause)
	switch {
	case errors.Is(err, syscall.EPIPE) && unread(env.Stdout, env.Stderr):
		return unreadStatus
	case !errors.Is(err, context.Canceled) || errors.As(err, new(*install.Interrupted)):
		return err
	case cause == errUnread:
		return unreadStatus
	}
	return cancelled{cause, others(err)}
}

// others are the errors of a joined one that are no cancellation.
func others(err error) (list []error) {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		if !errors.Is(err, context.Canceled) {
			list = append(list, err)
		}
		return list
	}
	for _, e := range joined.Unwrap() {
		list = append(list, others(e)...)
	}
	return list
}
