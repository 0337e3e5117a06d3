package local

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	mathrand "math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"lateen.dev/lateen/internal/engine/api"
	"lateen.dev/lateen/internal/engine/local/fabric"
	"lateen.dev/lateen/internal/engine/local/logfile"
	"lateen.dev/lateen/internal/engine/local/names"
	"lateen.dev/lateen/internal/engine/local/podinit"
	"lateen.dev/lateen/internal/engine/local/proc"
	"lateen.dev/lateen/internal/model/wellknown"
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
	path     string // PATH of the pods, after the mesh's own directory
	hostProc string // where the host's view of processes can be read
	hostPID  int
	started  time.Time
	reaper   *proc.Reaper
	signer   *signer
	dns      *names.Server
	users    identities

	control *daemon
	nodes   []*node

	mu       sync.Mutex
	store    *store
	pods     []*pod
	stopping bool
	watchers map[*watcher]struct{} // agents that follow the pods of their node

	wakeup   chan struct{} // reconcile soon
	steered  chan struct{} // closed, and made anew, when the objects have their pods; mu guards it
	told     chan struct{} // closed once control plane, resolver and kernel have been told of what is now; mu guards it
	seen     published     // what the world was last told; reconcile's own
	shutdown chan func(api.Event)
	quit     context.CancelFunc
}

// node is one node with the parts of the mesh on it.
type node struct {
	fabric.Node
	name   string
	uid    string
	podUID string // of the proxy, which is a pod too
	agent  *daemon
	proxy  *daemon
	admin  string // the socket of the proxy's pages
	ips    *addresses
	// probeGroup is the group of the prober's sockets: drawn at random, so that no other process has it by accident.
	probeGroup int
	created    time.Time

	// Guarded by the engine's lock.
	labels     map[string]string
	agentReady bool
	proxyReady bool
}

func newEngine(o Options) (*Engine, error) {
	// Before /proc is replaced: how the host sees this process.
	self, err := os.Readlink("/proc/self")
	if err != nil {
		return nil, fmt.Errorf("find my pid on the host: %w", err)
	}
	hostPID, err := strconv.Atoi(self)
	if err != nil {
		return nil, fmt.Errorf("find my pid on the host: %w", err)
	}
	hostProc, err := unix.Open("/proc", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open the host's /proc: %w", err)
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
		opts: o, families: families, dir: dir, exe: exe, hostPID: hostPID, hostProc: fmt.Sprintf("/proc/self/fd/%d", hostProc),
		log:      slog.New(slog.NewTextHandler(logfile.New(dir.engineLog(), logMax, 0o644), nil)),
		path:     podPath(os.Getenv("PATH")),
		started:  time.Now(),
		watchers: map[*watcher]struct{}{},
		wakeup:   make(chan struct{}, 1),
		steered:  make(chan struct{}),
		told:     make(chan struct{}),
		shutdown: make(chan func(api.Event)),
	}
	for i := 1; i <= o.Nodes; i++ {
		name := nodeName(i)
		n := fabric.Node{Index: i, NetNS: e.dir.netns(name), Families: families, Delay: o.Latency / linksOfRoundTrip}
		e.nodes = append(e.nodes, &node{
			Node: n, name: name, uid: newUID(), podUID: newUID(), admin: filepath.Join(e.dir.node(name), "admin.sock"),
			ips: newAddresses(n.Pool()), created: e.started, probeGroup: 1<<30 + mathrand.IntN(1<<30),
			labels: map[string]string{
				"kubernetes.io/hostname": name,
				"kubernetes.io/os":       "linux",
				wellknown.NodeIndex:      strconv.Itoa(i),
				wellknown.Region:         "local",
				wellknown.Zone:           "local-" + name,
			},
		})
	}
	for _, n := range e.nodes {
		maps.Copy(n.labels, o.Labels[n.name])
	}
	e.store = newStore(e.dir.userObjects(), families, time.Now, newUID)
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
			events.failed(f.phase, f.err, f.cure, f.log)
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

// update changes state under the lock and has the world told about it.
func (e *Engine) update(change func()) {
	e.mu.Lock()
	change()
	e.mu.Unlock()
	e.kick()
}

// kick has reconcile run soon.
func (e *Engine) kick() {
	select {
	case e.wakeup <- struct{}{}:
	default:
	}
}

func (e *Engine) enrolled(p *pod) bool {
	var labels map[string]string
	if ns := e.store.find(api.Key{Kind: "Namespace", Name: p.namespace}); ns != nil {
		labels = ns.labels()
	}
	return enrolled(p.spec.HostNetwork, p.labels, labels)
}

// newUID makes a random identifier in the form that Kubernetes uses.
func newUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	h := hex.EncodeToString(b[:])
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}
