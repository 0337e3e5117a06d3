package local

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"lateen.dev/lateen/internal/engine/local/netns"
	"lateen.dev/lateen/internal/engine/local/proc"
)

// daemon is a part of the mesh that must run as long as the mesh does: it is started again when it ends.
type daemon struct {
	name    string
	path    string
	args    []string
	env     []string
	netns   string // empty: the fabric's
	uid     int    // 0: root; any other also loses all privileges
	logPath string
	log     *slog.Logger
	reaper  *proc.Reaper

	mu       sync.Mutex
	process  *proc.Process
	restarts int
	lastExit string
	failures int // starts that did not last, in a row
	stopping bool
	stopped  chan struct{}
	quit     chan struct{}
}

const (
	daemonBackoffMin = 100 * time.Millisecond
	daemonBackoffMax = 5 * time.Second
	// A daemon that ran this long was well; what ended it is news.
	daemonLasts = 10 * time.Second
	// When the mesh ends its pods end first, so that nothing is left to drain.
	stopTimeout = 2 * time.Second
)

func newDaemon(log *slog.Logger, r *proc.Reaper, name, path string, args []string, env []string, ns, logPath string) *daemon {
	return &daemon{name: name, path: path, args: append([]string{filepath.Base(path)}, args...), env: env, netns: ns, logPath: logPath,
		log: log.With("daemon", name), reaper: r, stopped: make(chan struct{}), quit: make(chan struct{})}
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

// once runs the daemon to its end and says how it ended.
func (d *daemon) once() (string, error) {
	log, err := os.OpenFile(d.logPath, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return "", err
	}
	defer log.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		return "", err
	}
	defer null.Close()
	spec := proc.Spec{Path: d.path, Args: d.args, Env: d.env, Dir: "/", Files: []uintptr{null.Fd(), log.Fd(), log.Fd()},
		Sys: &syscall.SysProcAttr{Setsid: true}}
	if d.uid != 0 {
		spec.Sys.Credential = &syscall.Credential{Uid: uint32(d.uid), Gid: uint32(d.uid)}
	}
	var p *proc.Process
	start := func() error {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.stopping {
			return fmt.Errorf("%s is not wanted any more", d.name)
		}
		var err error
		p, err = d.reaper.Start(spec)
		d.process = p
		return err
	}
	if d.netns == "" {
		err = start()
	} else {
		err = netns.Do(d.netns, start)
	}
	if err != nil {
		return "", err
	}
	<-p.Done()
	return p.Exit().String(), nil
}

// stop ends the daemon, by force if it does not end in time.
func (d *daemon) stop(timeout time.Duration) {
	d.mu.Lock()
	p := d.process
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

const (
	logMax       = 64 << 20 // bytes; a longer log is cut
	logTrimEvery = 10 * time.Second
)

// trimLogs keeps logs from filling the disk: a log that is too long becomes log.1, in place of the one before.
// Writers append, so that what they write after the cut goes to the start of the file.
func (e *Engine) trimLogs(ctx context.Context) {
	tick := time.NewTicker(logTrimEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for _, pattern := range []string{"*.log", "nodes/*/*.log", "pods/*/*.log"} {
			logs, _ := filepath.Glob(e.dir.path(pattern)) // the patterns are well-formed
			for _, l := range logs {
				if err := trimLog(l, logMax); err != nil {
					e.log.Warn("cut a log", "log", l, "err", err)
				}
			}
		}
	}
}

func trimLog(path string, limit int64) error {
	st, err := os.Stat(path)
	if err != nil || st.Size() <= limit {
		return err
	}
	in, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(path+".1", os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	if cerr := out.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return err
	}
	return in.Truncate(0)
}
