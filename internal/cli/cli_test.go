package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"lateen.dev/lateen/internal/engine/api"
)

func object(kind, name, raw string) api.Object {
	k, _ := api.LookupKind(kind)
	namespace := "default"
	if !k.Namespaced {
		namespace = ""
	}
	return api.Object{
		Key: api.Key{Kind: k.Name, Namespace: namespace, Name: name}, APIVersion: k.APIVersion,
		Raw: json.RawMessage(raw), Created: now.Add(-90 * time.Second),
	}
}

func sampleObjects() []api.Object {
	policy := object("ap", "l7", `{"apiVersion":"security.istio.io/v1","kind":"AuthorizationPolicy","metadata":{"name":"l7","namespace":"default"},"spec":{}}`)
	policy.Conditions = []api.Condition{{Type: "Accepted", Status: "False", Reason: "NeedsWaypoint", Message: "HTTP fields have no effect without a waypoint"}}
	good := object("ap", "l4", `{"kind":"AuthorizationPolicy","metadata":{"name":"l4"}}`)
	good.Conditions = []api.Condition{{Type: "Accepted", Status: "True", Reason: "Accepted", Message: "the object is accepted as it is written"}}
	refused := object("ap", "bad", `{"kind":"AuthorizationPolicy","metadata":{"name":"bad"}}`)
	refused.Problems = []api.Problem{{Field: "spec.action", Message: "unknown value PERMIT", Fix: "use ALLOW or DENY"}}
	part := object("ap", "part", `{"kind":"AuthorizationPolicy","metadata":{"name":"part"}}`)
	part.Conditions = []api.Condition{{Type: "Accepted", Status: "True", Reason: "UnsupportedValue", Message: "it allows less than written"}}
	return []api.Object{
		object("pod", "details-v1-a", `{"kind":"Pod","metadata":{"name":"details-v1-a"},"spec":{"nodeName":"n2","serviceAccountName":"bookinfo-details","containers":[{"name":"details"}]},
			"status":{"phase":"Running","podIP":"10.244.2.2","conditions":[{"type":"Ready","status":"True"}],"containerStatuses":[{"name":"details","ready":true,"restartCount":2}]}}`),
		object("pod", "ratings-v1-b", `{"kind":"Pod","metadata":{"name":"ratings-v1-b"},"spec":{"nodeName":"n1","containers":[{"name":"a"},{"name":"b"}]},
			"status":{"phase":"Running","containerStatuses":[{"name":"a","ready":true},{"name":"b","state":{"waiting":{"reason":"CrashLoopBackOff"}}}]}}`),
		object("deploy", "details-v1", `{"kind":"Deployment","metadata":{"name":"details-v1"},"spec":{"replicas":2,"selector":{"matchLabels":{"app":"details","version":"v1"}}},
			"status":{"readyReplicas":1,"updatedReplicas":2,"availableReplicas":1}}`),
		object("svc", "details", `{"kind":"Service","metadata":{"name":"details"},"spec":{"clusterIP":"10.96.0.20","ports":[{"port":9080},{"port":53,"protocol":"UDP"}],"selector":{"app":"details"}}}`),
		object("ns", "default", `{"kind":"Namespace","metadata":{"name":"default","labels":{"istio.io/dataplane-mode":"ambient"}}}`),
		object("node", "n1", `{"kind":"Node","metadata":{"name":"n1"},"spec":{"podCIDR":"10.244.1.0/24"},"status":{"conditions":[{"type":"Ready","status":"True"}],"addresses":[{"type":"InternalIP","address":"10.243.0.11"}]}}`),
		policy, good, refused, part,
	}
}

func sampleStatus() api.Status {
	return api.Status{
		Mesh: "default", Started: now.Add(-3 * time.Hour),
		Control: api.ControlState{Ready: true, Generation: 42, Clients: []api.ClientState{
			{Node: "n1", Types: []api.TypeState{{Type: "Authorization", Refused: []api.Refusal{{Message: "bad address", Names: []string{"default/x"}}}}}},
			{Node: "n2"},
		}, CA: &sampleCA()[1]},
		Nodes: []api.NodeState{
			{
				Name: "n1", IP: "10.243.0.11", Agent: api.AgentState{Ready: true, ProxyConnected: true},
				Proxy: api.ProxyState{Ready: true, Version: "0.1.0", AckedGeneration: 42, WorkerConnections: []int{3, 4},
					Draining: []api.Predecessor{{PID: 4711, Since: now.Add(-2 * time.Minute), Until: now.Add(8 * time.Minute), Connections: 12}}},
			},
			{
				Name: "n2", IP: "10.243.0.12", Agent: api.AgentState{Ready: true},
				Proxy: api.ProxyState{
					Path: "/opt/ztunnel", Ztunnel: true, AckedGeneration: 40, Error: "metrics do not answer",
					Process: api.Process{Restarts: 2, LastExit: "signal: killed"},
				},
			},
		},
		Pods: []api.PodState{
			{
				Namespace: "default", Name: "client-a", Node: "n1", IP: "10.244.1.2", Phase: "Running", Ready: true, Mesh: "captured", Redirection: true,
				Identity:   "spiffe://cluster.local/ns/default/sa/client",
				Unmeshed:   []api.Conn{{Local: "10.244.1.2:40000", Remote: "10.96.0.20:9080", Direction: "outbound", OpenedBefore: now.Add(-time.Minute)}},
				Containers: []api.ContainerState{{Name: "client", Process: api.Process{PID: 77}, UID: 200001}},
			},
			{Namespace: "default", Name: "details-b", Node: "n2", Phase: "Pending", Reason: "waits for the agent", Enrolled: true, Mesh: "pending", MeshReason: "no proxy is connected", Identity: "spiffe://cluster.local/ns/default/sa/details"},
		},
		Problems: []api.Problem{{File: "policy.yaml", Line: 3, Object: "AuthorizationPolicy default/l7", Message: "HTTP fields have no effect", Fix: "bind it to a waypoint"}},
	}
}

func TestOutput(t *testing.T) {
	tests := map[string][]string{
		"get-pods":       {"get", "pods"},
		"get-pods-wide":  {"get", "po", "-o", "wide"},
		"get-all":        {"get", "all", "-A"},
		"get-ns":         {"get", "ns"},
		"get-nodes-wide": {"get", "nodes", "-o", "wide"},
		"get-policies":   {"get", "authorizationpolicies", "-o", "wide"},
		"get-one-yaml":   {"get", "ap", "l7", "-o", "yaml"},
		"get-list-json":  {"get", "svc", "-o", "json"},
		"get-names":      {"get", "pods,svc", "-o", "name"},
		"status":         {"status"},
		"status-wide":    {"status", "-o", "wide"},
		"check":          {"check", "--for", "demo"},
		"check-json":     {"check", "--for", "build", "-o", "json"},
		"apply":          {"apply", "-f", "-"},
		"ca-status":      {"ca", "status"},
		"ca-status-json": {"ca", "status", "-o", "json"},
		"help":           {"--help"},
		"help-label":     {"label", "--help"},
	}
	for name, args := range tests {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			f.objects, f.status, f.ca = sampleObjects(), sampleStatus(), sampleCA()[1:]
			r := f.run("kind: Service", args...)
			golden(t, name+".golden", fmt.Sprintf("$ lateen %s\nexit code %d\n--- stdout\n%s--- stderr\n%s", strings.Join(args, " "), r.code, r.stdout, r.stderr))
		})
	}
}

func TestApplySendsTheFileAndItsDirectory(t *testing.T) {
	f := newFake(t)
	dir := t.TempDir()
	for name, text := range map[string]string{"b.yml": "kind: B", "a.yaml": "kind: A", "notes.txt": "no"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if r := f.run("", "apply", "-f", dir, "-n", "shop"); r.code != 0 {
		t.Fatalf("exit code %d: %s", r.code, r.stderr)
	}
	var request api.ApplyRequest
	if err := json.Unmarshal([]byte(strings.TrimPrefix(f.asked[0], "POST /v1/apply ")), &request); err != nil {
		t.Fatal(err)
	}
	if len(request.Documents) != 2 || request.Namespace != "shop" || request.Documents[0].Dir != dir ||
		string(request.Documents[0].Data) != "kind: A" || filepath.Base(request.Documents[1].File) != "b.yml" {
		t.Errorf("got %+v", request)
	}
}

func TestARefusedDocumentFailsAndTheOthersCount(t *testing.T) {
	f := newFake(t)
	f.problems = []api.Problem{{File: "x.yaml", Line: 7, Object: "Service default/x", Field: "spec.prots", Message: "unknown field", Fix: "did you mean ports?"}}
	r := f.run("x", "apply", "-f", "-")
	if r.code != ExitFailure || !strings.Contains(r.stdout, "default/service/details created") ||
		!strings.Contains(r.stderr, "x.yaml:7: Service default/x: spec.prots: unknown field\n  fix: did you mean ports?") {
		t.Errorf("exit code %d\n%s\n%s", r.code, r.stdout, r.stderr)
	}
}

func TestUp(t *testing.T) {
	f := newFake(t)
	r := f.run("", "up", "--name", "mixed", "--nodes", "3", "--workers", "2", "--node-proxy", "n2=/opt/ztunnel")
	if r.code != 0 || len(f.started) != 1 {
		t.Fatalf("exit code %d: %s", r.code, r.stderr)
	}
	if one := f.run("", "up", "--nodes", "1"); one.stdout != "mesh default is up with 1 node\n" {
		t.Errorf("got %q", one.stdout)
	}
	o := f.started[0]
	if o.Mesh != "mixed" || o.Nodes != 3 || o.Workers != 2 || o.NodeProxy["n2"] != "/opt/ztunnel" {
		t.Errorf("got %+v", o)
	}
	if !strings.Contains(r.stderr, "Next: lateen apply --name mixed") || !strings.Contains(r.stderr, "✓ control plane ready") {
		t.Errorf("stderr %q", r.stderr)
	}
}

func TestUpWithFamiliesAndPlaces(t *testing.T) {
	f := newFake(t)
	if r := f.run("", "up", "--ip-families", "dual", "--node", "n1=eu/eu-1/rack-7", "--node", "n2=us", "--proxy-env", "A_B=c=d", "--proxy-env", "E="); r.code != 0 || len(f.started) != 1 {
		t.Fatalf("exit code %d: %s", r.code, r.stderr)
	}
	o := f.started[0]
	if strings.Join(o.Families, " ") != "IPv4 IPv6" || len(o.Labels["n1"]) != 3 || o.Labels["n1"]["topology.istio.io/subzone"] != "rack-7" ||
		strings.Join(o.ProxyEnv, " ") != "A_B=c=d E=" || len(o.Labels["n2"]) != 1 || o.Labels["n2"]["topology.kubernetes.io/region"] != "us" {
		t.Errorf("got %+v", o)
	}
	for _, args := range [][]string{
		{"--ip-families", "v6"}, {"--node", "n3=eu"}, {"--node", "n1"}, {"--node", "n1="}, {"--node", "n1=a/b/c/d"}, {"--node", "n1=a//c"},
		{"--proxy-env", "A"}, {"--proxy-env", "=c"}, {"--proxy-env", "1A=c"},
	} {
		if r := f.run("", append([]string{"up"}, args...)...); r.code != ExitUsage {
			t.Errorf("%v: exit code %d: %s", args, r.code, r.stderr)
		}
	}
}

func TestAFailedUpShowsTheLogAndTheFix(t *testing.T) {
	f := newFake(t)
	f.fail = &api.Error{Code: 500, Message: "control plane ended", Fix: "free port 15012"}
	r := f.run("", "up")
	if r.code != ExitFailure || !strings.Contains(r.stderr, "| port taken") || !strings.Contains(r.stderr, "error: control plane ended\n  fix: free port 15012") {
		t.Errorf("exit code %d: %s", r.code, r.stderr)
	}
	if r.stdout != "" {
		t.Errorf("a failure printed %q", r.stdout)
	}
}

func TestDownOfNothingSucceeds(t *testing.T) {
	f := newFake(t)
	f.meshes = []string{"default"}
	f.fail = fmt.Errorf("%w: there is no /run/lateen/default", api.ErrNotRunning)
	if r := f.run("", "down"); r.code != 0 || !strings.Contains(r.stdout, "is not running") {
		t.Errorf("exit code %d: %s%s", r.code, r.stdout, r.stderr)
	}
	f.fail = errors.New("stuck")
	if r := f.run("", "down"); r.code != ExitFailure || !strings.Contains(r.stderr, "stuck") {
		t.Errorf("exit code %d: %s%s", r.code, r.stdout, r.stderr)
	}
}

func TestLabel(t *testing.T) {
	f := newFake(t)
	f.objects = sampleObjects()
	r := f.run("", "label", "ns", "default", "istio.io/dataplane-mode-", "team=a")
	if r.code != 0 || r.stdout != "namespace/default labeled\n" {
		t.Fatalf("exit code %d: %s%s", r.code, r.stdout, r.stderr)
	}
	if !f.askedFor(`POST /v1/patch {"key":{"kind":"Namespace","name":"default"},"patch":{"metadata":{"labels":{"istio.io/dataplane-mode":null,"team":"a"}}}}`) {
		t.Errorf("asked %q", f.asked)
	}
	f.asked = nil
	r = f.run("", "label", "namespace/default", "istio.io/dataplane-mode=none")
	if r.code != ExitFailure || !strings.Contains(r.stderr, `already "ambient"`) || f.askedFor("POST") {
		t.Errorf("another value was overwritten: exit code %d, %s, asked %q", r.code, r.stderr, f.asked)
	}
	if r = f.run("", "label", "namespace/default", "istio.io/dataplane-mode=none", "--overwrite"); r.code != 0 || !f.askedFor("POST /v1/patch") {
		t.Errorf("exit code %d: %s", r.code, r.stderr)
	}
}

func TestScaleAndDelete(t *testing.T) {
	f := newFake(t)
	if r := f.run("", "scale", "deploy/details-v1", "--replicas=3"); r.code != 0 ||
		!f.askedFor(`POST /v1/patch {"key":{"kind":"Deployment","namespace":"default","name":"details-v1"},"patch":{"spec":{"replicas":3}}}`) {
		t.Errorf("exit code %d: %s; asked %q", r.code, r.stderr, f.asked)
	}
	if r := f.run("", "delete", "authorizationpolicy", "a", "b"); r.code != 0 ||
		!f.askedFor(`POST /v1/delete {"namespace":"default","keys":[{"kind":"AuthorizationPolicy","namespace":"default","name":"a"},{"kind":"AuthorizationPolicy","namespace":"default","name":"b"}]`) {
		t.Errorf("exit code %d: %s; asked %q", r.code, r.stderr, f.asked)
	}
}

func TestExecPassesStreamsAndTheExitCode(t *testing.T) {
	f := newFake(t)
	f.exec = func(r api.ExecRequest, stdin io.Reader) (string, string, int) {
		in, _ := io.ReadAll(stdin)
		return fmt.Sprintf("%s in %s read %q", strings.Join(r.Command, "+"), r.Target, in), "oops", 7
	}
	r := f.run("hello", "exec", "-i", "deploy/client", "--", "cat", "-n")
	if r.code != 7 || r.stdout != `cat+-n in deploy/client read "hello"` || r.stderr != "oops" {
		t.Errorf("got %+v", r)
	}
	r = f.run("hello", "exec", "deploy/client", "-n", "shop", "--", "curl", "-s", "http://x/")
	if r.stdout != `curl+-s+http://x/ in deploy/client read ""` {
		t.Errorf("standard input was passed without -i, or flags after TARGET were not read: got %+v", r)
	}
}

// Scripts tell by a shell's exit codes whether the command failed or was not there.
func TestExecOfACommandThatIsNotThere(t *testing.T) {
	for _, code := range []int{126, 127} {
		f := newFake(t)
		f.exec = func(api.ExecRequest, io.Reader) (string, string, int) { return "", "no command nope", code }
		if r := f.run("", "exec", "deploy/client", "--", "nope"); r.code != code || r.stderr != "error: no command nope\n" {
			t.Errorf("got %+v", r)
		}
	}
}

func TestScaleNeedsANumber(t *testing.T) {
	for args, want := range map[string]string{"": "error: missing flag: --replicas=N\n", "--replicas=": "error: --replicas=: use a number, 0 or more\n", "--replicas=-1": "use a number, 0 or more"} {
		f := newFake(t)
		if r := f.run("", append([]string{"scale", "deploy/echo"}, strings.Fields(args)...)...); r.code != ExitUsage || !strings.Contains(r.stderr, want) || len(f.asked) > 0 {
			t.Errorf("%s: %+v, want %q", args, r, want)
		}
	}
}

func TestWaypointsAreNoKind(t *testing.T) {
	for _, word := range []string{"waypoint", "waypoints"} {
		if r := newFake(t).run("", "get", word); r.code != ExitUsage || !strings.Contains(r.stderr, "fix: `lateen waypoint list` shows waypoints; their objects are Gateways\n") {
			t.Errorf("%+v", r)
		}
	}
}

func TestLogsOfEveryPart(t *testing.T) {
	f := newFake(t)
	for target, want := range map[string]string{
		"deploy/x": "/v1/logs\n", "proxy/n1": "/v1/nodes/n1/proxy/log\n", "agent/n2": "/v1/nodes/n2/agent/log\n", "control": "/v1/control/log\n",
	} {
		if r := f.run("", "logs", target, "-f", "--tail", "5"); r.code != 0 || r.stdout != want {
			t.Errorf("%s: got %+v", target, r)
		}
	}
	if !f.askedFor("GET /v1/logs?container=&follow=true&namespace=default&tail=5&target=deploy%2Fx") {
		t.Errorf("asked %q", f.asked)
	}
}

func TestPortForwardRelaysHalfClosedConnections(t *testing.T) {
	f := newFake(t)
	f.echo = true
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	reader, writer := io.Pipe()
	done := make(chan int, 1)
	go func() {
		done <- Run(ctx, Env{
			Stdin: strings.NewReader(""), Stdout: writer, Stderr: io.Discard,
			Connect: func(mesh string) *api.Client { return api.NewAt(mesh, f.socket) },
			Now:     time.Now, Meshes: func() []string { return nil },
		}, []string{"port-forward", "svc/echo", ":8080"})
	}()
	line := make([]byte, 200)
	n, err := reader.Read(line)
	if err != nil {
		t.Fatal(err)
	}
	address := regexp.MustCompile(`127\.0\.0\.1:\d+`).FindString(string(line[:n]))
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatalf("%q: %v", line[:n], err)
	}
	if _, err := conn.Write([]byte("ping")); err != nil {
		t.Fatal(err)
	}
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(conn)
	if err != nil || string(answer) != "ping" {
		t.Errorf("got %q, %v", answer, err)
	}
	cancel()
	if code := <-done; code != 0 {
		t.Errorf("exit code %d", code)
	}
}

func TestWaitNamesWhatIsNotReady(t *testing.T) {
	f := newFake(t)
	f.objects, f.status.Control.Ready = sampleObjects(), true
	if r := f.run("", "wait", "pod/details-v1-a", "--timeout", "10s"); r.code != 0 || r.stdout != "ready: 1 pod\n" {
		t.Errorf("got %+v", r)
	}
	r := f.waits("300ms")
	if r.code != ExitFailure || !strings.Contains(r.stderr, "deployment/details-v1 (0 of 2 pods), pod/ratings-v1-b (container b: CrashLoopBackOff)") {
		t.Errorf("got %+v", r)
	}
}

func TestWaitThatHeardNothingSaysSo(t *testing.T) {
	f := newFake(t)
	f.hangs = true
	if r := f.run("", "wait", "--timeout", "300ms"); r.code != ExitFailure || !strings.Contains(r.stderr, "300ms: the mesh did not say") {
		t.Errorf("got %+v", r)
	}
}

func TestApplyWarnsOfWhatIsOnlyPartlyInForce(t *testing.T) {
	f := newFake(t)
	f.objects = sampleObjects()
	for _, name := range []string{"part", "l4", "l7"} {
		// A remark of the file's does not stand for what the control plane has to say.
		f.results = append(f.results, api.ObjectResult{Key: api.Key{Kind: "AuthorizationPolicy", Namespace: "default", Name: name}, Action: api.Created, Warnings: []string{"a remark"}})
	}
	r := f.run("kind: x", "apply", "-f", "-")
	if r.code != 0 || !strings.Contains(r.stderr, "authorizationpolicy/part: UnsupportedValue: it allows less than written") ||
		!strings.Contains(r.stderr, "authorizationpolicy/l7: NeedsWaypoint") || strings.Count(r.stderr, "l4") != 1 {
		t.Errorf("got %+v", r)
	}
	if r := f.run("kind: x", "apply", "-f", "-", "--dry-run"); strings.Contains(r.stderr, "UnsupportedValue") {
		t.Errorf("a dry run has no effect to tell of: %+v", r)
	}
}

// Each look at an object makes the control plane write out everything: five hundred policies are looked at together.
func TestManyObjectsAreLookedAtTogether(t *testing.T) {
	f := newFake(t)
	for i := range 500 {
		key := api.Key{Kind: "AuthorizationPolicy", Namespace: "default", Name: fmt.Sprint("p", i)}
		f.results = append(f.results, api.ObjectResult{Key: key, Action: api.Created})
		f.objects = append(f.objects, api.Object{Key: key, Raw: []byte("{}")})
	}
	if r := f.run("kind: x", "apply", "-f", "-"); r.code != 0 {
		t.Fatalf("got %+v", r)
	}
	looks := 0
	for _, asked := range f.asked {
		if strings.HasPrefix(asked, "GET /v1/objects") {
			looks++
		}
	}
	if looks == 0 || looks > 50 {
		t.Errorf("%d looks", looks)
	}
}

func TestAControlPlaneThatIsNotReadyIsToldOf(t *testing.T) {
	f := newFake(t)
	f.results = []api.ObjectResult{{Key: api.Key{Kind: "AuthorizationPolicy", Namespace: "default", Name: "new"}, Action: api.Created}}
	f.objects = []api.Object{{Key: f.results[0].Key, Raw: []byte("{}")}}
	f.status.Control = api.ControlState{Error: "it does not answer", Process: api.Process{Restarts: 7, LastExit: "exit status 1"}}
	if r := f.run("kind: x", "apply", "-f", "-"); !strings.Contains(r.stderr, "not in force yet") {
		t.Errorf("apply: %+v", r)
	}
	r := f.run("", "status")
	for _, want := range []string{"it does not answer", "restarted 7 times, last because: exit status 1", "lateen logs control"} {
		if !strings.Contains(r.stdout, want) {
			t.Errorf("status lacks %q: %s", want, r.stdout)
		}
	}
	f.status.Control.Ready, f.status.Control.Error = true, ""
	if r := f.run("kind: x", "apply", "-f", "-"); strings.Contains(r.stderr, "not in force yet") {
		t.Errorf("apply with a control plane that is ready: %+v", r)
	}
}

func TestApplyOfNothingFails(t *testing.T) {
	f := newFake(t)
	f.empty = true
	if r := f.run("# nothing\n---\n", "apply", "-f", "-"); r.code != ExitFailure || !strings.Contains(r.stderr, "no objects in standard input") {
		t.Errorf("got %+v", r)
	}
}

func TestAMeshThatIsNotRunningIsNamedWithItsFix(t *testing.T) {
	f := newFake(t)
	f.socket = filepath.Join(t.TempDir(), "none.sock")
	r := f.run("", "get", "pods", "--name", "blue")
	if r.code != ExitFailure || !strings.Contains(r.stderr, "lateen up --name blue") {
		t.Errorf("got %+v", r)
	}
}

func TestAnInterruptIsToldFromAFailure(t *testing.T) {
	if code := exitCode(fmt.Errorf("wait: %w", context.Canceled)); code != 130 {
		t.Errorf("exit code %d", code)
	}
}

func TestCompletionKnowsLiveNames(t *testing.T) {
	f := newFake(t)
	f.objects = sampleObjects()
	for want, args := range map[string][]string{
		"details-v1-a": {"__complete", "logs", ""}, "deploy/details-v1": {"__complete", "exec", "deploy/"}, "mixed": {"__complete", "get", "--name", ""},
		"policies": {"__complete", "proxy", "config", ""}, "n1": {"__complete", "proxy", "config", "policies", ""},
		"l7": {"__complete", "get", "ap", ""}, "authorizationpolicies": {"__complete", "get", ""}, "default": {"__complete", "get", "-n", ""},
	} {
		if r := f.run("", args...); !strings.Contains("\n"+r.stdout, "\n"+want+"\n") {
			t.Errorf("%v does not offer %s: %q", args, want, r.stdout)
		}
	}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		if r := f.run("", "completion", shell); r.code != 0 || !strings.Contains(r.stdout, "lateen") {
			t.Errorf("%s: exit code %d", shell, r.code)
		}
	}
}

func TestEveryVerbHasAnExample(t *testing.T) {
	root := newRoot(Env{})
	for _, cmd := range root.Commands() {
		if cmd.Example == "" || cmd.Short == "" {
			t.Errorf("%s has no example or no description", cmd.Name())
		}
	}
}
