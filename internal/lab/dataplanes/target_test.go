package dataplanes

import (
	"bytes"
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"lateen.dev/lateen/internal/engine/api"
	"lateen.dev/lateen/internal/lab/results"
)

func TestTargetsAreRefusedWithTheFix(t *testing.T) {
	for _, c := range []struct{ name, url, want string }{
		{"a", "http://10.0.0.1:8080", ""},
		{"a.b-2", "https://[::1]/x?y=z", ""},
		{"a", "tcp://10.0.0.1:7", ""},
		{"", "http://10.0.0.1", "NAME=URL"},
		{"A", "http://10.0.0.1", "lower-case"},
		{"../a", "http://10.0.0.1", "lower-case"},
		{"a", "", "begins with http://"},
		{"a", "10.0.0.1:8080", "target a: "},
		{"a", "file:///etc/passwd", "begins with http://"},
		{"a", "http://", "names no host"},
		{"a", "tcp://10.0.0.1", "names no port"},
		{"a", "http://u:secret@10.0.0.1", "a password"},
		{"a", "http://[", "missing ']'"},
	} {
		spec, err := ParseTarget(c.name, c.url)
		if c.want == "" {
			if err != nil || spec.Kind != results.KindUnderTest || spec.URL != c.url {
				t.Errorf("%s=%s: got %+v, %v", c.name, c.url, spec, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s=%s: error %v does not say %q", c.name, c.url, err, c.want)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%s=%s: the error shows the password", c.name, c.url)
		}
	}
}

func TestATargetTakesAScenariosPathUnlessItHasItsOwn(t *testing.T) {
	for _, c := range []struct{ target, scenario, want string }{
		{"http://10.0.0.1:8080", "http://echo:8080/?size=64", "http://10.0.0.1:8080/?size=64"},
		{"https://host", "http://details:9080/details/0", "https://host/details/0"},
		{"http://10.0.0.1/mine", "http://echo:8080/?size=64", "http://10.0.0.1/mine"},
		{"http://10.0.0.1/?q=1", "http://echo:8080/a?size=64", "http://10.0.0.1/?q=1"},
		{"tcp://10.0.0.1:7", "tcp://echo:8078", "tcp://10.0.0.1:7"},
	} {
		spec, err := ParseTarget("a", c.target)
		if err != nil {
			t.Fatal(err)
		}
		target, err := NewTarget(spec, "lateen-load")
		if err != nil {
			t.Fatal(err)
		}
		if got, err := target.Aim(c.scenario); err != nil || got != c.want {
			t.Errorf("%s at %s: got %q, %v, want %q", c.scenario, c.target, got, err, c.want)
		}
	}
}

// program writes a script in the load generator's place.
func program(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "lateen-load")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestATargetRunsTheGeneratorHereAndEndsItWithItsContext(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	spec, err := ParseTarget("a", "http://"+listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	target, err := NewTarget(spec, program(t, `echo "$@"; exit 3`))
	if err != nil {
		t.Fatal(err)
	}
	bench, err := target.Start(t.Context(), Topology{}, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	code, err := bench.Exec(t.Context(), "deploy/client", []string{"lateen-load", "run", "--qps", "5"}, api.Streams{Stdout: &out, Stderr: &out})
	if err != nil || code != 3 || out.String() != "run --qps 5\n" {
		t.Errorf("got code %d, %v, %q", code, err, out.String())
	}

	// Interrupted, it may still say what it has.
	target.generator = program(t, `trap 'echo partial; exit 0' INT; echo begun; while :; do sleep 0.05; done`)
	ctx, cancel := context.WithCancel(t.Context())
	begun := &notify{seen: make(chan struct{})}
	go func() {
		select {
		case <-begun.seen:
		case <-time.After(15 * time.Second):
		}
		cancel()
	}()
	if _, err := bench.Exec(ctx, "", []string{"lateen-load"}, api.Streams{Stdout: begun, Stderr: begun}); !strings.Contains(begun.text.String(), "partial") {
		t.Errorf("the generator was not let end by itself: %q, %v", begun.text.String(), err)
	}

	listener.Close()
	if _, err := target.Start(t.Context(), Topology{}, func(string) {}); err == nil || !strings.Contains(err.Error(), "nobody answers") {
		t.Errorf("a target where nobody listens: %v", err)
	}
}

// notify is told of the first bytes.
type notify struct {
	text bytes.Buffer
	seen chan struct{}
}

func (n *notify) Write(p []byte) (int, error) {
	if n.text.Len() == 0 {
		close(n.seen)
	}
	return n.text.Write(p)
}
