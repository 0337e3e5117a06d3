package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"lateen.dev/lateen/internal/check"
	"lateen.dev/lateen/internal/cli/term"
	"lateen.dev/lateen/internal/engine/api"
)

const clientID, detailsID, echoID = "spiffe://cluster.local/ns/default/sa/client", "spiffe://cluster.local/ns/default/sa/details", "spiffe://cluster.local/ns/default/sa/echo"

// stageMesh behaves like a mesh as far as the demonstration can see: what is enrolled is counted as meshed, what a
// policy denies fails and is logged.
type stageMesh struct {
	mu       sync.Mutex
	running  bool
	applied  []string
	looks    int // at the pods of Bookinfo
	enrolled bool
	denied   bool
	opened   map[string]int // meshed connections by destination identity
	log      []string
	cpu      uint64

	restarts   int  // of a pod's process, after enrolment
	leak       bool // plaintext on new connections after enrolment
	failOn     string
	onEnrolled func()
}

func (m *stageMesh) Version(context.Context) (api.Version, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.running {
		return api.Version{}, api.ErrNotRunning
	}
	return api.Version{Mesh: "demo", Version: "test"}, nil
}

func (m *stageMesh) Apply(_ context.Context, r api.ApplyRequest) (api.ApplyResult, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, d := range r.Documents {
		m.applied = append(m.applied, filepath.Base(d.File))
		if m.failOn == filepath.Base(d.File) {
			return api.ApplyResult{Problems: []api.Problem{{File: d.File, Line: 3, Message: "unknown field"}}}, nil
		}
		if strings.Contains(string(d.Data), "AuthorizationPolicy") {
			m.denied = true
		}
	}
	return api.ApplyResult{}, nil
}

func (m *stageMesh) Delete(_ context.Context, r api.DeleteRequest) (api.ApplyResult, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(r.Keys) == 1 && r.Keys[0].Name == denyName {
		m.denied = false
	}
	return api.ApplyResult{}, nil
}

func (m *stageMesh) Label(_ context.Context, key api.Key, labels map[string]*string) (api.ObjectResult, error) {
	m.mu.Lock()
	m.enrolled = labels["istio.io/dataplane-mode"] != nil
	hook := m.onEnrolled
	m.mu.Unlock()
	if hook != nil {
		hook()
	}
	return api.ObjectResult{Key: key}, nil
}

func (m *stageMesh) Status(ctx context.Context) (api.Status, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return api.Status{}, err
	}
	one := func(name, node, identity string) api.PodState {
		p := api.PodState{
			Namespace: "default", Name: name, Node: node, Identity: identity, Ready: true, Redirection: m.enrolled,
			Containers: []api.ContainerState{{Name: "main", Process: api.Process{PID: len(name), StartTime: 5}}},
		}
		if m.enrolled && m.restarts > 0 {
			p.Containers[0].Restarts = m.restarts
		}
		return p
	}
	details := one("details-v1-a", "n2", detailsID)
	if m.enrolled {
		details.Unmeshed = []api.Conn{{Local: "10.244.2.2:9080", Remote: "10.244.1.2:40000", Direction: "inbound"}}
	}
	pods := []api.PodState{one("client-a", "n1", clientID), one("echo-a", "n2", echoID), {Namespace: "istio-system", Name: "ztunnel-n1", HostNetwork: true}}
	if slices.Contains(m.applied, "bookinfo.yaml") {
		pods = append(pods, details)
		// The others come a moment later, as an engine makes them.
		if m.looks++; m.looks > 2 {
			for _, app := range []string{"productpage", "ratings", "reviews"} {
				pods = append(pods, one(app+"-v1-a", "n2", detailsID))
			}
		}
	}
	return api.Status{Nodes: []api.NodeState{{Name: "n1"}, {Name: "n2"}}, Pods: pods}, nil
}

func (m *stageMesh) Usage(context.Context) (api.Usage, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return api.Usage{Components: []api.ComponentUsage{{Kind: "proxy", Name: "n1", CPUNanos: m.cpu}, {Kind: "proxy", Name: "n2", CPUNanos: m.cpu}}}, nil
}

func (m *stageMesh) Exec(ctx context.Context, r api.ExecRequest, s api.Streams) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	flags := map[string]string{}
	for i, arg := range r.Command {
		if strings.HasPrefix(arg, "--") && i+1 < len(r.Command) {
			flags[arg] = r.Command[i+1]
		}
	}
	qps, err := strconv.Atoi(flags["--qps"])
	if err != nil {
		return 0, err
	}
	duration, err := time.ParseDuration(flags["--duration"])
	if err != nil {
		return 0, err
	}
	connections, err := strconv.Atoi(flags["--connections"])
	if err != nil {
		return 0, err
	}
	n := int(float64(qps) * duration.Seconds())
	if slices.Contains(r.Command, "--no-keepalive") {
		connections = n
	}
	to := detailsID
	if strings.Contains(flags["--url"], "echo") {
		to = echoID
	}
	result := map[string]any{
		"format": "lateen-load/1", "counts": map[string]int{"ok": n}, "rates": map[string]int{"wanted_qps": qps, "achieved_qps": qps},
		"response_time": map[string]any{"count": n, "avg": 0.5, "p50": 0.4, "p75": 0.5, "p90": 0.6, "p99": 1.5},
	}
	switch {
	case m.denied:
		result["counts"], result["errors"] = map[string]int{"failed": n}, map[string]int{"closed": n}
		m.log = append(m.log, denied)
	case m.enrolled:
		m.opened[to] += connections
		m.cpu += uint64(n) * 60_000
		result["response_time"] = map[string]any{"count": n, "avg": 0.6, "p50": 0.5, "p75": 0.6, "p90": 0.7, "p99": 1.8}
	}
	text, err := json.Marshal(result)
	if err != nil {
		return 0, err
	}
	_, err = s.Stdout.Write(text)
	return 0, err
}

func (m *stageMesh) ProxyLog(_ context.Context, node string, _ bool, _ int) (io.ReadCloser, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if node != "n2" {
		return io.NopCloser(strings.NewReader("")), nil
	}
	return io.NopCloser(strings.NewReader("starting\n" + strings.Join(m.log, "\n"))), nil
}

func (m *stageMesh) ProxyMetrics(_ context.Context, node string) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var page string
	reporter := map[string]string{"n1": "source", "n2": "destination"}[node]
	for to, n := range m.opened {
		page += series(metricOpened, reporter, clientID, to, "mutual_tls", n)
	}
	return []byte(page), nil
}

func (m *stageMesh) Capture(context.Context, api.CaptureRequest) (api.CaptureReport, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	request := []byte("GET /details/0 HTTP/1.1\r\nHost: details\r\n\r\n")
	old := api.CapturedConn{Src: "10.244.1.2:40000", Dst: "10.244.2.2:9080", SrcPod: "default/client-a", DstPod: "default/details-v1-a", Port: 9080, Class: api.ClassHTTP, Sample: request}
	fresh := old
	fresh.Src, fresh.SawSYN = "10.244.1.2:40001", true
	tunnel := api.CapturedConn{Src: "10.243.0.11:50000", Dst: "10.244.2.2:15008", SrcNode: "n1", DstPod: "default/details-v1-a", Port: 15008, Class: api.ClassTLS, Records: 99}
	switch {
	case !m.enrolled:
		return api.CaptureReport{Packets: 100, Connections: []api.CapturedConn{old, fresh}}, nil
	case m.leak:
		return api.CaptureReport{Packets: 100, Connections: []api.CapturedConn{old, tunnel, fresh}}, nil
	}
	return api.CaptureReport{Packets: 100, Connections: []api.CapturedConn{old, tunnel}}, nil
}

// fitMachine is a System on which every check passes, but for the commands that are missing.
type fitMachine struct {
	uid     int
	missing string
}

func (f fitMachine) EffectiveUID() int { return f.uid }
func (f fitMachine) Output(_ context.Context, command []string) (string, error) {
	if command[0] == f.missing {
		return "", check.ErrNotFound
	}
	return "99.0.0", nil
}
func (fitMachine) AvailableMemoryMiB() (uint64, error)                    { return 1 << 20, nil }
func (fitMachine) FreeDiskMiB() (uint64, string, error)                   { return 1 << 20, "/", nil }
func (fitMachine) ProgramDir() (string, error)                            { return "/opt/bin", nil }
func (fitMachine) IsExecutable(string) bool                               { return true }
func (fitMachine) ProbeKernel(context.Context, check.KernelFeature) error { return nil }

// play is one run of the demonstration and what came of it.
type play struct {
	mesh    *stageMesh
	machine fitMachine
	options Options
	upError error
	ups     int
	downs   int
	out     bytes.Buffer
}

func newPlay(t *testing.T) *play {
	t.Helper()
	samples := t.TempDir()
	for _, name := range []string{"echo/echo.yaml", "bookinfo/bookinfo.yaml"} {
		file := filepath.Join(samples, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte("kind: Service\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return &play{
		mesh:    &stageMesh{opened: map[string]int{}},
		options: Options{Name: "demo", Samples: samples, Pairs: 2, Block: time.Second, Deadline: 3 * time.Second},
	}
}

func (p *play) run(ctx context.Context) error {
	return Run(ctx, Stage{
		Mesh: p.mesh, System: p.machine, Cores: 2, Busy: func() (time.Duration, error) { return 0, nil }, Out: &p.out, Progress: term.NewProgress(io.Discard, term.Style{}),
		Up: func(context.Context, func(api.Event)) error {
			p.ups++
			p.mesh.running = p.upError == nil
			return p.upError
		},
		Down: func(ctx context.Context, _ func(api.Event)) error {
			p.downs++
			p.mesh.running = false
			return ctx.Err()
		},
	}, p.options)
}

func (p *play) mustSay(t *testing.T, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if !strings.Contains(p.out.String(), text) {
			t.Errorf("does not say %q:\n%s", text, p.out.String())
		}
	}
}

func TestTheWholePlay(t *testing.T) {
	defer goleak.VerifyNone(t)
	p := newPlay(t)
	p.options.JSON = filepath.Join(t.TempDir(), "results.json")
	if err := p.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.mustSay(t, "2 of 2 connections are readable", "GET /details/0 HTTP/1.1", "0 of 1920 requests failed", "No process was restarted",
		"one of 99 TLS records", "1 connection opened before enrolment", "No connection opened after enrolment carried anything readable",
		"ns/default/sa/client   ns/default/sa/details   yes", "explicitly denied by", "details: 100 requests/s", "echo: 1000 requests/s",
		Mark, "What this shows", "added 0.10 ms (25 %)", "120 µs of CPU time per request", "Nothing of the mesh is left")
	if p.ups != 1 || p.downs != 1 {
		t.Errorf("%d times up, %d times down", p.ups, p.downs)
	}
	text, err := os.ReadFile(p.options.JSON)
	if err != nil {
		t.Fatal(err)
	}
	var results Results
	if err := json.Unmarshal(text, &results); err != nil {
		t.Fatal(err)
	}
	if len(results.Blocks) != 8 || len(results.Comparisons) != 2 || results.Denial == nil || results.Denial.Answered != 0 ||
		results.Denial.After == 0 || results.Enrolment == nil || !results.Enrolment.UnderLoad || results.Paragraph == "" {
		t.Errorf("results are incomplete: %s", text)
	}
	for _, b := range results.Blocks {
		if b.Fault != "" {
			t.Errorf("%s round %d: %s", b.Target, b.Round, b.Fault)
		}
	}
}

func TestWithoutAnInterpreterTheEchoServiceStandsIn(t *testing.T) {
	p := newPlay(t)
	p.machine.missing = "ruby"
	if err := p.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.mustSay(t, "ruby is not in PATH", "apt-get install ruby", "echo service stands in", "echo: 1000 requests/s")
	if slices.Contains(p.mesh.applied, "bookinfo.yaml") || strings.Contains(p.out.String(), "details: 100") {
		t.Error("Bookinfo was used nevertheless")
	}
}

func TestWhatIsNotAsItShouldBeIsSaid(t *testing.T) {
	p := newPlay(t)
	p.mesh.restarts, p.mesh.leak = 1, true
	if err := p.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.mustSay(t, "are not the ones from before: client-a/main", "not listed as older: 1 connection")
	if strings.Contains(p.out.String(), "No process was restarted") || strings.Contains(p.out.String(), "No connection opened after") {
		t.Error("claims what did not happen")
	}
}

func TestAnInterruptTakesTheMeshDown(t *testing.T) {
	defer goleak.VerifyNone(t)
	p := newPlay(t)
	p.options.Keep = true
	ctx, cancel := context.WithCancel(t.Context())
	p.mesh.onEnrolled = cancel
	if err := p.run(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if p.downs != 1 {
		t.Errorf("%d times down", p.downs)
	}
}

func TestAFailureTakesTheMeshDownAndKeepsWhatWasFound(t *testing.T) {
	p := newPlay(t)
	p.mesh.failOn = "bookinfo.yaml"
	p.options.JSON = filepath.Join(t.TempDir(), "results.json")
	err := p.run(t.Context())
	if err == nil || !strings.Contains(err.Error(), "bookinfo.yaml:3: unknown field") || p.downs != 1 {
		t.Errorf("got %v, %d times down", err, p.downs)
	}
	if _, err := os.Stat(p.options.JSON); err != nil {
		t.Error(err)
	}
	p = newPlay(t)
	p.upError = fmt.Errorf("no proxy")
	if err := p.run(t.Context()); err == nil || p.downs != 1 {
		t.Errorf("a mesh that did not come up: %v, %d times down", err, p.downs)
	}
}

func TestNothingIsTouchedBeforeTheMachineIsFit(t *testing.T) {
	p := newPlay(t)
	p.machine.uid = 1000
	if err := p.run(t.Context()); !errors.Is(err, ErrUnfit) {
		t.Errorf("got %v", err)
	}
	p.mustSay(t, "LAT001")
	running := newPlay(t)
	running.mesh.running = true
	if err := running.run(t.Context()); err == nil || !strings.Contains(err.Error(), "lateen down --name demo") {
		t.Errorf("got %v", err)
	}
	if p.ups+p.downs+running.ups+running.downs != 0 {
		t.Error("a mesh was started or ended")
	}
}

func TestKeepLeavesTheMeshAndSaysWhatToTry(t *testing.T) {
	p := newPlay(t)
	p.options.Keep, p.options.Pairs = true, 2
	if err := p.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.mustSay(t, "lateen status --name demo", "port-forward", "lateen down --name demo")
	if p.downs != 0 || !p.mesh.enrolled {
		t.Errorf("%d times down, enrolled: %v", p.downs, p.mesh.enrolled)
	}
}
