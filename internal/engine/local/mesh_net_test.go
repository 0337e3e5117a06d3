package local

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"lateen.dev/lateen/internal/engine/api"
	"lateen.dev/lateen/internal/engine/local/netns"
)

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
	// A question that nobody answers takes 5 s each time; the quickest of a few tells that from a machine that is busy for a moment.
	quickest := time.Hour
	for tries := 0; tries < 5 && quickest > 4*time.Second; tries++ {
		began := time.Now()
		if out, code := m.exec("deploy/client", "lateen-helper", "get", "http://nobody/"); code == 0 || !strings.Contains(out, "no such host") {
			m.Errorf("an unknown name: %q, code %d", out, code)
		}
		quickest = min(quickest, time.Since(began))
	}
	if quickest > 4*time.Second {
		m.Errorf("an unknown name took %s to fail", quickest)
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

func inNode(m *mesh, node, address string) (string, error) {
	ns := fmt.Sprintf("/proc/%d/root%s", m.PID, runDir(m.RunDir).netns(node))
	b, err := get(m.Context(), func(ctx context.Context, _, _ string) (net.Conn, error) {
		return netns.Dial(ctx, ns, "tcp", address, nil)
	}, "http://"+address+"/")
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
	// The pod sees its own processes only.
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

// captureMeanwhile captures for two seconds and does something again and again until that is over.
func captureMeanwhile(m *mesh, do func()) api.CaptureReport {
	m.Helper()
	type result struct {
		rep api.CaptureReport
		err error
	}
	done := make(chan result, 1)
	go func() {
		rep, err := m.Client.Capture(m.Context(), api.CaptureRequest{Seconds: 2, PodsOnly: true})
		done <- result{rep, err}
	}()
	for {
		do()
		select {
		case got := <-done:
			if got.err != nil || got.rep.Dropped != 0 {
				m.Fatalf("%v, dropped %d", got.err, got.rep.Dropped)
			}
			return got.rep
		default:
		}
	}
}

func captures(m *mesh) {
	remote := ""
	for _, p := range m.pods("app=web") {
		if p.Spec.NodeName == "n2" {
			remote = p.Status.PodIP
		}
	}
	// On a busy machine no connection may be whole within one capture.
	m.eventually("a capture has one of the connections made", func() error {
		rep := captureMeanwhile(m, func() { m.exec("deploy/client", "lateen-helper", "get", "http://"+remote+":8080/") })
		for _, c := range rep.Connections {
			if c.Port == 8080 && c.SawSYN && c.Class == api.ClassHTTP && strings.HasPrefix(string(c.Sample), "GET / HTTP/1.1") && c.BytesRecv > 0 &&
				c.SrcNode == "n1" && c.DstNode == "n2" && strings.HasPrefix(c.SrcPod, "default/client-") && strings.HasPrefix(c.DstPod, "default/web-") {
				return nil
			}
		}
		return fmt.Errorf("it has %+v", rep.Connections)
	})
	body, err := m.Client.CapturePcap(m.Context(), api.CaptureRequest{Seconds: 1})
	if err != nil {
		m.Fatal(err)
	}
	defer body.Close()
	if b, err := io.ReadAll(body); err != nil || len(b) < 24 {
		m.Errorf("pcap of %d bytes, %v", len(b), err)
	}
}
