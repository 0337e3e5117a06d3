package dataplanes

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/yaml"

	"lateen.dev/lateen/internal/engine/api"
	"lateen.dev/lateen/internal/lab/dataplanes/envoy"
	"lateen.dev/lateen/internal/lab/results"
	"lateen.dev/lateen/internal/waypoint"
)

// fakeEnvoy is a program that says a version.
func fakeEnvoy(t *testing.T) string {
	path := filepath.Join(t.TempDir(), "envoy")
	if err := os.WriteFile(path, []byte("#!/bin/sh\necho 'envoy  version: 0/1.2.3/x/y/z'\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// envoyPlane is a plane on an engine that is not there, with an authority of its own.
func envoyPlane(t *testing.T, e Engine, kind string) *EnvoyWaypoint {
	t.Helper()
	t.Setenv("TMPDIR", t.TempDir())
	spec, err := ParseSpec(kind + "=" + fakeEnvoy(t))
	if err != nil {
		t.Fatal(err)
	}
	plane, err := Maker{Engine: e, Prefix: "t"}.Plane(spec)
	if err != nil {
		t.Fatal(err)
	}
	w := plane.(*EnvoyWaypoint)
	w.authority = func(mesh string) (*envoy.Authority, error) {
		if mesh != "t-"+kind {
			return nil, fmt.Errorf("asked for mesh %s", mesh)
		}
		return envoy.NewAuthority(time.Now())
	}
	return w
}

// shownFiles are the files in the directory that the waypoint's pod sees.
func shownFiles(t *testing.T) map[string]os.FileMode {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(os.Getenv("TMPDIR"), "lateen-lab-*", "pod", "*"))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]os.FileMode{}
	for _, path := range found {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		files[filepath.Base(path)] = info.Mode().Perm()
	}
	return files
}

func TestAnEnvoyTakesTheWaypointsPlace(t *testing.T) {
	e := newWaypointEngine(t, 2)
	plane := envoyPlane(t, e, "envoy-waypoint")
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	b, err := plane.Start(ctx, Topology{Nodes: 2, Generator: "deploy/client"}, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	about := plane.Describe()
	if about.Kind != results.KindEnvoyWaypoint || about.Version != "1.2.3" || about.Settings["workers"] != "3" || !strings.Contains(about.Settings["without"], "stats.PluginConfig") || len(about.SHA256) != 64 {
		t.Errorf("described as %+v", about)
	}
	if e.unbound >= 0 {
		t.Errorf("%d questions before the service is bound", e.unbound+1)
	}
	// Nobody but the pod reaches the keys, which its user must be able to read.
	above, err := filepath.Glob(filepath.Join(os.Getenv("TMPDIR"), "lateen-lab-*"))
	if err != nil || len(above) != 1 {
		t.Fatalf("directories %v, %v", above, err)
	}
	if info, err := os.Stat(above[0]); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the directory above is open: %v, %v", info.Mode(), err)
	}
	files := shownFiles(t)
	for name, mode := range map[string]os.FileMode{"envoy": 0o755, "envoy-1.json": 0o644, envoy.KeyFile: 0o644, envoy.CertificateFile: 0o644, envoy.RootsFile: 0o644} {
		if files[name] != mode {
			t.Errorf("%s has mode %v, want %v", name, files[name], mode)
		}
	}
	config, err := os.ReadFile(filepath.Join(above[0], "pod", "envoy-1.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"10.244.2.7:8080"`, `"address_prefix": "10.96.0.7"`, `"/run/lateen/manifest/key.pem"`} {
		if !bytes.Contains(config, []byte(want)) {
			t.Errorf("the configuration has no %s", want)
		}
	}
	if n, known, err := b.Carried(t.Context()); n != 45 || !known || err != nil {
		t.Errorf("carried %d (%v, %v), want 42 requests and 3 connections", n, known, err)
	}

	// The same world leaves the Envoy alone, another one replaces its pod.
	if err := b.Apply(ctx, nil); err != nil || e.envoys != 1 {
		t.Errorf("applied nothing: %v, %d configurations", err, e.envoys)
	}
	e.mu.Lock()
	e.policy, e.unbound = `{"metadata": {"namespace": "default", "name": "refuse"}, "spec": {"targetRefs": [{"kind": "Service", "group": "", "name": "echo"}], "action": "DENY", "rules": [{"to": [{"operation": {"paths": ["/private"]}}]}]}}`, 1
	e.mu.Unlock()
	if err := b.Apply(ctx, nil); err != nil || e.envoys != 2 || e.unbound >= 0 {
		t.Errorf("applied a policy: %v, %d configurations, %d questions before the service is bound", err, e.envoys, e.unbound+1)
	}
	if config, err = os.ReadFile(filepath.Join(above[0], "pod", "envoy-2.json")); err != nil || !bytes.Contains(config, []byte("ns[default]-policy[refuse]-rule[0]")) {
		t.Errorf("the policy is not in the configuration (%v)", err)
	}
	set := func(policy string) {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.policy, e.unbound = policy, 1
	}
	refuse := e.policy
	set("")
	if err := b.Delete(ctx, nil); err != nil || e.envoys != 3 || e.unbound >= 0 {
		t.Errorf("deleted the policy: %v, %d configurations, %d questions before the service is bound", err, e.envoys, e.unbound+1)
	}
	set(refuse)
	if err := b.Scale(ctx, "echo", 1); err != nil || e.envoys != 4 || e.unbound >= 0 {
		t.Errorf("scaled: %v, %d configurations, %d questions before the service is bound", err, e.envoys, e.unbound+1)
	}
	if err := b.Down(t.Context()); err != nil || e.stopped != 1 || len(shownFiles(t)) != 0 {
		t.Errorf("taken down: %v, %d meshes ended, left %v", err, e.stopped, shownFiles(t))
	}
}

func TestAnEnvoyThatCannotBeSetUpLeavesNothing(t *testing.T) {
	e := newWaypointEngine(t, 0)
	plane := envoyPlane(t, e, "envoy-waypoint")
	refused := errors.New("no authority")
	plane.authority = func(string) (*envoy.Authority, error) { return nil, refused }
	b, err := plane.Start(t.Context(), Topology{Nodes: 2}, func(string) {})
	if !errors.Is(err, refused) || b != nil || e.stopped != 1 || len(shownFiles(t)) != 0 {
		t.Errorf("started %v, %v; %d meshes ended, left %v", b, err, e.stopped, shownFiles(t))
	}
}

func TestThePodOfTheLastConfigurationIsAwaited(t *testing.T) {
	e := newWaypointEngine(t, 0)
	b := &envoyWaypointBench{waypointBench: &waypointBench{&LocalBench{plane: NewWaypoint(e, "mesh", "w", "").Local, client: e.Client("mesh")}}, plane: &EnvoyWaypoint{}}
	for _, c := range []struct {
		envoys int
		before []string
		want   string
	}{
		{0, nil, "the waypoint's pod"},
		{1, []string{"waypoint-abc-1"}, "the end of the waypoint's pod waypoint-abc-1"},
		{2, []string{"waypoint-abc-1"}, ""},
	} {
		e.mu.Lock()
		e.envoys = c.envoys
		e.mu.Unlock()
		if waiting, err := b.replaced(t.Context(), c.before); err != nil || waiting != c.want {
			t.Errorf("%d configurations, before %v: waits for %q (%v), want %q", c.envoys, c.before, waiting, err, c.want)
		}
	}
}

// envoyObjects are the objects of an Envoy in the waypoint's place.
func envoyObjects(t *testing.T, oneListener bool) (kinds []string, deployment appsv1.Deployment, service corev1.Service, gateway gatewayv1.Gateway) {
	t.Helper()
	b := &envoyWaypointBench{waypointBench: &waypointBench{&LocalBench{topology: Topology{Nodes: 2}}}, plane: &EnvoyWaypoint{oneListener: oneListener}, dir: "/some", workers: 3}
	document, err := b.objects("envoy-1.json")
	if err != nil {
		t.Fatal(err)
	}
	if document.Dir != "/some/pod" {
		t.Errorf("the pod sees %q", document.Dir)
	}
	for _, text := range bytes.Split(document.Data, []byte("---\n"))[1:] {
		var head struct{ Kind string }
		if err := json.Unmarshal(text, &head); err != nil {
			t.Fatal(err)
		}
		kinds = append(kinds, head.Kind)
		into := map[string]any{"Namespace": &corev1.Namespace{}, "ServiceAccount": &corev1.ServiceAccount{}, "Service": &service, "Deployment": &deployment, "Gateway": &gateway}[head.Kind]
		if err := yaml.UnmarshalStrict(text, into); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
	}
	return kinds, deployment, service, gateway
}

// Istio's class is nobody's to deploy in the local engine, so that the objects of the Gateway are those here and no others.
func TestTheObjectsOfAnEnvoyWaypoint(t *testing.T) {
	kinds, deployment, service, gateway := envoyObjects(t, false)
	if !slices.Equal(kinds, []string{"Namespace", "ServiceAccount", "Service", "Deployment", "Gateway"}) {
		t.Errorf("objects %v", kinds)
	}
	if waypoint.Serves(string(gateway.Spec.GatewayClassName), nil, false) || gateway.Spec.GatewayClassName != waypoint.IstioClass {
		t.Errorf("class %q would be deployed by the engine", gateway.Spec.GatewayClassName)
	}
	pod := deployment.Spec.Template
	if pod.Spec.NodeSelector["lateen.dev/node-index"] != "2" || pod.Labels["networking.istio.io/tunnel"] != "http" || pod.Labels["istio.io/dataplane-mode"] != "none" {
		t.Errorf("the pod has labels %v and runs on node %v", pod.Labels, pod.Spec.NodeSelector)
	}
	for key, value := range service.Spec.Selector {
		if pod.Labels[key] != value {
			t.Errorf("the service selects %s=%s, and the pod has %v", key, value, pod.Labels)
		}
	}
	command := strings.Join(pod.Spec.Containers[0].Command, " ")
	for _, want := range []string{"/run/lateen/manifest/envoy --config-path /run/lateen/manifest/envoy-1.json", "--concurrency 3", "--file-flush-interval-msec 1000"} {
		if !strings.Contains(command, want) {
			t.Errorf("the command %q has no %q", command, want)
		}
	}
	if probe := pod.Spec.Containers[0].ReadinessProbe; probe == nil || probe.TCPSocket.Port.IntValue() != waypoint.HBONEPort {
		t.Errorf("the probe is %v", probe)
	}
}

// The node proxy takes the tunnels of a pod that it captures. The control plane tells it by the Gateway's binding how the Envoy takes connections.
func TestAnEnvoyOfOneListenerIsBehindTheNodeProxy(t *testing.T) {
	e := newWaypointEngine(t, 0)
	plane := envoyPlane(t, e, "envoy-one-listener")
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	b, err := plane.Start(ctx, Topology{Nodes: 2, Generator: "deploy/client"}, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	about := plane.Describe()
	if about.Name != "envoy-one-listener" || about.Kind != results.KindEnvoyWaypoint || !strings.HasPrefix(about.Settings["listeners"], "one,") || !strings.Contains(about.Settings["without"], "connect_terminate") {
		t.Errorf("described as %+v", about)
	}
	found, _ := filepath.Glob(filepath.Join(os.Getenv("TMPDIR"), "lateen-lab-*", "pod", "envoy-1.json"))
	if config, err := os.ReadFile(found[0]); err != nil || !bytes.Contains(config, []byte("proxy_protocol")) || bytes.Contains(config, []byte("internal_listener")) {
		t.Errorf("the configuration is that of three listeners (%v)", err)
	}
	if err := b.Down(t.Context()); err != nil {
		t.Error(err)
	}

	_, deployment, _, gateway := envoyObjects(t, true)
	pod := deployment.Spec.Template
	if pod.Labels["istio.io/dataplane-mode"] != "ambient" || pod.Labels["networking.istio.io/tunnel"] != "" || gateway.Annotations["ambient.istio.io/waypoint-inbound-binding"] != "PROXY/15088" {
		t.Errorf("the pod has labels %v, the Gateway annotations %v", pod.Labels, gateway.Annotations)
	}
	if probe := pod.Spec.Containers[0].ReadinessProbe; probe != nil {
		t.Errorf("no probe reaches a loopback address: %v", probe)
	}
}

func TestTheCaptureOfAnEnvoyOfOneListenerIsAwaited(t *testing.T) {
	e := newWaypointEngine(t, 0)
	b := &envoyWaypointBench{waypointBench: &waypointBench{&LocalBench{plane: NewWaypoint(e, "mesh", "w", "").Local, client: e.Client("mesh")}}, plane: &EnvoyWaypoint{oneListener: true}}
	e.envoys, e.uncaptured = 1, true
	if waiting, err := b.replaced(t.Context(), nil); err != nil || !strings.Contains(waiting, "waypoint-abc-1 to be captured") {
		t.Errorf("waits for %q (%v)", waiting, err)
	}
	e.uncaptured, e.silent = false, true
	if waiting, err := b.replaced(t.Context(), nil); err != nil || !strings.Contains(waiting, "the Envoy in pod waypoint-abc-1") {
		t.Errorf("waits for %q (%v)", waiting, err)
	}
	e.silent = false
	if waiting, err := b.replaced(t.Context(), nil); err != nil || waiting != "" {
		t.Errorf("waits for %q (%v)", waiting, err)
	}
}

func TestLinesOfRequestsAreCountedFromATimeOn(t *testing.T) {
	since := time.Date(2026, 11, 27, 10, 0, 0, 500e6, time.UTC)
	log := strings.Join([]string{
		`[2026-11-27T10:00:00.499Z] "GET / HTTP/1.1" 200 - via_upstream`,
		`[2026-11-27T10:00:00.500Z] "GET / HTTP/1.1" 200 - via_upstream`,
		`[2026-11-27T10:00:01.000Z] "GET /` + strings.Repeat("x", 200_000) + ` HTTP/1.1" 200 - via_upstream`,
		`[2026-11-27 10:00:02.000][7][warning][main] a word of the proxy's own`,
		`[2026-11-27T10:00:02.000Z] warn a word of the proxy's own`,
		`level=info time=2026-11-27T10:00:02.000Z`,
		strings.Repeat("y", 64<<10) + `[2026-11-27T10:00:03.000Z] "a piece of a long line`,
		`[2026-11-27T10:00:03.000Z] "POST /half`, // the end of the log
	}, "\n")
	if n, err := accessLines(strings.NewReader(log), since); n != 3 || err != nil {
		t.Errorf("counted %d lines (%v), want 3", n, err)
	}
	if n, err := accessLines(strings.NewReader(log), since.Add(-time.Hour).In(time.FixedZone("east", 7200))); n != 4 || err != nil {
		t.Errorf("counted %d lines (%v) an hour earlier, want 4", n, err)
	}
	e := newWaypointEngine(t, 0)
	e.log = log
	b := &waypointBench{&LocalBench{client: e.Client("mesh")}}
	if n, err := b.Logged(t.Context(), since); n != 3 || err != nil || !strings.Contains(e.asked[0], "namespace=waypoints") || !strings.Contains(e.asked[0], "since=2026-11-27T10%3A00%3A00.5Z") {
		t.Errorf("counted %d lines (%v), asked %q", n, err, e.asked)
	}
	gone := &waypointBench{&LocalBench{client: api.NewAt("mesh", filepath.Join(t.TempDir(), "none.sock"))}}
	if _, err := gone.Logged(t.Context(), since); err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the log of a mesh that is not there: %v", err)
	}
}
