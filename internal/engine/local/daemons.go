package local

import (
	"cmp"
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"lateen.dev/lateen/internal/engine/local/fabric"
	"lateen.dev/lateen/internal/engine/local/proc"
)

// daemons are the parts of the mesh that the engine runs: the control plane, and an agent and a proxy on every node. start alone
// writes control and the nodes' agents and proxies. The state's lock guards their readiness.
type daemons struct {
	opts     Options
	families []*fabric.Family
	dir      runDir
	ca       *authority
	state    *state
	reaper   *proc.Reaper
	log      *slog.Logger

	control *daemon // nil until it is started
}

func newDaemons(o Options, families []*fabric.Family, dir runDir, ca *authority, s *state, reaper *proc.Reaper, log *slog.Logger) *daemons {
	return &daemons{opts: o, families: families, dir: dir, ca: ca, state: s, reaper: reaper, log: log}
}

// start starts control plane, agents and proxies, each when what it needs is there.
func (d *daemons) start(ctx context.Context, events *eventWriter) error {
	xds := net.JoinHostPort(d.families[0].FabricIP.String(), "15012")
	events.started("control", "starting the control plane")
	if err := d.ca.follow(ctx); err != nil {
		return &failure{phase: "control", err: err}
	}
	d.control = newDaemon(d.log, d.reaper, controlBinary, filepath.Join(d.dir.bin(), controlBinary), append([]string{
		"--config-dir", d.dir.path("objects"),
		"--data-dir", d.dir.path("control"),
		"--listen", xds,
		"--debug-listen", controlDebug,
		"--token-key", d.dir.tokenKey(),
		"--token-issuer", tokenIssuer,
		"--node-proxy-accounts", meshNamespace + "/" + proxyAccount,
		"--advertise", d.families[0].FabricIP.String(),
		"--root-cert-out", d.dir.rootCert(),
	}, d.opts.CA.flags(d.dir)...), daemonEnv(), "", d.dir.controlLog())
	d.control.uid = controlUID
	go d.control.run()
	if err := d.control.await(ctx, controlIsReady); err != nil {
		return d.control.notReady("control", "the control plane", err)
	}
	events.done("control", "control plane ready")

	events.started("agents", "starting the node agents")
	for _, n := range d.state.nodes {
		n.agent = newDaemon(d.log, d.reaper, "agent of "+n.name, filepath.Join(d.dir.bin(), agentBinary), []string{
			"--node", n.name,
			"--engine-socket", d.dir.socket(),
			"--zds-socket", filepath.Join(d.dir.node(n.name), "zds.sock"),
			"--status-socket", d.dir.agentSocket(n.name),
			"--http", agentHTTP,
			"--probe-group", strconv.Itoa(n.probeGroup),
		}, daemonEnv(), n.NetNS, filepath.Join(d.dir.node(n.name), "agent.log"))
		go n.agent.run()
	}
	for _, n := range d.state.nodes {
		if err := n.agent.await(ctx, func(ctx context.Context) error { return agentIsReady(ctx, d.dir.agentSocket(n.name)) }); err != nil {
			return n.agent.notReady("agents", "the agent of "+n.name, err)
		}
	}
	events.done("agents", counted(len(d.state.nodes), "agent", "agents")+" ready")

	events.started("proxies", "starting the node proxies")
	for _, n := range d.state.nodes {
		path, args := filepath.Join(d.dir.bin(), proxyBinary), []string{"node"}
		other := d.opts.NodeProxy[n.name]
		ztunnel := other != "" && filepath.Base(other) != proxyBinary // another build of Lateen's keeps its name
		if other != "" {
			path = other
		}
		if ztunnel {
			args = nil
		}
		n.proxy = newDaemon(d.log, d.reaper, "proxy of "+n.name, path, args, d.proxyEnv(n, "https://"+xds), n.NetNS, filepath.Join(d.dir.node(n.name), "proxy.log"))
		n.proxy.program.ztunnel = ztunnel
		go n.proxy.run()
	}
	for _, n := range d.state.nodes {
		if err := n.proxy.await(ctx, n.proxyIsReady); err != nil {
			return n.proxy.notReady("proxies", "the proxy of "+n.name, err)
		}
	}
	events.done("proxies", counted(len(d.state.nodes), "node proxy", "node proxies")+" ready")
	for _, n := range d.state.nodes {
		go d.followReadiness(ctx, n)
	}
	events.done("ready", "mesh "+d.opts.Mesh+" is ready")
	return nil
}

// daemonEnv is the environment of control plane and agents: nothing of the caller's but what finding files takes.
func daemonEnv() []string {
	return []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
}

// proxyEnv is what a node proxy is told, by ztunnel's variables, so that either can run here.
func (d *daemons) proxyEnv(n *node, control string) []string {
	env := append(daemonEnv(),
		"PROXY_MODE=shared",
		"NODE_NAME="+n.name,
		"INPOD_UDS="+filepath.Join(d.dir.node(n.name), "zds.sock"),
		"LATEEN_ADMIN_SOCKET="+n.admin,
		"XDS_ADDRESS="+control,
		"CA_ADDRESS="+control,
		"XDS_ROOT_CA="+d.dir.rootCert(),
		"CA_ROOT_CA="+d.dir.rootCert(),
		"AUTH_TOKEN="+d.dir.token(n.name),
		"INSTANCE_IP="+n.IP().String(),
		"POD_NAME="+n.proxyPodName(),
		"POD_NAMESPACE="+meshNamespace,
		"SERVICE_ACCOUNT="+proxyAccount,
		"CLUSTER_ID=Kubernetes",
		"IPV6_ENABLED="+strconv.FormatBool(slices.Contains(d.families, fabric.IPv6)),
		"LATEEN_RESOLV_CONF="+d.dir.resolvers(),
		"RUST_LOG="+cmp.Or(os.Getenv("RUST_LOG"), "info"), // the user of the mesh may set another level
	)
	if d.opts.Workers > 0 {
		env = append(env, "ZTUNNEL_WORKER_THREADS="+strconv.Itoa(d.opts.Workers))
	}
	env = append(env, d.opts.CA.env()...)
	// The last word counts, and it is the user's.
	return append(env, d.opts.ProxyEnv...)
}

// followReadiness keeps a node's agentReady and proxyReady up to date.
func (d *daemons) followReadiness(ctx context.Context, n *node) {
	for ctx.Err() == nil {
		attempt, cancel := context.WithTimeout(ctx, pollTimeout)
		proxy := n.proxyIsReady(attempt) == nil
		agent := agentIsReady(attempt, d.dir.agentSocket(n.name)) == nil
		cancel()
		d.state.mu.Lock()
		changed := proxy != n.proxyReady || agent != n.agentReady
		n.proxyReady, n.agentReady = proxy, agent
		d.state.mu.Unlock()
		if changed {
			d.state.kick()
		}
		wait := readyPoll
		if !proxy || !agent {
			wait = unreadyPoll * 4
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
		}
	}
}
