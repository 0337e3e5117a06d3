package cli

import (
	"encoding/json"
	"net/url"
	"slices"
	"strings"
	"testing"

	"lateen.dev/lateen/internal/engine/api"
)

// deleteRequestOf is what the engine was asked to delete.
func deleteRequestOf(t *testing.T, f *fakeEngine) (request api.DeleteRequest) {
	t.Helper()
	i := slices.IndexFunc(f.asked, func(s string) bool { return strings.HasPrefix(s, "POST /v1/delete ") })
	if i < 0 {
		t.Fatalf("nothing was deleted: %v", f.asked)
	}
	if err := json.Unmarshal([]byte(strings.TrimPrefix(f.asked[i], "POST /v1/delete ")), &request); err != nil {
		t.Fatal(err)
	}
	return request
}

func TestDeleteChoosesBySelectorOrAll(t *testing.T) {
	for _, args := range [][]string{{"pods,svc", "-l", "app in (a,b)"}, {"pods,svc", "--all"}} {
		f := newFake(t)
		f.objects = sampleObjects()
		if r := f.run("", append([]string{"delete"}, args...)...); r.code != ExitOK {
			t.Fatalf("%v: %+v", args, r)
		}
		request := deleteRequestOf(t, f)
		var names []string
		for _, k := range request.Keys {
			names = append(names, k.String())
		}
		if got := strings.Join(names, " "); got != "default/pod/details-v1-a default/pod/ratings-v1-b default/service/details" || !request.IgnoreNotFound || !request.Wait || request.DryRun || request.GraceSeconds != nil {
			t.Errorf("%v: %+v", args, request)
		}
		if args[1] == "-l" && !strings.Contains(f.asked[0], "selector="+url.QueryEscape("app in (a,b)")) {
			t.Errorf("asked %s", f.asked[0])
		}
	}
	f := newFake(t)
	if r := f.run("", "delete", "pods", "--all", "-n", "empty"); r.code != ExitOK || !strings.Contains(r.stderr, "no pods found in namespace empty") || f.askedFor("POST") {
		t.Errorf("%+v, asked %v", r, f.asked)
	}
}

func TestDeletePassesItsFlagsOn(t *testing.T) {
	grace := func(args ...string) *int64 {
		f := newFake(t)
		if r := f.run("", append([]string{"delete", "pod", "a"}, args...)...); r.code != ExitOK {
			t.Fatalf("%v: %+v", args, r)
		}
		return deleteRequestOf(t, f).GraceSeconds
	}
	if g := grace(); g != nil {
		t.Errorf("without a flag: %d", *g)
	}
	for flag, want := range map[string]int64{"--now": 1, "--grace-period=0": 0, "--grace-period=7": 7} {
		if g := grace(flag); g == nil || *g != want {
			t.Errorf("%s: %v", flag, g)
		}
	}
	if g := grace("--grace-period=-1"); g != nil {
		t.Errorf("-1: %d", *g)
	}
	f := newFake(t)
	if r := f.run("", "delete", "pod", "a", "--dry-run"); r.code != ExitOK || r.stdout != "default/pod/a deleted (dry run)\n" || !deleteRequestOf(t, f).DryRun {
		t.Errorf("%+v", r)
	}
}

func TestDeleteRefusesWhatIsAmbiguous(t *testing.T) {
	for want, args := range map[string][]string{
		"name the namespaces":                  {"namespaces", "--all"},
		"--all and -l: use one":                {"pods", "--all", "-l", "a=b"},
		`leave out the name "x"`:               {"pods", "x", "--all"},
		"write Pod instead of pod/x":           {"pod/x", "--all"},
		"missing argument: KIND":               {"--all"},
		"-f names the objects":                 {"-f", "x.yaml", "--all"},
		"--now and --grace-period: use one":    {"pod", "x", "--now", "--grace-period=3"},
		"--grace-period=-2: use a number":      {"pod", "x", "--grace-period=-2"},
		"missing argument: -f FILE or KIND":    {},
		"missing argument: the name of a Pod":  {"pods"},
		"either by -f or by arguments":         {"-f", "x.yaml", "pod", "x"},
		"cannot be selected by -l or -A":       {"pod/x", "-l", "a=b"},
		`leave out the name "y"`:               {"pods", "y", "-l", "a=b"},
		"use one of namespaces, nodes, servic": {"nonsensical", "--all"},
	} {
		f := newFake(t)
		if r := f.run("", append([]string{"delete"}, args...)...); r.code != ExitUsage || !strings.Contains(r.stderr, want) || f.askedFor("POST") {
			t.Errorf("%v: %+v", args, r)
		}
	}
}

func TestDeleteRefusesNamespacesBySelector(t *testing.T) {
	for _, args := range [][]string{{"ns", "-l", "team=a"}, {"pods,namespaces", "-l", "team=a"}} {
		f := newFake(t)
		if r := f.run("", append([]string{"delete"}, args...)...); r.code != ExitUsage || f.askedFor("POST") || !strings.Contains(r.stderr, "-l would remove every namespace") || !strings.Contains(r.stderr, "name the namespaces") {
			t.Errorf("%v: %+v", args, r)
		}
	}
}

func TestAKindsGroupReachesTheEngine(t *testing.T) {
	f := newFake(t)
	if r := f.run("", "delete", "gateways.networking.istio.io", "gw"); r.code != ExitOK {
		t.Fatalf("%+v", r)
	}
	want := api.Key{Group: "networking.istio.io", Kind: "Gateway", Namespace: "default", Name: "gw"}
	if got := deleteRequestOf(t, f).Keys; !slices.Equal(got, []api.Key{want}) {
		t.Errorf("deletes %+v, want %+v", got, want)
	}
	for _, args := range [][]string{{"get", "gateways.networking.istio.io"}, {"get", "gateway.networking.istio.io/gw"}, {"delete", "gateways.networking.istio.io", "--all"}, {"label", "gateways.networking.istio.io", "gw", "a=b"}} {
		f = newFake(t)
		f.run("", args...)
		if len(f.asked) == 0 || !strings.Contains(f.asked[0], "group=networking.istio.io") {
			t.Errorf("%v asks %v", args, f.asked)
		}
	}
	if r := f.run("", "delete", "gateways.some.group", "gw"); r.code != ExitUsage || !strings.Contains(r.stderr, "gateway.networking.k8s.io and networking.istio.io") {
		t.Errorf("%+v", r)
	}
}

func TestLabelAndAnnotateChooseBySelectorOrAll(t *testing.T) {
	for _, args := range [][]string{{"label", "pods,svc", "-l", "app in (a,b)"}, {"annotate", "pods,svc", "--all"}} {
		f := newFake(t)
		f.objects = sampleObjects()
		r := f.run("", append(args, "team=a", "old-")...)
		verb := map[string]string{"label": "labeled", "annotate": "annotated"}[args[0]]
		want := strings.ReplaceAll("default/pod/details-v1-a V\ndefault/pod/ratings-v1-b V\ndefault/service/details V\n", "V", verb)
		if r.code != ExitOK || r.stdout != want {
			t.Errorf("%v: %+v, want %q", args, r, want)
		}
		if args[2] == "-l" && !strings.Contains(f.asked[0], "selector="+url.QueryEscape("app in (a,b)")) {
			t.Errorf("asked %s", f.asked[0])
		}
	}
	f := newFake(t)
	if r := f.run("", "label", "pods", "--all", "a=b", "-n", "empty"); r.code != ExitOK || !strings.Contains(r.stderr, "no pods found in namespace empty") || f.askedFor("POST") {
		t.Errorf("%+v, asked %v", r, f.asked)
	}
	for line, want := range map[string]string{
		"label pods --all -l a=b c=d": "--all and -l: use one of them",
		"label pods web -l a=b c=d":   `leave out the name "web"`,
		"label pod/web -l a=b c=d":    "cannot be selected by -l",
		"label pod/web --all c=d":     "write Pod instead of pod/web",
		"annotate pods -l a=b c=d e":  `"e" is neither KEY=VALUE nor KEY-`,
		"annotate pods --all":         "missing argument",
	} {
		if r := newFake(t).run("", strings.Fields(line)...); r.code != ExitUsage || !strings.Contains(r.stderr, want) {
			t.Errorf("%s: %+v, want %q", line, r, want)
		}
	}
}

// The objects are checked before the first is changed: half of a change is worse than none.
func TestLabelOfSeveralObjectsChangesNoneIfOneHasAnotherValue(t *testing.T) {
	f := newFake(t)
	f.objects = []api.Object{object("pod", "a", `{"metadata":{"name":"a"}}`), object("pod", "b", `{"metadata":{"name":"b","labels":{"team":"b"}}}`)}
	if r := f.run("", "label", "pods", "--all", "team=a"); r.code != ExitFailure || !strings.Contains(r.stderr, `already "b"`) || f.askedFor("POST") {
		t.Errorf("%+v, asked %v", r, f.asked)
	}
}
