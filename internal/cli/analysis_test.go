package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"lateen.dev/lateen/internal/engine/api"
)

const dropped = "node proxies cannot judge methods; rules of this ALLOW policy that use them are dropped, so it allows less than written"

// l7 is a policy that lets nobody connect, as the control plane speaks of it.
func l7() api.Object {
	o := object("authorizationpolicy", "l7", `{"kind":"AuthorizationPolicy","metadata":{"name":"l7"}}`)
	o.Conditions = []api.Condition{{Type: "Accepted", Status: "True", Reason: "UnsupportedValue", Message: dropped}}
	o.Findings = []api.Finding{{Object: o.Key, Code: "refuses-all", Severity: "warning", State: "refuses-all", Message: "refuses ALL connections to 2 pods (a, b): " + dropped, Pods: []string{"default/a", "default/b"}}}
	o.Judged = true
	return o
}

// misspelt is a policy in force that names an identity which nobody has.
func misspelt() api.Object {
	o := object("authorizationpolicy", "deny", `{"kind":"AuthorizationPolicy","metadata":{"name":"deny"}}`)
	o.Conditions = []api.Condition{{Type: "Accepted", Status: "True", Reason: "Accepted", Message: "the object is accepted as it is written"}}
	o.Findings = []api.Finding{
		{Object: o.Key, Code: "denies-nothing", Severity: "warning", State: "ineffective", Message: "denies nothing: no rule of it matches an identity of the mesh"},
		{Object: o.Key, Code: "principal-scheme", Severity: "warning", State: "partial", Field: "spec.rules[0].from[0].source.principals[0]", Message: `"spiffe://x" matches no identity: principals have no scheme`, Fix: "leave out spiffe://: write x"},
	}
	return o
}

func applyRehearsed(f *fakeEngine) { f.objects = append(f.objects, l7(), misspelt()) }

// Apply and its dry run say the same of an object, and each thing once.
func TestApplyAndItsDryRunSayTheSame(t *testing.T) {
	const want = `warning: default/authorizationpolicy/l7: refuses ALL connections to 2 pods (a, b): ` + dropped + `
warning: default/authorizationpolicy/deny: denies nothing: no rule of it matches an identity of the mesh
warning: default/authorizationpolicy/deny: spec.rules[0].from[0].source.principals[0]: "spiffe://x" matches no identity: principals have no scheme
  fix: leave out spiffe://: write x
`
	f := newFake(t)
	applyRehearsed(f)
	for _, o := range f.objects {
		f.results = append(f.results, api.ObjectResult{Key: o.Key, Action: api.Created})
	}
	r := f.run("kind: X", "apply", "-f", "-")
	if r.code != ExitOK || !strings.Contains(r.stderr, want) || strings.Count(r.stderr, "node proxies cannot judge") != 1 {
		t.Errorf("apply: got %+v", r)
	}
	dry := newFake(t)
	for _, o := range f.objects {
		dry.results = append(dry.results, api.ObjectResult{Key: o.Key, Action: api.Created, Conditions: o.Conditions, Findings: o.Findings})
	}
	r = dry.run("kind: X", "apply", "-f", "-", "--dry-run")
	if r.code != ExitOK || !strings.Contains(r.stderr, want) || strings.Count(r.stderr, "node proxies cannot judge") != 1 || dry.askedFor("GET") {
		t.Errorf("dry run: got %+v, asked %q", r, dry.asked)
	}
	dry.rehearse = "connection refused"
	if r = dry.run("kind: X", "apply", "-f", "-", "--dry-run"); r.code != ExitOK || !strings.Contains(r.stderr, "not known: the control plane does not answer: connection refused\n") {
		t.Errorf("nobody answers: got %+v", r)
	}
}

// A policy is judged only when the Deployment that was applied with it has been read: its pods are no mistake.
func TestNothingIsSaidBeforeAllWasRead(t *testing.T) {
	f := newFake(t)
	f.objects = []api.Object{misspelt(), object("deploy", "web", `{"kind":"Deployment","metadata":{"name":"web"}}`)}
	for _, o := range f.objects {
		f.results = append(f.results, api.ObjectResult{Key: o.Key, Action: api.Created})
	}
	r := f.run("kind: X", "apply", "-f", "-")
	deployments := 0
	for _, asked := range f.asked {
		if strings.HasPrefix(asked, "GET /v1/objects") && strings.Contains(asked, "Deployment") {
			deployments++
		}
	}
	if r.code != ExitOK || deployments < 3 || !strings.Contains(r.stderr, "denies nothing") {
		t.Errorf("asked %d times about a Deployment that is not read: %+v", deployments, r)
	}
}

// A warning of the engine and a finding of the control plane in the same words are one.
func TestAWarningIsSaidOnce(t *testing.T) {
	const text = "istio.io/dataplane-mode=ambeint has no effect: use ambient to put pods into the mesh, none to keep them out"
	f := newFake(t)
	ns := object("ns", "shop", `{"kind":"Namespace","metadata":{"name":"shop","labels":{"istio.io/dataplane-mode":"ambeint"}}}`)
	ns.Judged, ns.Findings = true, []api.Finding{{Object: ns.Key, Code: "unknown-dataplane-mode", Severity: "warning", Message: text}}
	f.objects = []api.Object{ns}
	f.results = []api.ObjectResult{{Key: ns.Key, Action: api.Created, Warnings: []string{text}}}
	if r := f.run("kind: X", "apply", "-f", "-"); strings.Count(r.stderr, text) != 1 {
		t.Errorf("got %s", r.stderr)
	}
	if r := f.run("", "get", "namespaces"); !strings.Contains(r.stdout, "invalid (ambeint)") {
		t.Errorf("got %s", r.stdout)
	}
}

func TestFindingsAreToldOfTheObjectsThatAreWaitedFor(t *testing.T) {
	policy, other := l7(), misspelt()
	f := newFake(t)
	f.findings = append(policy.Findings, other.Findings...)
	tell := func(keys ...api.Key) string {
		var out strings.Builder
		a := &app{Env: Env{Stderr: &out, Connect: func(mesh string) *api.Client { return api.NewAt(mesh, f.socket) }}, mesh: "default"}
		(effects{a}).tellFindings(t.Context(), keys)
		return out.String()
	}
	if got := tell(policy.Key); !strings.Contains(got, "refuses ALL connections to 2 pods") || strings.Contains(got, "denies nothing") {
		t.Errorf("got %s", got)
	}
	if got := tell(); got != "" || len(f.asked) != 1 {
		t.Errorf("without objects: got %s, asked %q", got, f.asked)
	}
	f.findings = nil
	if got := tell(policy.Key); !strings.Contains(got, "not known: the control plane does not answer") {
		t.Errorf("nobody answers: got %s", got)
	}
}

func TestStatesComeFromTheAnalysis(t *testing.T) {
	dry := misspelt()
	dry.Key.Name, dry.Findings = "rehearsal", append(dry.Findings, api.Finding{Severity: "info", State: "dry-run", Message: "dry run only: not enforced"})
	job := api.Object{Key: api.Key{Kind: "Job", Namespace: "default", Name: "migrate"}, Raw: json.RawMessage(`{"kind":"Job","metadata":{"name":"migrate"}}`), Ignored: "stored but ignored: local meshes cannot run Jobs"}
	f := newFake(t)
	f.objects = []api.Object{l7(), misspelt(), dry, job}
	r := f.run("", "get", "authorizationpolicies", "-o", "wide")
	for name, want := range map[string]string{"l7": "refuses-all", "deny": "ineffective", "rehearsal": "dry-run"} {
		if !slices.ContainsFunc(strings.Split(r.stdout, "\n"), func(line string) bool {
			cells := strings.Fields(line)
			return len(cells) > 1 && cells[0] == name && cells[1] == want
		}) {
			t.Errorf("%s is not %s in\n%s", name, want, r.stdout)
		}
	}
	if !strings.Contains(r.stdout, "refuses ALL connections to 2 pods (a, b)") {
		t.Errorf("no reason in\n%s", r.stdout)
	}
	for _, word := range []string{"jobs", "job", "Job"} {
		if r = f.run("", "get", word, "-o", "wide"); r.code != ExitOK || !strings.Contains(r.stdout, "ignored") || !strings.Contains(r.stdout, "local meshes cannot run Jobs") {
			t.Errorf("get %s: %+v", word, r)
		}
	}
	r = f.run("", "get", "authorizationpolicy", "deny", "-o", "json")
	var item struct {
		Status struct {
			Analysis struct {
				State    string
				Findings []api.Finding
			}
		}
	}
	if err := json.Unmarshal([]byte(r.stdout), &item); err != nil || item.Status.Analysis.State != "ineffective" || len(item.Status.Analysis.Findings) != 2 {
		t.Errorf("got %s, %v", r.stdout, err)
	}
}

// One object has one line, with the reason that says most, and no place in the engine's own store.
func TestStatusHasOneLineForAnObject(t *testing.T) {
	f := newFake(t)
	f.objects = []api.Object{l7(), misspelt()}
	f.status = api.Status{Mesh: "default", Control: api.ControlState{Ready: true}, Problems: []api.Problem{
		{Severity: "warning", Object: "VirtualService default/vs", Message: "stored but ignored: node proxies work at L4"},
		{Object: "VirtualService default/vs", Message: "stored but ignored: node proxies work at L4"},
		{Object: "NetworkPolicy shop/np", Message: "NetworkPolicy has no effect"},
	}}
	r := f.run("", "status")
	for object, want := range map[string]string{
		"VirtualService default/vs":        "stored but ignored: node proxies work at L4",
		"AuthorizationPolicy default/l7":   "refuses ALL connections to 2 pods (a, b): " + dropped,
		"AuthorizationPolicy default/deny": `denies nothing: no rule of it matches an identity of the mesh; "spiffe://x" matches no identity: principals have no scheme (leave out spiffe://: write x)`,
	} {
		if strings.Count(r.stdout, object) != 1 || !strings.Contains(r.stdout, "! "+object+": "+want+"\n") {
			t.Errorf("%s: got\n%s", object, r.stdout)
		}
	}
	if attention, nodes := strings.Index(r.stdout, "Needs attention"), strings.Index(r.stdout, "Nodes"); attention < 0 || attention > nodes {
		t.Errorf("problems do not come first:\n%s", r.stdout)
	}
	if r = f.run("", "status", "-n", "shop"); strings.Contains(r.stdout, "default/") || !strings.Contains(r.stdout, "NetworkPolicy shop/np") {
		t.Errorf("of one namespace:\n%s", r.stdout)
	}
	r = f.run("", "status", "-n", "default", "-o", "json")
	var s api.Status
	if err := json.Unmarshal([]byte(r.stdout), &s); err != nil || len(s.Problems) != 3 || len(s.Findings) != 3 {
		t.Errorf("got %d problems, %d findings, %v", len(s.Problems), len(s.Findings), err)
	}
}

func TestStatusChoosesPods(t *testing.T) {
	f := newFake(t)
	for _, name := range []string{"default/a", "default/b", "shop/c"} {
		namespace, pod, _ := strings.Cut(name, "/")
		f.status.Pods = append(f.status.Pods, api.PodState{Namespace: namespace, Name: pod, Node: "n1", Ready: true, Redirection: true, Enrolled: true})
	}
	f.status.Nodes = []api.NodeState{{Name: "n1"}}
	f.objects = []api.Object{object("pod", "b", `{"metadata":{"name":"b"}}`)} // which the selector chooses
	for args, want := range map[string]string{"": "default/a default/b shop/c", "-n shop": "shop/c", "-l app=b": "default/b", "-n shop -l app=b": ""} {
		r := f.run("", append([]string{"status"}, strings.Fields(args)...)...)
		var got []string
		for _, p := range f.status.Pods {
			if slices.ContainsFunc(strings.Split(r.stdout, "\n"), func(line string) bool {
				cells := strings.Fields(line)
				return len(cells) > 2 && cells[0] == p.Namespace && cells[1] == p.Name
			}) {
				got = append(got, p.Namespace+"/"+p.Name)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%q: got %v in\n%s", args, got, r.stdout)
		}
		if !strings.Contains(r.stdout, "3 of 3 pods") {
			t.Errorf("%q: the node's pods are not counted whole:\n%s", args, r.stdout)
		}
	}
	if !f.askedFor("GET /v1/objects?all=true&kind=Pod&name=&namespace=default&selector=app%3Db") {
		t.Errorf("asked %q", f.asked)
	}
}

func TestStatusOfManyPodsCountsThem(t *testing.T) {
	f := newFake(t)
	for i := range 40 {
		f.status.Pods = append(f.status.Pods, api.PodState{Namespace: fmt.Sprintf("ns%d", i%2), Name: fmt.Sprintf("web-%02d", i), Ready: i != 7, Phase: "Running", Redirection: true, Enrolled: true,
			Containers: []api.ContainerState{{Name: "c", Waiting: map[bool]string{true: "CrashLoopBackOff"}[i == 7]}}})
	}
	r := f.run("", "status")
	if strings.Contains(r.stdout, "web-08") || !strings.Contains(r.stdout, "web-07") || !strings.Contains(r.stdout, "CrashLoopBackOff") || !strings.Contains(r.stdout, "lateen status --pods lists all 40") {
		t.Errorf("got\n%s", r.stdout)
	}
	for _, line := range []string{"ns0           20      20         20               0", "ns1           20      19         20               1"} {
		if !strings.Contains(r.stdout, line) {
			t.Errorf("%q is missing from\n%s", line, r.stdout)
		}
	}
	for _, flag := range [][]string{{"--pods"}, {"-o", "wide"}} {
		r = f.run("", append([]string{"status"}, flag...)...)
		if i, j := strings.Index(r.stdout, "web-07"), strings.Index(r.stdout, "web-00"); i < 0 || j < i || !strings.Contains(r.stdout, "web-39") {
			t.Errorf("%v: not all pods, those with problems first:\n%s", flag, r.stdout)
		}
	}
}

func TestAWatchedStatusIsShownWhenItChanges(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	looks := 0
	f.looking = func() {
		switch looks++; looks {
		case 3:
			f.status.Control.Ready = true
		case 4:
			cancel()
		}
	}
	var stdout, stderr bytes.Buffer
	env := Env{Stdin: strings.NewReader(""), Stdout: &stdout, Stderr: &stderr, Connect: func(mesh string) *api.Client { return api.NewAt(mesh, f.socket) },
		Engine: f, System: noMachine{}, Meshes: func() []string { return nil }, Getwd: func() (string, error) { return "/srv", nil }, Now: func() time.Time { return now }}
	code := Run(ctx, env, []string{"status", "-w"})
	if got := stdout.String(); code != ExitOK || strings.Count(got, "Control plane: not ready") != 1 || strings.Count(got, "Control plane: ready at generation") != 1 {
		t.Errorf("exit code %d\n%s%s", code, got, stderr.String())
	}
}

// A label by which nothing happens is told when it is set. Other labels keep nobody waiting for the control plane.
func TestALabelThatAsksForSidecarsIsTold(t *testing.T) {
	f := newFake(t)
	ns := object("ns", "shop", `{"kind":"Namespace","metadata":{"name":"shop"}}`)
	ns.Judged, ns.Findings = true, []api.Finding{{Object: ns.Key, Code: "injection-label", Severity: "warning", Message: "this mesh injects no sidecars", Fix: "set another"}}
	f.objects = []api.Object{ns}
	if r := f.run("", "label", "ns", "shop", "istio-injection=enabled"); r.code != ExitOK || !strings.Contains(r.stderr, "warning: namespace/shop: this mesh injects no sidecars\n  fix: set another\n") {
		t.Errorf("got %+v", r)
	}
	if r := f.run("", "label", "ns", "shop", "team=a"); strings.Contains(r.stderr, "sidecars") {
		t.Errorf("got %+v", r)
	}
}

func TestStatusSaysWhenNobodyJudgesPolicies(t *testing.T) {
	f := newFake(t)
	f.unasked = "connection refused"
	r := f.run("", "status")
	if r.code != ExitOK || strings.Count(r.stdout, "not known: which policies match nobody") != 1 || !strings.Contains(r.stdout, "the control plane does not answer: connection refused") {
		t.Errorf("got %+v", r)
	}
}

// Each RequestAuthentication has a condition that says of tokens what the guide says. What is found in one is told, and its author can do something about it.
func TestApplyTellsWhatIsFoundOfARequestAuthentication(t *testing.T) {
	f := newFake(t)
	o := object("requestauthentication", "jwt", `{"kind":"RequestAuthentication","metadata":{"name":"jwt"}}`)
	o.Conditions = []api.Condition{{Type: "Accepted", Status: "True", Reason: "UnsupportedValue", Message: "tokens are not verified yet"}}
	o.Findings = []api.Finding{{Object: o.Key, Code: "untyped-port", Severity: "info", Field: "spec.targetRefs[0]", Message: "port 6379 of Service default/cache has no protocol", Fix: "name it"}}
	o.Judged = true
	f.objects, f.results = []api.Object{o}, []api.ObjectResult{{Key: o.Key, Action: api.Created}}
	const want = "note: default/requestauthentication/jwt: spec.targetRefs[0]: port 6379 of Service default/cache has no protocol\n  fix: name it\n"
	if r := f.run("kind: X", "apply", "-f", "-"); r.code != ExitOK || !strings.Contains(r.stderr, want) || strings.Contains(r.stderr, "not verified") {
		t.Errorf("got %+v", r)
	}
}

// A policy that keeps everybody out is not half in force.
func TestGetAndDescribeSayThatAPolicyRefusesEverybodyOnce(t *testing.T) {
	f := newFake(t)
	applyRehearsed(f)
	if r := f.run("", "get", "authorizationpolicies"); !strings.Contains(r.stdout, "l7     refuses-all") || !strings.Contains(r.stdout, "deny   ineffective") {
		t.Errorf("get: %+v", r)
	}
	r := f.run("", "describe", "authorizationpolicy", "l7")
	if !strings.Contains(r.stdout, "State:            refuses-all, see Findings\nConditions:\n  - Accepted=True UnsupportedValue\nFindings:\n  - warning: refuses ALL connections to 2 pods (a, b): "+dropped+"\n") ||
		strings.Count(r.stdout, dropped) != 1 {
		t.Errorf("describe: %s%s", r.stdout, r.stderr)
	}
	r = f.run("", "describe", "authorizationpolicy", "deny")
	if !strings.Contains(r.stdout, "State:            ineffective, see Findings\nConditions:\n  - Accepted=True\nFindings:\n") || strings.Contains(r.stdout, "as it is written") {
		t.Errorf("describe: %s%s", r.stdout, r.stderr)
	}
	// Without findings the state has the text of the condition, and the programs' formats have all of it.
	f.objects[0].Findings = nil
	if r = f.run("", "describe", "authorizationpolicy", "l7"); !strings.Contains(r.stdout, "State:            partial: UnsupportedValue: "+dropped+"\nConditions:\n  - Accepted=True UnsupportedValue\n") {
		t.Errorf("describe: %s%s", r.stdout, r.stderr)
	}
	if r = f.run("", "describe", "authorizationpolicy", "deny", "-o", "json"); !strings.Contains(r.stdout, "the object is accepted as it is written") {
		t.Errorf("describe -o json: %s%s", r.stdout, r.stderr)
	}
}
