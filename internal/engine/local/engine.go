package local

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
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
	"lateen.dev/lateen/internal/engine/local/names"
	"lateen.dev/lateen/internal/engine/local/podinit"
	"lateen.dev/lateen/internal/engine/local/proc"
)

// PodMain is the first process of a pod, for the hidden verb PodVerb.
func PodMain([]string) int { return podinit.Main() }

// EngineMain is the engine, for the hidden verb EngineVerb: the first process of a mesh's namespaces.
func EngineMain([]string) int {
	if os.Getpid() != 1 {
		fmt.Fprintln(os.Stderr, "this command is the engine's own and starts nothing by hand; use `lateen up`")
		return 64
	}
	for fd := progressFD; fd <= lockFD; fd++ {
		unix.CloseOnExec(fd)
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
	return e.main(events)
}

// Engine runs one mesh. It lives in the mesh's own pid, mount and network namespaces, as their first process.
type Engine struct {
	opts     Options
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
	seen     published     // what the world was last told; reconcile's own
	shutdown chan func(api.Event)
	quit     context.CancelFunc
}

// node is one node with the parts of the mesh on it.
type node struct {
	fabric.Node
	name    string
	uid     string
	podUID  string // of the proxy, which is a pod too
	agent   *daemon
	proxy   *daemon
	stock   bool // the proxy is not Lateen's own
	ips     *addresses
	created time.Time

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
	e := &Engine{
		opts: o, dir: runDir(api.RunDir(o.Mesh)), exe: exe, hostPID: hostPID, hostProc: fmt.Sprintf("/proc/self/fd/%d", hostProc),
		log:      slog.New(slog.NewTextHandler(os.Stderr, nil)),
		path:     podPath(os.Getenv("PATH")),
		started:  time.Now(),
		watchers: map[*watcher]struct{}{},
		wakeup:   make(chan struct{}, 1),
		shutdown: make(chan func(api.Event)),
	}
	for i := 1; i <= o.Nodes; i++ {
		name := nodeName(i)
		n := fabric.Node{Index: i, NetNS: e.dir.netns(name)}
		e.nodes = append(e.nodes, &node{
			Node: n, name: name, uid: newUID(), podUID: newUID(), stock: o.NodeProxy[name] != "",
			ips: newAddresses(n.PodCIDR()), created: e.started,
			labels: map[string]string{
				"kubernetes.io/hostname":        name,
				"kubernetes.io/os":              "linux",
				"lateen.io/node-index":          strconv.Itoa(i),
				"topology.kubernetes.io/region": "local",
				"topology.kubernetes.io/zone":   "local-" + name,
			},
		})
	}
	e.store = newStore(e.dir.userObjects(), time.Now, newUID)
	return e, nil
}

// main runs the engine from its first to its last moment.
func (e *Engine) main(events *eventWriter) int {
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGTERM)
	signal.Ignore(syscall.SIGHUP, syscall.SIGINT)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	e.quit = cancel
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
	case progress := <-e.shutdown:
		e.down(progress)
	}
	return 0
}

// up makes everything, from the mounts to the last proxy.
func (e *Engine) up(ctx context.Context, events *eventWriter) error {
	var nodeNames []string
	for _, n := range e.nodes {
		nodeNames = append(nodeNames, n.name)
	}
	events.started("network", "laying the network")
	if err := e.isolate(nodeNames); err != nil {
		return &failure{phase: "network", err: err}
	}
	e.reaper = proc.NewReaper()
	var fabricNodes []fabric.Node
	for _, n := range e.nodes {
		fabricNodes = append(fabricNodes, n.Node)
	}
	if err := fabric.Up(fabricNodes); err != nil {
		return &failure{phase: "network", err: err, cure: "see what this machine lacks with `lateen check --for up`"}
	}
	var err error
	if e.dns, err = names.Listen(net.JoinHostPort(fabric.DNSIP.String(), "53")); err != nil {
		return &failure{phase: "network", err: err}
	}
	if err := e.prepare(ctx); err != nil {
		return &failure{phase: "network", err: err}
	}
	events.done("network", fmt.Sprintf("network laid: %d nodes", len(e.nodes)))
	go e.reconcileLoop(ctx)
	go e.trimLogs(ctx)
	return e.startMesh(ctx, events)
}

// isolate gives the process its own view of mounts and processes. Nothing of it shows outside.
func (e *Engine) isolate(nodeNames []string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	if err := unix.Sethostname([]byte("lateen-" + e.opts.Mesh)); err != nil {
		return fmt.Errorf("set host name: %w", err)
	}
	if err := e.dir.lay(nodeNames); err != nil {
		return err
	}
	// By a path that every user can follow, wherever the programs are.
	if err := unix.Mount(e.opts.BinDir, e.dir.bin(), "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("show the mesh's programs: %w", err)
	}
	// The names of namespaces are mounts; on a file system of their own not even the files they cover show outside.
	if err := unix.Mount("tmpfs", e.dir.path("netns"), "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=755,size=1m"); err != nil {
		return fmt.Errorf("mount the directory of network namespaces: %w", err)
	}
	return raiseFileLimit()
}

// raiseFileLimit lets the mesh's processes have as many connections as the machine allows.
func raiseFileLimit() error {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		return err
	}
	l.Cur = min(l.Max, 1<<20)
	return syscall.Setrlimit(syscall.RLIMIT_NOFILE, &l)
}

// prepare makes what the parts of the mesh expect to find: keys, tokens, objects and the engine's socket.
func (e *Engine) prepare(ctx context.Context) error {
	var err error
	if e.signer, err = newSigner(); err != nil {
		return err
	}
	pub, err := e.signer.publicPEM()
	if err != nil {
		return err
	}
	if err := writeAtomic(e.dir.tokenKey(), pub, 0o644); err != nil {
		return err
	}
	e.mu.Lock()
	for _, ns := range systemNamespaces {
		if err := e.addNamespace(ns); err != nil {
			e.mu.Unlock()
			return err
		}
	}
	account, err := decodeOne("engine", fmt.Appendf(nil, "apiVersion: v1\nkind: ServiceAccount\nmetadata:\n  name: %s\n  namespace: %s\n", proxyAccount, meshNamespace))
	if err == nil {
		account.File = ""
		_, err = e.store.apply(account, "", false)
	}
	e.mu.Unlock()
	if err != nil {
		return err
	}
	if err := e.writeTokens(); err != nil {
		return err
	}
	go e.rotateTokens(ctx)
	if err := e.reconcile(ctx); err != nil {
		return err
	}
	if err := e.serve(ctx); err != nil {
		return err
	}
	start, err := proc.StartTime(e.hostProc, e.hostPID)
	if err != nil {
		return fmt.Errorf("read my own start time: %w", err)
	}
	b, err := json.Marshal(record{PID: e.hostPID, StartTime: start, Started: e.started, Mesh: e.opts.Mesh, Nodes: e.opts.Nodes})
	if err != nil {
		return err
	}
	return writeAtomic(e.dir.record(), b, 0o644)
}

// serve opens the engine's socket.
func (e *Engine) serve(ctx context.Context) error {
	l, err := net.Listen("unix", e.dir.socket())
	if err != nil {
		return fmt.Errorf("open the engine's socket: %w", err)
	}
	if err := os.Chmod(e.dir.socket(), 0o600); err != nil {
		return err
	}
	s := &http.Server{Handler: e.handler(), BaseContext: func(net.Listener) context.Context { return ctx },
		ReadHeaderTimeout: 10 * time.Second, ErrorLog: slog.NewLogLogger(e.log.Handler(), slog.LevelWarn)}
	go func() {
		if err := s.Serve(l); err != nil && !errors.Is(err, http.ErrServerClosed) {
			e.log.Error("the engine's socket is lost", "err", err)
		}
	}()
	return nil
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

// down ends the mesh in order.
func (e *Engine) down(progress func(api.Event)) {
	e.mu.Lock()
	e.stopping = true
	pods := append([]*pod(nil), e.pods...)
	for _, p := range pods {
		p.stop()
	}
	e.mu.Unlock()
	step := func(phase, doing, done string, act func()) {
		progress(api.Event{Phase: phase, State: api.EventStarted, Message: doing})
		act()
		progress(api.Event{Phase: phase, State: api.EventDone, Message: done})
	}
	step("pods", "ending the pods", fmt.Sprintf("%d pods ended", len(pods)), func() {
		for _, p := range pods {
			<-p.done
		}
	})
	step("agents", "ending the agents", "agents ended", func() { e.stopAll(func(n *node) *daemon { return n.agent }) })
	step("proxies", "ending the node proxies", "node proxies ended", func() { e.stopAll(func(n *node) *daemon { return n.proxy }) })
	step("control", "ending the control plane", "control plane ended", func() {
		if e.control != nil {
			e.control.stop(stopTimeout)
		}
	})
	progress(api.Event{Phase: "engine", State: api.EventDone, Message: "network and namespaces are gone"})
	e.quit()
}

func (e *Engine) stopAll(which func(*node) *daemon) {
	var wg sync.WaitGroup
	for _, n := range e.nodes {
		if d := which(n); d != nil {
			wg.Go(func() { d.stop(stopTimeout) })
		}
	}
	wg.Wait()
}

// newUID makes a random identifier in the form that Kubernetes uses.
func newUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	h := hex.EncodeToString(b[:])
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}

// podPath is the PATH of the pods: the caller's directories that every user can reach, then the usual ones.
func podPath(callers string) string {
	const usual = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	var path string
	seen := map[string]bool{}
	for _, dir := range append(filepath.SplitList(callers), filepath.SplitList(usual)...) {
		if seen[dir] || !filepath.IsAbs(dir) || !reachable(dir) {
			continue
		}
		seen[dir] = true
		if path != "" {
			path += ":"
		}
		path += dir
	}
	return path
}

// reachable says whether any user may enter a directory.
func reachable(dir string) bool {
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return false
	}
	for {
		st, err := os.Stat(dir)
		if err != nil || !st.IsDir() || st.Mode().Perm()&0o001 == 0 {
			return false
		}
		if dir == "/" {
			return true
		}
		dir = filepath.Dir(dir)
	}
}

// eventWriter writes progress to whoever waits for the mesh; nobody may be there any more.
type eventWriter struct {
	enc *json.Encoder
	w   io.Closer
}

func newEventWriter(f *os.File) *eventWriter { return &eventWriter{enc: json.NewEncoder(f), w: f} }

func (w *eventWriter) send(e api.Event) { _ = w.enc.Encode(e) }
func (w *eventWriter) started(phase, msg string) {
	w.send(api.Event{Phase: phase, State: api.EventStarted, Message: msg})
}
func (w *eventWriter) done(phase, msg string) {
	w.send(api.Event{Phase: phase, State: api.EventDone, Message: msg})
}
func (w *eventWriter) failed(phase string, err error, cure string, log []string) {
	w.send(api.Event{Phase: phase, State: api.EventFailed, Message: err.Error(), Error: err.Error(), Cure: cure, Log: log})
}
func (w *eventWriter) close() { w.w.Close() }

// failure is why a mesh did not come up.
type failure struct {
	phase string
	err   error
	cure  string
	log   []string // the last lines of the log concerned
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }
