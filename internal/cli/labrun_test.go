package cli

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"lateen.dev/lateen/internal/lab/dataplanes"
	"lateen.dev/lateen/internal/lab/results"
)

// A target behind whose port nobody listens was not measured, which a script must see although the other one was.
func TestATargetThatIsNotThereIsAFinding(t *testing.T) {
	there, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer there.Close()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := closed.Addr().String()
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	programs := t.TempDir()
	generator := `#!/bin/sh
/bin/sleep 0.05
echo '{"format":"lateen-load/1","measured_s":1,"counts":{"intended":10,"ok":10},"rates":{"wanted_qps":10,"achieved_qps":10},"generator":{}}'
`
	if err := os.WriteFile(filepath.Join(programs, "lateen-load"), []byte(generator), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", programs)
	for _, tt := range []struct {
		targets []string
		want    int
	}{
		{[]string{"--target", "a=http://" + there.Addr().String()}, 0},
		{[]string{"--target", "a=http://" + there.Addr().String(), "--target", "b=http://" + nobody}, ExitFindings},
	} {
		var stdout, stderr bytes.Buffer
		env := Env{Stdout: &stdout, Stderr: &stderr, Now: time.Now}
		args := append([]string{"lab", "run", "aa-null", "--rounds", "1", "--out", filepath.Join(t.TempDir(), "out")}, tt.targets...)
		if code := Run(t.Context(), env, args); code != tt.want {
			t.Errorf("%v: exit code %d, want %d: %s%s", tt.targets, code, tt.want, stdout.String(), stderr.String())
		}
		// One round tells nothing, which has to be said before it is measured.
		if want := "warning: aa-null: too few rounds for a verdict (1); --rounds 8 is enough and takes about "; !strings.HasPrefix(stderr.String(), want) {
			t.Errorf("%v: it begins with %s", tt.targets, stderr.String())
		}
		if failed := strings.Contains(stdout.String(), "failed: b could not be started"); failed != (tt.want != 0) {
			t.Errorf("%v: the summary is %s", tt.targets, stdout.String())
		}
	}
}

func TestAnInterruptedRunOfTheLabHasItsReports(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	programs, out := t.TempDir(), filepath.Join(t.TempDir(), "out")
	if err := os.WriteFile(filepath.Join(programs, "lateen-load"), []byte("#!/bin/sh\nexit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", programs)
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	var stdout, stderr bytes.Buffer
	env := Env{Stdout: &stdout, Stderr: &stderr, Now: func() time.Time { return now }}
	if code := Run(ctx, env, []string{"lab", "run", "aa-null", "--target", "a=http://" + listener.Addr().String(), "--out", out}); code != exitInterrupted {
		t.Fatalf("exit code %d: %s%s", code, stdout.String(), stderr.String())
	}
	if doc, err := results.Read(out); err != nil || !doc.Interrupted {
		t.Fatalf("%+v %v", doc, err)
	}
	for _, name := range []string{"report.md", "report.html"} {
		if text, err := os.ReadFile(filepath.Join(out, name)); err != nil || !strings.Contains(string(text), "The run was interrupted.") {
			t.Errorf("%s: %v: %s", name, err, text)
		}
		if !strings.Contains(stderr.String(), filepath.Join(out, name)) {
			t.Errorf("%s is not told: %s", name, stderr.String())
		}
	}
}

func TestAScenarioAmongTheSamplesIsSuggested(t *testing.T) {
	samples := t.TempDir()
	if err := os.MkdirAll(filepath.Join(samples, "lab"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(samples, "lab", "pieces.yaml"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"pieces": "fix: name the file: lateen lab run " + samples + "/lab/pieces.yaml\n", "detials-nagle": "fix: did you mean details-nagle?\n", "nope": "fix: `lateen lab list` shows them all\n"} {
		r := newFake(t).run("", "lab", "run", name, "--samples", samples)
		if r.code != ExitUsage || !strings.Contains(r.stderr, "error: there is no scenario \""+name+"\"\n") || !strings.Contains(r.stderr, want) {
			t.Errorf("%+v, want %q", r, want)
		}
	}
}

// The measurements of an earlier run are hours of work.
func TestARunOfTheLabOverwritesNoOther(t *testing.T) {
	out := t.TempDir()
	file := filepath.Join(out, "results.json")
	if err := os.WriteFile(file, []byte("earlier"), 0o600); err != nil {
		t.Fatal(err)
	}
	var f labFlags
	c := (labCommands{&app{}}).labRunCommand()
	for _, overwrite := range []bool{false, true} {
		f = labFlags{order: "random", planes: []string{"none", "lateen"}, out: out, overwrite: overwrite}
		_, err := f.options(c, now, []string{"aa-null"})
		if overwrite {
			if err != nil {
				t.Error(err)
			}
			continue
		}
		what, fix := explain(err)
		if exitCode(err) != ExitUsage || what != fmt.Sprintf("--out %s: it has the results.json of an earlier run", out) || fix != "name another directory, or add --overwrite to lose that run" {
			t.Errorf("%v: %s; %s", err, what, fix)
		}
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != "earlier" {
		t.Errorf("%s %v", text, err)
	}
}

func TestARunWithoutABlockIsNoEarlierRun(t *testing.T) {
	for text, want := range map[string]bool{
		`{"scenarios": [{"scenario": "aa-null", "failed": "a mesh did not start"}]}`:         false,
		`{"scenarios": [{"scenario": "aa-null", "cells": [{"name": "one", "blocks": []}]}]}`: false,
		`{"scenarios": [{"cells": [{"blocks": [{"plane": "none"}]}]}]}`:                      true,
		`{"scenarios": [{"facts": [{"name": "changes"}]}]}`:                                  true,
		`not JSON`: true,
	} {
		file := filepath.Join(t.TempDir(), "results.json")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := hasResults(file); got != want {
			t.Errorf("%s: got %t", text, got)
		}
	}
	if hasResults(filepath.Join(t.TempDir(), "results.json")) {
		t.Error("a file that does not exist has results")
	}
}

func TestVariablesOfAPlaneNeedThePlane(t *testing.T) {
	planes := func() []dataplanes.Spec {
		return []dataplanes.Spec{{Name: "none", Kind: results.KindNone}, {Name: "before", Kind: results.KindLateen}, {Name: "ztunnel", Kind: results.KindZtunnel}, {Name: "waypoint", Kind: results.KindWaypoint}}
	}
	for text, want := range map[string]string{
		"before:A=b=c":      "",
		"ztunnel:RUST_LOG=": "",
		"waypoint:A=b":      "",
		"before":            "write PLANE:NAME=VALUE",
		"before:=b":         "write PLANE:NAME=VALUE",
		"A=b":               "write PLANE:NAME=VALUE",
		"after:A=b":         `no plane "after" takes part`,
		"none:A=b":          "plane none has no node proxy",
	} {
		specs := planes()
		err := setProxyEnv(specs, text)
		if (want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
		if want == "" && len(specs[1].ProxyEnv)+len(specs[2].ProxyEnv)+len(specs[3].ProxyEnv) != 1 {
			t.Errorf("%s: %+v", text, specs)
		}
	}
}
