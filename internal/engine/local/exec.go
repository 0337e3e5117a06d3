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
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"lateen.dev/lateen/internal/engine/api"
	"lateen.dev/lateen/internal/engine/local/netns"
	"lateen.dev/lateen/internal/engine/local/podinit"
	"lateen.dev/lateen/internal/engine/local/services"
)

// stillThere says why nothing can be done inside a pod. The state's lock must be held.
func (p *pod) stillThere() error {
	if p.init == nil || p.stopping {
		return &api.Error{Code: http.StatusConflict, Message: fmt.Sprintf("pod %s does not run: %s", p.name, p.unreadyWhy()), Cure: "see `lateen get pods`"}
	}
	return nil
}

func (e *Engine) serveExec(w http.ResponseWriter, r *http.Request) {
	var in api.ExecRequest
	if err := readJSON(w, r, &in); err != nil {
		fail(w, err)
		return
	}
	if len(in.Command) == 0 {
		fail(w, &api.Error{Code: http.StatusBadRequest, Message: "there is no command to run"})
		return
	}
	e.state.mu.Lock()
	p, _, err := e.targetSteered(r.Context(), in.Namespace, in.Target)
	var c *container
	if err == nil {
		err = p.stillThere()
	}
	if err == nil {
		c, err = p.containerOf(in.Container)
	}
	if err == nil && !c.running() && e.state.enrolled(p) && !p.redirection.enabled {
		err = &api.Error{Code: http.StatusConflict, Message: "pod " + p.name + " is " + p.reason, Cure: "try again when it is captured"}
	}
	e.state.mu.Unlock()
	if err != nil {
		fail(w, err)
		return
	}
	cmd, err := e.commands.of(p, c)
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
	// Not the request's context: that ends when the connection is taken over.
	exit, err := s.run(context.Background(), p.init, cmd, in)
	if err != nil {
		exit.Error = err.Error()
		exit.Code = 126
	}
	b, _ := json.Marshal(exit)
	_ = s.send(api.FrameExit, b)
}

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

// session is one exec.
type session struct {
	conn net.Conn
	in   *bufio.Reader
	mu   sync.Mutex // one frame at a time
}

func (s *session) send(t api.FrameType, p []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return api.WriteFrame(s.conn, t, p)
}

// run starts the command and carries its streams until it and they have ended.
func (s *session) run(ctx context.Context, pod *podinit.Pod, cmd podinit.Command, in api.ExecRequest) (api.Exit, error) {
	st, err := openStreams(in)
	if err != nil {
		return api.Exit{}, err
	}
	defer st.closeOurs()
	proc, err := pod.Start(ctx, cmd, st.theirs)
	st.closeTheirs()
	if err != nil {
		return api.Exit{}, err
	}
	lost := make(chan struct{})
	go func() {
		defer close(lost)
		s.feed(st)
	}()
	var outputs sync.WaitGroup
	copyOut := func(from *os.File, t api.FrameType) {
		buf := make([]byte, 32<<10)
		for {
			n, err := from.Read(buf)
			if n > 0 && s.send(t, buf[:n]) != nil {
				return
			}
			if err != nil {
				return
			}
		}
	}
	outputs.Go(func() { copyOut(st.out, api.FrameStdout) })
	if st.err != nil {
		outputs.Go(func() { copyOut(st.err, api.FrameStderr) })
	}
	select {
	case <-proc.Done():
	case <-lost:
		// The client has gone: nobody would ever end the command.
		_ = proc.Signal(syscall.SIGHUP)
		select {
		case <-proc.Done():
		case <-time.After(time.Second):
			_ = proc.Signal(syscall.SIGKILL)
			<-proc.Done()
		}
	}
	// Processes that the command left running may hold its output open; its own output is there already.
	drained := make(chan struct{})
	go func() { outputs.Wait(); close(drained) }()
	select {
	case <-drained:
	case <-time.After(500 * time.Millisecond):
		st.closeOurs()
		<-drained
	}
	return api.Exit{Code: proc.Exit().Code}, nil
}

// feed passes on what the asker sends, until the asker goes.
func (s *session) feed(st *streams) {
	for {
		t, p, err := api.ReadFrame(s.in)
		if err != nil {
			return
		}
		switch t {
		case api.FrameStdin:
			if st.in != nil {
				_, _ = st.in.Write(p) // the command may have closed its stdin
			}
		case api.FrameStdinEOF:
			switch {
			case st.tty && st.in != nil:
				_, _ = st.in.Write([]byte{4}) // end of transmission, as a terminal says it
			case st.in != nil:
				st.in.Close()
			}
		case api.FrameResize:
			var size api.Size
			if st.tty && json.Unmarshal(p, &size) == nil {
				_ = setSize(st.in, size)
			}
		}
	}
}

// streams are both ends of what a command reads and writes. With a terminal all of ours are one file.
type streams struct {
	tty    bool
	in     *os.File // nil: no stdin
	out    *os.File
	err    *os.File // nil with a terminal
	theirs [3]*os.File
	once   sync.Once
}

func openStreams(in api.ExecRequest) (*streams, error) {
	if in.TTY {
		return openTerminal(in.Size)
	}
	st := &streams{}
	var err error
	if in.Stdin {
		st.theirs[0], st.in, err = os.Pipe()
	} else {
		st.theirs[0], err = os.Open(os.DevNull)
	}
	if err == nil {
		st.out, st.theirs[1], err = os.Pipe()
	}
	if err == nil {
		st.err, st.theirs[2], err = os.Pipe()
	}
	if err != nil {
		st.closeTheirs()
		st.closeOurs()
		return nil, err
	}
	return st, nil
}

func openTerminal(size api.Size) (*streams, error) {
	ptmx, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, fmt.Errorf("open a terminal: %w", err)
	}
	raw, err := ptmx.SyscallConn()
	if err != nil {
		ptmx.Close()
		return nil, err
	}
	var n int
	cerr := raw.Control(func(fd uintptr) {
		if err = unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0); err == nil {
			n, err = unix.IoctlGetInt(int(fd), unix.TIOCGPTN)
		}
	})
	if err = errors.Join(cerr, err); err != nil {
		ptmx.Close()
		return nil, fmt.Errorf("open a terminal: %w", err)
	}
	pts, err := os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		ptmx.Close()
		return nil, fmt.Errorf("open a terminal: %w", err)
	}
	if size.Rows > 0 && size.Cols > 0 {
		_ = setSize(ptmx, size) // a wrong size is better than no session
	}
	return &streams{tty: true, in: ptmx, out: ptmx, theirs: [3]*os.File{pts, pts, pts}}, nil
}

func setSize(f *os.File, s api.Size) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var ierr error
	err = raw.Control(func(fd uintptr) {
		ierr = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: s.Rows, Col: s.Cols})
	})
	return errors.Join(err, ierr)
}

func (st *streams) closeTheirs() {
	for i, f := range st.theirs {
		if f != nil && (i == 0 || f != st.theirs[0]) {
			f.Close()
		}
	}
}

func (st *streams) closeOurs() {
	st.once.Do(func() {
		for _, f := range []*os.File{st.in, st.out, st.err} {
			if f != nil {
				f.Close()
			}
		}
	})
}

// serveConnect relays one TCP connection into a pod, for port-forward.
func (e *Engine) serveConnect(w http.ResponseWriter, r *http.Request) {
	var in api.ConnectRequest
	if err := readJSON(w, r, &in); err != nil {
		fail(w, err)
		return
	}
	e.state.mu.Lock()
	p, svc, err := e.targetSteered(r.Context(), in.Namespace, in.Target)
	if err == nil {
		err = p.stillThere()
	}
	port := in.Port
	if err == nil && svc != nil {
		port, err = podPort(svc, e.state.reportPod(p), in.Port)
	}
	e.state.mu.Unlock()
	if err == nil && (port < 1 || port > 65535) {
		err = &api.Error{Code: http.StatusBadRequest, Message: fmt.Sprintf("port %d is not between 1 and 65535", port)}
	}
	if err != nil {
		fail(w, err)
		return
	}
	up, err := e.dialPod(r.Context(), p, uint16(port))
	if err != nil {
		fail(w, &api.Error{Code: http.StatusBadGateway, Message: fmt.Sprintf("connect to port %d of pod %s: %v", port, p.name, err), Cure: "check that a container listens there"})
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

// dialPod connects from inside the pod, to loopback first as `kubectl port-forward` does, then to the pod's own address.
func (e *Engine) dialPod(ctx context.Context, p *pod, port uint16) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	ns := e.dir.podNetNS(p)
	var first error
	for _, ip := range append([]netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.IPv6Loopback()}, p.ips...) {
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
