package cli

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"lateen.dev/lateen/internal/engine/api"
)

func TestLogsOfALabelArePrefixed(t *testing.T) {
	f := newFake(t)
	f.objects = []api.Object{podIn("a", "Running", nil), podIn("b", "Running", nil)}
	want := "[pod/a/c] /v1/logs\n[pod/b/c] /v1/logs\n"
	if r := f.run("", "logs", "-l", "app=web"); r.code != ExitOK || r.stdout != want || !strings.Contains(f.asked[0], "selector=app%3Dweb") || !strings.Contains(f.asked[1], "tail=10&target=pod%2Fa") || !strings.Contains(f.asked[2], "target=pod%2Fb") {
		t.Errorf("%+v, asked %v", r, f.asked)
	}
	f.asked = nil
	r := f.run("", "logs", "-l", "app=web", "-f", "--tail", "0", "-c", "side")
	lines := strings.Split(r.stdout, "\n")
	slices.Sort(lines)
	if r.code != ExitOK || strings.Join(lines, "\n") != "\n[pod/a/side] /v1/logs\n[pod/b/side] /v1/logs" || strings.Contains(strings.Join(f.asked, " "), "tail=") {
		t.Errorf("followed: %+v, asked %v", r, f.asked)
	}
	if r := f.run("", "logs", "-l", "app=web", "-n", "empty"); r.code != ExitOK || !strings.Contains(r.stderr, "no pods found in namespace empty with the labels app=web") {
		t.Errorf("%+v", r)
	}
	for target, want := range map[string]string{"a": "[pod/a] /v1/logs\n", "deploy/a": "[deploy/a] /v1/logs\n", "proxy/n1": "[proxy/n1] /v1/nodes/n1/proxy/log\n", "control": "[control] /v1/control/log\n"} {
		if r := f.run("", "logs", target, "--prefix"); r.stdout != want {
			t.Errorf("%s: %+v", target, r)
		}
	}
}

// A pod of the selector that was not restarted costs none of the others their logs.
func TestPreviousLogsOfALabelAreThoseOfThePodsThatHaveOne(t *testing.T) {
	f := newFake(t)
	f.objects = []api.Object{podIn("a", "Running", nil), podIn("b", "Running", nil), podIn("c", "Running", nil)}
	f.logless = map[string]*api.Error{"pod/b": {Code: http.StatusBadRequest, Message: "container side of pod b has no previous run: it was not restarted", Fix: "leave out --previous"}}
	r := f.run("", "logs", "-l", "app=web", "-p", "-c", "side")
	if r.code != ExitFailure || r.stdout != "[pod/a/side] /v1/logs\n[pod/c/side] /v1/logs\n" || !strings.Contains(r.stderr, "pod/b: container side of pod b has no previous run") || !strings.Contains(r.stderr, "1 of 3 logs could not be read") {
		t.Errorf("%+v", r)
	}
	for _, asked := range f.asked[1:] {
		if !strings.Contains(asked, "container=side") || !strings.Contains(asked, "previous=true") {
			t.Errorf("asked %s", asked)
		}
	}
}

// A cluster's logs are shown by kubectl, for which the error has a command about all pods of the selector.
func TestLogsOfALabelThatAreRefusedNameACommandForAllPods(t *testing.T) {
	f := newFake(t)
	f.objects = []api.Object{podIn("a", "Running", nil), podIn("b", "Running", nil)}
	f.logless = map[string]*api.Error{}
	for _, pod := range []string{"pod/a", "pod/b"} {
		f.logless[pod] = &api.Error{Code: http.StatusNotImplemented, Message: "logs of pods are shown by kubectl", Fix: "kubectl logs " + pod + " -n default --previous -c side; lateen logs shows those of control"}
	}
	for selector, word := range map[string]string{"app=web": "app=web", "tier!=db": "'tier!=db'"} {
		r := f.run("", "logs", "-l", selector, "-p", "-c", "side")
		if want := "fix: kubectl logs -l " + word + " --prefix -n default --previous -c side; lateen logs shows"; r.code != ExitFailure || !strings.Contains(r.stderr, want) || strings.Contains(r.stderr, "warning") {
			t.Errorf("%s: %+v, want %s", selector, r, want)
		}
	}
}

func TestLogsPassTimesAndRunsOn(t *testing.T) {
	query := func(args ...string) url.Values {
		t.Helper()
		f := newFake(t)
		if r := f.run("", append([]string{"logs"}, args...)...); r.code != ExitOK {
			t.Fatalf("%v: %+v", args, r)
		}
		_, uri, _ := strings.Cut(f.asked[0], "?")
		q, err := url.ParseQuery(uri)
		if err != nil {
			t.Fatal(err)
		}
		return q
	}
	if got := query("a", "--since", "10m").Get("since"); got != now.Add(-10*time.Minute).Format(time.RFC3339Nano) {
		t.Errorf("--since: %s", got)
	}
	if got := query("proxy/n1", "--since-time", "2026-11-20T23:00:00+02:00").Get("since"); got != "2026-11-20T21:00:00Z" {
		t.Errorf("--since-time: %s", got)
	}
	if q := query("a", "-p", "--timestamps"); q.Get("previous") != "true" || q.Get("timestamps") != "true" || q.Get("since") != "" || q.Get("tail") != "" {
		t.Errorf("-p: %v", q)
	}
	for _, args := range [][]string{{"a", "-l", "x=y"}, {}, {"a", "--since", "0s"}, {"a", "--since", "-1m"}, {"a", "--since-time", "yesterday"}, {"a", "--since", "1m", "--since-time", "2026-11-20T23:00:00Z"}, {"a", "-p", "-f"}} {
		if r := newFake(t).run("", append([]string{"logs"}, args...)...); r.code != ExitUsage {
			t.Errorf("%v: %+v", args, r)
		}
	}
}
