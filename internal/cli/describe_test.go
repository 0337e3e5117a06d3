package cli

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"lateen.dev/lateen/internal/cli/printer"
	"lateen.dev/lateen/internal/engine/api"
)

// described are the objects of a small mesh: a deployment of two pods behind a service, and policies about them and about others.
func described() []api.Object {
	pod := func(name, node, status string) api.Object {
		return object("pod", name, `{"kind":"Pod","metadata":{"name":"`+name+`","namespace":"default","labels":{"app":"web"},"ownerReferences":[{"kind":"Deployment","name":"web"}]},
			"spec":{"nodeName":"`+node+`","serviceAccountName":"web","containers":[{"name":"web","image":"web:1","command":["serve","8080"],"ports":[{"name":"http","containerPort":8080}]}]},"status":`+status+`}`)
	}
	policy := func(kind, namespace, name, annotations, spec string) api.Object {
		o := object(kind, name, `{"metadata":{"name":"`+name+`","namespace":"`+namespace+`","annotations":`+annotations+`},"spec":`+spec+`}`)
		o.Key.Namespace = namespace
		o.Conditions = []api.Condition{{Type: "Accepted", Status: "True", Reason: "Accepted", Message: "the object is accepted as it is written"}}
		return o
	}
	return []api.Object{
		object("ns", "default", `{"metadata":{"name":"default","labels":{"istio.io/dataplane-mode":"ambient"}}}`),
		object("node", "n1", `{"metadata":{"name":"n1"},"spec":{"podCIDR":"10.244.1.0/24"},"status":{"conditions":[{"type":"Ready","status":"True"}],"addresses":[{"type":"InternalIP","address":"10.243.0.11"}]}}`),
		object("deploy", "web", `{"metadata":{"name":"web","namespace":"default"},"spec":{"replicas":2,"selector":{"matchLabels":{"app":"web"}},"template":{"metadata":{"labels":{"app":"web"}},"spec":{"serviceAccountName":"web","containers":[{"name":"web","image":"web:1"}]}}},
			"status":{"updatedReplicas":2,"readyReplicas":1,"availableReplicas":1,"conditions":[{"type":"Available","status":"False","reason":"MinimumReplicasUnavailable"}]}}`),
		object("svc", "web", `{"metadata":{"name":"web","namespace":"default"},"spec":{"clusterIP":"10.96.0.7","selector":{"app":"web"},"ports":[{"name":"http","port":80,"targetPort":"http"}]}}`),
		pod("web-a", "n1", `{"phase":"Running","podIP":"10.244.1.2","conditions":[{"type":"Ready","status":"True"}],"containerStatuses":[{"name":"web","ready":true,"restartCount":1,"state":{"running":{"startedAt":"2026-11-20T21:59:00Z"}},"lastState":{"terminated":{"exitCode":3,"reason":"Error"}}}]}`),
		pod("web-b", "n2", `{"phase":"Running","podIP":"10.244.2.2","containerStatuses":[{"name":"web","state":{"waiting":{"reason":"CrashLoopBackOff","message":"exited with code 3; next start in 2s"}}}]}`),
		policy("ap", "default", "rehearsed", `{"istio.io/dry-run":"true"}`, `{"selector":{"matchLabels":{"app":"web"}},"action":"DENY","rules":[{"from":[{"source":{"principals":["a/b"],"notNamespaces":["x","y"]}},{"source":{"ipBlocks":["10.0.0.0/8"]}}],"to":[{"operation":{"ports":["80"],"unheardOf":["z"]}}],"when":[{"key":"source.ip","values":["1.1.1.1"],"notValues":["2.2.2.2"]}]},{}]}`),
		policy("ap", "istio-system", "everywhere", `{}`, `{"selector":{"matchLabels":{"app":"web"}}}`),
		policy("ap", "shop", "elsewhere", `{}`, `{}`),
		policy("ap", "default", "waypoint", `{}`, `{"targetRefs":[{"kind":"Service","name":"web"}]}`),
		policy("ap", "default", "others", `{}`, `{"selector":{"matchLabels":{"app":"db"}}}`),
		policy("pa", "istio-system", "mesh", `{}`, `{"mtls":{"mode":"STRICT"},"portLevelMtls":{"8080":{"mode":"PERMISSIVE"}}}`),
		policy("pa", "istio-system", "root-pods", `{}`, `{"selector":{"matchLabels":{"app":"web"}},"mtls":{"mode":"DISABLE"}}`),
		object("cm", "settings", `{"metadata":{"name":"settings"},"data":{"colour":"red"}}`),
		object("secret", "hidden", `{"metadata":{"name":"hidden"},"data":{"key":"c2VjcmV0"}}`),
	}
}

func describedMesh(t *testing.T) *fakeEngine {
	t.Helper()
	f := newFake(t)
	f.objects = described()
	f.status = api.Status{Pods: []api.PodState{{Namespace: "default", Name: "web-a", Mesh: "captured", Enrolled: true, Identity: "spiffe://cluster.local/ns/default/sa/web"}},
		Nodes:   []api.NodeState{{Name: "n1", Agent: api.AgentState{Ready: true}, Proxy: api.ProxyState{AckedGeneration: 4, Error: "does not answer", Process: api.Process{Restarts: 2, LastExit: "was killed"}}}},
		Control: api.ControlState{Generation: 5}}
	return f
}

func TestDescribe(t *testing.T) {
	for name, args := range map[string][]string{
		"describe-pod": {"pod", "web-a"}, "describe-pod-waiting": {"pod/web-b"}, "describe-service": {"svc", "web"}, "describe-deployment": {"deploy/web"},
		"describe-policy": {"ap", "rehearsed"}, "describe-mtls": {"pa", "mesh", "-n", "istio-system"}, "describe-namespace": {"ns", "default"},
		"describe-node": {"node", "n1"}, "describe-other": {"cm", "settings"},
	} {
		t.Run(name, func(t *testing.T) {
			r := describedMesh(t).run("", append([]string{"describe"}, args...)...)
			golden(t, name+".golden", "$ lateen describe "+strings.Join(args, " ")+"\n"+r.stdout+r.stderr)
		})
	}
}

func TestDescribeAsDataIsTheSame(t *testing.T) {
	f := describedMesh(t)
	describe := func(args ...string) (d printer.Description) {
		t.Helper()
		r := f.run("", append([]string{"describe", "-o", "json"}, args...)...)
		if err := json.Unmarshal([]byte(r.stdout), &d); err != nil {
			t.Fatalf("%v: %+v", err, r)
		}
		return d
	}
	pod := describe("pod", "web-a").Pod
	var policies []string
	for _, p := range pod.Policies {
		policies = append(policies, p.Kind+" "+p.Namespace+"/"+p.Name+" "+p.Action+" "+p.State)
	}
	want := "AuthorizationPolicy default/rehearsed DENY dry-run; AuthorizationPolicy istio-system/everywhere ALLOW live; PeerAuthentication istio-system/mesh STRICT live"
	if got := strings.Join(policies, "; "); got != want || pod.Mesh.Identity != "spiffe://cluster.local/ns/default/sa/web" || !pod.IsReady || pod.Containers[0].LastReason != "exit code 3" {
		t.Errorf("pod: %s\n%+v", got, pod)
	}
	if e := describe("svc", "web").Service.Ports[0].Endpoints; len(e) != 2 || e[0].Address != "10.244.1.2:8080" || !e[0].Ready || e[1].Ready {
		t.Errorf("endpoints: %+v", e)
	}
	if d := describe("ap", "rehearsed"); !d.Policy.DryRun || len(d.Policy.Pods) != 2 || d.State != "dry-run" || d.Policy.Rules[1] != "every connection" {
		t.Errorf("policy: %+v %+v", d, d.Policy)
	}
	if d := describe("ap", "everywhere", "-n", "istio-system"); len(d.Policy.Pods) != 2 || !strings.Contains(d.Policy.NoRules, "allows nothing") {
		t.Errorf("a policy of the root namespace: %+v", d.Policy)
	}
	if d := describe("pa", "root-pods", "-n", "istio-system"); len(d.Policy.Pods) != 0 {
		t.Errorf("the selector of a PeerAuthentication looks into its own namespace: %+v", d.Policy.Pods)
	}
	if r := f.run("", "describe", "secret", "hidden"); strings.Contains(r.stdout, "c2VjcmV0") || !strings.Contains(r.stdout, "***") {
		t.Errorf("a secret: %+v", r)
	}
	if r := f.run("", "describe", "pods"); strings.Count(r.stdout, "Name: ") != 2 {
		t.Errorf("all pods: %s", r.stdout)
	}
	if r := f.run("", "describe", "pods", "-n", "empty"); r.code != ExitOK || r.stdout != "" || !strings.Contains(r.stderr, "no pods found in namespace empty") {
		t.Errorf("%+v", r)
	}
	if r := f.run("", "describe"); r.code != ExitUsage {
		t.Errorf("%+v", r)
	}
}

func TestADescriptionFitsTheTerminal(t *testing.T) {
	f := describedMesh(t)
	f.objects[6].Conditions[0].Message = strings.Repeat("a long message ", 30)
	for _, columns := range []int{80, 100, 160} {
		for _, kind := range []string{"pod", "deploy", "svc", "ap", "ns", "node"} {
			r := f.run("", "describe", kind, "-o", "json")
			var all struct{ Items []printer.Description }
			if err := json.Unmarshal([]byte(r.stdout), &all); err != nil || len(all.Items) == 0 {
				t.Fatalf("%s: %v, %+v", kind, err, r)
			}
			for _, d := range all.Items {
				var text strings.Builder
				if err := printer.Describe(&text, d, now, columns); err != nil {
					t.Fatal(err)
				}
				for line := range strings.Lines(text.String()) {
					if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > columns {
						t.Errorf("%s at %d columns: %d: %s", kind, columns, n, line)
					}
				}
			}
		}
	}
}

func TestDescribeTakesTheRootNamespaceFromTheControlPlane(t *testing.T) {
	f := describedMesh(t)
	for root, pods := range map[string]int{"": 2, "istio-system": 2, "other": 0} {
		f.root = root
		var d printer.Description
		r := f.run("", "describe", "ap", "everywhere", "-n", "istio-system", "-o", "json")
		if err := json.Unmarshal([]byte(r.stdout), &d); err != nil || len(d.Policy.Pods) != pods {
			t.Errorf("root namespace %q: %v, %+v", root, err, d.Policy)
		}
	}
}
