package cli

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"lateen.dev/lateen/internal/cli/printer"
	"lateen.dev/lateen/internal/engine/api"
)

func TestTheMeshOfACommand(t *testing.T) {
	tests := map[string]struct {
		running  []string
		variable string
		args     []string
		mesh     string // that is meant; empty: none
		says     string // on standard error, if none is
		code     int
	}{
		"none runs":                     {mesh: "default"},
		"the only one":                  {running: []string{"ux"}, mesh: "ux"},
		"the flag":                      {running: []string{"ux", "other"}, args: []string{"--name", "other"}, variable: "ux", mesh: "other"},
		"the variable":                  {running: []string{"ux", "other"}, variable: "ux", mesh: "ux"},
		"one that does not run":         {running: []string{"ux"}, variable: "gone", says: "error: mesh gone is not running; running: ux\n  fix: name one that runs, as in lateen --name ux, or start this one with `lateen up --name gone`\n", code: ExitFailure},
		"several":                       {running: []string{"ux", "default"}, says: "no mesh is named, and 2 run: default, ux\n  fix: name one: --name default, or export LATEEN_NAME=default", code: ExitUsage},
		"a lab run's alone":             {running: []string{"lab-77-none"}, says: "the only one that runs, lab-77-none, belongs to a lab run\n  fix: name it if you mean it: --name lab-77-none", code: ExitUsage},
		"a lab run's, named":            {running: []string{"lab-77-none"}, args: []string{"--name", "lab-77-none"}, mesh: "lab-77-none"},
		"a lab run's beside a user's":   {running: []string{"lab-77-none", "ux"}, says: "2 run: lab-77-none, ux\n  fix: name one: --name ux", code: ExitUsage},
		"a scorecard's alone":           {running: []string{"card-77"}, says: "the only one that runs, card-77, belongs to a scorecard of the lab\n  fix: name it if you mean it: --name card-77", code: ExitUsage},
		"a scorecard's beside a user's": {running: []string{"card-77", "ux"}, says: "2 run: card-77, ux\n  fix: name one: --name ux", code: ExitUsage},
		"a variable that is no name":    {running: []string{"ux"}, variable: "../etc", says: `LATEEN_NAME is "../etc"`, code: ExitUsage},
		"a mesh that left only files":   {running: []string{"ux"}, mesh: "ux"},
		"a cluster's, so none is here":  {running: []string{"ux", "other"}, args: []string{"--context", "east"}, says: "mesh is not running", code: ExitFailure},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			f.objects, f.status = sampleObjects(), sampleStatus()
			f.meshes, f.silent = append([]string{"gone", "left"}, tt.running...), []string{"gone", "left", "default"}
			if strings.Contains(tt.says, "default") {
				f.silent = f.silent[:2]
			}
			f.variable = map[string]string{nameVariable: tt.variable}
			r := f.run("", append([]string{"get", "gateways"}, tt.args...)...)
			if tt.mesh == "" {
				if r.code != tt.code || !strings.Contains(r.stderr, tt.says) {
					t.Errorf("got %+v, want %q", r, tt.says)
				}
				return
			}
			// Files of other meshes keep a down without a name from ending this one; see TestABareDownBesideAStoppedMeshEndsNothing.
			f.meshes = tt.running
			if down := f.run("", append([]string{"down"}, tt.args...)...); down.code != ExitOK || f.stopped[0] != tt.mesh {
				t.Errorf("down ended %q, want %s: %+v", f.stopped, tt.mesh, down)
			}
			if len(tt.running) > 0 && r.code != ExitOK {
				t.Errorf("got %+v", r)
			}
		})
	}
}

// Meshes that run already change the suggestions of a command that starts a mesh, and nothing else of it.
func TestUpWithoutANameStartsDefault(t *testing.T) {
	f := newFake(t)
	f.meshes, f.silent = []string{"default", "ux", "lab-1-x"}, nil
	r := f.run("", "up")
	if r.code != ExitOK || f.started[0].Mesh != "default" || !strings.Contains(r.stderr, "Next: lateen apply --name default") {
		t.Errorf("started %+v: %+v", f.started, r)
	}
	f.variable = map[string]string{nameVariable: "blue"}
	if r = f.run("", "up"); r.code != ExitOK || f.started[1].Mesh != "blue" {
		t.Errorf("started %+v: %+v", f.started, r)
	}
}

// A user who may not ask the engine is told so, rather than that nothing runs.
func TestAMeshThatAnswersRootAloneRuns(t *testing.T) {
	f := newFake(t)
	f.meshes, f.silent, f.guarded = []string{"ux"}, nil, []string{"ux"}
	if r := f.run("", "get", "pods"); r.code != ExitFailure || !strings.Contains(r.stderr, "the engine of mesh ux answers root alone\n  fix: run the command with sudo") {
		t.Errorf("%+v", r)
	}
	if r := f.run("", "list", "-o", "json"); !strings.Contains(r.stdout, `"state": "unknown"`) || !strings.Contains(r.stdout, `"fix": "run the command with sudo"`) {
		t.Errorf("%+v", r)
	}
}

func TestADownOfAMistypedNameNamesTheMeshesThatRun(t *testing.T) {
	f := newFake(t)
	f.meshes, f.silent = []string{"ux"}, nil
	f.fail = fmt.Errorf("%w: there is no /run/lateen/xu", api.ErrNotRunning)
	if r := f.run("", "down", "--name", "xu"); r.code != ExitOK || r.stdout != "mesh xu is not running\n" || !strings.Contains(r.stderr, "warning: running: ux") {
		t.Errorf("%+v", r)
	}
}

func TestDownOfALabsMeshNeedsItsName(t *testing.T) {
	f := newFake(t)
	f.meshes, f.silent = []string{"lab-1-x"}, nil
	if r := f.run("", "down"); r.code != ExitUsage || len(f.stopped) > 0 {
		t.Errorf("stopped %q: %+v", f.stopped, r)
	}
}

func TestListShowsEveryMeshOfTheMachine(t *testing.T) {
	f := newFake(t)
	f.meshes, f.silent, f.alive = []string{"ux", "default", "left", "rising"}, []string{"left", "rising"}, []string{"rising"}
	f.status = sampleStatus()
	r := f.run("", "list", "-o", "json")
	var meshes []printer.Mesh
	if err := json.Unmarshal([]byte(r.stdout), &meshes); err != nil || len(meshes) != 4 {
		t.Fatalf("%v: %+v", err, r)
	}
	states := ""
	for _, m := range meshes {
		states += m.Name + "=" + string(m.State) + " "
	}
	if states != "default=running left=stopped rising=silent ux=running " {
		t.Error(states)
	}
	if m := meshes[0]; m.Nodes != 2 || m.Version != "1.2.3" || m.Pods == nil || *m.Pods == 0 || *m.Enrolled == 0 || *m.Enrolled > *m.Pods {
		t.Errorf("%+v", m)
	}
	if m := meshes[1]; m.Fix != "lateen down --name left" || m.Pods != nil {
		t.Errorf("%+v", m)
	}
	r = f.run("", "ls")
	if r.code != ExitOK || !strings.Contains(r.stdout, "NAME      STATE     NODES") || !strings.Contains(r.stderr, "Next: lateen down --name left\n") || strings.Contains(r.stdout, "lateen down") {
		t.Errorf("%+v", r)
	}
	if r = f.run("", "list", "-o", "name"); r.stdout != "default\nleft\nrising\nux\n" {
		t.Errorf("%+v", r)
	}
	f.meshes = nil
	if r = f.run("", "list"); r.code != ExitOK || r.stdout != "" || !strings.Contains(r.stderr, "Next: lateen up\n") {
		t.Errorf("%+v", r)
	}
	if r = f.run("", "list", "-o", "json"); r.stdout != "[]\n" {
		t.Errorf("no mesh is %q", r.stdout)
	}
}

func TestCheckOfAMachineWithAMeshSuggestsNoOther(t *testing.T) {
	for want, running := range map[string][]string{"lateen up": nil, "lateen status": {"default"}, "lateen status --name ux": {"ux"}, "lateen list": {"ux", "default"}} {
		f := newFake(t)
		f.meshes, f.silent = running, nil
		a := newApp(f.env(nil, nil, nil))
		if got := a.addressed((statusCommands{a}).afterCheck("up")); got != want {
			t.Errorf("with %q running it suggests %q, want %q", running, got, want)
		}
	}
	f := newFake(t)
	f.meshes, f.silent = []string{"ux", "blue"}, []string{"blue"}
	a := newApp(f.env(nil, nil, nil))
	a.mesh = "blue"
	if got := a.addressed((statusCommands{a}).afterCheck("up")); got != "lateen up --name blue" {
		t.Errorf("for a mesh that does not run it suggests %q", got)
	}
}
