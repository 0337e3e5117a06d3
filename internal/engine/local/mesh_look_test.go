package local

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"lateen.dev/lateen/internal/engine/api"
)

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
	for target, want := range map[string]string{"deploy/nobody": "not found in namespace default; `lateen get deployments -n default` lists those that exist", "configmap/x": "has no pods", "svc/web-nobody": "not found in namespace", "teapot/x": "no kind"} {
		_, err := m.Client.Exec(m.Context(), api.ExecRequest{Target: target, Command: []string{"true"}}, api.Streams{})
		if err == nil || !strings.Contains(err.Error(), want) {
			m.Errorf("%s: %v, want %q", target, err, want)
		}
	}
	code, err = m.Client.Exec(m.Context(), api.ExecRequest{Target: "deploy/client", Command: []string{"no-such-program"}}, api.Streams{})
	if err == nil || code != 127 || !strings.Contains(err.Error(), `command "no-such-program" is in none of the directories of PATH`) {
		m.Errorf("unknown program: exit code %d, %v", code, err)
	}
	// A client that starts a command and goes away leaves nothing running.
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
	if err != nil {
		m.Fatal(err) // the pod was applied in the line before, and is there for whoever asks
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
