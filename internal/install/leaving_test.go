package install

import (
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"lateen.dev/lateen/internal/engine/api"
)

// namespace gives the cluster one, which is being removed if leaving is set. As in a real one, nothing can be made there then.
func (c *Cluster) namespace(t *testing.T, name string, leaving bool) {
	t.Helper()
	n := named("Namespace", "", name)
	own(n)
	if leaving {
		now := metav1.Now()
		n.SetDeletionTimestamp(&now)
		there := func() bool {
			o, err := c.Dynamic.(*dynamicfake.FakeDynamicClient).Tracker().Get(resources["Namespace"].GroupVersionResource, "", name)
			return err == nil && o.(*unstructured.Unstructured).GetDeletionTimestamp() != nil
		}
		c.Dynamic.(*dynamicfake.FakeDynamicClient).PrependReactor("patch", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
			if a.GetNamespace() != name || !there() {
				return false, nil, nil
			}
			return true, nil, terminating(a.GetResource().Resource, name)
		})
		c.Dynamic.(*dynamicfake.FakeDynamicClient).PrependReactor("delete", "namespaces", func(a clienttesting.Action) (bool, runtime.Object, error) {
			return a.(clienttesting.DeleteAction).GetName() == name && there(), nil, nil // it is on its way already
		})
	}
	c.put(t, n)
}

// terminating is the API server's own answer.
func terminating(resource, namespace string) error {
	err := apierrors.NewForbidden(resources["ConfigMap"].GroupResource(), resource, nil)
	err.ErrStatus.Message = "unable to create new content in namespace " + namespace + " because it is being terminated"
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: "NamespaceTerminating", Message: "namespace " + namespace + " is being terminated", Field: "metadata.namespace"}}
	return err
}

// gone ends the removal of a namespace.
func (c *Cluster) gone(t *testing.T, name string) {
	t.Helper()
	if err := c.Dynamic.(*dynamicfake.FakeDynamicClient).Tracker().Delete(resources["Namespace"].GroupVersionResource, "", name); err != nil {
		t.Fatal(err)
	}
}

func TestARemovalThatWaitedForItsNamespaceCanBeEnded(t *testing.T) {
	c := cluster(t)
	anchored(t, c, DefaultNamespace, lateen)
	c.namespace(t, DefaultNamespace, true)
	uninstall := func() error {
		o := options()
		o.Timeout = time.Second
		r, err := c.PrepareRemoval(t.Context(), o, false)
		if err != nil {
			t.Fatal(err)
		}
		return r.Run(t.Context())
	}
	if err := uninstall(); err == nil || !strings.Contains(err.Error(), "kubectl describe namespace lateen-system") || !strings.Contains(err.Error(), "repeated") {
		t.Errorf("while it is being removed: %v", err)
	}
	if r, err := c.Find(t.Context()); err != nil || r == nil || r.State != stateUninstalling {
		t.Errorf("it cannot be found any more: %+v %v", r, err)
	}
	_, err := c.PrepareUpgrade(t.Context(), options())
	if e := said(t, err); e.Code != 409 || !strings.Contains(e.Fix, "lateen uninstall") {
		t.Errorf("an upgrade: %v", e)
	}
	c.gone(t, DefaultNamespace)
	if err := uninstall(); err != nil {
		t.Errorf("when it is gone: %v", err)
	}
	if r, err := c.Find(t.Context()); r != nil || err != nil {
		t.Errorf("%+v %v", r, err)
	}
}

func TestInstallingWaitsForANamespaceThatIsBeingRemoved(t *testing.T) {
	for _, name := range []string{DefaultNamespace, defaultRoot} {
		c := cluster(t)
		c.namespace(t, name, true)
		o := options()
		o.DryRun = true
		_, err := c.Prepare(t.Context(), o)
		if e := said(t, err); e.Code != 409 || !strings.Contains(e.Message, name) || !strings.Contains(e.Fix, "kubectl wait --for=delete namespace/"+name) {
			t.Errorf("a dry run: %v", e)
		}
		o.DryRun = false
		told := make(chan string, 16)
		o.Progress = func(e api.Event) {
			if e.Phase == "namespaces" && e.State == api.EventStarted {
				told <- e.Message
			}
		}
		ended := make(chan error, 1)
		go func() {
			i, err := c.Prepare(t.Context(), o)
			if err == nil {
				err = i.Run(t.Context())
			}
			ended <- err
		}()
		if said := <-told; !strings.Contains(said, name) {
			t.Error(said)
		}
		c.gone(t, name)
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		if live, err := c.objects().get(t.Context(), named("Namespace", "", name)); err != nil || live == nil || live.GetDeletionTimestamp() != nil {
			t.Errorf("%v %v", live, err)
		}
	}
}

func TestARefusalOfANamespaceThatIsBeingRemovedIsNoMissingRight(t *testing.T) {
	e := said(t, cluster(t).explain(terminating("configmaps", "a")))
	if strings.Contains(e.Fix, "administrator") || !strings.Contains(e.Fix, "wait until it is gone") {
		t.Error(e)
	}
}

// What is installed into a namespace that was just removed keeps what it is found by, whoever removes that meanwhile.
func TestARemovalThatEndsLateLeavesWhatIsInstalledAnew(t *testing.T) {
	c := cluster(t)
	anchored(t, c, DefaultNamespace, lateen)
	r, err := c.PrepareRemoval(t.Context(), options(), false)
	if err != nil {
		t.Fatal(err)
	}
	c.namespace(t, DefaultNamespace, false)
	if err := c.keep(t.Context(), &Record{Namespace: DefaultNamespace, State: stateInstalling}); err != nil {
		t.Fatal(err)
	}
	if err := r.last(t.Context(), c.lock(DefaultNamespace, "uninstall")); err == nil {
		t.Error("nothing is said")
	}
	if o, err := c.objects().get(t.Context(), named("ClusterRoleBinding", "", anchorName)); o == nil || err != nil {
		t.Error("it is gone", err)
	}
}
