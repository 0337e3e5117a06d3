package local

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"lateen.dev/lateen/internal/engine/api"
	"lateen.dev/lateen/internal/engine/local/fabric"
	"lateen.dev/lateen/internal/engine/local/logfile"
	"lateen.dev/lateen/internal/engine/local/podinit"
)

// PodMain is the first process of a pod, for the hidden verb PodVerb.
func PodMain([]string) int { return podinit.Main() }

// EngineMain is the engine, for the hidden verb EngineVerb: the first process of a mesh's namespaces.
func EngineMain([]string) int {
	if os.Getpid() != 1 {
		fmt.Fprintln(os.Stderr, "this command is the engine's own and starts nothing by hand; use `lateen up`")
		return 64
	}
	if err := keepOwnFiles(); err != nil {
		fmt.Fprintln(os.Stderr, "engine:", err)
		return 1
	}
	events := newEventWriter(os.NewFile(progressFD, "progress"))
	config := os.NewFile(configFD, "config")
	var o Options
	err := json.NewDecoder(config).Decode(&o)
	config.Close()
	if err != nil {
		events.failed("engine", fmt.Errorf("read options: %w", err), "", nil)
		return 1
	}
	e, err := newEngine(o)
	if err != nil {
		events.failed("engine", err, "", nil)
		return 1
	}
	return e.main(events, os.NewFile(starterFD, "starter"))
}

// keepOwnFiles closes whatever the caller's caller left open, so that a daemon does not hold a stranger's lock or pipe for
// days, and lets no child have what is the engine's own.
func keepOwnFiles() error {
	dir, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return err
	}
	for _, f := range dir {
		fd, err := strconv.Atoi(f.Name())
		if err != nil || fd <= 2 {
			continue
		}
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		switch {
		case err != nil || flags&unix.FD_CLOEXEC != 0: // opened by this process, or closed again
		case fd <= starterFD:
			unix.CloseOnExec(fd)
		default:
			unix.Close(fd)
		}
	}
	return nil
}

// Engine runs one mesh. It lives in the mesh's own pid, mount and network namespaces, as their first process.
type Engine struct {
	opts     Options
	families []*fabric.Family // the first is the one that counts where there is room for one address
	dir      runDir
	log      *slog.Logger
	exe      string
	host     *hostView
	started  time.Time

	state      *state
	ca         *authority
	capturer   *capturer
	statuses   *statusReader
	objects    *userObjects
	daemons    *daemons // nil until the network is laid
	replacer   *replacer
	feed       *agentFeed
	commands   *podCommands
	access     *podAccess
	observer   *observer   // nil until the network is laid
	reconciler *reconciler // nil until the network is laid

	shutdown chan func(api.Event)
	quit     context.CancelFunc
}

func newEngine(o Options) (*Engine, error) {
	// The host's view is taken before /proc is replaced.
	host, err := newHostView()
	if err != nil {
		return nil, err
	}
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	dir := runDir(api.RunDir(o.Mesh))
	families, err := familiesOf(o.Families)
	if err != nil {
		return nil, err
	}
	e := &Engine{
		opts: o, families: families, dir: dir, exe: exe, host: host,
		log:      slog.New(slog.NewTextHandler(logfile.New(dir.engineLog(), logMax, 0o644), nil)),
		started:  time.Now(),
		shutdown: make(chan func(api.Event)),
	}
	e.state = newState(newNodes(o, dir, families, e.started), newStore(dir.userObjects(), families, time.Now, newUID))
	e.ca = newAuthority(o.CA, dir, e.log)
	e.statuses = newStatusReader(e.state, e.log)
	e.objects = newUserObjects(e.state, e.statuses)
	e.replacer = newReplacer(e.state, dir, e.log)
	e.feed = newAgentFeed(e.state, dir)
	e.commands = newPodCommands(e.state, podPath(os.Getenv("PATH")))
	e.access = newPodAccess(e.state, e.commands, dir)
	e.capturer = newCapturer(e.state, e.log)
	return e, nil
}

// main runs the engine from its first to its last moment.
func (e *Engine) main(events *eventWriter, starter *os.File) int {
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGTERM)
	signal.Ignore(syscall.SIGHUP, syscall.SIGINT)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	e.quit = cancel
	starterGone := orphaned(e.opts.Attached, starter)
	defer e.leaveNothing(starterGone)
	if err := e.up(ctx, events); err != nil {
		e.log.Error("the mesh did not come up", "err", err)
		var f *failure
		if errors.As(err, &f) {
			events.failed(f.phase, f.err, f.fix, f.log)
		} else {
			events.failed("engine", err, "", nil)
		}
		return 1
	}
	events.close()
	e.log.Info("the mesh is up", "mesh", e.opts.Mesh, "nodes", e.opts.Nodes)
	select {
	case <-signals:
		e.down(func(ev api.Event) { e.log.Info(ev.Message, "phase", ev.Phase, "state", ev.State) })
	case <-starterGone:
		e.log.Info("the process that started this mesh has ended, and the mesh ends with it")
		e.down(func(ev api.Event) { e.log.Info(ev.Message, "phase", ev.Phase, "state", ev.State) })
	case progress := <-e.shutdown:
		e.down(progress)
	}
	return 0
}

// newUID makes a random identifier in the form that Kubernetes uses.
func newUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	h := hex.EncodeToString(b[:])
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}
