package install

import (
	"context"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
)

// late is a cluster in which something happens just before a ClusterRoleBinding is created.
func late(c *Cluster, happens func()) *Cluster {
	return &Cluster{Client: c.Client, Host: c.Host, Dynamic: lateDynamic{c.Dynamic, happens}}
}

type lateDynamic struct {
	dynamic.Interface
	happens func()
}

func (l lateDynamic) Resource(r schema.GroupVersionResource) dynamic.NamespaceableResourceInterface {
	of := l.Interface.Resource(r)
	if r.Resource != "clusterrolebindings" {
		return of
	}
	return lateBindings{of, l.happens}
}

type lateBindings struct {
	dynamic.NamespaceableResourceInterface
	happens func()
}

func (l lateBindings) Create(ctx context.Context, o *unstructured.Unstructured, options metav1.CreateOptions, sub ...string) (*unstructured.Unstructured, error) {
	l.happens()
	return l.NamespaceableResourceInterface.Create(ctx, o, options, sub...)
}

func into(namespace string) Options {
	o := options()
	o.Namespace = namespace
	return o
}

// Both have found a cluster without a mesh, and hold a Lease of their own.
func TestOfTwoFirstInstallationsTheSecondIsToldOfTheFirst(t *testing.T) {
	c := cluster(t)
	first, err := c.Prepare(t.Context(), into("mesh-a"))
	if err != nil {
		t.Fatal(err)
	}
	// The first comes before the second at the last moment: when the second has looked whether there is anybody.
	second, err := late(c, func() {
		if err := first.begin(context.Background()); err != nil {
			t.Errorf("the first: %v", err)
		}
	}).Prepare(t.Context(), into("mesh-b"))
	if err != nil {
		t.Fatal(err)
	}
	at := c.lock("mesh-a", "install")
	if _, err := at.hold(t.Context(), func(string) {}); err != nil {
		t.Fatal(err)
	}
	defer at.release(t.Context())
	err = second.Run(t.Context())
	if e := said(t, err); e.Code != 409 || !strings.Contains(e.Message, "namespace mesh-a") || !strings.Contains(e.Message, at.holder) || !strings.Contains(e.Fix, "lateen upgrade --namespace mesh-a") {
		t.Errorf("%v", e)
	}
	anchor, err := c.objects().get(t.Context(), named("ClusterRoleBinding", "", anchorName))
	if err != nil || home(anchor) != "mesh-a" {
		t.Errorf("the second took the first one's place: %q, %v", home(anchor), err)
	}
	for _, left := range []string{"mesh-b", "mesh-a"} {
		n, err := c.objects().get(t.Context(), named("Namespace", "", left))
		if err != nil || (n != nil) != (left == "mesh-a") {
			t.Errorf("namespace %s: there %v, %v", left, n != nil, err)
		}
	}
	if by := c.atWork(t.Context(), "mesh-b"); by != "" {
		t.Errorf("the second still holds its Lease: %s", by)
	}
}

// The first has come by the time that the second has its Lease, and looks whether all is still as it was.
func TestWhoComesLaterLeavesNoNamespaceBehind(t *testing.T) {
	c := cluster(t)
	second, err := c.Prepare(t.Context(), into("mesh-b"))
	if err != nil {
		t.Fatal(err)
	}
	recorded(t, c, &Record{Namespace: "mesh-a", Version: "0.1.0", State: stateInstalling})
	if e := said(t, second.Run(t.Context())); !strings.Contains(e.Message, "namespace mesh-a was begun and not ended") {
		t.Errorf("%v", e)
	}
	if n, err := c.objects().get(t.Context(), named("Namespace", "", "mesh-b")); err != nil || n != nil {
		t.Errorf("namespace mesh-b is left: %v, %v", n != nil, err)
	}
}

func TestWhoIsPrecededLeavesTheNamespaceThatSomebodyUses(t *testing.T) {
	c := cluster(t)
	second, err := late(c, func() {
		recorded(t, c, &Record{Namespace: "mesh-a", Version: "0.1.0", State: stateInstalling})
		c.put(t, named("ConfigMap", "mesh-b", "theirs"))
	}).Prepare(t.Context(), into("mesh-b"))
	if err != nil {
		t.Fatal(err)
	}
	if e := said(t, second.Run(t.Context())); !strings.Contains(e.Message, "namespace mesh-a was begun and not ended") {
		t.Errorf("%v", e)
	}
	if n, err := c.objects().get(t.Context(), named("Namespace", "", "mesh-b")); err != nil || n == nil {
		t.Errorf("it was removed with what somebody had in it: %v", err)
	}
}

func TestAMeshElsewhereIsNamedWithWhatIsDoneToIt(t *testing.T) {
	for _, x := range []struct {
		record    Record
		says, fix string
	}{
		{Record{State: stateInstalled}, "Lateen 0.1.0 is installed in namespace mesh-a already", "lateen upgrade --namespace mesh-a"},
		{Record{State: stateInstalling}, "installation of Lateen 0.1.0 in namespace mesh-a was begun and not ended", "lateen install --namespace mesh-a"},
		{Record{State: stateUninstalling}, "removal of Lateen 0.1.0 from namespace mesh-a was begun and not ended", "lateen uninstall --namespace mesh-a"},
	} {
		c := cluster(t)
		x.record.Namespace, x.record.Version = "mesh-a", "0.1.0"
		recorded(t, c, &x.record)
		_, err := c.Prepare(t.Context(), into("mesh-b"))
		if e := said(t, err); !strings.Contains(e.Message, x.says) || !strings.Contains(e.Fix, x.fix) {
			t.Errorf("%s: %v", x.record.State, e)
		}
		at := lively(c, "uninstall")
		at.namespace = "mesh-a"
		if _, err := at.hold(t.Context(), func(string) {}); err != nil {
			t.Fatal(err)
		}
		_, err = c.Prepare(t.Context(), into("mesh-b"))
		if e := said(t, err); !strings.Contains(e.Message, at.holder) {
			t.Errorf("%s, with a command at work: %v", x.record.State, e)
		}
		// A command that was killed gives no sign of life, and leaves its Lease.
		at.stop()
		left := at.lease()
		long := metav1.NewMicroTime(time.Now().Add(-time.Hour))
		left.Spec.RenewTime = &long
		if _, err := c.Client.CoordinationV1().Leases("mesh-a").Update(t.Context(), left, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		_, err = c.Prepare(t.Context(), into("mesh-b"))
		if e := said(t, err); !strings.Contains(e.Message, x.says) {
			t.Errorf("%s, with a Lease that nobody renews: %v", x.record.State, e)
		}
	}
}

// The API server keeps a creation's fields apart from those that are applied. Neither a claim of now nor one of an earlier version leaves such an entry.
func TestWhatAnInstallationIsFoundByIsAppliedByNobodyElse(t *testing.T) {
	created := metav1.ManagedFieldsEntry{Manager: fieldManager, Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "rbac.authorization.k8s.io/v1", FieldsType: "FieldsV1",
		FieldsV1: &metav1.FieldsV1{Raw: []byte(`{"f:metadata":{"f:labels":{"f:old":{}}}}`)}}
	for _, before := range []bool{false, true} {
		c := cluster(t)
		i, err := c.Prepare(t.Context(), options())
		if err != nil {
			t.Fatal(err)
		}
		// The real API server does this; the test's knows nothing of fields.
		var anchor *unstructured.Unstructured
		for n := range i.Plan.Steps {
			if s := &i.Plan.Steps[n]; isAnchor(*s) {
				anchor = s.object
				anchor.SetManagedFields([]metav1.ManagedFieldsEntry{created})
				if before {
					c.put(t, anchor)
					s.Action = Unchanged
				}
			}
		}
		if err := i.claim(t.Context()); err != nil {
			t.Fatal(err)
		}
		live, err := c.objects().get(t.Context(), anchor)
		if err != nil {
			t.Fatal(err)
		}
		if got := live.GetManagedFields(); len(got) != 1 || got[0].Operation != metav1.ManagedFieldsOperationApply || got[0].Manager != fieldManager {
			t.Errorf("there before: %v; got %+v", before, got)
		}
	}
}
