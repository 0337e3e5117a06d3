package local

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"

	"lateen.dev/lateen/internal/engine/api"
	"lateen.dev/lateen/internal/engine/local/netns"
	"lateen.dev/lateen/internal/engine/local/podinit"
	"lateen.dev/lateen/internal/engine/local/services"
)

// podAccess answers requests for the inside of a pod: its logs, commands in it, and connections into it. Its fields never change;
// the state's lock guards the pods and objects among which it looks.
type podAccess struct {
	state    *state
	commands *podCommands
	dir      runDir
}

func newPodAccess(s *state, commands *podCommands, dir runDir) *podAccess {
	return &podAccess{state: s, commands: commands, dir: dir}
}

// serveExec runs a command in a pod.
func (a *podAccess) serveExec(w http.ResponseWriter, r *http.Request) {
	var in api.ExecRequest
	if err := readJSON(w, r, &in); err != nil {
		fail(w, err)
		return
	}
	if len(in.Command) == 0 {
		fail(w, &api.Error{Code: http.StatusBadRequest, Message: "there is no command to run"})
		return
	}
	a.state.mu.Lock()
	p, _, err := a.targetSteered(r.Context(), in.Namespace, in.Target)
	var c *container
	if err == nil {
		err = p.stillThere()
	}
	if err == nil {
		c, err = p.containerOf(in.Container)
	}
	if err == nil && !c.running() && a.state.enrolled(p) && !p.redirection.enabled {
		err = &api.Error{Code: http.StatusConflict, Message: "pod " + p.id.name + " is " + p.reason, Fix: "try again when it is captured"}
	}
	a.state.mu.Unlock()
	if err != nil {
		fail(w, err)
		return
	}
	cmd, err := a.commands.of(p, c)
	if err != nil {
		fail(w, err)
		return
	}
	cmd.Args, cmd.TTY = in.Command, in.TTY
	if in.TTY {
		term := in.Term
		if term == "" {
			term = "xterm"
		}
		cmd.Env = append(cmd.Env, "TERM="+term)
	}
	conn, br, err := upgrade(w)
	if err != nil {
		return
	}
	defer conn.Close()
	s := &session{conn: conn, in: br}
	// The request's context is not used, because it ends when the connection is hijacked.
	exit, err := s.run(context.Background(), p.init, cmd, in)
	if err != nil {
		exit.Error, exit.Code = err.Error(), exitNotRun
		var missing *podinit.NoCommandError
		if errors.As(err, &missing) {
			exit.Code = exitNoCommand
		}
	}
	b, _ := json.Marshal(exit)
	_ = s.send(api.FrameExit, b)
}

// A shell's exit codes for a command that cannot be run, and for one that does not exist.
const (
	exitNotRun    = 126
	exitNoCommand = 127
)

// upgrade turns a request's connection into a raw stream.
func upgrade(w http.ResponseWriter) (net.Conn, *bufio.Reader, error) {
	conn, buf, err := http.NewResponseController(w).Hijack()
	if err != nil {
		fail(w, &api.Error{Code: http.StatusInternalServerError, Message: err.Error()})
		return nil, nil, err
	}
	if _, err := io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: lateen-stream\r\n\r\n"); err != nil {
		conn.Close()
		return nil, nil, err
	}
	return conn, buf.Reader, nil
}

// serveConnect relays one TCP connection into a pod, for port-forward.
func (a *podAccess) serveConnect(w http.ResponseWriter, r *http.Request) {
	var in api.ConnectRequest
	if err := readJSON(w, r, &in); err != nil {
		fail(w, err)
		return
	}
	a.state.mu.Lock()
	p, svc, err := a.targetSteered(r.Context(), in.Namespace, in.Target)
	if err == nil {
		err = p.stillThere()
	}
	port := in.Port
	if err == nil && svc != nil {
		port, err = podPort(svc, a.state.reportPod(p), in.Port)
	}
	a.state.mu.Unlock()
	if err == nil && (port < 1 || port > 65535) {
		err = &api.Error{Code: http.StatusBadRequest, Message: fmt.Sprintf("port %d is not between 1 and 65535", port)}
	}
	if err != nil {
		fail(w, err)
		return
	}
	up, err := a.dial(r.Context(), p, uint16(port))
	if err != nil {
		fail(w, &api.Error{Code: http.StatusBadGateway, Message: fmt.Sprintf("connect to port %d of pod %s: %v", port, p.id.name, err), Fix: "check that a container listens there"})
		return
	}
	defer up.Close()
	conn, br, err := upgrade(w)
	if err != nil {
		return
	}
	defer conn.Close()
	var wg sync.WaitGroup
	pass := func(to net.Conn, from io.Reader) {
		_, err := io.Copy(to, from)
		if cw, ok := to.(interface{ CloseWrite() error }); ok && err == nil {
			_ = cw.CloseWrite()
			return
		}
		to.Close()
	}
	wg.Go(func() { pass(up, br) })
	wg.Go(func() { pass(conn, up) })
	wg.Wait()
}

// podPort is the pod's port behind a service's.
func podPort(svc *corev1.Service, p *corev1.Pod, port int) (int, error) {
	// A pod that is not ready can be looked into all the same.
	p.DeletionTimestamp, p.Status.Phase = nil, corev1.PodRunning
	svc = svc.DeepCopy()
	svc.Spec.PublishNotReadyAddresses = true
	for _, s := range services.Resolve([]*corev1.Service{svc}, []*corev1.Pod{p}) {
		for _, sp := range s.Ports {
			if int(sp.Port) == port && len(sp.Backends) > 0 {
				return int(sp.Backends[0].Port()), nil
			}
		}
	}
	return 0, &api.Error{Code: http.StatusNotFound, Message: fmt.Sprintf("service %s has no port %d that its pod %s has", svc.Name, port, p.Name)}
}

// dial connects from inside the pod, to loopback first as `kubectl port-forward` does, then to the pod's own address.
func (a *podAccess) dial(ctx context.Context, p *pod, port uint16) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	ns := a.dir.podNetNS(&p.id)
	var first error
	for _, ip := range append([]netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.IPv6Loopback()}, p.id.ips...) {
		conn, err := netns.Dial(ctx, ns, "tcp", netip.AddrPortFrom(ip, port).String(), nil)
		if err == nil {
			return conn, nil
		}
		if first == nil {
			first = err
		}
		if !errors.Is(err, syscall.ECONNREFUSED) && ip != netip.IPv6Loopback() {
			break
		}
	}
	return nil, first
}
