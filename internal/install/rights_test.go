package install

import (
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

func TestARightIsARightHoweverItsAccountIsWritten(t *testing.T) {
	binding := empowering("mesh", "istiod")
	binding.Subjects[0].Kind, binding.Subjects[0].Name, binding.Subjects[0].Namespace = "User", "system:serviceaccount:mesh:istiod", ""
	c := cluster(t, binding)
	rights, err := c.conflictSearch().rightsOf(t.Context())
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

// What an upgrade lists in the whole cluster is asked for before: who is told that nothing is missing can list it.
func TestEveryKindThatAPlanListsIsAskedFor(t *testing.T) {
	c, _ := installed(t)
	asked := map[string]bool{}
	c.Client.(*fake.Clientset).PrependReactor("create", "selfsubjectaccessreviews", func(a clienttesting.Action) (bool, runtime.Object, error) {
		q := a.(clienttesting.CreateAction).GetObject().(*authorizationv1.SelfSubjectAccessReview).Spec.ResourceAttributes
		if q.Verb == "list" && q.Namespace == "" {
			asked[q.Resource+"."+q.Group] = true
		}
		return true, &authorizationv1.SelfSubjectAccessReview{}, nil
	})
	if _, err := c.Missing(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	fakes := []*clienttesting.Fake{&c.Client.(*fake.Clientset).Fake, &c.Dynamic.(*dynamicfake.FakeDynamicClient).Fake}
	for _, f := range fakes {
		f.ClearActions()
	}
	if _, err := c.surplus(t.Context(), nil, []string{DefaultNamespace}); err != nil {
		t.Fatal(err)
	}
	listed := 0
	for _, f := range fakes {
		for _, a := range f.Actions() {
			if r := a.GetResource(); a.GetVerb() == "list" {
				listed++
				if !asked[r.Resource+"."+r.Group] {
					t.Errorf("%s.%s is listed and was not asked for", r.Resource, r.Group)
				}
			}
		}
	}
	if listed == 0 {
		t.Error("nothing was listed")
	}
}
