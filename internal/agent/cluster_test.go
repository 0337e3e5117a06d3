package agent

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"lateen.dev/lateen/internal/agent/cni/install"
)

// Who waits for an agent to leave its node removes agents and proxies next.
func TestAnAgentSaysThatItHasLeftOnlyWhenItHas(t *testing.T) {
	var order []string
	fails := map[string]int{"leave": 2, "say": 1}
	step := func(name string) func() error {
		return func() error {
			if fails[name]--; fails[name] >= 0 {
				order = append(order, name+" in vain")
				return errors.New(name)
			}
			order = append(order, name)
			return nil
		}
	}
	obey(t.Context(), step("leave"), step("say"), time.Millisecond, slog.New(slog.DiscardHandler))
	if got := strings.Join(order, ", "); got != "leave in vain, leave in vain, leave, say in vain, leave, say" {
		t.Error(got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	obey(ctx, func() error { return errors.New("never") }, func() error { t.Error("it said so all the same"); return nil }, time.Hour, slog.New(slog.DiscardHandler))
}

// The node proxy is given the folder of its sockets: what the agent keeps for itself, a token among it, must not be there.
func TestTheProxysFolderHasNothingOfTheAgents(t *testing.T) {
	t.Setenv("NODE_NAME", "n1")
	t.Setenv("POD_NAMESPACE", "lateen-system")
	s, err := parse([]string{"--kube"}, new(strings.Builder))
	if err != nil {
		t.Fatal(err)
	}
	shared := filepath.Dir(s.zdsSocket)
	if shared != "/var/run/lateen/proxy" || filepath.Dir(s.storeSocket) != shared {
		t.Errorf("the sockets for the proxy are %s and %s", s.zdsSocket, s.storeSocket)
	}
	for _, own := range []string{s.kube.boxesFile(), s.kube.socket(), s.statusSocket, s.stateFile} {
		if strings.HasPrefix(own, shared+"/") || !strings.HasPrefix(own, "/var/run/lateen/") {
			t.Errorf("%s is in the proxy's folder %s, or outlives the mesh", own, shared)
		}
	}
	// What the plugin needs without an agent outlives a boot, beside the network configuration, which the agent alone is given.
	for _, kept := range []string{s.kube.accessFile(), s.kube.stateFile()} {
		if filepath.Dir(kept) != "/host/etc/cni/net.d" {
			t.Errorf("%s does not lie beside the network configuration", kept)
		}
	}
	if e := s.kube.node().Entry; e.AccessFile != "/etc/cni/net.d/lateen-cni.access" {
		t.Errorf("the plugin looks for its token at %s", e.AccessFile)
	}
}

// afterOlder is an agent's part for Kubernetes on a node where a version before has run.
func afterOlder(t *testing.T) (c *cluster, dir string) {
	t.Helper()
	t.Setenv("NODE_NAME", "n1")
	t.Setenv("POD_NAMESPACE", "lateen-system")
	dir = t.TempDir()
	for _, d := range []string{"proxy", "netns", "proc"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	config := filepath.Join(dir, "kubeconfig")
	const nobody = `{"apiVersion":"v1","kind":"Config","clusters":[{"name":"c","cluster":{"server":"https://127.0.0.1:1"}}],"contexts":[{"name":"c","context":{"cluster":"c"}}],"current-context":"c"}`
	for path, content := range map[string]string{config: nobody, filepath.Join(dir, "cni-access.json"): "a token"} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s, err := parse([]string{"--kube", "--kubeconfig=" + config, "--run-dir=" + dir, "--netns-dir=" + filepath.Join(dir, "netns")}, new(strings.Builder))
	if err != nil {
		t.Fatal(err)
	}
	s.kube.procDir = filepath.Join(dir, "proc")
	// The former agent left its sockets, and a run that was broken off what it had begun.
	for _, name := range []string{"zds.sock", "listener-store.sock", "zds.sock.new"} {
		l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: filepath.Join(dir, name), Net: "unixpacket"})
		if err != nil {
			t.Fatal(err)
		}
		l.SetUnlinkOnClose(false)
		l.Close()
	}
	for _, path := range []string{s.zdsSocket, s.storeSocket} {
		l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
	}
	c, err = newCluster(s, NewMetrics(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return c, dir
}

// An upgrade replaces the agents before the node proxies, which know their agent by where it listened before.
func TestOlderProxiesFindANewAgent(t *testing.T) {
	_, dir := afterOlder(t)
	for _, name := range []string{"zds.sock", "listener-store.sock"} {
		conn, err := net.Dial("unixpacket", filepath.Join(dir, name))
		if err != nil {
			t.Error(err)
			continue
		}
		conn.Close()
		// The way leads there wherever the folder is mounted.
		if to, err := os.Readlink(filepath.Join(dir, name)); err != nil || to != "proxy/"+name {
			t.Errorf("%s leads to %s, %v", name, to, err)
		}
	}
	// A place that somebody chose is the only one.
	elsewhere := kubeSettings{runDir: t.TempDir()}
	if err := elsewhere.servesOlder("/run/chosen/zds.sock"); err != nil {
		t.Error(err)
	}
	if left, _ := os.ReadDir(elsewhere.runDir); len(left) != 0 {
		t.Errorf("made %v", left)
	}
}

// The token of an earlier version lies where the plugin looks for it until the new plugin's configuration is in place.
func TestAnOlderTokenGoesWhenNobodyReadsIt(t *testing.T) {
	c, dir := afterOlder(t)
	there := func() bool {
		_, err := os.Stat(filepath.Join(dir, "cni-access.json"))
		return err == nil
	}
	c.installed(errors.New("no configuration yet"), false)
	if !there() {
		t.Error("it is gone while the plugin's configuration may still name it")
	}
	c.installed(nil, true)
	if there() {
		t.Error("it stays on the node")
	}
	c.installed(nil, false)
}

// Where it cannot be read whether an Istio captures pods, nothing of Istio's is taken out of them, and the log says why and what helps.
func TestWhatCannotBeReadIsNoIstiosAbsence(t *testing.T) {
	var said bytes.Buffer
	c := &cluster{log: slog.New(slog.NewTextHandler(&said, nil)), node: install.Node{ConfDir: t.TempDir()}}
	file := filepath.Join(c.node.ConfDir, "10-net.conflist")
	for _, step := range []struct {
		change func() error
		alone  bool
		said   int
	}{
		{func() error { return nil }, true, 0},
		{func() error { return os.Symlink("nowhere", file) }, false, 1},
		{func() error { return nil }, false, 1}, // once
		{func() error { return os.Remove(file) }, true, 1},
		{func() error {
			return os.WriteFile(file, []byte(`{"plugins":[{"type":"bridge"},{"type":"istio-cni"}]}`), 0o600)
		}, false, 1},
	} {
		if err := step.change(); err != nil {
			t.Fatal(err)
		}
		c.look()
		if got := strings.Count(said.String(), "what one may have left in pods stays there"); c.alone.Load() != step.alone || got != step.said {
			t.Errorf("alone: %v, want %v; said %d times, want %d: %s", c.alone.Load(), step.alone, got, step.said, said.String())
		}
	}
}
