// Package proc starts processes and reaps every child, as the first process of a pid namespace must:
// its own and those orphaned to it. What to run, and what to do when it ends, is the callers' business.
package proc

import (
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Spec is what to start.
type Spec struct {
	Path  string   // absolute path of the executable
	Args  []string // argv, including argv[0]
	Env   []string
	Dir   string
	Files []uintptr // file descriptors 0, 1, 2, ...
	Sys   *syscall.SysProcAttr
}

// Exit is how a process ended.
type Exit struct {
	Code   int            // exit code; 128 + signal if it was killed
	Signal syscall.Signal // 0 unless it was killed
	At     time.Time
}

// String says it in words.
func (e Exit) String() string {
	if e.Signal != 0 {
		return fmt.Sprintf("killed by signal %d (%s)", int(e.Signal), e.Signal)
	}
	return fmt.Sprintf("exited with code %d", e.Code)
}

// Process is a started process.
type Process struct {
	PID     int
	Started time.Time
	done    chan struct{}
	exit    Exit
	reaper  *Reaper
}

// Done is closed when the process has ended and was reaped.
func (p *Process) Done() <-chan struct{} { return p.done }

// Exit is how it ended; valid after Done is closed.
func (p *Process) Exit() Exit { return p.exit }

// Signal sends a signal unless the process was reaped already, so that it cannot reach a stranger with the same pid.
func (p *Process) Signal(sig syscall.Signal) error { return p.signal(p.PID, sig) }

// SignalGroup sends a signal to the process group that the process leads, if it leads one.
func (p *Process) SignalGroup(sig syscall.Signal) error { return p.signal(-p.PID, sig) }

func (p *Process) signal(pid int, sig syscall.Signal) error {
	p.reaper.mu.Lock()
	defer p.reaper.mu.Unlock()
	select {
	case <-p.done:
		return os.ErrProcessDone
	default:
		return syscall.Kill(pid, sig)
	}
}

// Reaper collects the exit of every child of this process. There must be only one, and nobody else may wait for a child:
// os/exec cannot be used beside it.
type Reaper struct {
	mu       sync.Mutex
	children map[int]*Process
}

// NewReaper starts reaping.
func NewReaper() *Reaper {
	r := &Reaper{children: map[int]*Process{}}
	c := make(chan os.Signal, 1) // one pending wake-up is enough: each collects all that is there
	signal.Notify(c, syscall.SIGCHLD)
	go func() {
		for range c {
			r.collect()
		}
	}()
	return r
}

// Start forks on the calling thread, so that the child is born in the caller's namespaces.
func (r *Reaper) Start(s Spec) (*Process, error) {
	// Held across the fork: the child may end before it is in the table.
	r.mu.Lock()
	defer r.mu.Unlock()
	pid, err := syscall.ForkExec(s.Path, s.Args, &syscall.ProcAttr{Dir: s.Dir, Env: s.Env, Files: s.Files, Sys: s.Sys})
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", s.Path, err)
	}
	p := &Process{PID: pid, Started: time.Now(), done: make(chan struct{}), reaper: r}
	r.children[pid] = p
	return p, nil
}

func (r *Reaper) collect() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, unix.WNOHANG, nil)
		if err == unix.EINTR {
			continue
		}
		if err != nil || pid <= 0 {
			return
		}
		p, ours := r.children[pid]
		if !ours {
			continue // an orphan: somebody else's child that was left to us
		}
		delete(r.children, pid)
		p.exit = Exit{Code: status.ExitStatus(), At: time.Now()}
		if status.Signaled() {
			p.exit.Code, p.exit.Signal = 128+int(status.Signal()), status.Signal()
		}
		close(p.done)
	}
}

// StartTime is when a process started, in clock ticks since boot: with the pid it names a process for good.
// procfs is where /proc is mounted.
func StartTime(procfs string, pid int) (uint64, error) {
	s, err := ReadStat(procfs, pid)
	return s.StartTime, err
}
