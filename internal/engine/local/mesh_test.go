package local

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"lateen.dev/lateen/internal/engine/api"
)

// programs is a directory with the test binary under the names of the mesh's programs.
var (
	programs     string
	programsOnce sync.Once
)

func binDir(t *testing.T) string {
	t.Helper()
	programsOnce.Do(func() {
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		dir, err := os.MkdirTemp("", "lateen-programs-")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(self)
		if err != nil {
			t.Fatal(err)
		}
		first := filepath.Join(dir, helperBinary)
		if err := os.WriteFile(first, b, 0o755); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{controlBinary, agentBinary, proxyBinary} {
			if err := os.Link(first, filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		}
		programs = dir
	})
	if programs == "" {
		t.Fatal("the directory of programs could not be made")
	}
	return programs
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("this test makes a mesh of network namespaces and needs root: run it with sudo")
	}
}

const strayFile = "/etc/hosts"

// mesh is a running mesh with shorthands.
type mesh struct {
	*testing.T
	*Handle
	dir string // of the manifests
}

func meshFor(t *testing.T) string {
	return fmt.Sprintf("t%d-%d", os.Getpid()%100000, time.Now().UnixNano()%1000000)
}

func up(t *testing.T) *mesh {
	t.Helper()
	needRoot(t)
	name := meshFor(t)
	// A file that the engine inherits unless it takes care.
	stray, err := unix.Open(strayFile, unix.O_RDONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(stray)
	var events []string
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	h, err := Start(ctx, Options{Mesh: name, Nodes: 2, BinDir: binDir(t), Version: "4.5.6"}, func(e api.Event) { events = append(events, e.Phase+":"+string(e.State)) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// The engine is another process: what its race detector says is only in its log.
		if log, err := os.ReadFile(runDir(h.RunDir).engineLog()); err == nil && (bytes.Contains(log, []byte("DATA RACE")) || bytes.Contains(log, []byte("panic"))) {
			t.Errorf("the engine's log:\n%s", log)
		}
		if t.Failed() {
			for _, l := range tail(runDir(h.RunDir).engineLog(), 40) {
				t.Log("engine:", l)
			}
		}
		if err := Down(context.Background(), name, nil); err != nil && !errors.Is(err, api.ErrNotRunning) {
			t.Error(err)
		}
	})
	if want := "network:started network:done control:started control:done agents:started agents:done proxies:started proxies:done ready:done"; strings.Join(events, " ") != want {
		t.Errorf("events %s, want %s", strings.Join(events, " "), want)
	}
	return &mesh{T: t, Handle: h, dir: t.TempDir()}
}

// eventually waits until f no longer complains.
func (m *mesh) eventually(what string, f func() error) {
	m.Helper()
	var err error
	for deadline := time.Now().Add(90 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if err = f(); err == nil {
			return
		}
	}
	m.Fatalf("%s: %v", what, err)
}

func (m *mesh) apply(text string) api.ApplyResult {
	m.Helper()
	res, err := m.Client.Apply(m.Context(), api.ApplyRequest{Documents: []api.Document{{File: "test.yaml", Dir: m.dir, Data: []byte(text)}}})
	if err != nil {
		m.Fatal(err)
	}
	return res
}

func (m *mesh) applied(text string) api.ApplyResult {
	m.Helper()
	res := m.apply(text)
	if len(res.Problems) > 0 {
		m.Fatalf("problems: %v", res.Problems)
	}
	return res
}

func (m *mesh) exec(target string, args ...string) (string, int) {
	m.Helper()
	var out bytes.Buffer
	code, err := m.Client.Exec(m.Context(), api.ExecRequest{Target: target, Command: args}, api.Streams{Stdout: &out, Stderr: &out})
	if err != nil {
		m.Fatalf("exec %v in %s: %v", args, target, err)
	}
	return out.String(), code
}

func (m *mesh) pods(selector string) []corev1.Pod {
	m.Helper()
	list, err := m.Client.Get(m.Context(), api.GetRequest{Kind: "pods", Selector: selector})
	if err != nil {
		m.Fatal(err)
	}
	var out []corev1.Pod
	for _, o := range list.Items {
		var p corev1.Pod
		if err := json.Unmarshal(o.Raw, &p); err != nil {
			m.Fatal(err)
		}
		out = append(out, p)
	}
	return out
}

func readyPods(pods []corev1.Pod) int {
	n := 0
	for _, p := range pods {
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
				n++
			}
		}
	}
	return n
}

func (m *mesh) awaitReady(selector string, n int) []corev1.Pod {
	m.Helper()
	var pods []corev1.Pod
	m.eventually(selector+" ready", func() error {
		pods = m.pods(selector)
		if len(pods) != n || readyPods(pods) != n {
			var why []string
			for _, p := range pods {
				why = append(why, fmt.Sprintf("%s %s %v", p.Name, p.Status.Phase, p.Status.Conditions))
			}
			return fmt.Errorf("%d of %d pods ready, want %d: %s", readyPods(pods), len(pods), n, strings.Join(why, "; "))
		}
		return nil
	})
	return pods
}

const accounts = `
apiVersion: v1
kind: ServiceAccount
metadata: {name: web}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: client}
`

const webAndClient = accounts + `
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{name: http, port: 80, targetPort: http}]}
---
apiVersion: v1
kind: Service
metadata: {name: web-pods}
spec: {clusterIP: None, selector: {app: web}, ports: [{port: 8080}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      serviceAccountName: web
      terminationGracePeriodSeconds: 5
      containers:
      - name: web
        image: example/web:1
        command: [lateen-helper, serve, "8080"]
        env: [{name: VERSION, value: one}]
        ports: [{name: http, containerPort: 8080}]
        readinessProbe: {httpGet: {path: /health, port: http}, periodSeconds: 1, timeoutSeconds: 15, failureThreshold: 1}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: client}
spec:
  selector: {matchLabels: {app: client}}
  template:
    metadata: {labels: {app: client}}
    spec:
      serviceAccountName: client
      nodeSelector: {lateen.dev/node-index: "1"}
      containers:
      - {name: client, image: example/client:1, command: [sleep, infinity]}
`

func TestMesh(t *testing.T) {
	m := up(t)
	m.applied(webAndClient)
	web := m.awaitReady("app=web", 2)
	m.awaitReady("app=client", 1)
	// In this order: later ones change what is there.
	for _, test := range []struct {
		name string
		run  func(*mesh)
	}{
		{"a second up is told that the mesh runs", secondUp},
		{"replicas are spread over the nodes", func(m *mesh) {
			if web[0].Spec.NodeName == web[1].Spec.NodeName {
				m.Errorf("both replicas are on %s", web[0].Spec.NodeName)
			}
		}},
		{"cluster IP and names", clusterIPAndNames},
		{"a pod has no privileges and sees no keys", confinement},
		{"one unix user per service account", users},
		{"exec", execSessions},
		{"a terminal", terminal},
		{"logs", logs},
		{"port-forward", portForward},
		{"usage and status", usageAndStatus},
		{"capture", captures},
		{"readiness follows the probe", readiness},
		{"a killed container starts again", restarts},
		{"a rolling update fails no request", rollingUpdate},
		{"scale", scale},
		{"bad input", badInput},
		{"merging", merging},
		{"dry runs change nothing", dryRuns},
		{"annotations of a pod", podAnnotations},
		{"logs of a time and of a run", logParts},
		{"a grace period of the request's own", ownGrace},
		{"conditions are of one version", versions},
		{"init containers, manifest directory and fields", podFeatures},
		{"a pod that cannot run says why", brokenPods},
		{"an enrolled pod waits for capture", enrolment},
		{"pods on the node's network", hostNetwork},
		{"pods with names of their own", podNames},
		{"long names", longNames},
		{"what is killed comes back", casualties},
		{"the engine holds nothing of its caller's", inherited},
		{"reports reach the control plane's directory", reports},
		{"only the mesh says that a pod is captured", onlyTheMeshSaysCaptured},
		{"delete", deletion},
		{"namespaces", namespaces},
	} {
		if !t.Run(test.name, func(t *testing.T) { test.run(&mesh{T: t, Handle: m.Handle, dir: m.dir}) }) {
			return
		}
	}
}

func secondUp(m *mesh) {
	if v, err := m.Client.Version(m.Context()); err != nil || v.Version != "4.5.6" {
		m.Errorf("version %+v, %v; want that of the program that started it", v, err)
	}
	_, err := Start(m.Context(), Options{Mesh: m.Mesh, Nodes: 1, BinDir: binDir(m.T)}, nil)
	if err == nil || !strings.Contains(err.Error(), "runs already") || !strings.Contains(err.Error(), "lateen down --name "+m.Mesh) {
		m.Errorf("got %v", err)
	}
}

// inNode fetches a page from inside a node's namespace, which the host sees through the engine's root.
