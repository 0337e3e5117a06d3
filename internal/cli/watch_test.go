package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"lateen.dev/lateen/internal/engine/api"
)

func podIn(name, phase string, labels map[string]string) api.Object {
	head, _ := json.Marshal(map[string]any{"name": name, "labels": labels})
	return object("pod", name, fmt.Sprintf(`{"kind":"Pod","metadata":%s,"spec":{"nodeName":"n1","containers":[{"name":"c"}]},"status":{"phase":%q,"podIP":"10.244.1.9"}}`, head, phase))
}

// watch runs a get --watch over states of the mesh, one for each question, and interrupts it when all were shown.
func watchStates(t *testing.T, states [][]api.Object, args ...string) result {
	t.Helper()
	f := newFake(t)
	var asked atomic.Int64
	ctx, cancel := context.WithCancel(t.Context())
	f.present = func() []api.Object {
		i := int(asked.Add(1)) - 1
		if i == len(states) {
			cancel()
		}
		return states[min(i, len(states)-1)]
	}
	var stdout, stderr bytes.Buffer
	env := Env{
		Stdout: &stdout, Stderr: &stderr, Stdin: strings.NewReader(""), Now: func() time.Time { return now },
		Connect: func(mesh string) *api.Client { return api.NewAt(mesh, f.socket) },
	}
	code := Run(ctx, env, append([]string{"get"}, args...))
	return result{code, stdout.String(), stderr.String()}
}

func TestWatchShowsEachChangeBelowOneHeading(t *testing.T) {
	a, b := podIn("a-1", "Pending", nil), podIn("b-a-long-name-that-comes-late", "Running", nil)
	states := [][]api.Object{{a}, {a}, {podIn("a-1", "Running", nil), b}, {b}}
	r := watchStates(t, states, "pods", "-w")
	lines := strings.Split(strings.TrimSuffix(r.stdout, "\n"), "\n")
	var words []string
	for _, line := range lines {
		fields := strings.Fields(line)
		words = append(words, fields[0]+":"+fields[2])
	}
	if got := strings.Join(words, " "); r.code != ExitOK || got != "NAME:STATUS a-1:Pending a-1:Running b-a-long-name-that-comes-late:Running a-1:Deleted" {
		t.Errorf("exit code %d, %s\n%s%s", r.code, got, r.stdout, r.stderr)
	}
	// A cell that does not fit below its heading moves the rest of its own line only.
	at := strings.Index(lines[0], "STATUS")
	for _, i := range []int{1, 2, 4} {
		if at < 0 || lines[i][at-1] != ' ' || lines[i][at] == ' ' {
			t.Errorf("not aligned: %q", lines[i])
		}
	}
}

// Gateways of two API groups may have one name.
func TestObjectsOfSeveralGroupsAreToldApart(t *testing.T) {
	gateway := func(group string) api.Object {
		return api.Object{Key: api.Key{Group: group, Kind: "Gateway", Namespace: "default", Name: "gw"}, APIVersion: group + "/v1", Raw: []byte(`{"metadata":{"name":"gw","namespace":"default"}}`)}
	}
	k8s, istio := gateway("gateway.networking.k8s.io"), gateway("networking.istio.io")
	names := func(r result) string {
		var names []string
		for line := range strings.Lines(r.stdout) {
			names = append(names, strings.Fields(line)[0])
		}
		return strings.Join(names, " ")
	}
	const both = "NAME gateway/gw gateway.networking.istio.io/gw"
	f := newFake(t)
	f.objects = []api.Object{k8s, istio}
	if r := f.run("", "get", "gateways"); names(r) != both {
		t.Errorf("got %s, want %s: %+v", names(r), both, r)
	}
	f.objects = []api.Object{k8s}
	if r := f.run("", "get", "gateways"); names(r) != "NAME gw" {
		t.Errorf("of one group: %+v", r)
	}
	if r := watchStates(t, [][]api.Object{{k8s}, {k8s, istio}, {k8s, istio}}, "gateways", "-w"); names(r) != both {
		t.Errorf("watched: %+v", r)
	}
}

func TestWatchSaysWhatHappened(t *testing.T) {
	a := podIn("a", "Pending", nil)
	states := [][]api.Object{{a}, {podIn("a", "Running", nil)}, {}}
	r := watchStates(t, states, "pods", "--watch", "--output-watch-events")
	var events []string
	for line := range strings.Lines(r.stdout) {
		events = append(events, strings.Fields(line)[0])
	}
	if !slices.Equal(events, []string{"EVENT", "ADDED", "MODIFIED", "DELETED"}) {
		t.Errorf("%s", r.stdout)
	}
	r = watchStates(t, states, "pods", "-w", "-o", "json", "--output-watch-events")
	decoder := json.NewDecoder(strings.NewReader(r.stdout))
	for _, want := range []string{"ADDED Pending", "MODIFIED Running", "DELETED Running"} {
		var e struct {
			Type   string
			Object struct{ Status struct{ Phase string } }
		}
		if err := decoder.Decode(&e); err != nil || e.Type+" "+e.Object.Status.Phase != want {
			t.Errorf("%+v, %v; want %s", e, err, want)
		}
	}
	r = watchStates(t, states, "pods", "-w", "-o", "jsonpath={.metadata.name}={.status.phase} ")
	if r.stdout != "a=Pending a=Running a=Running " {
		t.Errorf("jsonpath: %q", r.stdout)
	}
	if r := watchStates(t, states, "pods", "--output-watch-events"); r.code != ExitUsage {
		t.Errorf("%+v", r)
	}
}

// A named object that goes is told; one that is not there at first is an error.
func TestWatchOfANamedObject(t *testing.T) {
	states := [][]api.Object{{podIn("a", "Running", nil)}, {}, {podIn("a", "Pending", nil)}}
	r := watchStates(t, states, "pod", "a", "-w", "-o", "name")
	if r.code != ExitOK || r.stdout != strings.Repeat("pod/a\n", 3) {
		t.Errorf("%+v", r)
	}
	if r := watchStates(t, [][]api.Object{{}}, "pod", "a", "-w"); r.code != ExitFailure || !strings.Contains(r.stderr, "not found") {
		t.Errorf("%+v", r)
	}
}

func TestLabelsAndPathsOfObjects(t *testing.T) {
	f := newFake(t)
	f.objects = []api.Object{podIn("a", "Running", map[string]string{"app": "web", "v": "1"}), podIn("b", "Running", nil)}
	row := func(r result, i int) string {
		return strings.Join(strings.Fields(strings.Split(r.stdout, "\n")[i]), " ")
	}
	r := f.run("", "get", "pods", "-L", "app,example.com/tier", "--show-labels")
	if row(r, 0) != "NAME READY STATUS RESTARTS AGE APP TIER LABELS" || !strings.HasSuffix(row(r, 1), "90s web - app=web,v=1") || !strings.HasSuffix(row(r, 2), "90s - - -") {
		t.Errorf("%s", r.stdout)
	}
	for template, want := range map[string]string{
		"{.items[*].metadata.name}":                                     "a b",
		`{range .items[*]}{.metadata.name}{"\n"}{end}`:                  "a\nb\n",
		`{.items[?(@.metadata.labels.app=="web")].status.podIP}`:        "10.244.1.9",
		"{.items[0].metadata.missing}":                                  "",
		"{.items[0].spec.containers[0].name}/{.items[1].metadata.name}": "c/b",
	} {
		if r := f.run("", "get", "pods", "-o", "jsonpath="+template); r.code != ExitOK || r.stdout != want {
			t.Errorf("%s: %+v", template, r)
		}
	}
	if r := f.run("", "get", "pod", "a", "-o", "jsonpath={.metadata.name}"); r.stdout != "a" {
		t.Errorf("one object: %+v", r)
	}
	for _, output := range []string{"jsonpath", "jsonpath=.metadata.name", "jsonpath={.metadata", "jsonpath="} {
		if r := f.run("", "get", "pods", "-o", output); r.code != ExitUsage || !strings.Contains(r.stderr, "jsonpath") {
			t.Errorf("%s: %+v", output, r)
		}
	}
}
