package cli

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"lateen.dev/lateen/internal/engine/api"
)

// refusedBy is an object that the control plane accepted and a proxy refuses.
func refusedBy(o api.Object) api.Object {
	o.Conditions = []api.Condition{{Type: "Accepted", Status: "True", Reason: "Accepted", Message: "the object is accepted as it is written"},
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
			if want := tt.refused + " (RefusedByProxy: the proxy of node n1 refuses it: no scope 9)\n  fix: correct it and apply it again"; r.code != ExitFailure || strings.Count(r.stderr, want) != 1 {
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
	o.Conditions = []api.Condition{{Type: "Accepted", Status: "True", Reason: "Accepted", Message: "the object is accepted as it is written"},
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
			r := f.waits(timeout, tt.args...)
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
		if got := p.lasting(step.present, at, refusalPatience); len(got) != step.lasting {
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

// On Kubernetes the API server takes what the control plane then refuses: the version before it, or the strictest reading of this one, is in
// force, and not what somebody waits for.
func TestWaitFailsOnWhatTheControlPlaneRefuses(t *testing.T) {
	wrong := object("authorizationpolicy", "deny", `{"kind":"AuthorizationPolicy","metadata":{"name":"deny"}}`)
	wrong.Conditions = []api.Condition{{Type: "Accepted", Status: "False", Reason: "Invalid", Message: "spec.rules: no address"},
		{Type: "lateen.dev/Programmed", Status: "True", Reason: "Programmed", Message: "every node proxy has acknowledged it"}}
	f := acknowledging(t, func(*fakeEngine, int) {})
	f.objects = append(f.objects, wrong)
	if r := f.run("", "wait", "--timeout", "60s", "authorizationpolicy/deny"); r.code != ExitFailure || !strings.Contains(r.stderr, "authorizationpolicy/deny (Invalid: spec.rules: no address)\n  fix: correct it and apply it again") {
		t.Errorf("got %+v", r)
	}
	// A wait that does not name the object is not held up by it.
	if r := f.run("", "wait", "--timeout", "60s"); r.code != ExitOK {
		t.Errorf("without names: got %+v", r)
	}
}

func TestStatusNamesWhatHasNoEffect(t *testing.T) {
	without := func(kind, name, reason string) api.Object {
		o := object(kind, name, `{"metadata":{"name":"`+name+`"}}`)
		o.Conditions = []api.Condition{{Type: "Accepted", Status: "False", Reason: reason, Message: "it is " + name}}
		return o
	}
	for engine, others := range map[string]bool{api.Kubernetes: false, "": true} {
		f := newFake(t)
		f.objects = []api.Object{without("authorizationpolicy", "for-waypoints", "WaypointRequired"), without("gateway", "of-others", "NotImplemented"),
			without("service", "elsewhere", "NotImplemented"), without("serviceentry", "known", "Conflicted")}
		f.status = api.Status{Engine: engine, Problems: []api.Problem{{Object: "ServiceEntry default/known", Message: "told already"}}}
		r := f.run("", "status")
		for text, want := range map[string]bool{"AuthorizationPolicy default/for-waypoints: it is for-waypoints": true, "of-others": others, "elsewhere": false, "it is known": false, "told already": true} {
			if strings.Contains(r.stdout, text) != want {
				t.Errorf("on engine %q, %q is shown: %v in\n%s", engine, text, !want, r.stdout)
			}
		}
	}
}

// On Kubernetes an object has its conditions in its status already.
func TestConditionsAreShownOnce(t *testing.T) {
	f := newFake(t)
	policy := object("authorizationpolicy", "deny", `{"metadata":{"name":"deny"},"status":{"conditions":[{"type":"Accepted","status":"False","message":"wrong","observedGeneration":3},{"type":"Other","status":"True"}]}}`)
	policy.Conditions = []api.Condition{{Type: "Accepted", Status: "False", Message: "wrong"}, {Type: "lateen.dev/Programmed", Status: "False", Message: "a proxy refuses it"}}
	f.objects = []api.Object{policy}
	r := f.run("", "get", "authorizationpolicies", "-o", "json")
	if strings.Count(r.stdout, `"Accepted"`) != 1 || !strings.Contains(r.stdout, `"observedGeneration": 3`) || !strings.Contains(r.stdout, `"Other"`) || strings.Count(r.stdout, "a proxy refuses it") != 1 {
		t.Error(r.stdout, r.stderr)
	}
	f.objects[0].Conditions[0].Message = "wrong in another way"
	if r = f.run("", "get", "authorizationpolicies", "-o", "json"); strings.Count(r.stdout, `"Accepted"`) != 1 || !strings.Contains(r.stdout, "wrong in another way") {
		t.Error(r.stdout)
	}
}

func TestWithoutAControlPlaneStatusAndWaitSayWhatIsNotKnown(t *testing.T) {
	f := newFake(t)
	f.unasked = "no replica of the control plane is ready"
	policy := object("authorizationpolicy", "deny", `{"kind":"AuthorizationPolicy","metadata":{"name":"deny"}}`)
	wrong := policy
	beside := api.Condition{Type: "lateen.dev/Programmed", Status: "False", Reason: "NotAccepted", Message: "this generation of the object is not with the proxies: see Accepted"}
	wrong.Conditions = []api.Condition{{Type: "Accepted", Status: "False", Reason: "Invalid", Message: "spec.rules: no address"}, beside}
	f.objects = []api.Object{wrong}
	f.status = api.Status{Engine: api.Kubernetes, Control: api.ControlState{Error: "it has no pods"}, Nodes: []api.NodeState{{Name: "n1"}},
		Problems: []api.Problem{{Object: "AuthorizationPolicy default/deny", Message: "Invalid: spec.rules: no address"}}, Unknown: []string{"which configuration the node proxies have"}, Next: []string{"lateen check"}}
	r := f.run("", "status")
	for _, text := range []string{"Not known until the control plane answers", "which configuration the node proxies have", "Next: lateen check", "not known", "spec.rules: no address"} {
		if !strings.Contains(r.stdout, text) {
			t.Errorf("%q is not in\n%s", text, r.stdout)
		}
	}
	if strings.Count(r.stdout, "spec.rules: no address") != 1 {
		t.Errorf("told twice:\n%s", r.stdout)
	}
	if r = f.run("", "status", "-o", "json"); !strings.Contains(r.stdout, `"unknown": [`) || !strings.Contains(r.stdout, `"next": [`) {
		t.Errorf("%s", r.stdout)
	}
	if r = f.run("", "wait", "--timeout", "60s", "authorizationpolicy/deny"); r.code != ExitFailure || !strings.Contains(r.stderr, "authorizationpolicy/deny (Invalid: spec.rules: no address), as the control plane left it in the cluster") || !strings.Contains(r.stderr, "no replica of the control plane is ready") {
		t.Errorf("%+v", r)
	}
	// One without effect is refused by nobody.
	idle := policy
	idle.Conditions = []api.Condition{{Type: "Accepted", Status: "False", Reason: "WaypointRequired", Message: "it is for waypoints"}, beside}
	f.objects = []api.Object{idle}
	if r = f.waits("2s"); strings.Contains(r.stderr, "authorizationpolicy/deny") || !strings.Contains(r.stderr, "until the control plane answers it is not known") {
		t.Errorf("%+v", r)
	}
	f.objects = []api.Object{policy}
	if r = f.waits("1s", "authorizationpolicy/deny"); r.code != ExitFailure || !strings.Contains(r.stderr, "until the control plane answers it is not known") || !strings.Contains(r.stderr, "lateen check") {
		t.Errorf("%+v", r)
	}
}

func TestALackOfANodeIsToldOnceForEachPod(t *testing.T) {
	told := map[string]bool{}
	for i, step := range []struct{ texts, want []string }{
		{nil, nil},
		{[]string{"pod/a: 0/3 nodes", "pod/b: 0/3 nodes", "pod/x: no zone", "pod/c: 0/3 nodes"}, []string{"pod/a: 0/3 nodes (and 2 more)", "pod/x: no zone"}},
		{[]string{"pod/a: 1/3 nodes", "pod/d: 1/3 nodes"}, []string{"pod/d: 1/3 nodes"}},
		{[]string{"pod/a: 2/3 nodes"}, nil},
	} {
		if got := newlyTold(step.texts, told); !slices.Equal(got, step.want) {
			t.Errorf("step %d: got %q, want %q", i, got, step.want)
		}
	}
}
