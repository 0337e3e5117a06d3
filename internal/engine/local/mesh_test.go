package local

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
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

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
	var events []string
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	h, err := Start(ctx, Options{Mesh: name, Nodes: 2, BinDir: binDir(t)}, func(e api.Event) { events = append(events, e.Phase+":"+string(e.State)) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
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
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
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
        readinessProbe: {httpGet: {path: /health, port: http}, periodSeconds: 1, failureThreshold: 1}
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
      nodeSelector: {lateen.io/node-index: "1"}
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
		{"init containers, manifest directory and fields", podFeatures},
		{"a pod that cannot run says why", brokenPods},
		{"an enrolled pod waits for capture", enrolment},
		{"reports reach the control plane's directory", reports},
		{"delete", deletion},
		{"namespaces", namespaces},
	} {
		if !t.Run(test.name, func(t *testing.T) { test.run(&mesh{T: t, Handle: m.Handle, dir: m.dir}) }) {
			return
		}
	}
}

func secondUp(m *mesh) {
	_, err := Start(m.Context(), Options{Mesh: m.Mesh, Nodes: 1, BinDir: binDir(m.T)}, nil)
	if err == nil || !strings.Contains(err.Error(), "runs already") || !strings.Contains(err.Error(), "lateen down --name "+m.Mesh) {
		m.Errorf("got %v", err)
	}
}

func clusterIPAndNames(m *mesh) {
	seen := map[string]bool{}
	for _, url := range []string{"http://web/", "http://web.default/", "http://web.default.svc.cluster.local/", "http://web-pods:8080/"} {
		for range 20 {
			out, code := m.exec("deploy/client", "lateen-helper", "get", url)
			if code != 0 {
				m.Fatalf("%s: %s", url, out)
			}
			host, _, _ := strings.Cut(out, " ")
			seen[host] = true
		}
	}
	if len(seen) != 2 {
		m.Errorf("80 requests reached %v, want both replicas", seen)
	}
	began := time.Now()
	if out, code := m.exec("deploy/client", "lateen-helper", "get", "http://nobody/"); code == 0 || !strings.Contains(out, "no such host") {
		m.Errorf("an unknown name: %q, code %d", out, code)
	}
	if took := time.Since(began); took > 4*time.Second {
		m.Errorf("an unknown name took %s to fail", took)
	}
	// Also for what runs on the node itself, without any pod.
	list, err := m.Client.Get(m.Context(), api.GetRequest{Kind: "svc", Name: "web"})
	if err != nil {
		m.Fatal(err)
	}
	var svc corev1.Service
	if err := json.Unmarshal(list.Items[0].Raw, &svc); err != nil {
		m.Fatal(err)
	}
	if c := list.Items[0].Conditions; len(c) != 1 || c[0].Type != "Accepted" {
		m.Errorf("conditions of the control plane: %+v", c)
	}
	for _, node := range []string{"n1", "n2"} {
		b, err := inNode(m, node, svc.Spec.ClusterIP+":80")
		if err != nil || !strings.HasPrefix(b, "web-") {
			m.Errorf("from %s: %q, %v", node, b, err)
		}
	}
}

// inNode fetches a page from inside a node's namespace, which the host sees through the engine's root.
func inNode(m *mesh, node, address string) (string, error) {
	ns := fmt.Sprintf("/proc/%d/root%s", m.PID, runDir(m.RunDir).netns(node))
	b, err := fetch(m.Context(), ns, address, "/")
	return string(b), err
}

func confinement(m *mesh) {
	out, _ := m.exec("deploy/client", "sh", "-c", "cat /proc/self/status")
	for _, want := range []string{`NoNewPrivs:\s+1\n`, `CapPrm:\s+0+\n`, `CapEff:\s+0+\n`, `CapBnd:\s+0+\n`, `CapInh:\s+0+\n`, `CapAmb:\s+0+\n`, `Groups:\s+\d{6}\s*\n|Groups:\s*\n`} {
		if !regexp.MustCompile(want).MatchString(out) {
			m.Errorf("no %q in\n%s", want, out)
		}
	}
	for _, secret := range []string{"control/root-key.pem", "nodes/n1/token", "engine.sock", "objects/user"} {
		path := runDir(m.RunDir).path(secret)
		if _, err := os.Stat(path); err != nil {
			m.Errorf("the test looks for the wrong file: %v", err)
		}
		if out, code := m.exec("deploy/client", "ls", "-la", path); code == 0 {
			m.Errorf("a pod sees %s: %s", path, out)
		}
	}
	if out, _ := m.exec("deploy/client", "ls", "/run/lateen"); out != "bin\nmanifest\n" {
		m.Errorf("a pod sees %q in /run/lateen", out)
	}
	for _, path := range []string{"/proc/1/environ", "/proc/1/mem", "/proc/1/root/etc/shadow"} {
		if out, code := m.exec("deploy/client", "cat", path); code == 0 {
			m.Errorf("a pod reads %s: %q", path, out)
		}
	}
	for _, change := range []string{"touch /run/lateen/bin/x", "touch /run/lateen/manifest/x", "touch /run/lateen/x", "mount -t tmpfs x /tmp", "umount /run/lateen", "kill -9 1"} {
		if out, code := m.exec("deploy/client", "sh", "-c", change); code == 0 {
			m.Errorf("a pod may %s: %q", change, out)
		}
	}
	// Its own processes only.
	out, _ = m.exec("deploy/client", "sh", "-c", "ls -d /proc/[0-9]* | wc -l")
	if n, err := strconv.Atoi(strings.TrimSpace(out)); err != nil || n > 6 {
		m.Errorf("a pod sees %q processes", out)
	}
	if _, err := os.Stat("/tmp/from-a-pod"); err == nil {
		m.Fatal("/tmp/from-a-pod is there before the test")
	}
	m.exec("deploy/client", "touch", "/tmp/from-a-pod")
	if _, err := os.Stat("/tmp/from-a-pod"); err == nil {
		m.Error("a pod's /tmp is the machine's")
	}
}

func users(m *mesh) {
	uid := func(target string) string {
		out, _ := m.exec(target, "id", "-u")
		return strings.TrimSpace(out)
	}
	web := m.pods("app=web")
	a, b, c := uid("pod/"+web[0].Name), uid("pod/"+web[1].Name), uid("deploy/client")
	if n, err := strconv.Atoi(a); err != nil || n < firstPodUID || a != b || a == c {
		m.Errorf("uids %s and %s of one account, %s of another", a, b, c)
	}
}

func execSessions(m *mesh) {
	if _, code := m.exec("deploy/client", "sh", "-c", "exit 7"); code != 7 {
		m.Errorf("code %d, want 7", code)
	}
	if _, code := m.exec("deploy/client", "sh", "-c", "kill -9 $$"); code != 137 {
		m.Errorf("code %d, want 137", code)
	}
	big := strings.Repeat("0123456789abcdef", 64<<10) // 1 MiB
	var out, errs bytes.Buffer
	code, err := m.Client.Exec(m.Context(), api.ExecRequest{Target: "deploy/client", Command: []string{"sh", "-c", "cat; echo done >&2"}},
		api.Streams{Stdin: strings.NewReader(big), Stdout: &out, Stderr: &errs})
	if err != nil || code != 0 || out.String() != big || errs.String() != "done\n" {
		m.Errorf("code %d, %v, %d bytes back of %d, stderr %q", code, err, out.Len(), len(big), errs.String())
	}
	for target, want := range map[string]string{"deploy/nobody": "is not there", "configmap/x": "has no pods", "svc/web-nobody": "is not there", "teapot/x": "no kind"} {
		_, err := m.Client.Exec(m.Context(), api.ExecRequest{Target: target, Command: []string{"true"}}, api.Streams{})
		if err == nil || !strings.Contains(err.Error(), want) {
			m.Errorf("%s: %v, want %q", target, err, want)
		}
	}
	_, err = m.Client.Exec(m.Context(), api.ExecRequest{Target: "deploy/client", Command: []string{"no-such-program"}}, api.Streams{})
	if err == nil || !strings.Contains(err.Error(), `command "no-such-program" is in none of the directories of PATH`) {
		m.Errorf("unknown program: %v", err)
	}
	// Whoever asks for a command and goes away leaves nothing running.
	ctx, cancel := context.WithCancel(m.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		m.Client.Exec(ctx, api.ExecRequest{Target: "deploy/client", Command: []string{"sleep", "4711"}}, api.Streams{})
	}()
	m.eventually("the command runs", func() error {
		if out, _ := m.exec("deploy/client", "sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '"); !strings.Contains(out, "sleep 4711") {
			return errors.New(out)
		}
		return nil
	})
	cancel()
	<-done
	m.eventually("the command is gone", func() error {
		if out, _ := m.exec("deploy/client", "sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '"); strings.Contains(out, "sleep 4711 ") {
			return errors.New(out)
		}
		return nil
	})
}

func terminal(m *mesh) {
	var all bytes.Buffer
	sizes := make(chan api.Size)
	in, typed := io.Pipe()
	seen, screen := io.Pipe()
	go func() {
		defer typed.Close()
		lines := bufio.NewReader(seen)
		_, _ = lines.ReadString('\n')
		sizes <- api.Size{Rows: 40, Cols: 123}
		io.WriteString(typed, "go\n")
		io.Copy(io.Discard, lines)
	}()
	code, err := m.Client.Exec(m.Context(), api.ExecRequest{Target: "deploy/client", TTY: true, Term: "vt100", Size: api.Size{Rows: 10, Cols: 20},
		Command: []string{"sh", "-c", "stty size; read x; while [ \"$(stty size)\" != \"40 123\" ]; do sleep 0.02; done; echo $TERM; test -t 0 && exit 5"}},
		api.Streams{Stdin: in, Stdout: io.MultiWriter(&all, screen), Resize: sizes})
	screen.Close()
	if err != nil || code != 5 {
		m.Errorf("code %d, %v: %q", code, err, all.String())
	}
	for _, want := range []string{"10 20\r\n", "vt100\r\n"} {
		if !strings.Contains(all.String(), want) {
			m.Errorf("no %q in %q", want, all.String())
		}
	}
}

func logs(m *mesh) {
	read := func(r api.LogsRequest) string {
		body, err := m.Client.Logs(m.Context(), r)
		if err != nil {
			m.Fatal(err)
		}
		defer body.Close()
		b, err := io.ReadAll(body)
		if err != nil {
			m.Fatal(err)
		}
		return string(b)
	}
	if got := read(api.LogsRequest{Target: "deploy/web"}); got != "serving one\n" {
		m.Errorf("got %q: the program's own line only, since probes come from the node's probe address", got)
	}
	m.applied(accounts + `
---
apiVersion: v1
kind: Pod
metadata: {name: counter}
spec:
  serviceAccountName: client
  restartPolicy: Never
  containers:
  - {name: c, image: x, command: [sh, -c, "for i in 1 2 3 4 5; do echo line $i; done; sleep 0.5; echo line 6; sleep 0.2"]}
`)
	body, err := m.Client.Logs(m.Context(), api.LogsRequest{Target: "counter", Follow: true})
	for err != nil {
		m.Fatal(err)
	}
	defer body.Close()
	buf := make([]byte, 0, 100)
	for chunk := make([]byte, 10); !bytes.Contains(buf, []byte("line 6\n")); {
		n, err := body.Read(chunk)
		buf = append(buf, chunk[:n]...)
		if err != nil {
			m.Fatalf("%v after %q", err, buf)
		}
	}
	if got := read(api.LogsRequest{Target: "counter", Tail: 2}); got != "line 5\nline 6\n" {
		m.Errorf("tail: %q", got)
	}
	m.eventually("the pod has succeeded", func() error {
		for _, p := range m.pods("") {
			if p.Name == "counter" && p.Status.Phase == corev1.PodSucceeded && p.Status.ContainerStatuses[0].State.Terminated != nil {
				return nil
			}
		}
		return errors.New("not yet")
	})
	if got := read(api.LogsRequest{Target: "counter"}); strings.Count(got, "\n") != 6 {
		m.Errorf("logs of a pod that is done: %q", got)
	}
	log, err := m.Client.ProxyLog(m.Context(), "n2", false, 0)
	if err != nil {
		m.Fatal(err)
	}
	defer log.Close()
	if b, _ := io.ReadAll(log); string(b) != "proxy of n2\n" {
		m.Errorf("proxy's log: %q", b)
	}
}

func portForward(m *mesh) {
	for _, r := range []api.ConnectRequest{{Target: "svc/web", Port: 80}, {Target: "deploy/web", Port: 8080}} {
		c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return m.Client.Connect(ctx, r)
		}}}
		resp, err := c.Get("http://pod/")
		if err != nil {
			m.Fatal(err)
		}
		b, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || !strings.HasPrefix(string(b), "web-") || !strings.Contains(string(b), "to 127.0.0.1:") {
			m.Errorf("%+v: %q, %v", r, b, err)
		}
	}
	for _, r := range []api.ConnectRequest{{Target: "svc/web", Port: 81}, {Target: "deploy/web", Port: 9}, {Target: "deploy/web", Port: 0}} {
		if _, err := m.Client.Connect(m.Context(), r); err == nil {
			m.Errorf("%+v: no error", r)
		}
	}
}

func usageAndStatus(m *mesh) {
	s, err := m.Client.Status(m.Context())
	if err != nil {
		m.Fatal(err)
	}
	if !s.Control.Ready || s.Control.Generation != 7 || s.Control.Error != "" || len(s.Nodes) != 2 {
		m.Errorf("control %+v", s.Control)
	}
	n1 := s.Nodes[0]
	if !n1.Agent.Ready || !n1.Agent.ProxyConnected || !n1.Proxy.Ready || n1.Proxy.Version != "9.9" || n1.Proxy.AckedGeneration != 6 || !slices.Equal(n1.Proxy.WorkerConnections, []int{2, 3}) {
		m.Errorf("node %+v", n1)
	}
	if b, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", n1.Proxy.PID)); err != nil || strings.TrimSpace(string(b)) != proxyBinary {
		m.Errorf("the proxy's pid %d is that of %q, %v", n1.Proxy.PID, b, err)
	}
	var found bool
	for _, p := range s.Pods {
		if strings.HasPrefix(p.Name, "web-") {
			found = true
			if p.Identity != "spiffe://cluster.local/ns/default/sa/web" || len(p.Containers) != 1 || !p.Ready {
				m.Errorf("pod %+v", p)
				continue
			}
			c := p.Containers[0]
			if b, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", c.PID)); err != nil || strings.TrimSpace(string(b)) != helperBinary || c.StartTime == 0 {
				m.Errorf("the container's pid %d is that of %q, %v", c.PID, b, err)
			}
		}
	}
	if !found {
		m.Error("no pods in the status")
	}
	cpu := func(kind, name string) uint64 {
		u, err := m.Client.Usage(m.Context())
		if err != nil {
			m.Fatal(err)
		}
		for _, c := range u.Components {
			if c.Kind == kind && strings.HasPrefix(c.Name, name) {
				if c.RSSBytes == 0 || c.Threads == 0 || c.PID == 0 {
					m.Errorf("component %+v", c)
				}
				return c.CPUNanos
			}
		}
		m.Fatalf("no %s %s in %+v", kind, name, u)
		return 0
	}
	before := cpu("container", "default/client-")
	go m.Client.Exec(m.Context(), api.ExecRequest{Target: "deploy/client", Command: []string{"true"}}, api.Streams{})
	web := cpu("container", "default/web-")
	for range 5 {
		m.exec("deploy/client", "lateen-helper", "get", "http://web/")
	}
	if after := cpu("container", "default/client-"); after < before {
		m.Errorf("CPU time went from %d to %d", before, after)
	}
	if web == 0 || cpu("engine", "") == 0 || cpu("control", "") == 0 || cpu("agent", "n1") == 0 || cpu("proxy", "n2") == 0 {
		m.Error("a part of the mesh has used no CPU time at all")
	}
	if b, err := m.Client.ProxyConfigDump(m.Context(), "n1"); err != nil || string(b) != `{"workloads":[]}` {
		m.Errorf("config dump %q, %v", b, err)
	}
	if _, err := m.Client.ProxyMetrics(m.Context(), "n9"); err == nil || !strings.Contains(err.Error(), `no node "n9"`) {
		m.Errorf("metrics of no node: %v", err)
	}
}

func captures(m *mesh) {
	type result struct {
		rep api.CaptureReport
		err error
	}
	done := make(chan result, 1)
	go func() {
		rep, err := m.Client.Capture(m.Context(), api.CaptureRequest{Seconds: 2, PodsOnly: true})
		done <- result{rep, err}
	}()
	remote := ""
	for _, p := range m.pods("app=web") {
		if p.Spec.NodeName == "n2" {
			remote = p.Status.PodIP
		}
	}
	var got result
	for waiting := true; waiting; {
		m.exec("deploy/client", "lateen-helper", "get", "http://"+remote+":8080/")
		select {
		case got = <-done:
			waiting = false
		default:
		}
	}
	if got.err != nil || got.rep.Dropped != 0 {
		m.Fatalf("%v, dropped %d", got.err, got.rep.Dropped)
	}
	n := 0
	for _, c := range got.rep.Connections {
		if c.Port == 8080 && c.SawSYN && c.Class == api.ClassHTTP && strings.HasPrefix(string(c.Sample), "GET / HTTP/1.1") && c.BytesRecv > 0 &&
			c.SrcNode == "n1" && c.DstNode == "n2" && strings.HasPrefix(c.SrcPod, "default/client-") && strings.HasPrefix(c.DstPod, "default/web-") {
			n++
		}
	}
	if n == 0 {
		m.Errorf("none of the connections is the one made: %+v", got.rep.Connections)
	}
	body, err := m.Client.CapturePcap(m.Context(), api.CaptureRequest{Seconds: 1})
	if err != nil {
		m.Fatal(err)
	}
	defer body.Close()
	if b, err := io.ReadAll(body); err != nil || len(b) < 24 {
		m.Errorf("pcap of %d bytes, %v", len(b), err)
	}
}

func readiness(m *mesh) {
	pod := m.pods("app=web")[0]
	m.exec("pod/"+pod.Name, "touch", "/tmp/ill")
	m.eventually("the pod is not ready", func() error {
		if n := readyPods(m.pods("app=web")); n != 1 {
			return fmt.Errorf("%d ready", n)
		}
		return nil
	})
	m.eventually("nobody is sent to it", func() error {
		for range 20 {
			if out, code := m.exec("deploy/client", "lateen-helper", "get", "http://web/"); code != 0 || strings.HasPrefix(out, pod.Name) {
				return errors.New(out)
			}
		}
		return nil
	})
	s, err := m.Client.Status(m.Context())
	if err != nil {
		m.Fatal(err)
	}
	for _, p := range s.Pods {
		if p.Name == pod.Name && !strings.Contains(p.Reason, "readiness probe: GET /health answered 503") {
			m.Errorf("reason %q", p.Reason)
		}
	}
	m.exec("pod/"+pod.Name, "rm", "/tmp/ill")
	m.awaitReady("app=web", 2)
}

func restarts(m *mesh) {
	pod := m.pods("app=web")[0]
	// Only root in the pod could; its user may end its own processes.
	m.exec("pod/"+pod.Name, "sh", "-c", "kill -9 $(grep -l '^lateen-helper' /proc/[0-9]*/comm | head -1 | cut -d/ -f3)")
	m.eventually("it has started again", func() error {
		for _, p := range m.pods("app=web") {
			if p.Name == pod.Name && p.Status.ContainerStatuses[0].RestartCount == 1 {
				if l := p.Status.ContainerStatuses[0].LastTerminationState.Terminated; l == nil || l.ExitCode != 137 {
					return fmt.Errorf("last state %+v", l)
				}
				return nil
			}
		}
		return errors.New("no restart")
	})
	m.awaitReady("app=web", 2)
}

func rollingUpdate(m *mesh) {
	stop := make(chan struct{})
	var wg sync.WaitGroup
	failures := make(chan string, 1000)
	seen := make(chan string, 100000)
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			out, code := m.exec("deploy/client", "lateen-helper", "get", "http://web/")
			if code != 0 {
				failures <- out
			}
			seen <- out
		}
	})
	m.applied(strings.Replace(webAndClient, "value: one", "value: two", 1))
	m.eventually("all pods are new", func() error {
		pods := m.pods("app=web")
		for _, p := range pods {
			if p.Spec.Containers[0].Env[0].Value != "two" {
				return fmt.Errorf("%s is old", p.Name)
			}
		}
		if len(pods) != 2 || readyPods(pods) != 2 {
			return fmt.Errorf("%d pods", len(pods))
		}
		return nil
	})
	close(stop)
	wg.Wait()
	close(failures)
	close(seen)
	for f := range failures {
		m.Errorf("a request failed: %s", f)
	}
	versions := map[string]int{}
	for s := range seen {
		if f := strings.Fields(s); len(f) > 1 {
			versions[f[1]]++
		}
	}
	if versions["one"] == 0 {
		m.Errorf("requests saw only %v", versions)
	}
	if out, _ := m.exec("deploy/client", "lateen-helper", "get", "http://web/"); !strings.Contains(out, " two ") {
		m.Errorf("after the update: %q", out)
	}
}

func scale(m *mesh) {
	if _, err := m.Client.Scale(m.Context(), "default", "web", 4); err != nil {
		m.Fatal(err)
	}
	perNode := map[string]int{}
	for _, p := range m.awaitReady("app=web", 4) {
		perNode[p.Spec.NodeName]++
	}
	if perNode["n1"] != 2 || perNode["n2"] != 2 {
		m.Errorf("four replicas on %v", perNode)
	}
	if _, err := m.Client.Scale(m.Context(), "default", "web", 1); err != nil {
		m.Fatal(err)
	}
	m.awaitReady("app=web", 1)
	// Applying the manifest again takes back what was changed by hand.
	m.applied(strings.Replace(webAndClient, "value: one", "value: two", 1))
	m.awaitReady("app=web", 2)
}

func badInput(m *mesh) {
	res := m.apply(`
apiVersion: v1
kind: ConfigMap
metadata: {name: good}
---
apiVersion: v1
kind: Service
metadata: {name: typo}
spec: {prots: [{port: 80}]}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: lost, namespace: nowhere}
`)
	if len(res.Results) != 1 || res.Results[0].Key.Name != "good" || res.Results[0].Action != api.Created || len(res.Problems) != 2 {
		m.Fatalf("got %+v", res)
	}
	if p := res.Problems[0]; p.File != "test.yaml" || p.Line < 6 || !strings.Contains(p.String(), "prots") {
		m.Errorf("problem %+v", p)
	}
	if p := res.Problems[1]; p.Line != 11 || !strings.Contains(p.Message, `namespace "nowhere" is not there`) {
		m.Errorf("problem %+v", p)
	}
	list, err := m.Client.Get(m.Context(), api.GetRequest{Kind: "svc", Name: "web"})
	if err != nil {
		m.Fatal(err)
	}
	var svc corev1.Service
	if err := json.Unmarshal(list.Items[0].Raw, &svc); err != nil {
		m.Fatal(err)
	}
	for name, tc := range map[string]struct{ text, want string }{
		"two services with one address": {fmt.Sprintf("apiVersion: v1\nkind: Service\nmetadata: {name: twin}\nspec: {clusterIP: %s, ports: [{port: 80}]}", svc.Spec.ClusterIP), "belongs to Service default/web already"},
		"an address that is reserved":   {"apiVersion: v1\nkind: Service\nmetadata: {name: twin}\nspec: {clusterIP: 10.96.0.10, ports: [{port: 80}]}", "reserved"},
		"an address of another range":   {"apiVersion: v1\nkind: Service\nmetadata: {name: twin}\nspec: {clusterIP: 192.0.2.1, ports: [{port: 80}]}", "not in 10.96.0.0/16"},
		"a change of address":           {"apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {clusterIP: 10.96.77.7, ports: [{port: 80}]}", "cannot change"},
		"a node":                        {"apiVersion: v1\nkind: Node\nmetadata: {name: n7}", "lateen up --nodes"},
		"a change of selector":          {strings.Replace(webAndClient[strings.Index(webAndClient, "apiVersion: apps/v1"):], "app: web", "app: web2", -1), "spec.selector cannot change"},
		"a name that is taken":          {"apiVersion: v1\nkind: Pod\nmetadata: {name: " + m.pods("app=client")[0].Name + "}\nspec: {containers: [{name: c, image: x, command: [sleep, '1']}]}", "still there"},
	} {
		res := m.apply(tc.text)
		if len(res.Problems) == 0 || !strings.Contains(res.Problems[0].String(), tc.want) {
			m.Errorf("%s: got %+v, want %q", name, res, tc.want)
		}
	}
	if out, code := m.exec("deploy/client", "lateen-helper", "get", "http://web/"); code != 0 {
		m.Errorf("what was there is not live any more: %s", out)
	}
	res = m.apply("apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: later}\nspec: {hosts: [web]}")
	if len(res.Problems) != 0 || len(res.Results) != 1 || !strings.Contains(strings.Join(res.Results[0].Warnings, " "), "no effect yet") {
		m.Errorf("a kind that has no effect yet: %+v", res)
	}
}

func merging(m *mesh) {
	const text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: merged, labels: {a: '1', b: '1'}}\ndata: {k: v}"
	key := api.Key{Kind: "ConfigMap", Namespace: "default", Name: "merged"}
	m.applied(text)
	if r := m.applied(text); r.Results[0].Action != api.Unchanged {
		m.Errorf("the same again: %+v", r)
	}
	two := "2"
	if r, err := m.Client.Label(m.Context(), key, map[string]*string{"hand": &two}); err != nil || r.Action != api.Configured {
		m.Errorf("label: %+v, %v", r, err)
	}
	if r := m.applied(strings.Replace(text, ", b: '1'", "", 1)); r.Results[0].Action != api.Configured {
		m.Errorf("changed: %+v", r)
	}
	list, err := m.Client.Get(m.Context(), api.GetRequest{Kind: "cm", Selector: "hand=2"})
	if err != nil || len(list.Items) != 1 || !strings.Contains(string(list.Items[0].Raw), `"labels":{"a":"1","hand":"2"}`) {
		m.Errorf("got %+v, %v", list, err)
	}
	if _, err := m.Client.Label(m.Context(), key, map[string]*string{"hand": nil, "a b": &two}); err == nil || !strings.Contains(err.Error(), "label name") {
		m.Errorf("a bad label: %v", err)
	}
	if _, err := m.Client.Label(m.Context(), api.Key{Kind: "Node", Name: "n1"}, map[string]*string{"disk": &two}); err != nil {
		m.Error(err)
	}
	if nodes, err := m.Client.Get(m.Context(), api.GetRequest{Kind: "nodes", Selector: "disk=2"}); err != nil || len(nodes.Items) != 1 {
		m.Errorf("labelled nodes: %+v, %v", nodes, err)
	}
}

func podFeatures(m *mesh) {
	script := "#!/bin/sh\necho script of $POD on $NODE in $APP by $1\nexec sleep infinity\n"
	if err := os.WriteFile(filepath.Join(m.dir, "run.sh"), []byte(script), 0o755); err != nil {
		m.Fatal(err)
	}
	// A home that nobody else may enter: the pod sees the manifest's directory all the same.
	if err := os.Chmod(filepath.Dir(m.dir), 0o700); err != nil {
		m.Fatal(err)
	}
	m.applied(`
apiVersion: v1
kind: Pod
metadata: {name: rich, labels: {app: rich}}
spec:
  serviceAccountName: client
  initContainers:
  - {name: first, image: x, command: [sh, -c, "echo 1 > /tmp/order"]}
  - {name: second, image: x, command: [sh, -c, "test -e /tmp/tried || { touch /tmp/tried; exit 1; }; echo 2 >> /tmp/order"]}
  containers:
  - name: script
    image: x
    command: ["$(LATEEN_MANIFEST_DIR)/run.sh", "$(WHO)"]
    env:
    - {name: WHO, value: "$(POD)!"}
    - {name: POD, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
    - {name: NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
    - {name: APP, valueFrom: {fieldRef: {fieldPath: "metadata.labels['app']"}}}
  - name: beside
    image: x
    command: [lateen-helper, serve, "9999"]
    readinessProbe: {tcpSocket: {port: 9999}, periodSeconds: 1}
  - name: judged
    image: x
    command: [sleep, infinity]
    readinessProbe: {exec: {command: [grep, "2", /tmp/order]}, periodSeconds: 1}
`)
	m.awaitReady("app=rich", 1)
	if out, _ := m.exec("rich", "cat", "/tmp/order"); out != "1\n2\n" {
		m.Errorf("init containers wrote %q", out)
	}
	body, err := m.Client.Logs(m.Context(), api.LogsRequest{Target: "rich", Container: "script"})
	if err != nil {
		m.Fatal(err)
	}
	defer body.Close()
	if b, _ := io.ReadAll(body); !regexp.MustCompile(`^script of rich on n[12] in rich by \$\(POD\)!\n$`).Match(b) {
		m.Errorf("log %q", b)
	}
	if out, _ := m.exec("rich", "lateen-helper", "get", "http://127.0.0.1:9999/"); !strings.HasPrefix(out, "rich ") {
		m.Errorf("containers do not share a network: %q", out)
	}
}

func brokenPods(m *mesh) {
	m.applied(`
apiVersion: v1
kind: Pod
metadata: {name: broken}
spec: {serviceAccountName: client, containers: [{name: c, image: x, command: [no-such-program]}]}
---
apiVersion: v1
kind: Pod
metadata: {name: homeless}
spec: {serviceAccountName: client, nodeSelector: {moon: dark}, containers: [{name: c, image: x, command: [sleep, "1"]}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: orphan}
spec:
  selector: {matchLabels: {app: orphan}}
  template:
    metadata: {labels: {app: orphan}}
    spec: {serviceAccountName: comes-later, containers: [{name: c, image: x, command: [sleep, infinity]}]}
`)
	m.eventually("reasons", func() error {
		why := map[string]string{}
		for _, p := range m.pods("") {
			why[p.Name] = p.Status.Message
			for _, c := range p.Status.ContainerStatuses {
				if c.State.Waiting != nil {
					why[p.Name] += c.State.Waiting.Reason + ": " + c.State.Waiting.Message
				}
			}
		}
		if !strings.Contains(why["broken"], `CrashLoopBackOff: command "no-such-program" is in none`) {
			return fmt.Errorf("broken: %q", why["broken"])
		}
		if !strings.Contains(why["homeless"], "no node has the labels moon=dark") {
			return fmt.Errorf("homeless: %q", why["homeless"])
		}
		list, err := m.Client.Get(m.Context(), api.GetRequest{Kind: "deploy", Name: "orphan"})
		if err != nil {
			return err
		}
		if !strings.Contains(string(list.Items[0].Raw), `ServiceAccount \"comes-later\" is not there`) {
			return fmt.Errorf("orphan: %s", list.Items[0].Raw)
		}
		return nil
	})
	m.applied("apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: comes-later}")
	m.awaitReady("app=orphan", 1)
	for _, k := range []api.Key{{Kind: "Pod", Namespace: "default", Name: "broken"}, {Kind: "Pod", Namespace: "default", Name: "homeless"}, {Kind: "Deployment", Namespace: "default", Name: "orphan"}} {
		if res, err := m.Client.Delete(m.Context(), api.DeleteRequest{Keys: []api.Key{k}, Wait: true}); err != nil || len(res.Problems) > 0 {
			m.Errorf("%v: %+v, %v", k, res, err)
		}
	}
}

func enrolment(m *mesh) {
	ambient, going := modeAmbient, "go"
	ns := api.Key{Kind: "Namespace", Name: "default"}
	if _, err := m.Client.Label(m.Context(), ns, map[string]*string{modeLabel: &ambient}); err != nil {
		m.Fatal(err)
	}
	m.applied("apiVersion: v1\nkind: Pod\nmetadata: {name: captive, labels: {app: captive}}\nspec: {serviceAccountName: client, containers: [{name: c, image: x, command: [sleep, infinity]}]}")
	m.eventually("the pod is held back and says why", func() error {
		s, err := m.Client.Status(m.Context())
		if err != nil {
			return err
		}
		for _, p := range s.Pods {
			if p.Name == "captive" && p.Enrolled && !p.Ready && strings.Contains(p.Reason, "waiting for the node's agent") {
				return nil
			}
		}
		return fmt.Errorf("%+v", s.Pods)
	})
	_, err := m.Client.Exec(m.Context(), api.ExecRequest{Target: "captive", Command: []string{"true"}}, api.Streams{})
	if err == nil || !strings.Contains(err.Error(), "waiting") {
		m.Errorf("a command gets into a pod that is not captured yet: %v", err)
	}
	if n := readyPods(m.pods("app=web")); n != 2 {
		m.Errorf("enrolment stopped running pods: %d ready", n)
	}
	if _, err := m.Client.Label(m.Context(), ns, map[string]*string{"test/agent": &going}); err != nil {
		m.Fatal(err)
	}
	for _, p := range m.awaitReady("app=captive", 1) {
		if p.Annotations[redirectionNote] != "enabled" {
			m.Errorf("annotations %v", p.Annotations)
		}
	}
	if _, err := m.Client.Label(m.Context(), ns, map[string]*string{modeLabel: nil}); err != nil {
		m.Fatal(err)
	}
	m.eventually("released", func() error {
		for _, p := range m.pods("") {
			if p.Annotations[redirectionNote] != "" {
				return fmt.Errorf("%s is still captured", p.Name)
			}
		}
		return nil
	})
}

func reports(m *mesh) {
	dir := runDir(m.RunDir).engineObjects()
	for _, f := range []string{"node.n1.yaml", "node.n2.yaml", "pod.istio-system.ztunnel-n1.yaml", "pod.istio-system.ztunnel-n2.yaml"} {
		if _, err := os.Stat(filepath.Join(dir, f)); err != nil {
			m.Error(err)
		}
	}
	pod := m.pods("app=client")[0]
	path := filepath.Join(dir, "pod.default."+pod.Name+".yaml")
	value := "v1"
	before := time.Now()
	if _, err := m.Client.Label(m.Context(), api.Key{Kind: "Pod", Namespace: "default", Name: pod.Name}, map[string]*string{"fresh": &value}); err != nil {
		m.Fatal(err)
	}
	m.eventually("the label is reported", func() error {
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if !strings.Contains(string(b), "fresh: v1") {
			return fmt.Errorf("after %s", time.Since(before))
		}
		if _, err := decodeOne(path, b); err != nil {
			return err
		}
		return nil
	})
	m.Logf("a label was reported after at most %s", time.Since(before))
	// What has not changed is not written again: the control plane would read it for nothing.
	st, err := os.Stat(path)
	if err != nil {
		m.Fatal(err)
	}
	m.applied("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: other}")
	time.Sleep(100 * time.Millisecond)
	if again, err := os.Stat(path); err != nil || !os.SameFile(st, again) {
		m.Errorf("an unchanged report was written again: %v", err)
	}
	if _, err := os.Stat(filepath.Join(runDir(m.RunDir).userObjects(), "configmap.default.other.yaml")); err != nil {
		m.Error(err)
	}
}

func deletion(m *mesh) {
	pods := m.pods("app=web")
	body, err := m.Client.Logs(m.Context(), api.LogsRequest{Target: "pod/" + pods[0].Name, Follow: true})
	if err != nil {
		m.Fatal(err)
	}
	defer body.Close()
	logged := make(chan string)
	go func() {
		b, _ := io.ReadAll(body)
		logged <- string(b)
	}()
	res, err := m.Client.Delete(m.Context(), api.DeleteRequest{Keys: []api.Key{{Kind: "Deployment", Namespace: "default", Name: "web"}}, Wait: true})
	if err != nil || len(res.Results) != 1 || res.Results[0].Action != api.Deleted {
		m.Fatalf("%+v, %v", res, err)
	}
	if left := m.pods("app=web"); len(left) != 0 {
		m.Errorf("%d pods are left", len(left))
	}
	if l := <-logged; !strings.HasSuffix(l, "goodbye\n") {
		m.Errorf("the program was not asked to end: log %q", l)
	}
	if out, code := m.exec("deploy/client", "lateen-helper", "get", "http://web/"); code == 0 || !strings.Contains(out, "refused") {
		m.Errorf("a service without pods: %q", out)
	}
	res, err = m.Client.Delete(m.Context(), api.DeleteRequest{Keys: []api.Key{{Kind: "Deployment", Namespace: "default", Name: "web"}}})
	if err != nil || len(res.Problems) != 1 || !strings.Contains(res.Problems[0].Message, "is not there") {
		m.Errorf("deleted twice: %+v, %v", res, err)
	}
	for _, p := range pods {
		if _, err := os.Stat(runDir(m.RunDir).pod("default", p.Name)); err == nil {
			m.Errorf("the directory of %s is left", p.Name)
		}
	}
	links, err := os.ReadDir(fmt.Sprintf("/proc/%d/root%s", m.PID, runDir(m.RunDir).path("netns")))
	if err != nil {
		m.Fatal(err)
	}
	if want := len(m.pods("")) + 2; len(links) != want {
		m.Errorf("%d network namespaces, want %d", len(links), want)
	}
}

func namespaces(m *mesh) {
	m.applied("apiVersion: v1\nkind: Namespace\nmetadata: {name: team}")
	res, err := m.Client.Apply(m.Context(), api.ApplyRequest{Namespace: "team", Documents: []api.Document{{File: "-", Dir: m.dir,
		Data: []byte("apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: c, image: x, command: [sleep, infinity]}]}")}}})
	if err != nil || len(res.Problems) > 0 || res.Results[0].Key.Namespace != "team" {
		m.Fatalf("%+v, %v", res, err)
	}
	m.eventually("it runs", func() error {
		list, err := m.Client.Get(m.Context(), api.GetRequest{Kind: "po", Namespace: "team", Name: "p"})
		if err != nil {
			return err
		}
		if !strings.Contains(string(list.Items[0].Raw), `"phase":"Running"`) {
			return fmt.Errorf("%s", list.Items[0].Raw)
		}
		return nil
	})
	if res, err := m.Client.Delete(m.Context(), api.DeleteRequest{Keys: []api.Key{{Kind: "Namespace", Name: "default"}}}); err != nil || len(res.Problems) != 1 {
		m.Errorf("the default namespace can be deleted: %+v, %v", res, err)
	}
	if res, err := m.Client.Delete(m.Context(), api.DeleteRequest{Wait: true, Keys: []api.Key{{Kind: "Namespace", Name: "team"}}}); err != nil || len(res.Problems) != 0 {
		m.Errorf("%+v, %v", res, err)
	}
	for _, kind := range []string{"pods", "serviceaccounts"} {
		if list, err := m.Client.Get(m.Context(), api.GetRequest{Kind: kind, Namespace: "team"}); err != nil || len(list.Items) != 0 {
			m.Errorf("%s are left: %+v, %v", kind, list, err)
		}
	}
}
