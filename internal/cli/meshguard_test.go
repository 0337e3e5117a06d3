package cli

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"lateen.dev/lateen/internal/install"
)

// runBeside runs a command on a machine whose kubeconfig names a cluster. reached reports whether the command asked that cluster.
func runBeside(f *fakeEngine, args ...string) (r result, reached bool) {
	var stdout, stderr bytes.Buffer
	env := f.env(strings.NewReader(""), &stdout, &stderr)
	env.Cluster = func(string, string) (*install.Cluster, error) {
		reached = true
		return nil, errors.New("the cluster was asked")
	}
	code := Run(f.t.Context(), env, args)
	return result{code, stdout.String(), stderr.String()}, reached
}

// A user who names a mesh of this machine does not mean the cluster that the kubeconfig happens to name.
func TestANameNeverReachesACluster(t *testing.T) {
	commands := [][]string{{"label", "namespace", "default", "a=b"}, {"get", "pods"}, {"status"}, {"delete", "pod", "x"}, {"ca", "rotate"}, {"check"}}
	for _, command := range commands {
		f := newFake(t)
		f.meshes = nil
		f.silent = []string{"ghost"}
		if r, reached := runBeside(f, append([]string{"--name", "ghost"}, command...)...); reached || command[0] != "check" && (r.code != ExitFailure || !strings.Contains(r.stderr, "mesh ghost is not running")) {
			t.Errorf("--name ghost %v reached the cluster: %v; %+v", command, reached, r)
		}
		f.variable = map[string]string{nameVariable: "ghost"}
		if r, reached := runBeside(f, command...); reached {
			t.Errorf("LATEEN_NAME=ghost %v reached the cluster: %+v", command, r)
		}
		f.variable, f.silent = nil, []string{"default"}
		if r, reached := runBeside(f, command...); !reached {
			t.Errorf("%v without a name did not reach the cluster: %+v", command, r)
		}
	}
	f := newFake(t)
	f.silent = []string{"ghost"}
	if r, reached := runBeside(f, "--name", "ghost", "--context", "east", "get", "pods"); !reached {
		t.Errorf("--context did not reach the cluster: %+v", r)
	}
	for _, command := range []string{"install", "upgrade", "uninstall"} {
		if r, reached := runBeside(f, command, "--name", "ghost"); reached || r.code != ExitUsage || !strings.Contains(r.stderr, "--name ghost names a mesh of this machine") {
			t.Errorf("%s reached the cluster: %v; %+v", command, reached, r)
		}
	}
}

func TestDownRefusesACluster(t *testing.T) {
	for _, args := range [][]string{{"--context", "prod", "down"}, {"--kubeconfig", "x", "down"}, {"down"}} {
		f := newFake(t)
		f.meshes, f.silent = []string{"ux"}, nil
		if len(args) == 1 {
			f.variable = map[string]string{"LATEEN_ENGINE": engineKubernetes}
		}
		r := f.run("", args...)
		if r.code != ExitUsage || len(f.stopped) > 0 || !strings.Contains(r.stderr, "down ends a mesh of this machine") || !strings.Contains(r.stderr, "lateen uninstall") {
			t.Errorf("%v ended %q: %+v", args, f.stopped, r)
		}
	}
}

func TestAnEmptyNameIsRefused(t *testing.T) {
	for _, command := range [][]string{{"get", "pods"}, {"down"}, {"up"}, {"demo"}} {
		f := newFake(t)
		r := f.run("", append(command, "--name", "")...)
		if r.code != ExitUsage || !strings.Contains(r.stderr, "--name") || len(f.asked)+len(f.stopped)+len(f.started) > 0 {
			t.Errorf("%v: %+v", command, r)
		}
	}
	f := newFake(t)
	f.meshes, f.silent, f.variable = []string{"ux"}, nil, map[string]string{nameVariable: ""}
	if r := f.run("", "down"); r.code != ExitOK || !slices.Equal(f.stopped, []string{"ux"}) {
		t.Errorf("an empty variable ended %q: %+v", f.stopped, r)
	}
}

// A user whose mesh crashed may mean that one by a bare down, and not the one that runs.
func TestABareDownBesideAStoppedMeshEndsNothing(t *testing.T) {
	f := newFake(t)
	f.meshes, f.silent = []string{"default", "other"}, []string{"default"}
	if r := f.run("", "down"); r.code != ExitUsage || len(f.stopped) > 0 || !strings.Contains(r.stderr, "other") || !strings.Contains(r.stderr, "default") {
		t.Errorf("ended %q: %+v", f.stopped, r)
	}
	for _, name := range f.meshes {
		if r := f.run("", "down", "--name", name); r.code != ExitOK || f.stopped[len(f.stopped)-1] != name {
			t.Errorf("ended %q: %+v", f.stopped, r)
		}
	}
	if r := f.run("", "get", "pods"); r.code != ExitOK {
		t.Errorf("another command takes the mesh that runs: %+v", r)
	}
}

func TestUpKeepsTheNamesOfLabRuns(t *testing.T) {
	f := newFake(t)
	if r := f.run("", "up", "--name", "lab-x"); r.code != ExitUsage || len(f.started) > 0 || !strings.Contains(r.stderr, `--name "lab-x": names that begin with lab- belong to lab runs`) {
		t.Errorf("started %+v: %+v", f.started, r)
	}
	if r := f.run("", "up", "--name", "card-7"); r.code != ExitUsage || len(f.started) > 0 || !strings.Contains(r.stderr, `--name "card-7": names that begin with card- belong to scorecards of the lab`) {
		t.Errorf("started %+v: %+v", f.started, r)
	}
	if r := f.run("", "up", "--name", "labour"); r.code != ExitOK || len(f.started) != 1 {
		t.Errorf("started %+v: %+v", f.started, r)
	}
}
