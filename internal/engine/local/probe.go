package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"lateen.dev/lateen/internal/engine/local/fabric"
	"lateen.dev/lateen/internal/engine/local/netns"
)

// firstProbePeriod is the time between probes until a container was ready once: programs start faster than periods last.
const firstProbePeriod = 200 * time.Millisecond

// prober runs the readiness probes of containers. Its fields never change; the state's lock guards what changes of containers.
type prober struct {
	state    *state
	commands *podCommands
}

func newProber(s *state, commands *podCommands) *prober { return &prober{state: s, commands: commands} }

// follow keeps a container's readiness up to date until ctx ends.
func (r *prober) follow(ctx context.Context, p *pod, c *container) {
	spec := c.spec.ReadinessProbe
	period := max(time.Duration(spec.PeriodSeconds)*time.Second, time.Second)
	if spec.PeriodSeconds == 0 {
		period = 10 * time.Second
	}
	timeout := max(time.Duration(spec.TimeoutSeconds)*time.Second, time.Second)
	t := threshold{success: max(1, int(spec.SuccessThreshold)), failure: int(spec.FailureThreshold)}
	if t.failure <= 0 {
		t.failure = 3
	}
	wasReady := false
	wait := time.Duration(spec.InitialDelaySeconds) * time.Second
	for {
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return
		}
		attempt, cancel := context.WithTimeout(ctx, timeout)
		err := r.once(attempt, p, c)
		cancel()
		if ctx.Err() != nil {
			return
		}
		ready := t.add(err == nil)
		wasReady = wasReady || ready
		r.note(c, ready, err)
		if wait = period; !wasReady {
			wait = min(period, firstProbePeriod)
		}
	}
}

// note keeps what a probe found. Only news are passed on: most probes find what the one before did.
func (r *prober) note(c *container, ready bool, err error) {
	message := ""
	if err != nil {
		message = "readiness probe: " + err.Error()
	}
	r.state.mu.Lock()
	ready = ready && c.running() // the process may have ended while it was being probed
	news := c.ready != ready || c.message != message
	if c.running() {
		c.ready, c.message = ready, message
	}
	r.state.mu.Unlock()
	if news {
		r.state.kick()
	}
}

// threshold turns single results into readiness: so many successes or failures in a row change it.
type threshold struct {
	success, failure int
	run              int // length of the present run of equal results
	last             bool
	ready            bool
}

func (t *threshold) add(ok bool) bool {
	if ok != t.last {
		t.run = 0
	}
	t.last = ok
	t.run++
	switch {
	case ok && t.run >= t.success:
		t.ready = true
	case !ok && t.run >= t.failure:
		t.ready = false
	}
	return t.ready
}

func (r *prober) once(ctx context.Context, p *pod, c *container) error {
	h := c.spec.ReadinessProbe.ProbeHandler
	switch {
	case h.HTTPGet != nil:
		port, err := portNumber(h.HTTPGet.Port, c.spec)
		if err != nil {
			return err
		}
		return p.id.probeHTTP(ctx, h.HTTPGet, port)
	case h.TCPSocket != nil:
		port, err := portNumber(h.TCPSocket.Port, c.spec)
		if err != nil {
			return err
		}
		conn, err := p.id.dialProbe(ctx, netip.AddrPortFrom(p.id.ip, port))
		if err != nil {
			return err
		}
		return conn.Close()
	case h.Exec != nil:
		return r.exec(ctx, p, c, h.Exec.Command)
	}
	return errors.New("only httpGet, tcpSocket and exec probes are understood here")
}

func (id *podIdentity) probeHTTP(ctx context.Context, a *corev1.HTTPGetAction, port uint16) error {
	scheme := "http"
	if a.Scheme != "" {
		scheme = strings.ToLower(string(a.Scheme))
	}
	if scheme != "http" {
		return fmt.Errorf("scheme %s is not understood here; use HTTP", a.Scheme)
	}
	path := a.Path
	if !strings.HasPrefix(path, "/") {
		path = "/" + path
	}
	addr := netip.AddrPortFrom(id.ip, port)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme+"://"+addr.String()+path, nil)
	if err != nil {
		return err
	}
	req.Header.Set("User-Agent", "lateen-probe")
	for _, h := range a.HTTPHeaders {
		if strings.EqualFold(h.Name, "host") {
			req.Host = h.Value
			continue
		}
		req.Header.Add(h.Name, h.Value)
	}
	t := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return id.dialProbe(ctx, addr)
	}}
	defer t.CloseIdleConnections()
	resp, err := t.RoundTrip(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, _ = io.CopyN(io.Discard, resp.Body, 10<<10)
	if resp.StatusCode < 200 || resp.StatusCode >= 400 {
		return fmt.Errorf("GET %s answered %s", path, resp.Status)
	}
	return nil
}

// dialProbe connects as the node's own prober: in-pod rules let its address through, captured or not, and the agent's
// rules on the node let nobody have that address but who has its group.
// A pod on the node's own network needs no exemption.
func (id *podIdentity) dialProbe(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
	if id.onNodesNetwork() {
		return netns.Dial(ctx, id.node.NetNS, "tcp", to.String(), nil)
	}
	from := net.TCPAddrFromAddrPort(netip.AddrPortFrom(fabric.FamilyOf(to.Addr()).ProbeIP, 0))
	return netns.DialAs(ctx, id.node.probeGroup, id.node.NetNS, "tcp", to.String(), from)
}

func (r *prober) exec(ctx context.Context, p *pod, c *container, command []string) error {
	cmd, err := r.commands.of(p, c)
	if err != nil {
		return err
	}
	cmd.Args = command
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	proc, err := p.init.Start(ctx, cmd, [3]*os.File{null, null, null})
	if err != nil {
		return err
	}
	select {
	case <-proc.Done():
	case <-ctx.Done():
		_ = proc.Signal(syscall.SIGKILL)
		return errors.New("the command took too long")
	}
	if proc.Exit().Code != 0 {
		return fmt.Errorf("the command %s", proc.Exit())
	}
	return nil
}

// portNumber resolves a probe's port, which may be the name of one of the container's.
func portNumber(port intstr.IntOrString, c *corev1.Container) (uint16, error) {
	if port.Type == intstr.Int {
		if port.IntVal < 1 || port.IntVal > 65535 {
			return 0, fmt.Errorf("port %d is not between 1 and 65535", port.IntVal)
		}
		return uint16(port.IntVal), nil
	}
	for _, cp := range c.Ports {
		if cp.Name == port.StrVal {
			return uint16(cp.ContainerPort), nil
		}
	}
	if n, err := strconv.ParseUint(port.StrVal, 10, 16); err == nil && n > 0 {
		return uint16(n), nil
	}
	return 0, fmt.Errorf("the container has no port named %q", port.StrVal)
}
