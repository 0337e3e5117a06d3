package kube

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"lateen.dev/lateen/internal/control/conditions/withdraw"
	"lateen.dev/lateen/internal/engine/api"
)

// condition is one as the control plane leaves it in the cluster.
func condition(kind, status, reason, message string, seen int64) map[string]any {
	return map[string]any{"type": kind, "status": status, "reason": reason, "message": message, "observedGeneration": seen, "lastTransitionTime": "2026-11-21T10:00:00Z"}
}

// judgedObject is one with conditions of the control plane, or of another manager.
func judgedObject(t *testing.T, e *Engine, kind, name, manager string, generation int64, conditions ...any) {
	t.Helper()
	client, k, err := e.kind(kind, "shop", false)
	if err != nil {
		t.Fatal(err)
	}
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": k.APIVersion, "kind": k.Name, "metadata": map[string]any{"namespace": "shop", "name": name}}}
	o.SetGeneration(generation)
	if len(conditions) > 0 {
		if err := unstructured.SetNestedSlice(o.Object, conditions, "status", "conditions"); err != nil {
			t.Fatal(err)
		}
		o.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: manager, Subresource: "status", FieldsV1: &metav1.FieldsV1{Raw: []byte(`{"f:status":{"f:conditions":{}}}`)}}})
	}
	if _, err := client.Create(t.Context(), o, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func refusedObjects(t *testing.T, e *Engine) {
	t.Helper()
	const ours = withdraw.FieldManager
	invalid := condition("Accepted", "False", "Invalid", "spec.rules: no address", 3)
	judgedObject(t, e, "AuthorizationPolicy", "wrong", ours, 3, invalid, condition("lateen.dev/Programmed", "False", "NotAccepted", "it is not accepted", 3))
	judgedObject(t, e, "AuthorizationPolicy", "corrected", ours, 4, invalid)
	judgedObject(t, e, "AuthorizationPolicy", "new", ours, 1)
	judgedObject(t, e, "RequestAuthentication", "tokens", ours, 1)
	judgedObject(t, e, "PeerAuthentication", "right", ours, 1, condition("Accepted", "True", "Accepted", "", 1), condition("lateen.dev/Programmed", "False", "AwaitingProxies", "a proxy has not answered", 1))
	judgedObject(t, e, "ServiceEntry", "at-proxies", ours, 1, condition("Accepted", "True", "Accepted", "", 1), condition("lateen.dev/Programmed", "False", "RefusedByProxy", "node n1 refuses it", 1))
	judgedObject(t, e, "Gateway", "of-others", "another-controller", 1, condition("Accepted", "False", "Invalid", "theirs", 1))
}

func TestWithoutAControlPlaneTheStatusSaysWhatTheClusterTellsAndWhatNobodyKnows(t *testing.T) {
	e, c := mesh(t, []part{{partPod("control", "control-a", "n1", false), nil}}, clusterNode("n1"))
	refusedObjects(t, e)
	s, err := c.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var told []string
	for _, p := range s.Problems {
		told = append(told, p.Object+" "+p.Message)
	}
	for object, why := range map[string]string{"AuthorizationPolicy shop/wrong": "Invalid: spec.rules: no address (its condition Accepted is False since 2026-11-21 10:00:00 UTC", "ServiceEntry shop/at-proxies": "RefusedByProxy: node n1 refuses it"} {
		if !slices.ContainsFunc(told, func(p string) bool { return strings.HasPrefix(p, object+" "+why) }) {
			t.Errorf("%s is not among %q", object, told)
		}
	}
	if len(told) != 2 {
		t.Errorf("%q are told", told)
	}
	unknown := strings.Join(s.Unknown, "\n")
	for text, want := range map[string]bool{"AuthorizationPolicy shop/corrected": true, "AuthorizationPolicy shop/new": true, "RequestAuthentication shop/tokens": true, "right": false, "of-others": false, "acknowledged": true, "certificate": true} {
		if strings.Contains(unknown, text) != want {
			t.Errorf("%q is not known: %v, in\n%s", text, !want, unknown)
		}
	}
	if len(s.Next) == 0 || !strings.Contains(strings.Join(s.Next, "\n"), "kubectl describe deployment -n lateen-system lateen-control") {
		t.Errorf("next %q", s.Next)
	}
}

func TestWithAControlPlaneNothingIsReadFromConditions(t *testing.T) {
	e, c := mesh(t, []part{{partPod("control", "control-a", "n1", true), map[string]string{"15014/debug/clients": clients(3, nil), "15014/debug/problems": "[]", "15014/debug/objects": "[]"}}}, clusterNode("n1"))
	refusedObjects(t, e)
	s, err := c.Status(t.Context())
	if err != nil || len(s.Problems)+len(s.Unknown)+len(s.Next) > 0 {
		t.Errorf("%v %v %v %v", s.Problems, s.Unknown, s.Next, err)
	}
	list, err := c.Get(t.Context(), api.GetRequest{Kind: "AuthorizationPolicy", AllNamespaces: true})
	if err != nil || slices.ContainsFunc(list.Items, func(o api.Object) bool { return len(o.Conditions) > 0 }) {
		t.Errorf("%+v %v", list, err)
	}
}

func TestWithoutAControlPlaneObjectsHaveTheConditionsThatItLeft(t *testing.T) {
	e, c := mesh(t, nil)
	refusedObjects(t, e)
	list, err := c.Get(t.Context(), api.GetRequest{Kind: "AuthorizationPolicy", AllNamespaces: true})
	if err != nil || list.Unasked == "" || len(list.Items) != 3 {
		t.Fatalf("%+v %v", list, err)
	}
	for _, o := range list.Items {
		// A condition of an earlier state of an object says nothing of this one.
		if n := len(o.Conditions); (n > 0) != (o.Key.Name == "wrong") || n > 0 && o.Conditions[0].Reason != "Invalid" {
			t.Errorf("%s has %+v", o.Key, o.Conditions)
		}
	}
}
