package cpscale_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"lateen.dev/lateen/internal/lab/cpscale"
	"lateen.dev/lateen/internal/lab/procstat"
	"lateen.dev/lateen/internal/lab/results"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// control builds the control plane: what is measured is the real one.
func control(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "lateen-control")
	build := exec.Command("go", "build", "-o", program, "lateen.dev/lateen/cmd/lateen-control")
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return program
}

var small = cpscale.Size{Services: 12, Pods: 25, Proxies: 9, Rest: 1, Rates: []float64{30}}

func options(t *testing.T, program string) cpscale.Options {
	t.Helper()
	// What a run leaves behind would be in here.
	t.Setenv("TMPDIR", t.TempDir())
	return cpscale.Options{Size: small, Seconds: 4, Control: program, Account: procstat.Host(), Progress: func(string) {}}
}

func find(facts []results.Fact, group, name string) (float64, bool) {
	for _, f := range facts {
		if f.Group == group && f.Name == name {
			return f.Value, true
		}
	}
	return 0, false
}

func nothingLeft(t *testing.T) {
	t.Helper()
	if left, _ := os.ReadDir(os.Getenv("TMPDIR")); len(left) > 0 {
		t.Errorf("it left %v", left)
	}
}

func TestASmallMeshIsMeasured(t *testing.T) {
	o := options(t, control(t))
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	facts, err := cpscale.Run(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	for group, names := range map[string][]string{
		"start":        {"until it serves", "until all proxies have everything", "sent to each proxy", "CPU", "memory (PSS)"},
		"at rest":      {"CPU", "memory (PSS)"},
		"30 changes/s": {"CPU", "memory (PSS)", "changes", "sent for a change to each proxy", "until a proxy has a change, P50", "until the last proxy has a change, longest"},
	} {
		for _, name := range names {
			if _, ok := find(facts, group, name); !ok {
				t.Errorf("%s: no %q", group, name)
			}
		}
	}
	if n, _ := find(facts, "30 changes/s", "changes"); n != 120 {
		t.Errorf("%v changes in 4 s at 30/s", n)
	}
	// Every proxy gets every object once at the start, and of a change what has changed: some hundred bytes, not everything.
	all, _ := find(facts, "start", "sent to each proxy")
	one, _ := find(facts, "30 changes/s", "sent for a change to each proxy")
	if all < float64(small.Services+small.Pods)*0.1 || one < 50 || one > 4000 {
		t.Errorf("%v kB at the start, %v bytes for a change", all, one)
	}
	if median, _ := find(facts, "30 changes/s", "until a proxy has a change, P50"); median <= 0 || median > 15_000 {
		t.Errorf("a change takes %v ms", median)
	}
	// 120 changes do not make a P99 of the last proxy, 1080 acknowledgements none of a proxy.
	for _, f := range facts {
		if strings.HasSuffix(f.Name, "P99") {
			t.Errorf("%s: %s from too few", f.Group, f.Name)
		}
		if f.Target != 0 {
			t.Errorf("%s: a target for a mesh of this size", f.Name)
		}
	}
	nothingLeft(t)
}

func TestAControlPlaneThatCannotRunIsSaid(t *testing.T) {
	o := options(t, "/bin/false")
	if _, err := cpscale.Run(context.Background(), o); err == nil || !strings.Contains(err.Error(), "ended before it served") {
		t.Errorf("got %v", err)
	}
	o.Control = "/nowhere/lateen-control"
	if _, err := cpscale.Run(context.Background(), o); err == nil || !strings.Contains(err.Error(), "start the control plane") {
		t.Errorf("got %v", err)
	}
	nothingLeft(t)
}

func TestAnInterruptKeepsWhatThereIs(t *testing.T) {
	o := options(t, control(t))
	o.Rest = 600
	ctx, cancel := context.WithCancel(context.Background())
	o.Progress = func(what string) {
		if what == "measure at rest" {
			cancel()
		}
	}
	facts, err := cpscale.Run(ctx, o)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if _, ok := find(facts, "start", "until all proxies have everything"); !ok {
		t.Errorf("got %v", facts)
	}
	nothingLeft(t)
}
