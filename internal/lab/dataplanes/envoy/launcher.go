package envoy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"lateen.dev/lateen/internal/agent/netns"
	"lateen.dev/lateen/internal/osthread"
)

// Launcher starts programs in the network namespaces of pods, all from one thread that lives as long as it does: should the lab
// end without taking anything down, the kernel ends with that thread what it has started.
type Launcher struct {
	tasks  chan func()
	closed chan struct{}
	ended  chan struct{}
}

// NewLauncher starts the thread; Close ends it.
func NewLauncher() *Launcher {
	l := &Launcher{tasks: make(chan func()), closed: make(chan struct{}), ended: make(chan struct{})}
	osthread.Go(func() {
		defer close(l.ended)
		for {
			select {
			case task := <-l.tasks:
				task()
			case <-l.closed:
				return
			}
		}
	})
	return l
}

// Close ends the thread, and with it every program that still runs; nothing starts any more. It is called once.
func (l *Launcher) Close() {
	close(l.closed)
	<-l.ended
}

// start starts a program in a network namespace as a user.
func (l *Launcher) start(ns *netns.Namespace, uid int, cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if uid != 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}
	}
	result := make(chan error, 1)
	task := func() {
		err := ns.WithFD(func(fd int) error { return unix.Setns(fd, unix.CLONE_NEWNET) })
		if err != nil {
			result <- fmt.Errorf("enter the pod's network namespace: %w; this needs root", err)
			return
		}
		result <- cmd.Start()
	}
	select {
	case l.tasks <- task:
		return <-result
	case <-l.ended:
		return errors.New("what starts programs in pods has been closed")
	}
}

// Redirect leads a pod's connections to the proxy that listens in its namespace. It refuses the namespace of this process, which
// is the machine's: a pod that was taken for one with a network of its own must not cost the machine all of its connections.
func (l *Launcher) Redirect(ctx context.Context, ns *netns.Namespace, script string) error {
	own, err := netns.Identify("/proc/self/ns/net")
	if err != nil {
		return fmt.Errorf("redirect a pod to its proxy: %w", err)
	}
	if ns.ID() == own {
		return errors.New("redirect a pod to its proxy: it has no network of its own, but the machine's")
	}
	nft, err := exec.LookPath("nft")
	if err != nil {
		return errors.New("redirect a pod to its proxy: there is no program nft: install nftables")
	}
	cmd := exec.CommandContext(ctx, nft, "-f", "-")
	var said bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(script), &said, &said
	if err := l.start(ns, 0, cmd); err != nil {
		return fmt.Errorf("redirect a pod to its proxy: %w", err)
	}
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("redirect a pod to its proxy: nft: %w: %s", err, strings.TrimSpace(said.String()))
	}
	return nil
}
