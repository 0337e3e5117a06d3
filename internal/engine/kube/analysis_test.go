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
