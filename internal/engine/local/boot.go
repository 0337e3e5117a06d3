package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"lateen.dev/lateen/internal/engine/local/fabric"
	"lateen.dev/lateen/internal/engine/local/names"
	"lateen.dev/lateen/internal/engine/local/proc"
)

// up makes everything, from the mounts to the last proxy.
func (e *Engine) up(ctx context.Context, events *eventWriter) error {
	var nodeNames []string
	for _, n := range e.state.nodes {
		nodeNames = append(nodeNames, n.name)
	}
	events.started("network", "laying the network")
	if err := e.isolate(nodeNames); err != nil {
		return &failure{phase: "network", err: err}
	}
	reaper := proc.NewReaper()
	e.daemons = newDaemons(e.opts, e.families, e.dir, e.ca, e.state, reaper, e.log)
	e.observer = newObserver(e.opts.Mesh, e.opts.Latency, e.started, e.host, e.state, e.daemons, e.dir, e.statuses)
	var fabricNodes []fabric.Node
	for _, n := range e.state.nodes {
		fabricNodes = append(fabricNodes, n.Node)
	}
	if err := fabric.Up(fabricNodes); err != nil {
		return &failure{phase: "network", err: err, fix: "see what this machine lacks with `lateen check --for up`"}
	}
	var resolvers []string
	for _, f := range e.families {
		resolvers = append(resolvers, net.JoinHostPort(f.DNSIP.String(), "53"))
	}
	dns, err := names.Listen(resolvers...)
	if err != nil {
		return &failure{phase: "network", err: err}
	}
	signer, err := showSigner(e.dir)
	if err != nil {
		return &failure{phase: "network", err: err}
	}
	tokens := newPodTokens(signer, e.state, e.dir, e.log)
	go tokens.rotate(ctx)
	pods := newLifecycle(e.state, e.feed, e.commands, tokens, e.dir, e.exe, e.families[0].DNSIP, reaper, e.log)
	e.reconciler = newReconciler(e.state, e.feed, pods, dns, e.families, e.dir, e.opts.adminOnLoopback(), e.log)
	e.reconciler.waypoints = newWaypoints(e.state, e.opts, e.families, e.log)
	if err := e.prepare(ctx, newNodeTokens(signer, e.state.nodes, e.dir, e.state.accountUID, e.log)); err != nil {
		return &failure{phase: "network", err: err}
	}
	events.done("network", "network laid: "+counted(len(e.state.nodes), "node", "nodes"))
	go e.reconciler.loop(ctx)
	return e.daemons.start(ctx, events)
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
	// The programs are mounted at a path that every user can traverse, wherever they are.
	if err := unix.Mount(e.opts.BinDir, e.dir.bin(), "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("show the mesh's programs: %w", err)
	}
	if err := nameResolvers(e.dir.resolvers(), e.families); err != nil {
		return err
	}
	// The names of namespaces are mounts; on a file system of their own not even the files they cover show outside.
	if err := unix.Mount("tmpfs", e.dir.path("netns"), "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=755,size=1m"); err != nil {
		return fmt.Errorf("mount the directory of network namespaces: %w", err)
	}
	return raiseFileLimit()
}

// nameResolvers lets the node proxies ask the mesh's resolver for names that the mesh does not have, in place of the
// machine's, which a pod could not reach. An unmodified ztunnel knows one path only. path is where their configuration is written.
func nameResolvers(path string, families []*fabric.Family) error {
	const fixed = "/etc/resolv.conf"
	var list []byte
	for _, f := range families {
		list = fmt.Appendf(list, "nameserver %s\n", f.DNSIP)
	}
	if err := writeAtomic(path, list, 0o644); err != nil {
		return err
	}
	if _, err := os.Stat(fixed); err != nil {
		return nil // a path that the machine lacks cannot be mounted over, and the machine is not changed
	}
	if err := unix.Mount(path, fixed, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("show the mesh's resolver: %w", err)
	}
	return nil
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

// prepare makes what the parts of the mesh expect to find: tokens, objects and the engine's socket.
func (e *Engine) prepare(ctx context.Context, tokens *nodeTokens) error {
	if err := e.objects.addSystem(); err != nil {
		return err
	}
	if err := tokens.write(); err != nil {
		return err
	}
	go tokens.rotate(ctx)
	if err := e.reconciler.reconcile(ctx); err != nil {
		return err
	}
	if err := e.serve(ctx); err != nil {
		return err
	}
	start, err := proc.StartTime(e.host.proc, e.host.pid)
	if err != nil {
		return fmt.Errorf("read my own start time: %w", err)
	}
	b, err := json.Marshal(record{PID: e.host.pid, StartTime: start, Started: e.started, Mesh: e.opts.Mesh, Nodes: e.opts.Nodes})
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
