package local

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"lateen.dev/lateen/internal/engine/local/fabric"
)

// Where the parts of the mesh answer.
const (
	controlDebug  = "127.0.0.1:15014" // in the fabric namespace
	agentHTTP     = "127.0.0.1:15014" // in the node's
	proxyAdmin    = "127.0.0.1:15000" // in the node's, and a stock proxy's only
	proxyMetrics  = "127.0.0.1:15020"
	proxyReadyURL = "127.0.0.1:15021"
)

const (
	readyTimeout = 45 * time.Second
	// How often readiness is looked at: often while somebody waits for it, seldom once it is there.
	unreadyPoll = 50 * time.Millisecond
	readyPoll   = 2 * time.Second
	pollTimeout = 2 * time.Second
	// rehearsalTimeout bounds a dry run's question: the control plane compiles the whole mesh for it.
	rehearsalTimeout = 20 * time.Second
	// So many starts in a row that fail are no accident.
	tooManyFailures = 3
)

// startMesh starts control plane, agents and proxies, each when what it needs is there.
func (e *Engine) startMesh(ctx context.Context, events *eventWriter) error {
	xds := net.JoinHostPort(e.families[0].FabricIP.String(), "15012")
	events.started("control", "starting the control plane")
	if err := e.ca.follow(ctx); err != nil {
		return &failure{phase: "control", err: err}
	}
	e.control = newDaemon(e.log, e.reaper, controlBinary, filepath.Join(e.dir.bin(), controlBinary), append([]string{
		"--config-dir", e.dir.path("objects"),
		"--data-dir", e.dir.path("control"),
		"--listen", xds,
		"--debug-listen", controlDebug,
		"--token-key", e.dir.tokenKey(),
		"--token-issuer", tokenIssuer,
		"--node-proxy-accounts", meshNamespace + "/" + proxyAccount,
		"--advertise", e.families[0].FabricIP.String(),
		"--root-cert-out", e.dir.rootCert(),
	}, e.opts.CA.flags(e.dir)...), daemonEnv(), "", e.dir.controlLog())
	e.control.uid = controlUID
	go e.control.run()
	if err := e.control.await(ctx, controlIsReady); err != nil {
		return e.control.notReady("control", "the control plane", err)
	}
	events.done("control", "control plane ready")

	events.started("agents", "starting the node agents")
	for _, n := range e.state.nodes {
		n.agent = newDaemon(e.log, e.reaper, "agent of "+n.name, filepath.Join(e.dir.bin(), agentBinary), []string{
			"--node", n.name,
			"--engine-socket", e.dir.socket(),
			"--zds-socket", filepath.Join(e.dir.node(n.name), "zds.sock"),
			"--status-socket", e.dir.agentSocket(n.name),
			"--http", agentHTTP,
			"--probe-group", strconv.Itoa(n.probeGroup),
		}, daemonEnv(), n.NetNS, filepath.Join(e.dir.node(n.name), "agent.log"))
		go n.agent.run()
	}
	for _, n := range e.state.nodes {
		if err := n.agent.await(ctx, func(ctx context.Context) error { return agentIsReady(ctx, e.dir.agentSocket(n.name)) }); err != nil {
			return n.agent.notReady("agents", "the agent of "+n.name, err)
		}
	}
	events.done("agents", fmt.Sprintf("%d agents ready", len(e.state.nodes)))

	events.started("proxies", "starting the node proxies")
	for _, n := range e.state.nodes {
		path, args := filepath.Join(e.dir.bin(), proxyBinary), []string{"node"}
		other := e.opts.NodeProxy[n.name]
		stock := other != "" && filepath.Base(other) != proxyBinary // another build of Lateen's keeps its name
		if other != "" {
			path = other
		}
		if stock {
			args = nil
		}
		n.proxy = newDaemon(e.log, e.reaper, "proxy of "+n.name, path, args, e.proxyEnv(n, "https://"+xds), n.NetNS, filepath.Join(e.dir.node(n.name), "proxy.log"))
		n.proxy.program.stock = stock
		go n.proxy.run()
	}
	for _, n := range e.state.nodes {
		if err := n.proxy.await(ctx, n.proxyIsReady); err != nil {
			return n.proxy.notReady("proxies", "the proxy of "+n.name, err)
		}
	}
	events.done("proxies", fmt.Sprintf("%d node proxies ready", len(e.state.nodes)))
	for _, n := range e.state.nodes {
		go e.followReadiness(ctx, n)
	}
	events.done("ready", "mesh "+e.opts.Mesh+" is ready")
	return nil
}

// daemonEnv is the environment of control plane and agents: nothing of the caller's but what finding files takes.
func daemonEnv() []string {
	return []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
}

// proxyEnv is what a node proxy is told, by ztunnel's variables, so that either can run here.
func (e *Engine) proxyEnv(n *node, control string) []string {
	env := append(daemonEnv(),
		"PROXY_MODE=shared",
		"NODE_NAME="+n.name,
		"INPOD_UDS="+filepath.Join(e.dir.node(n.name), "zds.sock"),
		"LATEEN_ADMIN_SOCKET="+n.admin,
		"XDS_ADDRESS="+control,
		"CA_ADDRESS="+control,
		"XDS_ROOT_CA="+e.dir.rootCert(),
		"CA_ROOT_CA="+e.dir.rootCert(),
		"AUTH_TOKEN="+e.dir.token(n.name),
		"INSTANCE_IP="+n.IP().String(),
		"POD_NAME="+n.proxyPodName(),
		"POD_NAMESPACE="+meshNamespace,
		"SERVICE_ACCOUNT="+proxyAccount,
		"CLUSTER_ID=Kubernetes",
		"IPV6_ENABLED="+strconv.FormatBool(slices.Contains(e.families, fabric.IPv6)),
		"LATEEN_RESOLV_CONF="+e.dir.resolvers(),
		"RUST_LOG="+cmp.Or(os.Getenv("RUST_LOG"), "info"), // who starts a mesh may want to hear more
	)
	if e.opts.Workers > 0 {
		env = append(env, "ZTUNNEL_WORKER_THREADS="+strconv.Itoa(e.opts.Workers))
	}
	env = append(env, e.opts.CA.env()...)
	// The last word counts, and it is the user's.
	return append(env, e.opts.ProxyEnv...)
}

// await waits until the daemon is ready, keeps failing, or time is up.
func (d *daemon) await(ctx context.Context, ready func(context.Context) error) error {
	deadline := time.Now().Add(readyTimeout)
	for {
		attempt, cancel := context.WithTimeout(ctx, pollTimeout)
		err := ready(attempt)
		cancel()
		if err == nil {
			return nil
		}
		s := d.state()
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case s.failures >= tooManyFailures:
			return fmt.Errorf("it ended %d times, the last time because it %s", s.failures, strings.TrimPrefix(s.lastExit, "it "))
		case time.Now().After(deadline):
			return fmt.Errorf("it was not ready after %s: %w", readyTimeout, err)
		}
		time.Sleep(unreadyPoll)
	}
}

func (d *daemon) notReady(phase, what string, err error) error {
	return &failure{phase: phase, err: fmt.Errorf("%s did not become ready: %w", what, err),
		cure: "see its log, " + d.logPath, log: tail(d.logPath, 12)}
}

// followReadiness keeps a node's agentReady and proxyReady up to date.
func (e *Engine) followReadiness(ctx context.Context, n *node) {
	for ctx.Err() == nil {
		attempt, cancel := context.WithTimeout(ctx, pollTimeout)
		proxy := n.proxyIsReady(attempt) == nil
		agent := agentIsReady(attempt, e.dir.agentSocket(n.name)) == nil
		cancel()
		e.state.mu.Lock()
		changed := proxy != n.proxyReady || agent != n.agentReady
		n.proxyReady, n.agentReady = proxy, agent
		e.state.mu.Unlock()
		if changed {
			e.state.kick()
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

// maxPage bounds what is read from a part of the mesh, in bytes.
const maxPage = 256 << 20

// fetchControl gets a page of the control plane, which answers in the fabric's namespace, as the engine does.
func fetchControl(ctx context.Context, path string) ([]byte, error) {
	return get(ctx, func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "tcp", controlDebug)
	}, "http://"+controlDebug+path)
}

func controlIsReady(ctx context.Context) error {
	_, err := fetchControl(ctx, "/ready")
	return err
}

// fetchUnix gets a page from a unix socket.
func fetchUnix(ctx context.Context, socket, path string) ([]byte, error) {
	return get(ctx, func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", socket)
	}, "http://socket"+path)
}

type dialer func(context.Context, string, string) (net.Conn, error)

func get(ctx context.Context, dial dialer, target string) ([]byte, error) {
	return ask(ctx, dial, http.MethodGet, target)
}

func ask(ctx context.Context, dial dialer, method, target string) ([]byte, error) {
	return send(ctx, dial, method, target, nil)
}

// send is ask with a body; nil sends none.
func send(ctx context.Context, dial dialer, method, target string, content io.Reader) ([]byte, error) {
	t := &http.Transport{DialContext: dial, DisableKeepAlives: true}
	defer t.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, method, target, content)
	if err != nil {
		return nil, err
	}
	if content != nil {
		req.Header.Set("Content-Type", "application/yaml")
	}
	resp, err := (&http.Client{Transport: t}).Do(req)
	if err != nil {
		var ue *url.Error
		if errors.As(err, &ue) {
			err = ue.Err
		}
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxPage))
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("answered %s: %s", resp.Status, strings.TrimSpace(string(body[:min(len(body), 300)])))
	}
	return body, nil
}
