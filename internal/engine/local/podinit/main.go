package podinit

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"lateen.dev/lateen/internal/engine/local/proc"
)

// socketFD is the file descriptor on which a pod's init finds its engine.
const socketFD = 3

// Main is the pod's first process. It returns when the engine closes its end; the kernel then ends the pod.
func Main() int {
	if os.Getpid() != 1 {
		fmt.Fprintln(os.Stderr, "this command is the engine's own and starts nothing by hand; see `lateen up --help`")
		return 64
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "pod init:", err)
		return 1
	}
	return 0
}

func run() error {
	f := os.NewFile(socketFD, "engine")
	if f == nil {
		return errors.New("no connection to the engine")
	}
	c, err := net.FileConn(f)
	f.Close()
	if err != nil {
		return err
	}
	i := &initProcess{conn: c.(*net.UnixConn), running: map[int]*proc.Process{}, reaper: proc.NewReaper()}
	i.launcher, err = newLauncher()
	if err != nil {
		return err
	}
	return i.serve()
}

type initProcess struct {
	conn     *net.UnixConn
	reaper   *proc.Reaper
	launcher *launcher

	mu      sync.Mutex // guards running and sending
	running map[int]*proc.Process
}

func (i *initProcess) serve() error {
	buf := make([]byte, maxMessage)
	for {
		var r request
		files, err := receive(i.conn, buf, &r)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		switch {
		case r.Setup != nil:
			i.answer(reply{ID: r.ID, PID: os.Getpid()}, r.Setup.enter())
		case r.Start != nil:
			i.start(r.ID, r.Start, files)
		case r.Signal != 0 && r.ID == 0:
			_ = syscall.Kill(-1, syscall.Signal(r.Signal)) // everything in the pod but this process
		case r.Signal != 0:
			i.mu.Lock()
			if p := i.running[r.ID]; p != nil {
				_ = p.SignalGroup(syscall.Signal(r.Signal))
			}
			i.mu.Unlock()
		}
		closeAll(files)
	}
}

func (i *initProcess) answer(r reply, err error) {
	if err != nil {
		var missing *NoCommandError
		r.PID, r.Error, r.NoCommand = 0, err.Error(), errors.As(err, &missing)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	// The engine may be gone; the next receive finds that out.
	_ = send(i.conn, r)
}

func (i *initProcess) start(id int, cmd *Command, files []*os.File) {
	p, err := i.launch(cmd, files)
	if err != nil {
		i.answer(reply{ID: id}, err)
		return
	}
	i.mu.Lock()
	i.running[id] = p
	i.mu.Unlock()
	i.answer(reply{ID: id, PID: p.PID}, nil)
	go func() {
		<-p.Done()
		// Processes that the container left behind in its group go with it.
		_ = syscall.Kill(-p.PID, syscall.SIGKILL)
		i.mu.Lock()
		delete(i.running, id)
		i.mu.Unlock()
		i.answer(reply{ID: id, Exited: true, Code: p.Exit().Code, Signal: int(p.Exit().Signal)}, nil)
	}()
}

func (i *initProcess) launch(cmd *Command, files []*os.File) (*proc.Process, error) {
	if len(files) != filesPerStart || len(cmd.Args) == 0 || cmd.UID <= 0 {
		return nil, errors.New("incomplete start request")
	}
	path, err := lookPath(cmd.Args[0], cmd.Env)
	if err != nil {
		return nil, err
	}
	dir := cmd.Dir
	if dir == "" {
		dir = "/"
	}
	if st, err := os.Stat(dir); err != nil || !st.IsDir() {
		return nil, fmt.Errorf("working directory %s not found", dir)
	}
	spec := proc.Spec{Path: path, Args: cmd.Args, Env: cmd.Env, Dir: dir,
		Sys: &syscall.SysProcAttr{
			Setsid:     true,
			Setctty:    cmd.TTY,
			Credential: &syscall.Credential{Uid: uint32(cmd.UID), Gid: uint32(cmd.UID)},
		}}
	for _, f := range files {
		spec.Files = append(spec.Files, f.Fd())
	}
	return i.launcher.start(i.reaper, spec)
}

// lookPath finds a command as a shell does, in the PATH of the environment it will get.
func lookPath(name string, env []string) (string, error) {
	if strings.Contains(name, "/") {
		if _, err := os.Stat(name); err != nil {
			return "", &NoCommandError{fmt.Sprintf("command %s not found; install it or correct the path", name)}
		}
		return name, nil
	}
	var path string
	for _, e := range slices.Backward(env) {
		if v, ok := strings.CutPrefix(e, "PATH="); ok {
			path = v
			break
		}
	}
	for _, dir := range filepath.SplitList(path) {
		full := filepath.Join(dir, name)
		if st, err := os.Stat(full); err == nil && st.Mode().IsRegular() && st.Mode().Perm()&0o111 != 0 {
			return full, nil
		}
	}
	return "", &NoCommandError{fmt.Sprintf("command %q is in none of the directories of PATH (%s); processes come from this machine, so install it or give its path", name, path)}
}

// launcher is a thread that has given up what its children must not have: they are forked from it.
type launcher struct{ jobs chan func() }

func newLauncher() (*launcher, error) {
	l := &launcher{jobs: make(chan func())}
	ready := make(chan error)
	go func() {
		runtime.LockOSThread() // for good: these settings belong to this thread alone
		ready <- renounce()
		for job := range l.jobs {
			job()
		}
	}()
	return l, <-ready
}

// renounce makes sure that neither a set-uid program nor a file capability gives a child privileges back.
func renounce() error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("set no_new_privs: %w", err)
	}
	for c := uintptr(0); c <= unix.CAP_LAST_CAP; c++ {
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err != nil && err != unix.EINVAL {
			return fmt.Errorf("drop capability %d: %w", c, err)
		}
	}
	return nil
}

func (l *launcher) start(r *proc.Reaper, s proc.Spec) (p *proc.Process, err error) {
	done := make(chan struct{})
	l.jobs <- func() {
		p, err = r.Start(s)
		close(done)
	}
	<-done
	return p, err
}
