package cli

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"lateen.dev/lateen/internal/engine/api"
)

// refusedBy is an object that the control plane accepted and a proxy refuses.
func refusedBy(o api.Object) api.Object {
	o.Conditions = []api.Condition{{Type: "Accepted", Status: "True", Reason: "Accepted", Message: "the object is in force"},
		{Type: "lateen.dev/Programmed", Status: "False", Reason: "RefusedByProxy", Message: "the proxy of node n1 refuses it: no scope 9"}}
	return o
}

func accepted(o api.Object) api.Object {
	o.Conditions = refusedBy(o).Conditions[:1]
	return o
}

func TestWaitFailsOnWhatAProxyRefuses(t *testing.T) {
	policy := object("authorizationpolicy", "deny", `{"kind":"AuthorizationPolicy","metadata":{"name":"deny"}}`)
	tests := map[string]struct {
		change  func(*fakeEngine)
		args    []string
		refused string // empty: it succeeds
	}{
		"nothing is refused":   {func(f *fakeEngine) { f.objects = append(f.objects, accepted(policy)) }, nil, ""},
		"a policy, by name":    {func(f *fakeEngine) { f.objects = append(f.objects, refusedBy(policy)) }, []string{"authorizationpolicy/deny"}, "authorizationpolicy/deny"},
		"a policy in force":    {func(f *fakeEngine) { f.objects = append(f.objects, accepted(policy)) }, []string{"authorizationpolicy/deny"}, ""},
		"a policy, unasked":    {func(f *fakeEngine) { f.objects = append(f.objects, refusedBy(policy)) }, nil, "authorizationpolicy/deny"},
		"not what is waited":   {func(f *fakeEngine) { f.objects = append(f.objects, refusedBy(policy)) }, []string{"alone"}, ""},
		"a pod":                {func(f *fakeEngine) { f.objects[2] = refusedBy(f.objects[2]) }, []string{"alone"}, "pod/alone"},
		"a pod's deployment":   {func(f *fakeEngine) { f.objects[1] = refusedBy(f.objects[1]) }, []string{"deploy/web"}, "pod/web-a"},
		"a pod of another one": {func(f *fakeEngine) { f.objects[2] = refusedBy(f.objects[2]) }, []string{"deploy/web"}, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			f.objects = twoPods()
			tt.change(f)
			f.status = api.Status{Control: api.ControlState{Ready: true, Generation: 7},
				Pods:  []api.PodState{{Namespace: "default", Name: "web-a", Mesh: "plain"}, {Namespace: "default", Name: "alone", Mesh: "plain"}},
				Nodes: []api.NodeState{{Name: "n1", Proxy: api.ProxyState{AckedGeneration: 7}}}}
			start := time.Now()
			r := f.run("", append([]string{"wait", "--timeout", "60s"}, tt.args...)...)
			if tt.refused == "" {
				if r.code != ExitOK {
					t.Errorf("got %+v", r)
				}
				return
			}
			if want := tt.refused + " (RefusedByProxy: the proxy of node n1 refuses it: no scope 9); correct it and apply it again"; r.code != ExitFailure || strings.Count(r.stderr, want) != 1 {
				t.Errorf("got %+v, want %q once", r, want)
			}
			if took := time.Since(start); took > 45*time.Second {
				t.Errorf("it took %s: the wait went on to its end", took)
			}
		})
	}
}

// doubted is an object that came to a proxy together with something that it refuses.
func doubted(o api.Object, reason string) api.Object {
	o.Conditions = []api.Condition{{Type: "Accepted", Status: "True", Reason: "Accepted", Message: "the object is in force"},
		{Type: "lateen.dev/Programmed", Status: "Unknown", Reason: reason, Message: "whether the proxy of node n1 uses this is not known"}}
	return o
}

func TestWhatMayBeRefusedIsNeverLiveAndFailsNobodyElse(t *testing.T) {
	policy := object("authorizationpolicy", "deny", `{"kind":"AuthorizationPolicy","metadata":{"name":"deny"}}`)
	const partly, unnamed = "MayBeRefused", "RefusalUnnamed"
	tests := map[string]struct {
		change func(*fakeEngine)
		args   []string
		waits  string // what for, to the end; empty: it succeeds
		warns  string // of what; empty: of nothing
	}{
		"a policy, by name, partly named":    {func(f *fakeEngine) { f.objects = append(f.objects, doubted(policy, partly)) }, []string{"authorizationpolicy/deny"}, "authorizationpolicy/deny", ""},
		"a policy, by name, nothing named":   {func(f *fakeEngine) { f.objects = append(f.objects, doubted(policy, unnamed)) }, []string{"authorizationpolicy/deny"}, "authorizationpolicy/deny", ""},
		"a policy, unasked, partly named":    {func(f *fakeEngine) { f.objects = append(f.objects, doubted(policy, partly)) }, nil, "", "authorizationpolicy/deny"},
		"a policy, unasked, nothing named":   {func(f *fakeEngine) { f.objects = append(f.objects, doubted(policy, unnamed)) }, nil, "", "authorizationpolicy/deny"},
		"not what is waited for":             {func(f *fakeEngine) { f.objects = append(f.objects, doubted(policy, partly)) }, []string{"alone"}, "", ""},
		"a pod, partly named":                {func(f *fakeEngine) { f.objects[2] = doubted(f.objects[2], partly) }, []string{"alone"}, "", "pod/alone"},
		"a pod, nothing named":               {func(f *fakeEngine) { f.objects[2] = doubted(f.objects[2], unnamed) }, []string{"alone"}, "", "pod/alone"},
		"a deployment's pod, partly named":   {func(f *fakeEngine) { f.objects[1] = doubted(f.objects[1], partly) }, []string{"deploy/web"}, "", "pod/web-a"},
		"a deployment's pod, nothing named":  {func(f *fakeEngine) { f.objects[1] = doubted(f.objects[1], unnamed) }, []string{"deploy/web"}, "", "pod/web-a"},
		"a pod of another, partly named":     {func(f *fakeEngine) { f.objects[2] = doubted(f.objects[2], partly) }, []string{"deploy/web"}, "", ""},
		"nothing is refused and all is told": {func(f *fakeEngine) { f.objects = append(f.objects, accepted(policy)) }, nil, "", ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFake(t)
			f.objects = twoPods()
			tt.change(f)
			f.status = api.Status{Control: api.ControlState{Ready: true, Generation: 7},
				Pods:  []api.PodState{{Namespace: "default", Name: "web-a", Mesh: "plain"}, {Namespace: "default", Name: "alone", Mesh: "plain"}},
				Nodes: []api.NodeState{{Name: "n1", Proxy: api.ProxyState{AckedGeneration: 7}}}}
			timeout := "60s"
			if tt.waits != "" {
				timeout = "3s" // longer than a refusal has to last
			}
			r := f.run("", append([]string{"wait", "--timeout", timeout}, tt.args...)...)
			said := func(name string) string { return name + " (" }
			switch {
			case tt.waits != "":
				if r.code != ExitFailure || !strings.Contains(r.stderr, "not ready within") || strings.Count(r.stderr, said(tt.waits)) != 1 || !strings.Contains(r.stderr, "is not known") {
					t.Errorf("got %+v", r)
				}
			case r.code != ExitOK || strings.Contains(r.stderr, "not known") != (tt.warns != "") || !strings.Contains(r.stderr, tt.warns):
				t.Errorf("got %+v", r)
			}
		})
	}
	f := newFake(t)
	f.objects = append(twoPods(), doubted(policy, partly))
	f.objects[2] = doubted(f.objects[2], unnamed)
	for args, want := range map[string][]string{
		"get authorizationpolicies":         {"deny", "unknown"},
		"get authorizationpolicies -o wide": {"MayBeRefused: whether the proxy of node n1 uses this is not known"},
		"get pods":                          {"MESH STATE", "unknown"},
		"get pods -o wide":                  {"RefusalUnnamed: whether"},
		"get pod alone -o yaml":             {"type: lateen.dev/Programmed", "status: Unknown"},
	} {
		r := f.run("", strings.Fields(args)...)
		for _, w := range want {
			if r.code != ExitOK || !strings.Contains(r.stdout, w) || strings.Contains(r.stdout, "live") {
				t.Errorf("%s lacks %q: %+v", args, w, r)
			}
		}
	}
}

func TestDoubtsOfOneReasonAreOneLine(t *testing.T) {
	d := doubts{}
	for i := range 30 {
		d.add(fmt.Sprint("service/s", i), "nobody knows")
		d.add(fmt.Sprint("service/s", i), "nobody knows")
	}
	d.add("pod/p", "else")
	lines := d.lines()
	if len(lines) != 2 || lines[0] != "pod/p (else)" || !strings.HasPrefix(lines[1], "service/s0, service/s1, ") || !strings.HasSuffix(lines[1], "service/s19, and 10 more (nobody knows)") {
		t.Errorf("%q", lines)
	}
}

// A refusal that ends while something is waited for was about an earlier version.
func TestAPassingRefusalFailsNoWait(t *testing.T) {
	p := patience{}
	at := time.Unix(1000, 0)
	for i, step := range []struct {
		after   time.Duration
		present []string
		lasting int
	}{{0, []string{"a"}, 0}, {refusalPatience - 1, []string{"a", "b"}, 0}, {1, []string{"a", "b"}, 1}, {0, nil, 0}, {0, []string{"a"}, 0}, {refusalPatience, []string{"a"}, 1}} {
		at = at.Add(step.after)
		if got := p.lasting(step.present, at); len(got) != step.lasting {
			t.Errorf("step %d: %v", i, got)
		}
	}
}

func TestGetShowsWhatAProxyRefuses(t *testing.T) {
	f := newFake(t)
	f.objects = append(twoPods(), refusedBy(object("authorizationpolicy", "deny", `{"kind":"AuthorizationPolicy","metadata":{"name":"deny"}}`)),
		accepted(object("service", "ok", `{"kind":"Service","metadata":{"name":"ok"}}`)))
	f.objects[2] = refusedBy(f.objects[2])
	for args, want := range map[string][]string{
		"get authorizationpolicies":         {"deny", "refused"},
		"get authorizationpolicies -o wide": {"RefusedByProxy: the proxy of node n1 refuses it: no scope 9"},
		"get authorizationpolicies -o yaml": {"reason: RefusedByProxy", "type: lateen.dev/Programmed"},
		"get authorizationpolicies -o json": {`"reason": "RefusedByProxy"`, `"type": "Accepted"`},
		"get pods":                          {"MESH STATE", "refused"},
		"get pods -o wide":                  {"no scope 9"},
		"get pod alone -o yaml":             {"type: lateen.dev/Programmed", "type: Ready"},
	} {
		r := f.run("", strings.Fields(args)...)
		for _, w := range want {
			if r.code != ExitOK || !strings.Contains(r.stdout, w) {
				t.Errorf("%s lacks %q: %+v", args, w, r)
			}
		}
	}
	if r := f.run("", "get", "services"); strings.Contains(r.stdout, "MESH STATE") {
		t.Errorf("a column for nothing: %+v", r)
	}
	if r := f.run("", "get", "pod", "alone", "-o", "yaml"); strings.Contains(r.stdout, "type: Accepted") {
		t.Errorf("what is well is said among Kubernetes' conditions: %+v", r)
	}
}
