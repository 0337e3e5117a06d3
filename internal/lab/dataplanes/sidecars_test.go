package dataplanes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lateen.dev/lateen/internal/agent/netns"
	"lateen.dev/lateen/internal/engine/api"
	"lateen.dev/lateen/internal/lab/dataplanes/envoy"
	"lateen.dev/lateen/internal/lab/results"
)

// The test's own program stands in for Envoy where it is started as one: it answers questions and carries nothing.
func TestMain(m *testing.M) {
	if i := slices.Index(os.Args, "--config-path"); i > 0 {
		if err := standIn(os.Args[0], os.Args[i+1]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	if slices.Contains(os.Args, "--version") {
		fmt.Println("envoy  version: 0/1.2.3/stand-in")
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func standIn(program, config string) error {
	if _, err := os.Stat(filepath.Join(filepath.Dir(program), "refuse")); err == nil {
		return errors.New("the stand-in refuses to come up")
	}
	text, err := os.ReadFile(config)
	if err != nil {
		return err
	}
	var c struct {
		Admin struct {
			Address struct{ Pipe struct{ Path string } }
		}
		Node struct{ ID string }
	}
	if err := json.Unmarshal(text, &c); err != nil {
		return err
	}
	l, err := net.Listen("unix", c.Admin.Address.Pipe.Path)
	if err != nil {
		return err
	}
	http.HandleFunc("/ready", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "LIVE\n") })
	outbound, inbound := 0, 1
	if strings.HasPrefix(c.Node.ID, "default/client") {
		outbound, inbound = 4, 0
	}
	http.HandleFunc("/stats", func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, "http.inbound.rbac.allowed: 3\ninbound_tcp.rbac.allowed: 2\nlistener.0.0.0.0_15006.ssl.handshake: 2\n")
		for port, n := range map[int]int{envoy.OutboundPort: outbound, envoy.InboundPort: inbound} {
			for worker := range 2 {
				fmt.Fprintf(w, "listener.0.0.0.0_%d.worker_%d.downstream_cx_active: %d\n", port, worker, n*(worker+1))
			}
		}
	})
	return http.Serve(l, nil)
}

// fakeEngine is a mesh of sleeping pods, each in a network namespace, whose objects are what the test says.
type fakeEngine struct {
	t       *testing.T
	socket  string
	mu      sync.Mutex
	pods    map[string]*exec.Cmd // by app
	objects map[string][]any     // by kind
	stopped int
}

func newFakeEngine(t *testing.T, apps ...string) *fakeEngine {
	e := &fakeEngine{t: t, socket: filepath.Join(t.TempDir(), "engine.sock"), pods: map[string]*exec.Cmd{}, objects: map[string][]any{}}
	for _, app := range apps {
		cmd := exec.Command("sleep", "600")
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		e.pods[app] = cmd
	}
	e.objects["Service"] = []any{&corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "echo"},
		Spec:       corev1.ServiceSpec{ClusterIP: "10.96.0.7", Selector: map[string]string{"app": "echo"}, Ports: []corev1.ServicePort{{Name: "http", Port: 8080}}},
	}}
	l, err := net.Listen("unix", e.socket)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	answer := func(pattern string, with func(*http.Request) any) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			e.mu.Lock()
			defer e.mu.Unlock()
			_ = json.NewEncoder(w).Encode(with(r))
		})
	}
	answer("GET /v1/status", func(*http.Request) any { return e.status() })
	answer("GET /v1/objects", func(r *http.Request) any { return e.list(r.FormValue("kind")) })
	answer("GET /v1/usage", func(*http.Request) any { return api.Usage{} })
	answer("POST /v1/apply", func(*http.Request) any { return api.ApplyResult{} })
	server := &http.Server{Handler: mux}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { server.Close() })
	return e
}

func (e *fakeEngine) Start(context.Context, EngineOptions, func(api.Event)) error { return nil }
func (e *fakeEngine) Stop(context.Context, string, func(api.Event)) error         { e.stopped++; return nil }
func (e *fakeEngine) Client(mesh string) *api.Client                              { return api.NewAt(mesh, e.socket) }

// podOf is a pod's name, as a Deployment gives it.
func podOf(app string) string { return app + "-abc-1" }

func (e *fakeEngine) status() api.Status {
	var s api.Status
	for i, app := range []string{"client", "echo"} {
		if cmd := e.pods[app]; cmd != nil {
			s.Pods = append(s.Pods, api.PodState{
				Namespace: "default", Name: podOf(app), Node: fmt.Sprintf("n%d", i+1), IP: fmt.Sprintf("10.244.%d.2", i+1), Ready: true,
				Identity: "spiffe://cluster.local/ns/default/sa/" + app, Containers: []api.ContainerState{{Process: api.Process{PID: cmd.Process.Pid}}},
			})
		}
	}
	return s
}

func (e *fakeEngine) list(kind string) api.ObjectList {
	objects := e.objects[kind]
	if kind == "Pod" {
		for app := range e.pods {
			objects = append(objects, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: podOf(app), Labels: map[string]string{"app": app}}})
		}
	}
	var list api.ObjectList
	for _, o := range objects {
		raw, err := json.Marshal(o)
		if err != nil {
			e.t.Error(err)
		}
		list.Items = append(list.Items, api.Object{Raw: raw})
	}
	return list
}

func (e *fakeEngine) change(f func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	f()
}

// stage is a plane whose Envoy is the stand-in, and the directory that everything of it is in.
func stage(t *testing.T, e *fakeEngine) (*Sidecars, string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "lateen-pair-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "envoy")
	if err := errors.Join(os.Chmod(dir, 0o755), os.WriteFile(program, text, 0o755)); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", dir)
	return NewSidecars(e, "mesh", "envoy", program, envoy.Settings{Protocol: envoy.HTTP2}), dir
}

// leftovers are the directories of proxies.
func leftovers(t *testing.T, dir string) []string {
	t.Helper()
	left, err := filepath.Glob(filepath.Join(dir, "lateen-lab-*"))
	if err != nil {
		t.Fatal(err)
	}
	return left
}

// proxies are the pids of a bench's proxies by app.
func proxies(t *testing.T, b Bench) map[string]int {
	t.Helper()
	list, err := b.Processes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	pids := map[string]int{}
	for _, p := range list {
		if p.Role == results.RoleProxies {
			app, _, _ := strings.Cut(strings.TrimPrefix(p.Name, "default/"), "-")
			pids[app] = p.PID
		}
	}
	return pids
}

func alive(pid int) bool { return syscall.Kill(pid, 0) == nil }

func TestEachPodHasAProxyThatFollowsTheObjects(t *testing.T) {
	e := newFakeEngine(t, "client", "echo")
	plane, dir := stage(t, e)
	b, err := plane.Start(t.Context(), Topology{Nodes: 2, Generator: "deploy/client", Workers: 2}, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	down := sync.OnceFunc(func() {
		if err := b.Down(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	defer down()
	if v := plane.Describe().Version; v != "1.2.3" {
		t.Errorf("version %q", v)
	}
	first := proxies(t, b)
	for app, cmd := range e.pods {
		own, err := netns.Identify(fmt.Sprintf("/proc/%d/ns/net", cmd.Process.Pid))
		if err != nil {
			t.Fatal(err)
		}
		if is, err := netns.Identify(fmt.Sprintf("/proc/%d/ns/net", first[app])); err != nil || is != own {
			t.Errorf("the proxy of %s is in %v (%v), want its pod's %v", app, is, err, own)
		}
	}
	if n, known, err := b.Carried(t.Context()); n != 10 || !known || err != nil {
		t.Errorf("carried %d (%v, %v), want both proxies' 3 requests and 2 connections", n, known, err)
	}
	if n, known, err := b.(Handshaker).Handshakes(t.Context()); n != 4 || !known || err != nil {
		t.Errorf("%d handshakes (%v, %v), want both proxies' 2", n, known, err)
	}
	shares, err := b.(Balanced).Workers(t.Context())
	if err != nil || !slices.Equal(shares[results.Outbound], []float64{4, 8}) || !slices.Equal(shares[results.Inbound], []float64{1, 2}) {
		t.Errorf("workers %v (%v), want the client's outbound and the server's inbound ones", shares, err)
	}

	e.change(func() {
		e.objects["AuthorizationPolicy"] = []any{json.RawMessage(`{"metadata":{"name":"p","namespace":"default"},
			"spec":{"selector":{"matchLabels":{"app":"echo"}},"rules":[{"from":[{"source":{"principals":["cluster.local/ns/default/sa/client"]}}]}]}}`)}
	})
	if err := b.Apply(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	second := proxies(t, b)
	if second["client"] != first["client"] || second["echo"] == first["echo"] || alive(first["echo"]) {
		t.Errorf("a policy for echo: the proxies were %v and are %v: want echo's alone started anew", first, second)
	}

	e.change(func() {
		e.objects["AuthorizationPolicy"] = []any{json.RawMessage(`{"metadata":{"name":"p","namespace":"default"},"spec":{"action":"DENY"}}`)}
	})
	if err := b.Apply(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "action DENY") {
		t.Errorf("a policy that is not understood: %v", err)
	}
	if now := proxies(t, b); now["client"] != second["client"] || now["echo"] != second["echo"] {
		t.Errorf("what was refused has changed the proxies: %v, %v", second, now)
	}

	e.change(func() { e.objects["AuthorizationPolicy"] = nil; delete(e.pods, "echo") })
	if err := b.Apply(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	third := proxies(t, b)
	if third["echo"] != 0 || alive(second["echo"]) || third["client"] == 0 {
		t.Errorf("echo's pod is gone: the proxies are %v, and its own lives: %v", third, alive(second["echo"]))
	}

	// Nothing is asked of the pods to take their proxies down.
	_ = e.pods["client"].Process.Kill()
	down()
	if alive(third["client"]) || len(leftovers(t, dir)) > 0 || e.stopped != 1 {
		t.Errorf("taken down: a proxy lives: %v, left are %v, meshes ended: %d", alive(third["client"]), leftovers(t, dir), e.stopped)
	}
}

func TestAPairThatDoesNotComeUpLeavesNothing(t *testing.T) {
	e := newFakeEngine(t, "client", "echo")
	plane, dir := stage(t, e)
	if err := os.WriteFile(filepath.Join(dir, "refuse"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	b, err := plane.Start(t.Context(), Topology{Nodes: 2, Generator: "deploy/client"}, func(string) {})
	if err == nil || b != nil || !strings.Contains(err.Error(), "the stand-in refuses to come up") {
		t.Errorf("started %v, %v", b, err)
	}
	if len(leftovers(t, dir)) > 0 || e.stopped != 1 {
		t.Errorf("left are %v, meshes ended: %d", leftovers(t, dir), e.stopped)
	}
}

// A pod whose init has ended has no namespace that a proxy could be put in.
func TestAPodThatIsGoneEndsTheStart(t *testing.T) {
	e := newFakeEngine(t, "client", "echo")
	plane, dir := stage(t, e)
	_ = e.pods["echo"].Process.Kill()
	_ = e.pods["echo"].Wait()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	b, err := plane.Start(ctx, Topology{Nodes: 2, Generator: "deploy/client"}, func(string) {})
	if err == nil || b != nil || !strings.Contains(err.Error(), "pod default/"+podOf("echo")) {
		t.Errorf("started %v, %v", b, err)
	}
	if len(leftovers(t, dir)) > 0 || e.stopped != 1 {
		t.Errorf("left are %v, meshes ended: %d", leftovers(t, dir), e.stopped)
	}
}
