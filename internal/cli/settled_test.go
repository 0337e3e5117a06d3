package cli

import (
	"strings"
	"testing"
	"time"

	"lateen.dev/lateen/internal/engine/api"
)

// twoPods are a pod of a deployment and one on its own, both ready.
func twoPods() []api.Object {
	const ready = `"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}`
	return []api.Object{
		object("deploy", "web", `{"kind":"Deployment","metadata":{"name":"web","uid":"u-web"},"spec":{"replicas":1},"status":{"replicas":1,"readyReplicas":1,"availableReplicas":1,"updatedReplicas":1}}`),
		object("pod", "web-a", `{"kind":"Pod","metadata":{"name":"web-a","ownerReferences":[{"kind":"Deployment","name":"web","uid":"u-web"}]},`+ready+`}`),
		object("pod", "alone", `{"kind":"Pod","metadata":{"name":"alone"},`+ready+`}`),
	}
}

// A wait ends when labels, capture, the control plane's declaration and every proxy's acknowledgement agree.
func TestWaitCoversEnrolment(t *testing.T) {
	captured := api.PodState{Enrolled: true, Redirection: true, Mesh: "captured"}
	plain := api.PodState{Mesh: "plain"}
	with := func(p api.PodState, change func(*api.PodState)) api.PodState {
		change(&p)
		return p
	}
	const both = `{"content":{"workload":{"namespace":"default","name":"web-a","tunnelProtocol":"HBONE"}}},{"content":{"service":{"name":"web"}}}`
	tests := map[string]struct {
		web      api.PodState
		declared string
		acked    uint64
		targets  []string
		missing  string // empty: the wait ends well
	}{
		"in the mesh":      {web: captured, declared: both, acked: 7},
		"out of the mesh":  {web: plain, acked: 7},
		"not captured yet": {web: with(captured, func(p *api.PodState) { p.Mesh, p.Redirection = "pending", false }), acked: 7, missing: "pod/web-a (not in the mesh yet)"},
		"cannot be captured": {
			web: with(captured, func(p *api.PodState) { p.Mesh, p.Redirection, p.MeshReason = "pending", false, "port 15001 is in use" }), acked: 7,
			missing: "pod/web-a (not in the mesh yet: port 15001 is in use)",
		},
		"the agent is silent": {web: with(captured, func(p *api.PodState) { p.Mesh = "" }), declared: both, acked: 7, missing: "pod/web-a (not in the mesh yet)"},
		"not released yet":    {web: with(captured, func(p *api.PodState) { p.Enrolled = false }), acked: 7, missing: "pod/web-a (not out of the mesh yet)"},
		"finishing its connections": {web: with(plain, func(p *api.PodState) {
			p.Mesh, p.MeshReason = "releasing", "waiting for meshed connections to finish: 3"
		}), acked: 7, missing: "pod/web-a (leaving the mesh: waiting for meshed connections to finish: 3)"},
		"not declared yet":              {web: captured, acked: 7, missing: "the control plane to hear of pod/web-a"},
		"still declared":                {web: plain, declared: both, acked: 7, missing: "the control plane to hear of pod/web-a"},
		"speaks for itself":             {web: plain, declared: strings.Replace(both, `"HBONE"`, `"HBONE","nativeTunnel":true`, 1), acked: 7},
		"not acknowledged":              {web: captured, declared: both, acked: 6, missing: "the proxy of node n1 (generation 6 of 7)"},
		"by its deployment":             {web: with(captured, func(p *api.PodState) { p.Redirection = false }), acked: 7, targets: []string{"deploy/web"}, missing: "pod/web-a"},
		"another pod is not waited for": {web: with(captured, func(p *api.PodState) { p.Redirection = false }), acked: 7, targets: []string{"alone"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			f.objects, f.declared = twoPods(), tt.declared
			web, alone := tt.web, plain
			web.Namespace, web.Name, alone.Namespace, alone.Name = "default", "web-a", "default", "alone"
			f.status = api.Status{
				Control: api.ControlState{Ready: true, Generation: 7}, Pods: []api.PodState{web, alone},
				Nodes: []api.NodeState{{Name: "n1", Proxy: api.ProxyState{AckedGeneration: tt.acked}}, {Name: "n2", Proxy: api.ProxyState{AckedGeneration: 7}}},
			}
			r := f.waits("250ms", tt.targets...)
			if tt.missing == "" && r.code != ExitOK || tt.missing != "" && (r.code != ExitFailure || !strings.Contains(r.stderr, tt.missing)) {
				t.Errorf("got %+v, want %q", r, tt.missing)
			}
		})
	}
}

func TestALabelThatEnrolsLeadsToWait(t *testing.T) {
	f := newFake(t)
	f.objects = sampleObjects()
	if r := f.run("", "label", "ns", "default", "istio.io/dataplane-mode-"); r.code != 0 || !strings.Contains(r.stderr, "Next: lateen wait\n") {
		t.Errorf("got %+v", r)
	}
	if r := f.run("", "label", "ns", "default", "team=a"); r.code != 0 || strings.Contains(r.stderr, "wait") {
		t.Errorf("got %+v", r)
	}
}

// A control plane that takes long to answer is left alone for longer than it worked, but not for ever.
func TestAWaitDoesNotKeepASlowControlPlaneAtWork(t *testing.T) {
	for took, want := range map[time.Duration]time.Duration{0: pollTime, 10 * time.Millisecond: pollTime, 2 * time.Second: 4 * time.Second, time.Minute: longestPause} {
		if got := pause(took); got != want {
			t.Errorf("after a look of %s it pauses for %s, want %s", took, got, want)
		}
	}
}
