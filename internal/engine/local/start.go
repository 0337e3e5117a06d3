package local

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"lateen.dev/lateen/internal/engine/api"
)

// The hidden verbs of the lateen command; its main hands them to EngineMain and PodMain before it looks at anything else.
const (
	EngineVerb = "__engine"
	PodVerb    = "__pod"
)

// File descriptors that an engine is born with, after stdin, stdout and stderr.
const (
	progressFD = 3 // it writes events here until it is ready
	configFD   = 4 // it reads its Options here
	lockFD     = 5 // the locked run directory
	starterFD  = 6 // a pipe that nobody writes to: its end is that of the process that started an attached mesh
)

// Handle is a running mesh.
type Handle struct {
	Mesh   string
	RunDir string
	PID    int // of the engine, on the host
	Client *api.Client
	// lifeline is the writing end of an attached engine's pipe, nil for others. The kernel closes it with this process.
	lifeline *os.File
}

// Close lets the engine of an attached mesh end it, as the end of this process does. It does nothing to other meshes, nor to
// one that is down.
func (h *Handle) Close() error {
	if h.lifeline == nil {
		return nil
	}
	return h.lifeline.Close()
}

// Start brings a mesh up and returns when it is ready to take objects. The engine is a daemon: it lives on when the caller
// ends, unless the mesh is attached; the caller must keep the Handle then. If anything fails before the mesh is ready, nothing
// stays but its logs; if ctx ends before, nothing at all. progress may be nil.
func Start(ctx context.Context, o Options, progress func(api.Event)) (*Handle, error) {
	if progress == nil {
		progress = func(api.Event) {}
	}
	if os.Geteuid() != 0 {
		return nil, errors.New("a local mesh is made of network namespaces, which needs root; run the command with sudo")
	}
	if err := o.complete(); err != nil {
		return nil, err
	}
	dir := runDir(api.RunDir(o.Mesh))
	lock, err := dir.lock()
	if errors.Is(err, errBusy) {
		return nil, alreadyRuns(o.Mesh, dir)
	} else if err != nil {
		return nil, err
	}
	defer lock.Close()
	if err := dir.clear(); err != nil {
		return nil, err
	}
	e, err := spawn(o, dir, lock)
	if err != nil {
		return nil, err
	}
	if err := e.wait(ctx, progress); err != nil {
		_ = e.cmd.Process.Kill()
		<-e.ended
		e.release()
		if errors.Is(err, context.Canceled) {
			err = errors.Join(err, dir.remove()) // a cancelled start needs no logs
		}
		return nil, err
	}
	return &Handle{Mesh: o.Mesh, RunDir: string(dir), PID: e.cmd.Process.Pid, Client: api.New(o.Mesh), lifeline: e.lifeline}, nil
}

func alreadyRuns(mesh string, dir runDir) error {
	if r, err := readRecord(dir); err == nil && r.alive() {
		return &api.Error{Code: http.StatusConflict, Message: fmt.Sprintf("mesh %s runs already, since %s, with %s (engine pid %d)", mesh, r.Started.Format(time.DateTime), counted(r.Nodes, "node", "nodes"), r.PID),
			Fix: fmt.Sprintf("look at it with `lateen status --name %s` or end it with `lateen down --name %s`", mesh, mesh)}
	}
	return fmt.Errorf("mesh %s is being started or ended by somebody else right now; try again when that is done", mesh)
}

// birth is an engine that is not ready yet.
type birth struct {
	cmd    *exec.Cmd
	events io.ReadCloser
	dir    runDir
	ended  chan struct{}
	// lifeline is the writing end of an attached engine's pipe, nil for others.
	lifeline *os.File
}

func (b *birth) release() {
	if b.lifeline != nil {
		b.lifeline.Close()
	}
}

func spawn(o Options, dir runDir, lock *os.File) (*birth, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find my own executable: %w", err)
	}
	log, err := os.OpenFile(dir.engineLog(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	eventsR, eventsW, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer eventsW.Close()
	configR, configW, err := os.Pipe()
	if err != nil {
		eventsR.Close()
		return nil, err
	}
	defer configR.Close()
	defer configW.Close()
	starterR, starterW, err := os.Pipe()
	if err != nil {
		eventsR.Close()
		return nil, err
	}
	defer starterR.Close()
	cmd := exec.Command(exe, EngineVerb, o.Mesh)
	cmd.Dir = "/"
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = []*os.File{eventsW, configR, lock, starterR}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Setsid:     true,
		Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWNET | syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS,
	}
	if err := cmd.Start(); err != nil {
		eventsR.Close()
		starterW.Close()
		return nil, fmt.Errorf("start the engine in namespaces of its own: %w; the kernel must allow new pid, mount, network, ipc and uts namespaces (`lateen check` tries them)", err)
	}
	b := &birth{cmd: cmd, events: eventsR, dir: dir, ended: make(chan struct{}), lifeline: starterW}
	if !o.Attached {
		b.release()
		b.lifeline = nil
	}
	go func() {
		_ = cmd.Wait() // how it ended is in its events or its log
		close(b.ended)
	}()
	// The pipe has room for any sane options; if the engine is dead already its events end.
	if err := json.NewEncoder(configW).Encode(o); err != nil {
		eventsR.Close()
		_ = cmd.Process.Kill()
		<-b.ended
		b.release()
		return nil, fmt.Errorf("tell the engine its options: %w", err)
	}
	return b, nil
}

// wait passes events on until the engine is ready or fails.
func (b *birth) wait(ctx context.Context, progress func(api.Event)) error {
	defer b.events.Close()
	stop := context.AfterFunc(ctx, func() { b.events.Close() })
	defer stop()
	ready := false
	err := api.ReadEvents(b.events, func(e api.Event) {
		progress(e)
		ready = ready || e.Phase == "ready" && e.State == api.EventDone
	})
	switch {
	case ready:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return err
	}
	last := strings.Join(tail(b.dir.engineLog(), 10), "\n")
	return fmt.Errorf("the engine ended before the mesh was ready; the last it said, in %s:\n%s", b.dir.engineLog(), last)
}

// tail is the last n lines of a file, as far as it can be read.
func tail(path string, n int) []string {
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	const window = 64 << 10
	if st, err := f.Stat(); err == nil && st.Size() > window {
		_, _ = f.Seek(-window, io.SeekEnd)
	}
	b, _ := io.ReadAll(io.LimitReader(f, window))
	b = bytes.TrimRight(b, "\n")
	if len(b) == 0 {
		return nil
	}
	lines := strings.Split(string(b), "\n")
	return lines[max(0, len(lines)-n):]
}
