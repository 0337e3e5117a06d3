package kube

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	corev1 "k8s.io/api/core/v1"

	"lateen.dev/lateen/internal/engine/api"
)

const deniesNothing = `{"object":{"group":"security.istio.io","kind":"AuthorizationPolicy","namespace":"default","name":"p"},"code":"denies-nothing","severity":"warning","state":"ineffective","message":"denies nothing"}`

// Both replicas find the same, and it is said once; of a version that a replica has not read it says nothing.
func TestFindingsAreThoseOfThePresentVersion(t *testing.T) {
	says := func(name, observed string) part {
		return part{partPod("control", name, "n1", true), map[string]string{
			"15014/debug/objects":  `[{"apiVersion":"security.istio.io/v1","kind":"AuthorizationPolicy","namespace":"default","name":"p","uid":"u1","observedGeneration":` + observed + `,"conditions":[],"findings":[` + deniesNothing + `]}]`,
			"15014/debug/analysis": `{"generation":4,"findings":[` + deniesNothing + `]}`}}
	}
	for name, x := range map[string]struct {
		parts    []part
		findings int
		judged   bool
	}{
		"both know it":  {[]part{says("control-a", "3"), says("control-b", "3")}, 1, true},
		"one lags":      {[]part{says("control-a", "2"), says("control-b", "3")}, 1, false},
		"nobody has it": {[]part{says("control-a", "2")}, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			e, c := mesh(t, x.parts)
			client, _, err := e.kind("ap", "default", false)
			if err != nil {
				t.Fatal(err)
			}
			o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "security.istio.io/v1", "kind": "AuthorizationPolicy", "metadata": map[string]any{"namespace": "default", "name": "p", "uid": "u1", "generation": int64(3)}}}
			if _, err := client.Create(t.Context(), o, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			list, err := c.Get(t.Context(), api.GetRequest{Kind: "AuthorizationPolicy", Namespace: "default"})
			if err != nil || len(list.Items) != 1 || len(list.Items[0].Findings) != x.findings || list.Items[0].Judged != x.judged {
				t.Errorf("got %+v, %v", list, err)
			}
			if found, err := c.Analysis(t.Context()); err != nil || len(found) != 1 || found[0].Object != (api.Key{Kind: "AuthorizationPolicy", Namespace: "default", Name: "p"}) {
				t.Errorf("got %+v, %v", found, err)
			}
		})
	}
	_, c := mesh(t, nil)
	if _, err := c.Analysis(t.Context()); err == nil || !strings.Contains(err.Error(), "no replica of the control plane is ready") {
		t.Errorf("without a control plane: %v", err)
	}
}

func TestAContainerThatWaitsSaysWhy(t *testing.T) {
	p := partPod("node", "web", "n1", false)
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}}}
	if s := podState(p, true, "cluster.local"); len(s.Containers) != 1 || s.Containers[0].Waiting != "CrashLoopBackOff" {
		t.Errorf("got %+v", s.Containers)
	}
}

// A ConfigMap has no status, so that the control plane is asked. It says something of the mesh's settings alone.
func TestTheMeshConfigHasTheConditionsOfTheControlPlane(t *testing.T) {
	const unserved = `{"apiVersion":"v1","kind":"ConfigMap","namespace":"istio-system","name":"istio","uid":"u1","conditions":[{"type":"Accepted","status":"True","reason":"UnsupportedValue","message":"no proxy of this mesh goes by enableTracing"}],"problems":[]}`
	configMap := func(name string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"namespace": "istio-system", "name": name, "uid": "u1"}}}
	}
	answers := []part{{partPod("control", "control-a", "n1", true), map[string]string{"15014/debug/objects": "[" + unserved + "]"}}}
	for name, x := range map[string]struct {
		parts   []part
		object  string
		said    bool
		unasked string
	}{
		"the settings":                         {answers, "istio", true, ""},
		"the settings without a control plane": {nil, "istio", false, "no replica of the control plane is ready"},
		"another ConfigMap":                    {nil, "istio-leader", false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			e, c := mesh(t, x.parts)
			client, _, err := e.kind("cm", "istio-system", false)
			if err == nil {
				_, err = client.Create(t.Context(), configMap(x.object), metav1.CreateOptions{})
			}
			if err != nil {
				t.Fatal(err)
			}
			for _, named := range []string{x.object, ""} {
				list, err := c.Get(t.Context(), api.GetRequest{Kind: "ConfigMap", Namespace: "istio-system", Name: named})
				if err != nil || len(list.Items) != 1 {
					t.Fatal(list, err)
				}
				if o := list.Items[0]; (len(o.Conditions) == 1 && o.Conditions[0].Reason == "UnsupportedValue") != x.said || o.Judged != x.said {
					t.Errorf("%q: got %+v", named, o)
				}
				if !strings.Contains(list.Unasked, x.unasked) || (list.Unasked == "") != (x.unasked == "") {
					t.Errorf("%q: unasked %q", named, list.Unasked)
				}
			}
		})
	}
}
