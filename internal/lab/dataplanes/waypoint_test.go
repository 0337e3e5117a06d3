package dataplanes

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/yaml"

	"lateen.dev/lateen/internal/engine/api"
	"lateen.dev/lateen/internal/lab/results"
	"lateen.dev/lateen/internal/meshconfig"
	"lateen.dev/lateen/internal/waypoint"
)

// waypointEngine is a mesh whose control plane binds the service after so many questions.
type waypointEngine struct {
	socket string

	mu         sync.Mutex
	envoys     int    // configurations of an Envoy in the waypoint's place so far; its pod is replaced for each
	policy     string // an object of the namespace default, if any
	log        string // of the waypoint
	unsettled  bool   // the service's pod is not captured
	uncaptured bool   // neither is the waypoint's
	silent     bool   // the waypoint answers nothing about itself
	unbound    int    // questions that are still answered with "not yet"
	why        string
	generation uint64
	asked      []string
	stopped    int
}

func newWaypointEngine(t *testing.T, unbound int) *waypointEngine {
	e := &waypointEngine{socket: filepath.Join(t.TempDir(), "engine.sock"), unbound: unbound, why: "the waypoint is not ready"}
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
	change := func(r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		e.asked = append(e.asked, r.URL.Path+" "+string(body))
		e.generation++
	}
	answer("GET /v1/status", func(*http.Request) any { return e.status() })
	answer("GET /v1/objects", func(r *http.Request) any { return e.list(r.FormValue("kind")) })
	answer("GET /v1/control/debug/resources", func(*http.Request) any {
		return json.RawMessage(fmt.Sprintf(`[{"content": {"workload": {"namespace": "default", "name": "echo-abc-1", "tunnelProtocol": "HBONE"}}},
			{"content": {"workload": {"namespace": "waypoints", "name": "waypoint-abc-%d", "tunnelProtocol": "HBONE"}}}]`, e.envoys))
	})
	answer("POST /v1/apply", func(r *http.Request) any {
		change(r)
		if strings.Contains(e.asked[len(e.asked)-1], "lateen-lab-") {
			e.envoys++ // its pod sees a directory of the lab
		}
		return api.ApplyResult{}
	})
	mux.HandleFunc("GET /v1/nodes/n1/proxy/metrics", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "lateen_worker_connections{worker=\"0\"} 1\nlateen_worker_connections{worker=\"1\"} 2\nlateen_worker_connections{worker=\"2\"} 0\n")
	})
	mux.HandleFunc("GET /v1/logs", func(w http.ResponseWriter, r *http.Request) {
		e.asked = append(e.asked, r.URL.String())
		_, _ = io.WriteString(w, e.log)
	})
	answer("POST /v1/delete", func(r *http.Request) any { change(r); return api.ApplyResult{} })
	answer("POST /v1/patch", func(r *http.Request) any { change(r); return api.ObjectResult{} })
	answer("GET /v1/usage", func(*http.Request) any {
		return api.Usage{Components: []api.ComponentUsage{
			{Kind: "proxy", Name: "n1", PID: 11}, {Kind: "container", Name: "default/echo-abc-1/echo", PID: 12}, {Kind: "container", Name: "waypoints/waypoint-abc-1/istio-proxy", PID: 13},
		}}
	})
	mux.HandleFunc("POST /v1/connect", e.connect)
	server := &http.Server{Handler: mux}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { server.Close() })
	return e
}

func (e *waypointEngine) Start(context.Context, EngineOptions, func(api.Event)) error { return nil }
func (e *waypointEngine) Stop(context.Context, string, func(api.Event)) error {
	e.stopped++
	return nil
}
func (e *waypointEngine) Client(mesh string) *api.Client { return api.NewAt(mesh, e.socket) }

func (e *waypointEngine) status() api.Status {
	s := api.Status{
		Control: api.ControlState{Generation: e.generation},
		Nodes:   []api.NodeState{{Name: "n1", Proxy: api.ProxyState{AckedGeneration: e.generation, Version: "1.2.3"}}},
		Pods:    []api.PodState{{Namespace: "default", Name: "echo-abc-1", IP: "10.244.2.7", Ready: true, Redirection: !e.unsettled}},
	}
	if e.envoys > 0 {
		s.Pods = append(s.Pods, api.PodState{Namespace: "waypoints", Name: fmt.Sprintf("waypoint-abc-%d", e.envoys), Ready: true, Redirection: !e.uncaptured})
	}
	return s
}

func (e *waypointEngine) list(kind string) api.ObjectList {
	switch kind {
	case "Pod":
		return api.ObjectList{Items: []api.Object{{Raw: json.RawMessage(`{"metadata": {"namespace": "default", "name": "echo-abc-1", "labels": {"app": "echo"}}}`)}}}
	case "AuthorizationPolicy":
		if e.policy != "" {
			return api.ObjectList{Items: []api.Object{{Raw: json.RawMessage(e.policy)}}}
		}
		return api.ObjectList{}
	case "Service":
	default:
		return api.ObjectList{}
	}
	c := api.Condition{Type: "WaypointBound", Status: "True"}
	if e.unbound--; e.unbound >= 0 {
		c.Status, c.Message = "False", e.why
	}
	return api.ObjectList{Items: []api.Object{{Key: api.Key{Kind: "Service", Namespace: "default", Name: "echo"}, Raw: json.RawMessage(servedService), Conditions: []api.Condition{c}}}}
}

// connect is the waypoint's page of metrics, behind a connection into its pod.
func (e *waypointEngine) connect(w http.ResponseWriter, r *http.Request) {
	var to api.ConnectRequest
	pages := map[int]string{15020: servedPage, 15000: servedCounters}
	if err := json.NewDecoder(r.Body).Decode(&to); err != nil || e.silent || pages[to.Port] == "" || to.Namespace != "waypoints" || to.Target != "deploy/waypoint" {
		http.Error(w, fmt.Sprintf(`{"error": "asked for %+v"}`, to), http.StatusBadRequest)
		return
	}
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: lateen-stream\r\n\r\n")
	if _, err := http.ReadRequest(bufio.NewReader(buffered)); err != nil {
		return
	}
	_, _ = fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(pages[to.Port]), pages[to.Port])
}

const servedService = `{"metadata": {"namespace": "default", "name": "echo"}, "spec": {"clusterIP": "10.96.0.7", "selector": {"app": "echo"}, "ports": [{"name": "http", "port": 8080}]}}`

const servedCounters = `http.inbound_0.0.0.0_8080;.downstream_rq_completed: 40
http.inbound_0.0.0.0_8081;.downstream_rq_completed: 2
http.connect_terminate.downstream_rq_completed: 1000
http.inbound_0.0.0.0_8080;.downstream_rq_total: 1000
tcp.inbound-vip|9090|tcp|echo.default.svc.cluster.local.downstream_cx_total: 3
`

const servedPage = `# TYPE istio_requests counter
istio_requests_total{reporter="waypoint",response_code="200"} 5
istio_requests_total{reporter="waypoint",response_code="403"} 2
# TYPE istio_tcp_connections_opened counter
istio_tcp_connections_opened_total{reporter="waypoint"} 3
# TYPE istio_request_bytes counter
istio_request_bytes_total{reporter="waypoint"} 7000
`

func TestEveryServiceIsBehindTheWaypointBeforeItIsMeasured(t *testing.T) {
	e := newWaypointEngine(t, 3)
	plane, err := Maker{Engine: e, Prefix: "t"}.Plane(Spec{Name: "waypoint", Kind: results.KindWaypoint})
	if err != nil {
		t.Fatal(err)
	}
	b, err := plane.Start(t.Context(), Topology{Nodes: 2, Generator: "deploy/client"}, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	if e.unbound >= 0 {
		t.Errorf("%d questions before the service is bound", e.unbound+1)
	}
	if about := plane.Describe(); about.Kind != results.KindWaypoint || about.Version != "1.2.3" {
		t.Errorf("described as %+v", about)
	}
	if last := e.asked[len(e.asked)-1]; !strings.Contains(last, `"istio.io/use-waypoint":"waypoint","istio.io/use-waypoint-namespace":"waypoints"`) {
		t.Errorf("the last change was %s", last)
	}
	if n, known, err := b.Carried(t.Context()); n != 10 || !known || err != nil {
		t.Errorf("carried %d (%v, %v), want the waypoint's 7 requests and 3 connections", n, known, err)
	}
	if n, known, err := b.(Handshaker).Handshakes(t.Context()); known || err != nil {
		t.Errorf("%d handshakes (%v), which the node proxies do not count alone", n, err)
	}
	// What changes the services is in force when connections go through the waypoint again.
	e.mu.Lock()
	e.unbound = 2
	e.mu.Unlock()
	if err := b.Apply(t.Context(), nil); err != nil || e.unbound >= 0 {
		t.Errorf("applied: %v, %d questions before the service is bound", err, e.unbound+1)
	}
	if err := b.Down(t.Context()); err != nil || e.stopped != 1 {
		t.Errorf("taken down: %v, %d meshes ended", err, e.stopped)
	}
}

func TestTheWaypointIsOneOfTheProxiesAndToldApart(t *testing.T) {
	e := newWaypointEngine(t, 0)
	b := &waypointBench{&LocalBench{plane: NewWaypoint(e, "mesh", "waypoint", "").Local, topology: Topology{Generator: "deploy/client"}, client: e.Client("mesh")}}
	list, err := b.Processes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range list {
		got = append(got, fmt.Sprintf("%d %s %s", p.PID, p.Role, p.Part))
	}
	if want := []string{"11 proxies ", "12 app ", "13 proxies waypoint"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestAServiceThatIsNotBoundEndsTheStartWithTheReason(t *testing.T) {
	e := newWaypointEngine(t, 1<<30)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	b, err := NewWaypoint(e, "mesh", "waypoint", "").Start(ctx, Topology{Nodes: 2}, func(string) {})
	if err == nil || b != nil || !strings.Contains(err.Error(), "the waypoint of service echo: the waypoint is not ready") || e.stopped != 1 {
		t.Errorf("started %v, %v; %d meshes ended", b, err, e.stopped)
	}
}

// A run for the night would else stand still, and nobody would learn of what.
func TestAChangeThatNeverComesIntoForceEndsWithTheReason(t *testing.T) {
	whole := startTime
	t.Cleanup(func() { startTime = whole })
	startTime = 5 * time.Second
	e := newWaypointEngine(t, 0)
	b := &LocalBench{plane: NewWaypoint(e, "mesh", "waypoint", "").Local, client: e.Client("mesh"), enrolled: true}
	e.unsettled = true
	if err := b.Apply(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "gave up waiting for pod echo-abc-1 to be captured") {
		t.Errorf("applied: %v", err)
	}
}

// A comparison with node proxies means something if the waypoint has as many workers as they have.
func TestTheWaypointHasTheSettingsOfNodeProxies(t *testing.T) {
	plane := NewWaypoint(&refusing{}, "mesh", "waypoint", "")
	plane.set([]string{"A=plane", "B=x: 'y'"})
	env := plane.proxyEnv(Topology{Nodes: 2, Workers: 3, ProxyEnv: []string{"A=topology"}})
	document, err := waypointObjects(2, env)
	if err != nil {
		t.Fatal(err)
	}
	var in waypoint.Input
	for _, text := range bytes.Split(document.Data, []byte("---\n"))[1:] {
		var head struct{ Kind string }
		object := map[string]any{"Namespace": &corev1.Namespace{}, "ConfigMap": &corev1.ConfigMap{}, "Gateway": &gatewayv1.Gateway{}}
		if err := yaml.Unmarshal(text, &head); err != nil || object[head.Kind] == nil {
			t.Fatalf("%s: %v", text, err)
		}
		if err := yaml.UnmarshalStrict(text, object[head.Kind]); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		switch o := object[head.Kind].(type) {
		case *corev1.ConfigMap:
			if o.Namespace == rootNamespace {
				if mesh, err := meshconfig.Parse(o.Data[meshconfig.DataKey]); err != nil || mesh.Message.GetAccessLogFile() != "/dev/stdout" {
					t.Errorf("the mesh's settings are %v, %v", o.Data, err)
				}
				continue
			}
			in.Parameters = o
		case *gatewayv1.Gateway:
			in.Gateway = o
		}
	}
	objects, err := waypoint.Build(in)
	if err != nil {
		t.Fatal(err)
	}
	spec := objects.Deployment.Spec.Template.Spec
	if node := spec.NodeSelector["lateen.dev/node-index"]; node != "2" {
		t.Errorf("the waypoint runs on node %q, want the server's", node)
	}
	got := map[string]string{}
	for _, v := range spec.Containers[0].Env {
		got[v.Name] = v.Value
	}
	for name, want := range map[string]string{"A": "plane", "B": "x: 'y'", workerThreads: "3", "GATEWAY_NAME": "waypoint"} {
		if got[name] != want {
			t.Errorf("%s is %q, want %q", name, got[name], want)
		}
	}
	if from := in.Gateway.Spec.Listeners[0].AllowedRoutes.Namespaces.From; *from != gatewayv1.NamespacesFromAll {
		t.Errorf("the listener admits namespaces %s", *from)
	}
	if _, err := waypointObjects(1, nil); err != nil {
		t.Error(err)
	}
}

func TestAPageThatIsNoMetricsIsAnError(t *testing.T) {
	if n, err := throughWaypoint([]byte("<html>")); err == nil {
		t.Errorf("read %d", n)
	}
	if n, err := throughWaypoint(nil); n != 0 || err != nil {
		t.Errorf("of a waypoint that has served nothing: %d, %v", n, err)
	}
	b := &waypointBench{&LocalBench{client: api.NewAt("mesh", filepath.Join(t.TempDir(), "none.sock"))}}
	if _, known, err := b.Carried(t.Context()); known || err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("of a mesh that is not there: known %v, %v", known, err)
	}
}
