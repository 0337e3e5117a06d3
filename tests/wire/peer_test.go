package wire

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
)

// patience bounds every wait; what is awaited takes milliseconds.
const patience = 60 * time.Second

const (
	client = "spiffe://cluster.local/ns/default/sa/client"
	server = "spiffe://cluster.local/ns/default/sa/server"
)

// peerBinary builds crates/hbone/examples/peer.rs once and says where it is.
var peerBinary = sync.OnceValues(func() (string, error) { return buildExample("peer") })

// proxyBinary does the same with crates/exchange/examples/exchange_proxy.rs.
var proxyBinary = sync.OnceValues(func() (string, error) { return buildExample("exchange_proxy") })

func buildExample(name string) (string, error) {
	build := exec.Command("cargo", "build", "--locked", "--quiet", "--message-format=json", "--workspace", "--example", name)
	build.Dir = "../.."
	build.Stderr = os.Stderr
	out, err := build.Output()
	if err != nil {
		return "", err
	}
	binary := ""
	for line := range bytes.Lines(out) {
		var artifact struct {
			Executable string
			Target     struct{ Name string }
		}
		if json.Unmarshal(line, &artifact) == nil && artifact.Target.Name == name && artifact.Executable != "" {
			binary = artifact.Executable
		}
	}
	if binary == "" {
		return "", fmt.Errorf("cargo names no executable of the example %s", name)
	}
	return binary, nil
}

func peerCommand(t *testing.T, arguments ...string) *exec.Cmd {
	t.Helper()
	return exampleCommand(t, peerBinary, arguments...)
}

func exampleCommand(t *testing.T, build func() (string, error), arguments ...string) *exec.Cmd {
	t.Helper()
	binary, err := build()
	if err != nil {
		t.Fatalf("build the example: %v", err)
	}
	return exec.CommandContext(t.Context(), binary, arguments...)
}

// lines collects what a process says.
type lines struct {
	mu  sync.Mutex
	all []string
}

func (l *lines) follow(reader *bufio.Reader) {
	for {
		line, err := reader.ReadString('\n')
		if line != "" {
			l.mu.Lock()
			l.all = append(l.all, strings.TrimSpace(line))
			l.mu.Unlock()
		}
		if err != nil {
			return
		}
	}
}

// wait returns the first line that begins with prefix and contains part.
func (l *lines) wait(t *testing.T, prefix, part string) string {
	t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		l.mu.Lock()
		for _, line := range l.all {
			if strings.HasPrefix(line, prefix) && strings.Contains(line, part) {
				l.mu.Unlock()
				return line
			}
		}
		l.mu.Unlock()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	t.Fatalf("no line %q with %q in:\n%s", prefix, part, strings.Join(l.all, "\n"))
	return ""
}

// serving is our server as a process.
type serving struct {
	address string
	said    *lines
}

func startServer(t *testing.T, own *leaf) *serving {
	t.Helper()
	key, chain := own.files(t)
	command := peerCommand(t, "serve", key, chain)
	stdout, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	stderr, err := command.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	said := &lines{}
	var followers sync.WaitGroup
	followers.Go(func() { said.follow(bufio.NewReader(stdout)) })
	followers.Go(func() { said.follow(bufio.NewReader(stderr)) })
	t.Cleanup(func() {
		command.Process.Kill()
		followers.Wait()
		command.Wait()
	})
	address := strings.TrimPrefix(said.wait(t, "listening ", ""), "listening ")
	return &serving{address: address, said: said}
}
