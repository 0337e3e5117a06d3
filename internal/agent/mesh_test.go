package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"lateen.dev/lateen/internal/agent/netns"
	"lateen.dev/lateen/internal/agent/netns/netnstest"
	"lateen.dev/lateen/internal/agent/source"
	"lateen.dev/lateen/internal/model/wellknown"
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
			s.Pods[0].Annotations = map[string]string{wellknown.Redirection: string(report.State)}
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
		labels[wellknown.DataplaneMode] = "ambient"
	}
	m.change(func(s *source.Snapshot) { s.Namespaces = map[string]source.Namespace{"default": {Labels: labels}} })
}

func (m *mesh) annotation() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.snapshot.Pods[0].Annotations[wellknown.Redirection]
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
