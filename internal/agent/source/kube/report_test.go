package kube

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	k8stesting "k8s.io/client-go/testing"

	"lateen.dev/lateen/internal/agent/source"
)

// What the API server refuses it will refuse again, and the pod's owner is the one who can do something about it.
func TestARefusedAnnotationIsSaidAtThePod(t *testing.T) {
	for _, x := range []struct {
		name    string
		err     error
		refused bool
	}{
		{"a policy", apierrors.NewForbidden(corev1.Resource("pods"), "web", errors.New("ValidatingAdmissionPolicy 'lateen-agent': more than 1000 annotations")), true},
		{"a policy that costs too much", apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Pod").GroupKind(), "web", nil), true},
		{"too large", apierrors.NewRequestEntityTooLargeError("too long"), true},
		{"rights that are missing", apierrors.NewForbidden(corev1.Resource("pods"), "web", errors.New(`User "system:serviceaccount:lateen-system:lateen-agent" cannot patch resource "pods/status" in API group "" in the namespace "shop"`)), false},
		{"an API server that is busy", apierrors.NewTooManyRequests("busy", 1), false},
		{"one that is away", fmt.Errorf("dial tcp: connection refused"), false},
	} {
		t.Run(x.name, func(t *testing.T) {
			r := newRig(t, namespace("shop", ambient), pod("web", "u1"))
			r.run()
			if _, _, err := r.Born(t.Context(), r.birth("web", "u1")); err != nil {
				t.Fatal(err)
			}
			r.await(t, "the pod", func(p map[string]source.Pod) bool { return p["web"].NetNS != "" })
			r.client.PrependReactor("patch", "pods", func(k8stesting.Action) (bool, runtime.Object, error) { return true, nil, x.err })
			for range 2 {
				if err := r.Report(t.Context(), "u1", source.Report{State: source.Enabled}); err == nil || errors.Is(err, source.ErrRefused) != x.refused || !strings.Contains(err.Error(), x.err.Error()) {
					t.Errorf("the report: %v", err)
				}
			}
			events, err := r.client.CoreV1().Events("shop").List(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if n := len(events.Items); x.refused != (n == 1) || n > 1 {
				t.Fatalf("%d events", n)
			}
			if x.refused && (events.Items[0].Reason != reasonUnwritten || !strings.Contains(events.Items[0].Message, x.err.Error())) {
				t.Errorf("the event: %+v", events.Items[0])
			}
		})
	}
}

// What is not kept of a pod's object may be why a write is refused: that it is another now is known by its version.
func TestAPodThatChangesHasAnotherVersion(t *testing.T) {
	p := pod("web", "u1")
	p.ResourceVersion = "7"
	trimmed, err := trimPod(p)
	if err != nil {
		t.Fatal(err)
	}
	if got := described(trimmed.(*corev1.Pod), sandbox{}, "lateen-system").Version; got != "7" {
		t.Errorf("it has version %q", got)
	}
}
