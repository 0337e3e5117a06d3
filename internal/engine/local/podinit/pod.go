package podinit

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"lateen.dev/lateen/internal/engine/local/netns"
	"lateen.dev/lateen/internal/engine/local/proc"
)

// Pod is the engine's end: a running pod init.
type Pod struct {
	init *proc.Process
	conn *net.UnixConn

	mu      sync.Mutex
	next    int
	waiting map[int]chan reply // for the answer to a request
	running map[int]*Process
	lost    bool // the init is gone
}

// Process is a process in the pod.
type Process struct {
	PID  int // in the pod's pid namespace
	id   int
	pod  *Pod
	done chan struct{}
	exit proc.Exit
}

// Done is closed when the process has ended, or the whole pod has.
func (p *Process) Done() <-chan struct{} { return p.done }

// Exit is how it ended; valid after Done is closed.
func (p *Process) Exit() proc.Exit { return p.exit }

// Signal sends a signal to the process and its group.
func (p *Process) Signal(sig syscall.Signal) error {
	return p.pod.write(request{ID: p.id, Signal: int(sig)})
}

// Spawn starts a pod's init in the network namespace at ns. argv is the command line that leads to Main; log takes what the
// init itself has to say, which is nothing unless it fails.
func Spawn(ctx context.Context, r *proc.Reaper, ns string, exe string, argv []string, log *os.File, s Setup) (*Pod, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "pod"), os.NewFile(uintptr(fds[1]), "engine")
	defer ours.Close()
	defer theirs.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	c, err := net.FileConn(ours)
	if err != nil {
		return nil, err
	}
	pod := &Pod{conn: c.(*net.UnixConn), waiting: map[int]chan reply{}, running: map[int]*Process{}}
	spec := proc.Spec{
		Path: exe, Args: argv, Dir: "/",
		Env:   []string{"GOMAXPROCS=1", "GOGC=25"}, // it waits all its life: small matters more than fast
		Files: []uintptr{null.Fd(), log.Fd(), log.Fd(), theirs.Fd()},
		Sys: &syscall.SysProcAttr{
			Setsid:     true,
			Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS,
		},
	}
	err = netns.Do(ns, func() error {
		pod.init, err = r.Start(spec)
		return err
	})
	runtime.KeepAlive(log)
	if err != nil {
		c.Close()
		return nil, err
	}
	go pod.read()
	if _, err := pod.call(ctx, request{Setup: &s}); err != nil {
		pod.Kill()
		return nil, fmt.Errorf("set up the pod's view of the machine: %w", err)
	}
	return pod, nil
}

// Start runs a command with the given stdin, stdout and stderr, which stay the caller's to close.
func (p *Pod) Start(ctx context.Context, cmd Command, files [filesPerStart]*os.File) (*Process, error) {
	proc := &Process{pod: p, done: make(chan struct{})}
	r, err := p.callAs(ctx, request{Start: &cmd}, proc, files[:]...)
	if err != nil {
		return nil, err
	}
	proc.PID = r.PID
	return proc, nil
}

// PID is the init's pid in the engine's pid namespace.
func (p *Pod) PID() int { return p.init.PID }

// SignalAll sends a signal to every process of the pod but its init.
func (p *Pod) SignalAll(sig syscall.Signal) error { return p.write(request{Signal: int(sig)}) }

// Kill ends the pod's init and with it every process of the pod, and waits until they are gone.
func (p *Pod) Kill() {
	_ = p.init.Signal(syscall.SIGKILL)
	<-p.init.Done()
	p.conn.Close()
}

// Done is closed when the pod's init has ended.
func (p *Pod) Done() <-chan struct{} { return p.init.Done() }

var errLost = errors.New("the pod's init has ended")

func (p *Pod) call(ctx context.Context, r request) (reply, error) { return p.callAs(ctx, r, nil) }

// callAs sends a request and waits for its answer; as, if not nil, is registered first so that its exit cannot be missed.
func (p *Pod) callAs(ctx context.Context, r request, as *Process, files ...*os.File) (reply, error) {
	answer := make(chan reply, 1)
	p.mu.Lock()
	if p.lost {
		p.mu.Unlock()
		return reply{}, errLost
	}
	p.next++
	r.ID = p.next
	p.waiting[r.ID] = answer
	if as != nil {
		as.id = r.ID
		p.running[r.ID] = as
	}
	p.mu.Unlock()
	forget := func() {
		p.mu.Lock()
		delete(p.waiting, r.ID)
		delete(p.running, r.ID)
		p.mu.Unlock()
	}
	if err := p.write(r, files...); err != nil {
		forget()
		return reply{}, err
	}
	select {
	case got := <-answer:
		if got.Error != "" {
			forget()
			if got.NoCommand {
				return reply{}, &NoCommandError{got.Error}
			}
			return reply{}, errors.New(got.Error)
		}
		return got, nil
	case <-ctx.Done():
		// The process may start all the same: it must not run on unowned.
		_ = p.write(request{ID: r.ID, Signal: int(syscall.SIGKILL)})
		forget()
		return reply{}, ctx.Err()
	case <-p.init.Done():
		forget()
		return reply{}, errLost
	}
}

func (p *Pod) write(r request, files ...*os.File) error {
	return send(p.conn, r, files...) // one message is one write: no lock needed
}

func (p *Pod) read() {
	buf := make([]byte, maxMessage)
	for {
		var r reply
		files, err := receive(p.conn, buf, &r)
		closeAll(files)
		if err != nil {
			break
		}
		p.mu.Lock()
		if r.Exited {
			if proc := p.running[r.ID]; proc != nil {
				delete(p.running, r.ID)
				proc.exit.Code, proc.exit.Signal = r.Code, syscall.Signal(r.Signal)
				close(proc.done)
			}
		} else if w := p.waiting[r.ID]; w != nil {
			delete(p.waiting, r.ID)
			w <- r
		}
		p.mu.Unlock()
	}
	p.conn.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lost = true
	for id, proc := range p.running {
		delete(p.running, id)
		proc.exit.Code, proc.exit.Signal = 128+int(syscall.SIGKILL), syscall.SIGKILL
		close(proc.done)
	}
}
