package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"lateen.dev/lateen/internal/agent/diag"
	"lateen.dev/lateen/internal/agent/netns"
	"lateen.dev/lateen/internal/agent/netns/netnstest"
	"lateen.dev/lateen/internal/agent/redirect"
	"lateen.dev/lateen/internal/agent/source"
)

// mesh is one node with a pod to capture and a peer outside the mesh, an engine that knows the pod, and a running agent.
type mesh struct {
	t               *testing.T
	dir             string
	pod, peer       *netns.Namespace
	podApp, peerApp net.Listener
	mu              sync.Mutex
	snapshot        source.Snapshot
	changed         chan struct{}
	stop            context.CancelFunc
	exit            chan int
	log             *bytes.Buffer
}

const (
	meshPod  = "10.9.0.1"
	meshPeer = "10.9.0.2"
	appPort  = ":8080"
)

func newMesh(t *testing.T) *mesh {
	node := netnstest.New(t)
	m := &mesh{
		t: t, dir: t.TempDir(), changed: make(chan struct{}),
		pod: netnstest.Pod(t, node, "pod", meshPod), peer: netnstest.Pod(t, node, "peer", meshPeer),
	}
	m.podApp, m.peerApp = echo(t, m.pod), echo(t, m.peer)
	var path string
	_ = m.pod.WithFD(func(fd int) error {
		path = fmt.Sprintf("/proc/self/fd/%d", fd)
		return nil
	})
	m.snapshot = source.Snapshot{
		Pods:       []source.Pod{{UID: "u1", Namespace: "default", Name: "a", ServiceAccount: "a", IP: meshPod, NetNS: path}},
		Namespaces: map[string]source.Namespace{"default": {}},
	}
	l, err := net.Listen("unix", m.path("engine.sock"))
	if err != nil {
		t.Fatal(err)
	}
	engine := httptest.NewUnstartedServer(m)
	engine.Listener.Close()
	engine.Listener = l
	engine.Start()
	t.Cleanup(func() {
		engine.CloseClientConnections()
		engine.Close()
	})
	m.start()
	t.Cleanup(func() { m.terminate() })
	return m
}

func (m *mesh) path(name string) string { return filepath.Join(m.dir, name) }

// echo answers every connection with what it says.
func echo(t *testing.T, ns *netns.Namespace) net.Listener {
	l := netnstest.Listen(t, ns, "0.0.0.0"+appPort)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = io.Copy(c, c)
			}()
		}
	}()
	return l
}

// start runs the agent's command.
func (m *mesh) start() {
	ctx, cancel := context.WithCancel(context.Background())
	m.stop, m.exit, m.log = cancel, make(chan int, 1), &bytes.Buffer{}
	log := m.log
	go func() {
		m.exit <- Main(ctx, []string{
			"--node", "n1", "--engine-socket", m.path("engine.sock"), "--zds-socket", m.path("zds.sock"),
			"--status-socket", m.path("agent.sock"), "--http", "",
		}, log)
	}()
}

// terminate ends the agent as SIGTERM does.
func (m *mesh) terminate() {
	m.t.Helper()
	if m.stop == nil {
		return
	}
	m.stop()
	m.stop = nil
	select {
	case code := <-m.exit:
		if code != 0 {
			m.t.Errorf("exit code %d: %s", code, m.log)
		}
	case <-time.After(20 * time.Second):
		m.t.Fatal("the agent does not end")
	}
	if m.t.Failed() {
		m.t.Logf("agent: %s", m.log)
	}
}

// ServeHTTP is the engine.
func (m *mesh) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPut {
		var report source.Report
		if err := json.NewDecoder(r.Body).Decode(&report); err != nil || r.URL.Path != "/agent/v1/pods/u1/redirection" {
			http.Error(w, "unexpected", http.StatusBadRequest)
			return
		}
		m.change(func(s *source.Snapshot) {
			s.Pods[0].Annotations = map[string]string{source.RedirectionAnnotation: string(report.State)}
		})
		return
	}
	for {
		m.mu.Lock()
		line, err := json.Marshal(m.snapshot)
		changed := m.changed
		m.mu.Unlock()
		if err != nil {
			return
		}
		if _, err := w.Write(append(line, '\n')); err != nil {
			return
		}
		w.(http.Flusher).Flush()
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		}
	}
}

func (m *mesh) change(fn func(*source.Snapshot)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	pods := []source.Pod{m.snapshot.Pods[0]}
	m.snapshot.Pods = pods
	fn(&m.snapshot)
	close(m.changed)
	m.changed = make(chan struct{})
}

func (m *mesh) enrol(enrol bool) {
	labels := map[string]string{}
	if enrol {
		labels[modeLabel] = modeAmbient
	}
	m.change(func(s *source.Snapshot) { s.Namespaces = map[string]source.Namespace{"default": {Labels: labels}} })
}

func (m *mesh) annotation() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.snapshot.Pods[0].Annotations[source.RedirectionAnnotation]
}

func (m *mesh) status() (Status, error) {
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", m.path("agent.sock"))
		},
	}}
	response, err := client.Get("http://agent/v1/status")
	if err != nil {
		return Status{}, err
	}
	defer response.Body.Close()
	var s Status
	err = json.NewDecoder(response.Body).Decode(&s)
	if err == nil && len(s.Pods) != 1 {
		err = fmt.Errorf("%d pods", len(s.Pods))
	}
	return s, err
}

// reaches waits for the pod to be in the state.
func (m *mesh) reaches(want State) PodStatus {
	m.t.Helper()
	var p PodStatus
	eventually(m.t, "the pod is "+string(want), func() error {
		s, err := m.status()
		if err != nil {
			return err
		}
		p = s.Pods[0]
		if p.State != want {
			return fmt.Errorf("it is %s: %s", p.State, p.Reason)
		}
		return nil
	})
	return p
}

type conversation struct{ net.Conn }

// talk opens a connection and proves that it works.
func (m *mesh) talk(from *netns.Namespace, to string) conversation {
	m.t.Helper()
	c, err := netnstest.Dial(from, "", to+appPort)
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { c.Close() })
	m.goesOn(conversation{c})
	return conversation{c}
}

func (m *mesh) goesOn(c conversation) {
	m.t.Helper()
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	got := make([]byte, 5)
	if _, err := c.Write([]byte("hello")); err != nil {
		m.t.Fatal(err)
	}
	if _, err := io.ReadFull(c, got); err != nil {
		m.t.Fatalf("%v to %v: %v", c.LocalAddr(), c.RemoteAddr(), err)
	}
}

func TestAPodsWayThroughTheMeshAndBack(t *testing.T) {
	m := newMesh(t)
	m.reaches(Plain)
	olderOut, olderIn := m.talk(m.pod, meshPeer), m.talk(m.peer, meshPod)

	m.enrol(true)
	if p := m.reaches(Pending); !strings.Contains(p.Reason, "no node proxy") {
		t.Errorf("reason %q", p.Reason)
	}
	m.talk(m.pod, meshPeer).Close()

	proxy := startRelay(t, m.path("zds.sock"))
	p := m.reaches(Captured)
	eventually(t, "the engine knows", func() error { return is(m.annotation(), "enabled") })
	var got []string
	for _, c := range p.UnmeshedConnections {
		got = append(got, fmt.Sprint(c.Direction, " ", c.Local, " ", c.Remote))
		if !c.OpenedBefore.Equal(p.Since) {
			t.Errorf("opened before %v, captured %v", c.OpenedBefore, p.Since)
		}
	}
	want := []string{
		fmt.Sprint(diag.Inbound, " ", olderIn.RemoteAddr(), " ", olderIn.LocalAddr()),
		fmt.Sprint(diag.Outbound, " ", olderOut.LocalAddr(), " ", olderOut.RemoteAddr()),
	}
	// Local addresses order them, and the ephemeral port may be below or above.
	if diff := cmp.Diff(asSet(want), asSet(got)); diff != "" {
		t.Errorf("older connections:\n%s", diff)
	}
	m.goesOn(olderOut)
	m.goesOn(olderIn)
	if proxy.count() != 0 {
		t.Error("older connections went through the proxy")
	}
	meshedOut, meshedIn := m.talk(m.pod, meshPeer), m.talk(m.peer, meshPod)
	if got := proxy.count(); got != 2 {
		t.Errorf("%d connections through the proxy, want 2", got)
	}
	olderIn.Close()
	eventually(t, "the closed connection is listed no more", func() error {
		s, err := m.status()
		if err == nil && len(s.Pods[0].UnmeshedConnections) != 1 {
			err = fmt.Errorf("%v", s.Pods[0].UnmeshedConnections)
		}
		return err
	})

	m.enrol(false)
	m.reaches(Releasing)
	eventually(t, "the engine knows", func() error { return is(m.annotation(), "disabled") })
	m.talk(m.pod, meshPeer).Close()
	m.talk(m.peer, meshPod).Close()
	if got := proxy.count(); got != 2 {
		t.Errorf("%d connections through the proxy after the release", got-2)
	}
	// This proxy cuts what a pod has when it is taken back. The meshed connections live on nevertheless.
	eventually(t, "the agent waits for the meshed connections", func() error {
		p := m.reaches(Releasing)
		m.goesOn(meshedOut)
		m.goesOn(meshedIn)
		if !strings.Contains(p.Reason, "meshed connections") {
			return errors.New(p.Reason)
		}
		return nil
	})
	meshedOut.Close()
	meshedIn.Close()
	m.reaches(Plain)
	m.goesOn(olderOut)
	if mode, err := redirect.Observe(m.pod); err != nil || mode != redirect.Absent {
		t.Errorf("rules %v, %v", mode, err)
	}
}

func TestCapturedPodsOutliveAgentAndProxy(t *testing.T) {
	m := newMesh(t)
	proxy := startRelay(t, m.path("zds.sock"))
	m.enrol(true)
	m.reaches(Captured)
	meshed := m.talk(m.pod, meshPeer)

	// The agent ends, and comes back.
	m.terminate()
	m.goesOn(meshed)
	m.talk(m.pod, meshPeer)
	if got := proxy.count(); got != 2 {
		t.Errorf("%d connections through the proxy, want 2", got)
	}
	m.start()
	proxy.reconnect(m.path("zds.sock"))
	p := m.reaches(Captured)
	if len(p.UnmeshedConnections) != 0 {
		t.Errorf("meshed connections are listed: %v", p.UnmeshedConnections)
	}
	eventually(t, "the proxy is known", func() error {
		s, err := m.status()
		if err == nil && !s.ProxyConnected {
			err = errors.New("no")
		}
		return err
	})
	m.goesOn(meshed)

	// The proxy ends: new connections fail, and never become plain.
	proxy.stop()
	eventually(t, "the agent notices", func() error {
		p := m.reaches(Captured)
		if !strings.Contains(p.Reason, "no node proxy") {
			return errors.New(p.Reason)
		}
		return nil
	})
	if c, err := netnstest.Dial(m.pod, "", meshPeer+appPort); err == nil {
		c.Close()
		t.Error("a connection of a captured pod went past the proxy")
	}
	if c, err := netnstest.Dial(m.peer, "", meshPod+appPort); err == nil {
		c.Close()
		t.Error("a connection to a captured pod went past the proxy")
	}
	next := startRelay(t, m.path("zds.sock"))
	eventually(t, "the new proxy has the pod", func() error { return is(m.reaches(Captured).Reason, "") })
	m.talk(m.pod, meshPeer)
	if got := next.count(); got != 1 {
		t.Errorf("%d connections through the new proxy, want 1", got)
	}
}

func TestAConnectionOpenedDuringEnrolmentEitherWayWorks(t *testing.T) {
	m := newMesh(t)
	startRelay(t, m.path("zds.sock"))
	stop, failures := make(chan struct{}), make(chan error, 1)
	var opened int
	go func() {
		defer close(failures)
		for {
			select {
			case <-stop:
				return
			default:
			}
			for _, way := range []struct {
				from *netns.Namespace
				to   string
			}{{m.pod, meshPeer}, {m.peer, meshPod}} {
				if err := hello(way.from, way.to); err != nil {
					failures <- err
					return
				}
				opened++
			}
		}
	}()
	for range 3 {
		m.enrol(true)
		m.reaches(Captured)
		m.enrol(false)
		m.reaches(Releasing)
	}
	close(stop)
	if err := <-failures; err != nil {
		t.Errorf("after %d connections: %v", opened, err)
	}
	if opened < 10 {
		t.Errorf("only %d connections were opened", opened)
	}
}

func hello(from *netns.Namespace, to string) error {
	c, err := netnstest.Dial(from, "", to+appPort)
	if err != nil {
		return err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := c.Write([]byte("hello")); err != nil {
		return err
	}
	_, err = io.ReadFull(c, make([]byte, 5))
	return err
}

func is(got, want string) error {
	if got != want {
		return fmt.Errorf("%q, want %q", got, want)
	}
	return nil
}

func asSet(list []string) map[string]bool {
	set := map[string]bool{}
	for _, s := range list {
		set[s] = true
	}
	return set
}

func TestArguments(t *testing.T) {
	full := []string{"--node", "n", "--engine-socket", "e", "--zds-socket", "z", "--status-socket", "s"}
	for name, args := range map[string][]string{
		"node":           full[2:],
		"zds-socket":     append(full[:4:4], full[6:]...),
		"flag provided":  append(full[:8:8], "--nonsense"),
		"more":           append(full[:8:8], "more"),
		"invalid value":  append(full[:8:8], "--log-level", "loud"),
		"Usage of":       {"--help"},
		"status-socket ": {"-h"},
	} {
		var stderr bytes.Buffer
		if code := Main(t.Context(), args, &stderr); code != exitUsage {
			t.Errorf("%v: exit code %d", args, code)
		}
		if !strings.Contains(stderr.String(), name) {
			t.Errorf("%v: %q does not name %q", args, stderr.String(), name)
		}
	}
}

func TestSaysWhatCannotBeOpened(t *testing.T) {
	dir := t.TempDir()
	for _, missing := range []string{"--zds-socket", "--status-socket"} {
		args := []string{"--node", "n", "--engine-socket", "e", "--http", ""}
		for _, f := range []string{"--zds-socket", "--status-socket"} {
			path := filepath.Join(dir, f)
			if f == missing {
				path = filepath.Join(dir, "nowhere", f)
			}
			args = append(args, f, path)
		}
		var stderr bytes.Buffer
		if code := Main(t.Context(), args, &stderr); code != exitError || !strings.Contains(stderr.String(), "nowhere") {
			t.Errorf("exit code %d: %s", code, stderr.String())
		}
	}
}

func TestHealthAndMetrics(t *testing.T) {
	r := newRig(t)
	h := r.agent.HealthHandler()
	get := func(path string) (int, string) {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		return w.Code, w.Body.String()
	}
	if code, _ := get("/ready"); code != http.StatusServiceUnavailable {
		t.Errorf("ready before the pods are known: %d", code)
	}
	r.label(true)
	r.accept()
	r.applyErr = os.ErrPermission
	r.label(false)
	if code, _ := get("/ready"); code != http.StatusOK {
		t.Errorf("not ready: %d", code)
	}
	_, text := get("/metrics")
	for _, line := range []string{
		"lateen_agent_captured_pods 1", `lateen_agent_capture_errors_total{step="rules"} 1`,
		`lateen_agent_pods{state="captured"} 1`, "lateen_agent_zds_connections 1",
	} {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("no %s", line)
		}
	}
}
