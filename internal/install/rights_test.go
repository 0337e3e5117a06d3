package install

import (
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

func TestARightIsARightHoweverItsAccountIsWritten(t *testing.T) {
	binding := empowering("mesh", "istiod")
	binding.Subjects[0].Kind, binding.Subjects[0].Name, binding.Subjects[0].Namespace = "User", "system:serviceaccount:mesh:istiod", ""
	c := cluster(t, binding)
	rights, err := c.rightsOf(t.Context())
	if err != nil || !rights("mesh", "istiod").control() || rights("mesh", "other").pods || rights("other", "istiod").pods {
		t.Errorf("%+v %v", rights("mesh", "istiod"), err)
	}
}

func TestANameThatIsPassedOverInVainIsTold(t *testing.T) {
	o := options()
	o.IgnoreConflicts = []string{"mesh/foo"}
	i, err := cluster(t).Prepare(t.Context(), o)
	if err != nil || len(i.Plan.Warnings) != 1 || !strings.Contains(i.Plan.Warnings[0], "mesh/foo") {
		t.Errorf("%v", err)
	}
}

func TestWhatIsLookedAtNeedsRights(t *testing.T) {
	c := cluster(t)
	c.Client.(*fake.Clientset).PrependReactor("create", "selfsubjectaccessreviews", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, &authorizationv1.SelfSubjectAccessReview{}, nil
	})
	all, err := Everything(options())
	if err != nil {
		t.Fatal(err)
	}
	missing, err := c.Missing(t.Context(), all)
	if text := strings.Join(missing, ","); err != nil || !strings.Contains(text, "list nodes") || !strings.Contains(text, "create leases.coordination.k8s.io in lateen-system") {
		t.Errorf("%v %v", missing, err)
	}
}
