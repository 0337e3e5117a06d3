package cli

import (
	"fmt"
	"strings"
	"testing"

	"lateen.dev/lateen/internal/engine/api"
)

// A proxy acknowledges what it refuses, too: what was read before its answer does not have the refusal yet.
func TestWaitSeesWhatIsRefusedAsItIsAcknowledged(t *testing.T) {
	policy := object("authorizationpolicy", "deny", `{"kind":"AuthorizationPolicy","metadata":{"name":"deny"}}`)
	const refuses = "RefusedByProxy: the proxy of node n1 refuses it: no scope 9"
	tests := map[string]struct {
		change func(*fakeEngine) // what the acknowledgement brings with it
		args   []string
		code   int
		says   string // on standard error; empty: nothing
	}{
		"a policy, by name":         {func(f *fakeEngine) { f.objects[3] = refusedBy(policy) }, []string{"authorizationpolicy/deny"}, ExitFailure, "authorizationpolicy/deny (" + refuses},
		"a policy, unasked":         {func(f *fakeEngine) { f.objects[3] = refusedBy(policy) }, nil, ExitFailure, "authorizationpolicy/deny (" + refuses},
		"a pod":                     {func(f *fakeEngine) { f.objects[2] = refusedBy(f.objects[2]) }, []string{"alone"}, ExitFailure, "pod/alone (" + refuses},
		"a pod of a deployment":     {func(f *fakeEngine) { f.objects[1] = refusedBy(f.objects[1]) }, []string{"deploy/web"}, ExitFailure, "pod/web-a (" + refuses},
		"not what is waited for":    {func(f *fakeEngine) { f.objects[3] = refusedBy(policy) }, []string{"alone"}, ExitOK, ""},
		"doubt of a policy, named":  {func(f *fakeEngine) { f.objects[3] = doubted(policy, "MayBeRefused") }, []string{"authorizationpolicy/deny"}, ExitFailure, "not ready within 8s: authorizationpolicy/deny (MayBeRefused"},
		"doubt of one, unasked":     {func(f *fakeEngine) { f.objects[3] = doubted(policy, "MayBeRefused") }, nil, ExitOK, "not known: authorizationpolicy/deny (MayBeRefused"},
		"nothing is known any more": {func(f *fakeEngine) { f.objects[3] = policy }, []string{"authorizationpolicy/deny"}, ExitFailure, "not ready within 8s: authorizationpolicy/deny"},
		"a pod is not ready now":    {func(f *fakeEngine) { f.objects[2].Raw = []byte(`{"metadata":{"name":"alone"}}`) }, []string{"alone"}, ExitFailure, "not ready within 8s: pod/alone"},
		"nobody tells of acknowledgements": {func(f *fakeEngine) {
			f.status.Control, f.status.Nodes[0].Proxy = api.ControlState{Ready: true, Error: "its list of clients cannot be read"}, api.ProxyState{}
		}, []string{"alone"}, ExitFailure, "not ready within 8s: the control plane (its list of clients cannot be read)"},
		"a pod of which nobody can tell": {func(f *fakeEngine) {
			f.unasked = "connection refused"
		}, []string{"alone"}, ExitFailure, "not ready within 8s: the control plane (connection refused)"},
		"nothing but that": {func(*fakeEngine) {}, []string{"authorizationpolicy/deny"}, ExitOK, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := acknowledging(t, func(f *fakeEngine, look int) {
				if look == 2 { // the one that is about acknowledgements
					tt.change(f)
				}
			})
			f.objects, f.findings = append(f.objects, accepted(policy)), []api.Finding{}
			timeout := "60s"
			if strings.Contains(tt.says, "within 8s") {
				timeout = "8s"
			}
			r := f.run("", append([]string{"wait", "--timeout", timeout}, tt.args...)...)
			quiet := !strings.Contains(r.stderr, "not known") && !strings.Contains(r.stderr, "refuse")
			if r.code != tt.code || !strings.Contains(r.stderr, tt.says) || tt.says == "" && !quiet {
				t.Errorf("got %+v, want %d and %q", r, tt.code, tt.says)
			}
		})
	}
}

// Proxies have not acknowledged an object that was applied while they were asked.
func TestWaitTakesNoAcknowledgementForWhatCameAfterIt(t *testing.T) {
	written := func(spec string) api.Object {
		return accepted(object("authorizationpolicy", "deny", fmt.Sprintf(`{"kind":"AuthorizationPolicy","metadata":{"name":"deny"},"spec":%s}`, spec)))
	}
	looks := 0
	f := acknowledging(t, func(f *fakeEngine, look int) {
		looks = look
		switch look {
		case 2:
			f.objects[3] = written(`{"action":"DENY"}`) // and the control plane has heard of it
		case 3:
			f.status.Control.Generation = 8
		case 6:
			f.status.Nodes[0].Proxy.AckedGeneration = 8
		}
	})
	f.objects = append(f.objects, written(`{}`))
	if r := f.run("", "wait", "--timeout", "60s", "authorizationpolicy/deny"); r.code != ExitOK || looks < 6 {
		t.Errorf("got %+v after %d looks", r, looks)
	}

	f = acknowledging(t, func(f *fakeEngine, look int) {
		if look == 2 {
			f.objects = append(f.objects, object("pod", "web-b", strings.ReplaceAll(string(f.objects[1].Raw), "web-a", "web-b")))
			f.status.Pods = append(f.status.Pods, api.PodState{Namespace: "default", Name: "web-b", Enrolled: true, Mesh: "pending"})
		}
	})
	if r := f.run("", "wait", "--timeout", "8s", "deploy/web"); r.code != ExitFailure || !strings.Contains(r.stderr, "pod/web-b (not in the mesh yet)") {
		t.Errorf("a deployment's next pod: got %+v", r)
	}
}

// On Kubernetes a Deployment owns its pods by way of ReplicaSets, whose UIDs the command does not know.
func TestWaitForADeploymentIsForThePodsOfItsReplicaSets(t *testing.T) {
	ofSet := func(owner string) api.Object {
		pod := object("pod", "web-5d4-a", `{"metadata":{"name":"web-5d4-a","ownerReferences":[{"kind":"ReplicaSet","name":"web-5d4","uid":"u-set","controller":true}]},
			"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}`)
		pod.Owners = []string{owner}
		return pod
	}
	for owner, says := range map[string]string{"u-web": "pod/web-5d4-a (not in the mesh yet: port 15008 is in use)", "u-another": ""} {
		f := acknowledging(t, func(*fakeEngine, int) {})
		f.objects[1] = ofSet(owner)
		f.status.Pods = []api.PodState{{Namespace: "default", Name: "web-5d4-a", Enrolled: true, Mesh: "pending", MeshReason: "port 15008 is in use"}}
		r := f.waits("1s", "deploy/web")
		if says == "" && r.code != ExitOK || says != "" && (r.code != ExitFailure || !strings.Contains(r.stderr, says)) {
			t.Errorf("owned by %s: got %+v, want %q", owner, r, says)
		}
	}
}

// Pods of an earlier Deployment of that name, or of an object of another kind, are not waited for.
func TestWaitForADeploymentTellsItsPodsByUID(t *testing.T) {
	f := acknowledging(t, func(*fakeEngine, int) {})
	f.objects[1].Raw = []byte(strings.Replace(string(f.objects[1].Raw), `"uid":"u-web"`, `"uid":"u-before"`, 1))
	f.status.Pods[0] = api.PodState{Namespace: "default", Name: "web-a", Enrolled: true, Mesh: "pending"}
	if r := f.run("", "wait", "--timeout", "10s", "deploy/web"); r.code != ExitOK {
		t.Errorf("got %+v", r)
	}
}

func TestWaitTakesNoRolloutForDoneThatIsUnderWay(t *testing.T) {
	for name, x := range map[string]struct {
		replicas, generation, status string
		done                         bool
	}{
		"done":                             {"2", "3", `"observedGeneration":3,"replicas":2,"updatedReplicas":2,"readyReplicas":2,"availableReplicas":2`, true},
		"of none":                          {"0", "3", `"observedGeneration":3`, true},
		"one that nobody has looked at":    {"1", "1", ``, false},
		"an earlier generation's":          {"1", "3", `"observedGeneration":2,"replicas":1,"updatedReplicas":1,"readyReplicas":1,"availableReplicas":1`, false},
		"the old pod is the ready one":     {"1", "3", `"observedGeneration":3,"replicas":2,"updatedReplicas":1,"readyReplicas":1,"availableReplicas":1,"unavailableReplicas":1`, false},
		"an old pod is left":               {"1", "3", `"observedGeneration":3,"replicas":2,"updatedReplicas":1,"readyReplicas":2,"availableReplicas":2`, false},
		"a pod is too many":                {"1", "3", `"observedGeneration":3,"replicas":2,"updatedReplicas":2,"readyReplicas":2,"availableReplicas":2`, false},
		"a pod is missing":                 {"2", "3", `"observedGeneration":3,"replicas":1,"updatedReplicas":1,"readyReplicas":1,"availableReplicas":1`, false},
		"a pod of two is of the old one's": {"2", "3", `"observedGeneration":3,"replicas":2,"updatedReplicas":1,"readyReplicas":2,"availableReplicas":2`, false},
		"ready for too short a time":       {"1", "3", `"observedGeneration":3,"replicas":1,"updatedReplicas":1,"readyReplicas":1`, false},
	} {
		t.Run(name, func(t *testing.T) {
			f := acknowledging(t, func(*fakeEngine, int) {})
			f.objects[0].Raw = fmt.Appendf(nil, `{"metadata":{"name":"web","uid":"u-web","generation":%s},"spec":{"replicas":%s},"status":{%s}}`, x.generation, x.replicas, x.status)
			timeout := "250ms"
			if x.done {
				timeout = "10s"
			}
			r := f.run("", "wait", "--timeout", timeout, "deploy/web")
			if x.done != (r.code == ExitOK) || !x.done && !strings.Contains(r.stderr, "deployment/web (") {
				t.Errorf("got %+v", r)
			}
		})
	}
}

// acknowledging is a mesh of two pods that is as it should be; it calls looked before it answers each look at the mesh, with its number.
func acknowledging(t *testing.T, looked func(f *fakeEngine, look int)) *fakeEngine {
	f := newFake(t)
	f.objects = twoPods()
	f.status = api.Status{Control: api.ControlState{Ready: true, Generation: 7},
		Pods:  []api.PodState{{Namespace: "default", Name: "web-a", Mesh: "plain"}, {Namespace: "default", Name: "alone", Mesh: "plain"}},
		Nodes: []api.NodeState{{Name: "n1", Proxy: api.ProxyState{AckedGeneration: 7}}}}
	look := 0
	f.looking = func() {
		look++
		looked(f, look)
	}
	return f
}
