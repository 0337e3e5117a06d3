package cli

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"lateen.dev/lateen/internal/engine/api"
)

func inShop(o api.Object, namespace string) api.Object {
	o.Key.Namespace = namespace
	return o
}

func waypointObjects() []api.Object {
	gateway := func(name, class, labels string) api.Object {
		o := object("gateway", name, `{"kind":"Gateway","metadata":{"name":"`+name+`","namespace":"shop","labels":{`+labels+`}},"spec":{"gatewayClassName":"`+class+`","listeners":[{"name":"mesh","port":15008,"protocol":"HBONE"}]}}`)
		o.Key.Group = "gateway.networking.k8s.io"
		return inShop(o, "shop")
	}
	ready := gateway("waypoint", "lateen-waypoint", `"istio.io/waypoint-for":"all"`)
	ready.Conditions = []api.Condition{{Type: "Accepted", Status: "True", Reason: "Accepted"}}
	refused := gateway("wrong", "lateen-waypoint", "")
	refused.Problems = []api.Problem{{Message: "the waypoint is not deployed: spec.listeners is empty"}}
	crashing := gateway("crashing", "lateen-waypoint", "")
	crashing.Conditions = ready.Conditions
	deployment := func(name, ready string) api.Object {
		return inShop(object("deploy", name, `{"kind":"Deployment","metadata":{"name":"`+name+`","labels":{"gateway.networking.k8s.io/gateway-name":"`+name+`"}},
			"spec":{"replicas":2,"template":{"metadata":{"labels":{"app.kubernetes.io/version":"0.1.0"}}}},"status":{"readyReplicas":`+ready+`}}`), "shop")
	}
	return []api.Object{
		ready, refused, crashing, gateway("edge", "istio", ""), deployment("waypoint", "2"), deployment("crashing", "0"),
		object("ns", "shop", `{"metadata":{"name":"shop","labels":{"istio.io/use-waypoint":"waypoint","istio.io/dataplane-mode":"ambient"}}}`),
		object("ns", "default", `{"metadata":{"name":"default"}}`),
		inShop(object("svc", "reviews", `{"metadata":{"name":"reviews","labels":{"istio.io/use-waypoint":"waypoint"}}}`), "shop"),
		object("svc", "far", `{"metadata":{"name":"far","labels":{"istio.io/use-waypoint":"waypoint","istio.io/use-waypoint-namespace":"shop"}}}`),
		object("svc", "other", `{"metadata":{"name":"other","labels":{"istio.io/use-waypoint":"waypoint"}}}`),
		inShop(object("pod", "a", `{"metadata":{"name":"a","labels":{"istio.io/use-waypoint":"none"}}}`), "shop"),
	}
}

func TestWaypointOutput(t *testing.T) {
	for name, args := range map[string][]string{
		"waypoint-list":        {"waypoint", "list", "-A"},
		"waypoint-status":      {"waypoint", "status", "-n", "shop"},
		"waypoint-status-json": {"waypoint", "status", "-n", "shop", "--name", "waypoint", "-o", "json"},
		"waypoint-generate":    {"waypoint", "generate", "-n", "shop", "--for", "all"},
		"waypoint-help":        {"waypoint", "apply", "--help"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			f.objects = waypointObjects()
			r := f.run("", args...)
			golden(t, name+".golden", fmt.Sprintf("$ lateen %s\nexit code %d\n--- stdout\n%s--- stderr\n%s", strings.Join(args, " "), r.code, r.stdout, r.stderr))
		})
	}
}

func TestTheStatusOfTheMeshHasItsWaypoints(t *testing.T) {
	f := newFake(t)
	f.objects, f.status = waypointObjects(), sampleStatus()
	r := f.run("", "status")
	if !strings.Contains(r.stdout, "Waypoints\n") || !strings.Contains(r.stdout, "2 of 2 ready") || !strings.Contains(r.stdout, "shop/wrong: the waypoint is not deployed") {
		t.Errorf("exit code %d: %s%s", r.code, r.stdout, r.stderr)
	}
	var status api.Status
	if r = f.run("", "status", "-o", "json"); json.Unmarshal([]byte(r.stdout), &status) != nil || len(status.Waypoints) != 3 {
		t.Errorf("got %s%s", r.stdout, r.stderr)
	}
}

func TestApplyMakesAGateway(t *testing.T) {
	f := newFake(t)
	f.objects = waypointObjects()
	var asked api.ApplyRequest
	f.applied = func(r api.ApplyRequest) api.ApplyResult {
		asked = r
		return api.ApplyResult{Results: []api.ObjectResult{{Key: api.Key{Group: "gateway.networking.k8s.io", Kind: "Gateway", Namespace: "shop", Name: "new"}, Action: api.Created}}}
	}
	r := f.run("", "waypoint", "apply", "-n", "shop", "--name", "new", "--for", "workload")
	if r.code != 0 || !strings.Contains(r.stdout, "shop/gateway/new created") {
		t.Fatalf("exit code %d: %s%s", r.code, r.stdout, r.stderr)
	}
	var gw struct {
		Metadata struct {
			Name, Namespace string
			Labels          map[string]string
		}
		Spec struct{ GatewayClassName string }
	}
	if err := json.Unmarshal(asked.Documents[0].Data, &gw); err != nil || gw.Metadata.Name != "new" || gw.Metadata.Namespace != "shop" || gw.Metadata.Labels["istio.io/waypoint-for"] != "workload" || gw.Spec.GatewayClassName != "lateen-waypoint" {
		t.Errorf("applied %s: %v", asked.Documents[0].Data, err)
	}
	if !strings.Contains(r.stderr, "Next: lateen waypoint status --name new -n shop") || !strings.Contains(r.stderr, "lateen label service NAME istio.io/use-waypoint=new -n shop") {
		t.Errorf("suggested %s", r.stderr)
	}
}

func TestApplyChangesNothingThatIsAsItIsWanted(t *testing.T) {
	f := newFake(t)
	f.objects = waypointObjects()
	r := f.run("", "waypoint", "apply", "-n", "shop", "--wait", "--enroll-namespace")
	if r.code != 0 || f.askedFor("POST /v1/apply") || !strings.Contains(r.stdout, "shop/gateway/waypoint unchanged\nready: waypoint shop/waypoint\nnamespace/shop labeled\n") {
		t.Errorf("exit code %d: %s%s", r.code, r.stdout, r.stderr)
	}
	if !f.askedFor(`POST /v1/patch {"key":{"kind":"Namespace","name":"shop"},"patch":{"metadata":{"labels":{"istio.io/use-waypoint":"waypoint","istio.io/use-waypoint-namespace":null}}}}`) {
		t.Errorf("asked %q", f.asked)
	}
}

func TestAWaitThatIsInVainSaysWhatIsMissing(t *testing.T) {
	f := newFake(t)
	f.objects = waypointObjects()
	r := f.run("", "waypoint", "apply", "-n", "shop", "--name", "crashing", "--wait", "--waypoint-timeout", "300ms")
	if r.code != ExitFailure || !strings.Contains(r.stderr, "waypoint shop/crashing cannot be used after 300ms: none of its pods is ready") || !strings.Contains(r.stderr, "fix: `lateen waypoint status --name crashing -n shop` says more") {
		t.Errorf("exit code %d: %s", r.code, r.stderr)
	}
}

func TestANamespaceIsNotTakenFromAnotherWaypoint(t *testing.T) {
	f := newFake(t)
	f.objects = waypointObjects()
	r := f.run("", "waypoint", "apply", "-n", "shop", "--name", "new", "--enroll-namespace")
	if r.code != ExitFailure || !strings.Contains(r.stderr, "istio.io/use-waypoint=waypoint already; nothing was changed") || !strings.Contains(r.stderr, "--overwrite") || f.askedFor("POST") {
		t.Errorf("exit code %d: %s; asked %q", r.code, r.stderr, f.asked)
	}
	if r = f.run("", "waypoint", "apply", "-n", "shop", "--name", "new", "--enroll-namespace", "--overwrite"); r.code != 0 || !f.askedFor("POST /v1/patch") {
		t.Errorf("exit code %d: %s", r.code, r.stderr)
	}
}

func TestANamespaceOutsideOfTheMeshIsWarnedOf(t *testing.T) {
	f := newFake(t)
	f.objects = waypointObjects()
	r := f.run("", "waypoint", "apply", "--enroll-namespace")
	if r.code != 0 || !strings.Contains(r.stderr, "warning: namespace default is not in the mesh") || !strings.Contains(r.stderr, "lateen label namespace default istio.io/dataplane-mode=ambient") {
		t.Errorf("exit code %d: %s", r.code, r.stderr)
	}
}

func TestAGatewayOfAnotherSortIsNotOverwritten(t *testing.T) {
	f := newFake(t)
	f.objects = waypointObjects()
	if r := f.run("", "waypoint", "apply", "-n", "shop", "--name", "edge"); r.code != ExitFailure || !strings.Contains(r.stderr, "gateway shop/edge is of class istio and no waypoint") || f.askedFor("POST") {
		t.Errorf("exit code %d: %s", r.code, r.stderr)
	}
}

func TestDeleteRemovesGatewaysAndWarnsOfWhatUsesThem(t *testing.T) {
	f := newFake(t)
	f.objects = waypointObjects()
	r := f.run("", "waypoint", "delete", "waypoint", "-n", "shop")
	if r.code != 0 || !f.askedFor(`POST /v1/delete {"namespace":"shop","keys":[{"group":"gateway.networking.k8s.io","kind":"Gateway","namespace":"shop","name":"waypoint"}],"wait":true}`) {
		t.Errorf("exit code %d: %s; asked %q", r.code, r.stderr, f.asked)
	}
	if !strings.Contains(r.stderr, "warning: namespace/shop, shop/service/reviews, default/service/far still has the label istio.io/use-waypoint") || !strings.Contains(r.stderr, "Next: lateen label namespace shop istio.io/use-waypoint-") {
		t.Errorf("got %s", r.stderr)
	}
	f.asked = nil
	if r = f.run("", "waypoint", "delete", "--all", "-n", "shop"); r.code != 0 || !slices.ContainsFunc(f.asked, func(a string) bool {
		return strings.Contains(a, `"crashing"`) && strings.Contains(a, `"wrong"`) && !strings.Contains(a, `"edge"`)
	}) {
		t.Errorf("exit code %d: %s; asked %q", r.code, r.stderr, f.asked)
	}
	if r = f.run("", "waypoint", "delete", "absent", "-n", "shop"); r.code != ExitFailure || !strings.Contains(r.stderr, `waypoint "absent" not found in namespace shop`) {
		t.Errorf("exit code %d: %s", r.code, r.stderr)
	}
}

func TestWaypointArgumentsThatMakeNoSense(t *testing.T) {
	for _, args := range [][]string{
		{"apply", "--for", "everything"}, {"apply", "--name", "none"}, {"apply", "--name", "1.x"}, {"apply", "--waypoint-timeout", "0s"}, {"apply", "more"}, {"delete"}, {"delete", "a", "--all"},
		{"list", "-A", "-n", "shop"}, {"generate", "-o", "table"}, {"list", "-o", "wide"}, {"make"}, {"list", "--mesh", ""},
	} {
		f := newFake(t)
		if r := f.run("", append([]string{"waypoint"}, args...)...); r.code != ExitUsage || f.askedFor("POST") {
			t.Errorf("%v: exit code %d: %s", args, r.code, r.stderr)
		}
	}
}

func TestWithoutWaypointsTheNextStepIsNamed(t *testing.T) {
	f := newFake(t)
	r := f.run("", "waypoint", "list", "-n", "shop")
	if r.code != 0 || r.stdout != "" || !strings.Contains(r.stderr, "no waypoints found in namespace shop") || !strings.Contains(r.stderr, "Next: lateen waypoint apply -n shop") {
		t.Errorf("exit code %d: %s%s", r.code, r.stdout, r.stderr)
	}
	if r = f.run("", "waypoint", "list", "-o", "json"); r.stdout != "[]\n" {
		t.Errorf("got %q", r.stdout)
	}
	if r = f.run("", "waypoint", "status", "--name", "x"); r.code != ExitFailure || !strings.Contains(r.stderr, `waypoint "x" not found in namespace default`) {
		t.Errorf("exit code %d: %s", r.code, r.stderr)
	}
}

func TestSuggestionsNameTheMeshByItsFlag(t *testing.T) {
	f := newFake(t)
	f.objects = waypointObjects()
	r := f.run("", "waypoint", "list", "--mesh", "default")
	if r.code != 0 || !strings.Contains(r.stderr, "Next: lateen waypoint apply --mesh default") {
		t.Errorf("exit code %d: %s", r.code, r.stderr)
	}
}

// On a cluster kubectl changes objects; the line to copy makes the same Gateway.
func TestOnAClusterKubectlApplies(t *testing.T) {
	f := newFake(t)
	f.objects = waypointObjects()
	f.refuseApply = &api.Error{Code: http.StatusNotImplemented, Message: "objects of a cluster are applied by kubectl", Fix: "kubectl apply -f -"}
	r := f.run("", "waypoint", "apply", "-n", "shop", "--name", "new", "--for", "all")
	if r.code != ExitFailure || !strings.Contains(r.stderr, "fix: lateen waypoint generate -n shop --name new --for all | kubectl apply -f -") {
		t.Errorf("exit code %d: %s", r.code, r.stderr)
	}
}

func TestWhatIsNotBoundIsNamedWithTheReason(t *testing.T) {
	f := newFake(t)
	const why = "waypoint shop/waypoint cannot take its connections: AuthorizationPolicy shop/clients does not allow those of the waypoint; its connections go direct until it is bound"
	db := inShop(object("svc", "db", `{"metadata":{"name":"db"}}`), "shop")
	db.Conditions = []api.Condition{{Type: "WaypointBound", Status: "False", Reason: "PolicyRefusesWaypoint", Message: why}}
	f.objects = append(waypointObjects(), db)
	r := f.run("", "waypoint", "status", "-n", "shop", "--name", "waypoint")
	if !strings.Contains(r.stdout, "shop/service/db is not bound: "+why) {
		t.Errorf("status: %s%s", r.stdout, r.stderr)
	}
	r = f.run("", "waypoint", "apply", "-n", "shop", "--wait", "--enroll-namespace")
	if r.code != 0 || !strings.Contains(r.stderr, "shop/service/db is not bound: "+why) {
		t.Errorf("apply: exit code %d: %s%s", r.code, r.stdout, r.stderr)
	}
	r = f.run("", "waypoint", "status", "-n", "shop", "--name", "waypoint", "-o", "json")
	if !strings.Contains(r.stdout, `"reason": "PolicyRefusesWaypoint"`) {
		t.Errorf("json: %s%s", r.stdout, r.stderr)
	}
}

// The Deployed condition goes before Programmed, but for a rollout of a waypoint that can be used.
func TestAWaypointIsProgrammedDuringItsRollout(t *testing.T) {
	for name, c := range map[string]struct{ deployed, programmed, want string }{
		"a rollout":                  {`"status":"False","reason":"Progressing"`, "True", "True"},
		"the first pods":             {`"status":"False","reason":"Progressing"`, "False", "False"},
		"a rollout that is stuck":    {`"status":"False","reason":"Stuck"`, "True", "False"},
		"parameters with an error":   {`"status":"False","reason":"InvalidParameters"`, "True", "False"},
		"all pods":                   {`"status":"True","reason":"Deployed"`, "True", "True"},
		"all pods, and no proxy yet": {`"status":"True","reason":"Deployed"`, "False", "False"},
	} {
		var gw gatewayView
		text := fmt.Sprintf(`{"status":{"conditions":[{"type":"lateen.dev/Deployed","message":"of the deployer",%s},{"type":"Programmed","status":%q,"message":"of the control plane"}]}}`, c.deployed, c.programmed)
		if err := json.Unmarshal([]byte(text), &gw); err != nil {
			t.Fatal(err)
		}
		if got, _ := programmed(api.Object{}, gw); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}
