//go:build kube

package installer_test

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
)

// A version of a policy that no pod can be chosen by is one after which its workloads would be open at the control plane's next start. The
// API server takes none, whether it is new or edited, and leaves alone whatever else is edited of one that was there before.
func TestNoPolicyGetsASelectorThatNoPodCanHave(t *testing.T) {
	c := installed(t)
	ctx := t.Context()
	for kind, resource := range map[string]string{"AuthorizationPolicy": "authorizationpolicies", "PeerAuthentication": "peerauthentications"} {
		policies := c.Dynamic.Resource(schema.GroupVersionResource{Group: "security.istio.io", Version: "v1", Resource: resource}).Namespace("default")
		with := func(name, key, value string) *unstructured.Unstructured {
			return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "security.istio.io/v1", "kind": kind, "metadata": map[string]any{"name": name},
				"spec": map[string]any{"selector": map[string]any{"matchLabels": map[string]any{"tier": "front", key: value}}}}}
		}
		delete := func(name string) { _ = policies.Delete(t.Context(), name, metav1.DeleteOptions{}) }
		eventually(t, "the policy is in force", func() error {
			delete("probe")
			if _, err := policies.Create(ctx, with("probe", "app", "web "), metav1.CreateOptions{}); !denies(err, "label 'app: web '") {
				return fmt.Errorf("it was answered: %v", err)
			}
			return nil
		})
		for _, x := range [][2]string{{"an app", "web"}, {"-app", "web"}, {"app/", "web"}, {"Example.com/app", "web"}, {"a/b/c", "web"}, {strings.Repeat("a", 64), "web"}, {"app", "-web"}, {"app", "web.example/1"}} {
			if _, err := policies.Create(ctx, with("bad", x[0], x[1]), metav1.CreateOptions{}); !denies(err, "no pod can have the label") {
				t.Errorf("%s: %q: %q was answered: %v", kind, x[0], x[1], err)
				delete("bad")
			}
		}
		for i, x := range [][2]string{{"app", "web"}, {"app", ""}, {"example.com/App_1.x", "Web-1_2.3"}, {strings.Repeat("a", 63), strings.Repeat("1", 63)}, {strings.Repeat("a.b", 80) + "/n", "x"}} {
			name := fmt.Sprint("good-", i)
			delete(name)
			if _, err := policies.Create(ctx, with(name, x[0], x[1]), metav1.CreateOptions{}); err != nil {
				t.Errorf("%s: %q: %q was answered: %v", kind, x[0], x[1], err)
			}
		}
		edited := func(edit string) error {
			_, err := policies.Patch(ctx, "good-0", "application/merge-patch+json", []byte(edit), metav1.PatchOptions{})
			return err
		}
		if err := edited(`{"spec":{"selector":{"matchLabels":{"app":"web "}}}}`); !denies(err, "label 'app: web '") {
			t.Errorf("the edit was answered: %v", err)
		}
		if err := edited(`{"spec":{"selector":null}}`); err != nil {
			t.Errorf("an edit that takes the selector away was answered: %v", err)
		}
		for i := range 5 {
			delete(fmt.Sprint("good-", i))
		}
		oldOnes(t, c.Dynamic, policies, with)
	}
}

// oldOnes edits a policy that was there before the API server judged it.
func oldOnes(t *testing.T, client dynamic.Interface, policies dynamic.ResourceInterface, with func(name, key, value string) *unstructured.Unstructured) {
	t.Helper()
	ctx := t.Context()
	bindings := client.Resource(schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingadmissionpolicybindings"})
	actions := func(action string) {
		t.Helper()
		if _, err := bindings.Patch(ctx, "lateen-selectors", "application/merge-patch+json", []byte(`{"spec":{"validationActions":["`+action+`"]}}`), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	actions("Audit")
	defer actions("Deny")
	eventually(t, "one is there", func() error {
		_, err := policies.Create(ctx, with("old", "app", "web "), metav1.CreateOptions{})
		return err
	})
	actions("Deny")
	eventually(t, "the policy is in force", func() error {
		if _, err := policies.Create(ctx, with("probe", "app", "web "), metav1.CreateOptions{}); !denies(err, "label 'app: web '") {
			_ = policies.Delete(ctx, "probe", metav1.DeleteOptions{})
			return fmt.Errorf("it was answered: %v", err)
		}
		return nil
	})
	if _, err := policies.Patch(ctx, "old", "application/merge-patch+json", []byte(`{"metadata":{"labels":{"x":"y"}},"spec":{"selector":{"matchLabels":{"tier":"front"}}}}`), metav1.PatchOptions{}); err != nil {
		t.Errorf("an edit of something else was answered: %v", err)
	}
	if _, err := policies.Patch(ctx, "old", "application/merge-patch+json", []byte(`{"spec":{"selector":{"matchLabels":{"tier":"back"}}}}`), metav1.PatchOptions{}); !denies(err, "label 'app: web '") {
		t.Errorf("an edit of its selector was answered: %v", err)
	}
	_ = policies.Delete(ctx, "old", metav1.DeleteOptions{})
}

func denies(err error, why string) bool {
	return err != nil && strings.Contains(err.Error(), "ValidatingAdmissionPolicy 'lateen-selectors'") && strings.Contains(err.Error(), why)
}
