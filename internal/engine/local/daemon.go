package local

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"lateen.dev/lateen/internal/engine/local/logfile"
	"lateen.dev/lateen/internal/engine/local/netns"
	"lateen.dev/lateen/internal/engine/local/proc"
)

// daemon is a part of the mesh that must run as long as the mesh does: it is started again when it ends.
type daemon struct {
	name    string
	env     []string
	uid     int // 0: root; any other also loses all privileges
	logPath string
	output  *logfile.File
	log     *slog.Logger
	reaper  *proc.Reaper

	mu        sync.Mutex
	program   program
	process   *proc.Process
	current   *launched               // the same with its output
	beside    map[*launched]bool      // processes that are starting or ending beside the current one
	draining  map[*launched]drainTime // the processes of beside that were replaced
	replacing bool
	replaced  chan struct{} // something is in it when current is another process than before
	moved     chan struct{} // see moves
	restarts  int
	lastExit  string
	failures  int // starts that did not last, in a row
	stopping  bool
	stopped   chan struct{}
	quit      chan struct{}
}

const (
	daemonBackoffMin = 100 * time.Millisecond
	daemonBackoffMax = 5 * time.Second
	// A daemon that ran this long was well; what ended it is news.
	daemonLasts = 10 * time.Second
	// The time is short, because pods end before the daemons of the mesh and leave nothing to drain.
	stopTimeout = 2 * time.Second
)

func newDaemon(log *slog.Logger, r *proc.Reaper, name, path string, args []string, env []string, ns, logPath string) *daemon {
	return &daemon{name: name, program: program{path: path, args: args, netns: ns}, env: env, logPath: logPath, output: logfile.New(logPath, logMax, 0o644),
		log: log.With("daemon", name), reaper: r, beside: map[*launched]bool{}, draining: map[*launched]drainTime{}, replaced: make(chan struct{}, 1), stopped: make(chan struct{}), quit: make(chan struct{})}
}

// run keeps the daemon running until stop is called.
func (d *daemon) run() {
	defer close(d.stopped)
	backoff := daemonBackoffMin
	for {
		began := time.Now()
		exit, err := d.once()
		d.mu.Lock()
		d.process = nil
		d.lastExit = exit
		if err != nil {
			d.lastExit = err.Error()
		}
		if time.Since(began) > daemonLasts {
			d.failures, backoff = 0, daemonBackoffMin
		}
		d.failures++
		stopping := d.stopping
		last := d.lastExit
		d.restarts++
		d.mu.Unlock()
		if stopping {
			return
		}
		d.log.Error("ended; starting it again", "why", last, "in", backoff)
		select {
		case <-time.After(backoff):
		case <-d.quit:
			return
		}
		backoff = min(2*backoff, daemonBackoffMax)
	}
}

// launched is one process of a daemon with its output.
type launched struct {
	*proc.Process
	program program
	output  *logfile.Pipe
}

// once runs the daemon to its end and returns how it ended. The end of a process that was replaced does not count.
func (d *daemon) once() (string, error) {
	d.mu.Lock()
	current, what := d.current, d.program
	d.mu.Unlock()
	if current == nil {
		var err error
		if current, err = d.launch(what, nil, func(l *launched) { d.current, d.process = l, l.Process }); err != nil {
			return "", err
		}
	}
	for {
		// A draining process may take hours; only the end of its replacement counts.
		select {
		case <-current.Done():
		case <-d.replaced:
		}
		d.mu.Lock()
		next := d.current
		ended := next == current && closed(current.Done())
		if ended {
			d.current = nil
		}
		d.mu.Unlock()
		if ended {
			current.output.Drain(drainOutput)
			return current.Exit().String(), nil
		}
		current = next
	}
}

// launch starts a process of the daemon; enter is called with it, under the daemon's lock, before anybody can stop it.
func (d *daemon) launch(what program, env []string, enter func(*launched)) (*launched, error) {
	output, err := d.output.Pipe(d.uid)
	if err != nil {
		return nil, err
	}
	defer output.Started()
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	args := append([]string{filepath.Base(what.path)}, what.args...)
	spec := proc.Spec{Path: what.path, Args: args, Env: append(env, d.env...), Dir: "/", Files: []uintptr{null.Fd(), output.Writer.Fd(), output.Writer.Fd()},
		Sys: &syscall.SysProcAttr{Setsid: true}}
	if d.uid != 0 {
		spec.Sys.Credential = &syscall.Credential{Uid: uint32(d.uid), Gid: uint32(d.uid)}
	}
	l := &launched{program: what, output: output}
	start := func() error {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.stopping {
			return fmt.Errorf("%s is not wanted any more", d.name)
		}
		var err error
		if l.Process, err = d.reaper.Start(spec); err == nil {
			enter(l)
		}
		return err
	}
	if what.netns == "" {
		err = start()
	} else {
		err = netns.Do(what.netns, start)
	}
	if err != nil {
		return nil, err
	}
	return l, nil
}

// stop ends the daemon, by force if it does not end in time.
func (d *daemon) stop(timeout time.Duration) {
	d.mu.Lock()
	p := d.process
	for l := range d.beside {
		_ = l.Signal(syscall.SIGKILL)
	}
	if !d.stopping {
		d.stopping = true
		close(d.quit)
	}
	d.mu.Unlock()
	if p != nil {
		_ = p.Signal(syscall.SIGTERM)
		select {
		case <-p.Done():
		case <-time.After(timeout):
			d.log.Warn("does not end; killing it")
			_ = p.Signal(syscall.SIGKILL)
		}
	}
	<-d.stopped
}

// state is what is known about the daemon's process.
type daemonState struct {
	process  *proc.Process // nil if it does not run
	restarts int
	lastExit string
	failures int
}

func (d *daemon) state() daemonState {
	d.mu.Lock()
	defer d.mu.Unlock()
	return daemonState{d.process, d.restarts, d.lastExit, d.failures}
}

// logMax is when a log goes on in a new file, in bytes; one old file is kept.
const logMax = 64 << 20

// await waits until the daemon is ready, keeps failing, or time is up.
func (d *daemon) await(ctx context.Context, ready func(context.Context) error) error {
	deadline := time.Now().Add(readyTimeout)
	for {
		attempt, cancel := context.WithTimeout(ctx, pollTimeout)
		err := ready(attempt)
		cancel()
		if err == nil {
			return nil
		}
		s := d.state()
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case s.failures >= tooManyFailures:
			return fmt.Errorf("it ended %d times, the last time because it %s", s.failures, strings.TrimPrefix(s.lastExit, "it "))
		case time.Now().After(deadline):
			return fmt.Errorf("it was not ready after %s: %w", readyTimeout, err)
		}
		time.Sleep(unreadyPoll)
	}
}

func (d *daemon) notReady(phase, what string, err error) error {
	return &failure{phase: phase, err: fmt.Errorf("%s did not become ready: %w", what, err),
		fix: "see its log, " + d.logPath, log: tail(d.logPath, 12)}
}
