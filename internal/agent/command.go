package agent

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"lateen.dev/lateen/internal/agent/listenerstore"
	"lateen.dev/lateen/internal/agent/redirect"
	"lateen.dev/lateen/internal/agent/socket"
	"lateen.dev/lateen/internal/agent/source"
	"lateen.dev/lateen/internal/agent/zds"
)

// Exit codes, as every command of the mesh uses them.
const (
	exitOK    = 0
	exitError = 1
	exitUsage = 64
)

type settings struct {
	node         string
	engineSocket string
	zdsSocket    string
	storeSocket  string
	statusSocket string
	http         string
	level        slog.Level
	dns          bool
	exceptions   redirect.Settings
	probeGroup   uint
	deadline     time.Duration
	stateFile    string
	format       string
	kube         kubeSettings
}

// flags are those of the agent; parsing them fills s.
func (s *settings) flags(stderr io.Writer) *flag.FlagSet {
	f := flag.NewFlagSet("lateen-agent", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&s.node, "node", "", "name of this node (required)")
	f.StringVar(&s.engineSocket, "engine-socket", "", "unix socket of the engine that knows the pods (required)")
	f.StringVar(&s.zdsSocket, "zds-socket", "", "unix socket to listen on for the node proxy (required)")
	f.StringVar(&s.storeSocket, "listener-store-socket", "", "unix socket on which node proxies give the agent duplicates of their listeners (listener-store.sock beside the ZDS socket)")
	f.StringVar(&s.statusSocket, "status-socket", "", "unix socket to answer GET /v1/status on (required)")
	f.StringVar(&s.http, "http", "127.0.0.1:15014", "address for /metrics and /ready; empty for none")
	f.BoolVar(&s.dns, "dns-capture", true, "lead what captured pods ask their resolvers to the node proxy; a pod's annotation ambient.istio.io/dns-capture overrides it")
	f.Func("exclude-inbound-ports", "comma-separated ports that reach every captured pod directly", func(v string) (err error) {
		s.exceptions.InboundPorts, err = redirect.ParsePorts(v)
		return err
	})
	f.Func("exclude-outbound-ports", "comma-separated ports that every captured pod reaches directly", func(v string) (err error) {
		s.exceptions.OutboundPorts, err = redirect.ParsePorts(v)
		return err
	})
	f.Func("exclude-outbound-ranges", "comma-separated address ranges that every captured pod reaches directly", func(v string) (err error) {
		s.exceptions.OutboundRanges, err = redirect.ParseRanges(v)
		return err
	})
	f.UintVar(&s.probeGroup, "probe-group", 0, "group by which the sockets of the node's prober are known; nobody else may then use the probe addresses (0: not guarded)")
	f.DurationVar(&s.deadline, "release-deadline", time.Hour, "how long meshed connections of a released pod, and others that need its rules, may go on before they are cut; 0 for ever")
	f.StringVar(&s.stateFile, "state-file", "", "file for what must outlive the agent (default: agent-state.json beside the status socket)")
	f.TextVar(&s.level, "log-level", slog.LevelInfo, "debug, info, warn or error")
	f.StringVar(&s.format, "log-format", "text", "text or json")
	s.kube.flags(f)
	return f
}

func parse(args []string, stderr io.Writer) (settings, error) {
	var s settings
	f := s.flags(stderr)
	if err := f.Parse(args); err != nil {
		return s, err
	}
	s.exceptions.BypassDNS = !s.dns
	if f.NArg() > 0 {
		return s, fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	switch {
	case s.deadline < 0:
		return s, fmt.Errorf("--release-deadline %s is in the past; use 0 for none", s.deadline)
	case s.deadline == 0:
		s.deadline = -1
	}
	if s.format != "text" && s.format != "json" {
		return s, fmt.Errorf("--log-format %q is neither text nor json", s.format)
	}
	given := map[string]bool{}
	f.Visit(func(f *flag.Flag) { given[f.Name] = true })
	if err := s.onKubernetes(given); err != nil {
		return s, err
	}
	if s.stateFile == "" && s.statusSocket != "" {
		s.stateFile = filepath.Join(filepath.Dir(s.statusSocket), "agent-state.json")
	}
	if s.probeGroup > math.MaxInt32 {
		return s, fmt.Errorf("--probe-group %d is no group; use a number below 2147483648", s.probeGroup)
	}
	for name, value := range map[string]string{
		"node": s.node, "engine-socket": s.engineSocket, "zds-socket": s.zdsSocket, "status-socket": s.statusSocket,
	} {
		if value == "" && !(s.kube.on && name == "engine-socket") {
			return s, fmt.Errorf("--%s is missing", name)
		}
	}
	if s.storeSocket == "" {
		s.storeSocket = filepath.Join(filepath.Dir(s.zdsSocket), "listener-store.sock")
	}
	return s, nil
}

// Main runs the agent until ctx ends and returns the exit code.
func Main(ctx context.Context, args []string, stderr io.Writer) int {
	if len(args) > 0 && args[0] == uninstallVerb {
		return uninstall(args[1:], stderr)
	}
	s, err := parse(args, stderr)
	if err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(stderr, "lateen-agent:", err)
		}
		return exitUsage
	}
	log := s.logger(stderr)
	if err := run(ctx, s, log); err != nil {
		fmt.Fprintln(stderr, "lateen-agent:", err)
		return exitError
	}
	return exitOK
}

func (s settings) logger(w io.Writer) *slog.Logger {
	o := &slog.HandlerOptions{Level: s.level}
	var h slog.Handler = slog.NewTextHandler(w, o)
	if s.format == "json" {
		h = slog.NewJSONHandler(w, o)
	}
	return slog.New(h).With("node", s.node)
}

// run opens everything that can fail first, then serves until ctx ends or a part fails.
func run(ctx context.Context, s settings, log *slog.Logger) error {
	if os.Geteuid() != 0 {
		return errors.New("capturing pods needs root: it enters their network namespaces and changes their rules")
	}
	keepBudget("/sys/fs/cgroup")
	metrics := NewMetrics()
	if s.kube.on {
		// The kubelet's probes have rules of their own.
	} else if s.probeGroup == 0 {
		log.Warn("the probe addresses are not guarded: whatever runs on the node's network can pose as its prober; give --probe-group")
	} else if _, err := redirect.GuardProbes(redirect.ByGroup(uint32(s.probeGroup))); err != nil {
		return fmt.Errorf("guard the probe addresses: %w", err)
	}
	if s.kube.on {
		if err := os.MkdirAll(filepath.Dir(s.zdsSocket), 0o700); err != nil {
			return fmt.Errorf("make the folder of the node proxy's sockets: %w", err)
		}
	}
	proxies, err := zds.Listen(s.zdsSocket, zds.Options{Log: log, Sent: metrics.Sent})
	if err != nil {
		return err
	}
	holds, err := listenerstore.Listen(s.storeSocket, listenerstore.Options{
		Log: log, Lost: metrics.Lost, Complete: proxies.Completed(),
		Pod: func(uid string) (listenerstore.Pod, bool) {
			w, ok := proxies.Find(uid)
			p := listenerstore.Pod{Namespace: w.Namespace, Name: w.Name}
			if w.NetNS != nil {
				p.Inode = w.NetNS.ID().Inode
			}
			return p, ok
		},
		Ledgers: filepath.Join(filepath.Dir(s.storeSocket), "ledgers"),
		PodIn: func(inode uint64) (listenerstore.Pod, bool) {
			w, ok := proxies.FindIn(inode)
			return listenerstore.Pod{Namespace: w.Namespace, Name: w.Name, Inode: inode}, ok
		},
	})
	if err != nil {
		return err
	}
	status, err := socket.Listen("unix", s.statusSocket)
	if err != nil {
		return fmt.Errorf("serve status: %w", err)
	}
	defer status.Close()
	options := Options{Node: s.node, Log: log, Metrics: metrics, ListenerStore: holds,
		Exceptions: s.exceptions, ReleaseDeadline: s.deadline, StateFile: s.stateFile}
	var pods Source
	var cluster *cluster
	if s.kube.on {
		if cluster, err = newCluster(s, metrics, log); err != nil {
			return err
		}
		pods, options.Probes, options.Alone = cluster.source, cluster.prober, cluster.alone.Load
	} else {
		pods = source.NewEngine(s.engineSocket, s.node, log)
	}
	a := New(pods, proxies, options)
	ended := ctx
	// An agent whose mesh leaves the cluster has work to do when it is told to end.
	ctx, fail := context.WithCancelCause(context.WithoutCancel(ctx))
	defer fail(nil)
	var parts sync.WaitGroup
	parts.Go(func() {
		select {
		case <-ended.Done():
			if cluster != nil {
				cluster.end(a)
			}
			fail(nil)
		case <-ctx.Done():
		}
	})
	if cluster != nil {
		parts.Go(func() {
			if err := cluster.run(ctx, a); err != nil {
				fail(err)
			}
		})
	}
	serve := func(l net.Listener, h http.Handler) error {
		server := newServer(h, log)
		defer context.AfterFunc(ctx, func() { server.Close() })()
		return server.Serve(l)
	}
	parts.Go(func() {
		if err := serve(status, a.StatusHandler()); !errors.Is(err, http.ErrServerClosed) {
			fail(err)
		}
	})
	if s.http != "" {
		parts.Go(func() {
			health, err := listenWhenFree(ctx, s.http, log)
			if err == nil {
				err = serve(newBounded(health), a.HealthHandler())
			}
			if !errors.Is(err, http.ErrServerClosed) {
				fail(fmt.Errorf("serve metrics: %w", err))
			}
		})
	}
	parts.Go(func() {
		if err := proxies.Serve(ctx); err != nil {
			fail(err)
		}
	})
	parts.Go(func() {
		if err := holds.Serve(ctx); err != nil {
			fail(err)
		}
	})
	if s.probeGroup != 0 {
		parts.Go(func() { keepGuard(ctx, redirect.ByGroup(uint32(s.probeGroup)), metrics, log) })
	}
	log.Info("agent started")
	if cluster != nil && cluster.installation.Leaving(ctx) {
		a.capturer.leaving.Store(true)
	}
	a.Run(ctx)
	parts.Wait()
	if ended.Err() == nil {
		return context.Cause(ctx)
	}
	log.Info("agent ends; captured pods stay captured")
	return nil
}

// guardEvery is the time between looks at the guard of the probe addresses.
const guardEvery = 30 * time.Second

// keepGuard repairs the guard of the probe addresses until ctx ends. The guard stays when the agent ends.
func keepGuard(ctx context.Context, prober redirect.Prober, metrics *Metrics, log *slog.Logger) {
	tick := time.NewTicker(guardEvery)
	defer tick.Stop()
	for first := true; ; first = false {
		if bridges, err := redirect.GuardBridges(); err != nil && first {
			log.Warn("pods on a common bridge of this node may pose as its prober", "err", err)
		} else if bridges && !first {
			metrics.repairs.Inc()
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		switch changed, err := redirect.GuardProbes(prober); {
		case err != nil:
			metrics.captureError(stepRules)
			log.Error("guard the probe addresses", "err", err)
		case changed:
			metrics.repairs.Inc()
			log.Warn("repaired the guard of the probe addresses: somebody else changed it")
		}
	}
}

// portEvery is the time between attempts to take the port of the metrics.
const portEvery = 200 * time.Millisecond

// listenWhenFree takes a port as soon as nobody else has it. A process on the node's network may have it, by accident or on
// purpose: pods must be captured all the same.
func listenWhenFree(ctx context.Context, address string, log *slog.Logger) (net.Listener, error) {
	tick := time.NewTicker(portEvery)
	defer tick.Stop()
	for said := false; ; {
		l, err := net.Listen("tcp", address)
		if !errors.Is(err, syscall.EADDRINUSE) {
			return l, err
		}
		if !said {
			said = true
			log.Warn("metrics are served as soon as their address is free; until then ask on the status socket", "err", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, http.ErrServerClosed
		}
	}
}
