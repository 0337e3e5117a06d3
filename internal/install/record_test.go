package install

import (
	"context"
	"errors"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"
)

// anchored gives the cluster a mesh's control plane in a namespace, as far as rights go.
func anchored(t *testing.T, c *Cluster, namespace, manager string) {
	t.Helper()
	o := named("ClusterRoleBinding", "", anchorName)
	o.SetLabels(map[string]string{managedBy: manager, partOf: lateen, "app.kubernetes.io/version": "1.2.3"})
	_ = unstructured.SetNestedSlice(o.Object, []any{map[string]any{"kind": "ServiceAccount", "name": "lateen-control", "namespace": namespace}}, "subjects")
	c.put(t, o)
}

// recorded gives it a record as well.
func recorded(t *testing.T, c *Cluster, r *Record) {
	t.Helper()
	anchored(t, c, r.Namespace, lateen)
	n := named("Namespace", "", r.Namespace)
	own(n)
	c.put(t, n)
	if err := c.keep(t.Context(), r); err != nil {
		t.Fatal(err)
	}
}

func TestRecordsComeBack(t *testing.T) {
	c := cluster(t)
	recorded(t, c, &Record{Namespace: "a", Version: "1", State: stateInstalled, Values: map[string]any{"control": map[string]any{"replicas": float64(3)}}, Namespaces: []string{"a", "b"}, TakenOver: "istio"})
	back, err := c.Find(t.Context())
	if err != nil || back.Namespace != "a" || back.State != stateInstalled || len(back.Namespaces) != 2 || back.Values["control"].(map[string]any)["replicas"] != float64(3) || back.TakenOver != "istio" {
		t.Errorf("%v %v", back, err)
	}
	_, err = c.Prepare(t.Context(), options())
	if e := said(t, err); !strings.Contains(e.Message, "installed in namespace a already") {
		t.Error(e)
	}
}

// A ConfigMap can be written by whoever has a namespace. What it says of versions, values and places is nobody's business.
func TestARecordCountsOnlyWhereAnAdministratorPutTheMesh(t *testing.T) {
	forged := func(values string) *unstructured.Unstructured {
		o := named("ConfigMap", "aaa-tenant", recordName)
		o.SetLabels(map[string]string{recordLabel: "install", managedBy: lateen, partOf: lateen})
		o.Object["data"] = map[string]any{"version": "0.1.0", "state": stateInstalled, "values": values}
		return o
	}
	for _, values := range []string{"image: {registry: evil.example}\n", "{"} {
		c := cluster(t)
		c.put(t, forged(values))
		// Nor are labels: to remove it, its pods would have to be waited for.
		labelled := named("DaemonSet", "aaa-tenant", "x")
		own(labelled)
		c.put(t, labelled)
		i, err := c.Prepare(t.Context(), options())
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range i.Plan.Steps {
			if raw, _ := s.object.MarshalJSON(); s.Action == Delete || strings.Contains(string(raw), "evil.example") {
				t.Errorf("%s %s by a tenant's record", s.Action, called(s.object))
			}
		}
		o := options()
		o.Namespace = "aaa-tenant"
		_, err = c.PrepareUpgrade(t.Context(), o)
		if e := said(t, err); !strings.Contains(e.Message, "not installed") {
			t.Error(e)
		}
		recorded(t, c, &Record{Namespace: DefaultNamespace, Version: "0.1.0", State: stateInstalled})
		r, err := c.Find(t.Context())
		if err != nil || r == nil || r.Namespace != DefaultNamespace || r.Values != nil {
			t.Errorf("found %+v, %v", r, err)
		}
		if _, err := c.PrepareUpgrade(t.Context(), options()); err != nil {
			t.Error(err)
		}
		removal, err := c.PrepareRemoval(t.Context(), options(), false)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range removal.Plan.Steps {
			if s.Namespace == "aaa-tenant" {
				t.Errorf("%s %s, which is a tenant's", s.Action, called(s.object))
			}
		}
	}
}

func TestABindingOfSomebodyElseIsNoInstallation(t *testing.T) {
	c := cluster(t)
	o := named("ClusterRoleBinding", "", anchorName)
	_ = unstructured.SetNestedSlice(o.Object, []any{map[string]any{"kind": "ServiceAccount", "name": "lateen-control", "namespace": "x"}}, "subjects")
	c.put(t, o)
	if r, err := c.Find(t.Context()); r != nil || err != nil {
		t.Errorf("%v %v", r, err)
	}
	_, err := c.Prepare(t.Context(), options())
	if e := said(t, err); !strings.Contains(e.Message, "clusterrolebinding/lateen-control") {
		t.Error(e)
	}
}

func TestHelmsInstallationIsHelms(t *testing.T) {
	c := cluster(t)
	anchored(t, c, "mesh", "Helm")
	r, err := c.Find(t.Context())
	if err != nil || !r.Helm || r.Namespace != "mesh" || r.Version != "1.2.3" || r.State != stateInstalled {
		t.Fatalf("%+v %v", r, err)
	}
	_, install := c.Prepare(t.Context(), options())
	_, upgrade := c.PrepareUpgrade(t.Context(), options())
	_, removal := c.PrepareRemoval(t.Context(), options(), false)
	for verb, err := range map[string]error{"helm upgrade": install, "go on with helm upgrade": upgrade, "helm uninstall": removal} {
		if e := said(t, err); e.Code != 409 || !strings.Contains(e.Message, "by Helm") || !strings.Contains(e.Fix, verb) {
			t.Errorf("%s: %v", verb, e)
		}
	}
}

// A run that ends between the making of a namespace and the note of it must not leave it to nobody.
func TestNamespacesOfARunThatWasBrokenOffAreRemembered(t *testing.T) {
	c := cluster(t)
	broken := errors.New("the connection broke")
	c.Dynamic.(*dynamicfake.FakeDynamicClient).PrependReactor("patch", "configmaps", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if p := a.(clienttesting.PatchActionImpl); broken != nil && len(p.PatchOptions.DryRun) == 0 {
			return true, nil, broken
		}
		return false, nil, nil
	})
	run := func() error {
		i, err := c.Prepare(t.Context(), options())
		if err != nil {
			t.Fatal(err)
		}
		return i.Run(t.Context())
	}
	if err := run(); err == nil || !strings.Contains(err.Error(), broken.Error()) {
		t.Fatal(err)
	}
	broken = nil
	if err := run(); err != nil {
		t.Fatal(err)
	}
	if r, err := c.Find(t.Context()); err != nil || strings.Join(r.Namespaces, " ") != "lateen-system istio-system" || r.State != stateInstalled {
		t.Errorf("%+v %v", r, err)
	}
}

// The chart's own values in the place of those that the mesh was installed with would change it under everybody.
func TestLostValuesAreNotReplacedByTheCharts(t *testing.T) {
	c := cluster(t)
	anchored(t, c, DefaultNamespace, lateen)
	if _, err := c.Prepare(t.Context(), options()); err != nil {
		t.Errorf("what had only begun cannot be gone on with: %v", err)
	}
	control := named("Deployment", DefaultNamespace, controlName)
	own(control)
	c.put(t, control)
	refused := func(what string, prepare func(ctx context.Context, o Options) (*Installation, error)) {
		t.Helper()
		_, err := prepare(t.Context(), options())
		if e := said(t, err); e.Code != 409 || !strings.Contains(e.Message, "lateen-system/lateen-install") || !strings.Contains(e.Fix, "--reset-values") {
			t.Errorf("%s: %v", what, e)
		}
	}
	// Who only looks need not see Deployments.
	forbidden := true
	c.Dynamic.(*dynamicfake.FakeDynamicClient).PrependReactor("get", "deployments", func(clienttesting.Action) (bool, runtime.Object, error) {
		return forbidden, nil, apierrors.NewForbidden(schema.GroupResource{Group: "apps", Resource: "deployments"}, controlName, nil)
	})
	if r, err := c.Find(t.Context()); err != nil || !r.Lost {
		t.Errorf("%+v %v", r, err)
	}
	forbidden = false
	refused("install", c.Prepare)
	refused("upgrade", c.PrepareUpgrade)
	// A removal that is broken off brings no values either.
	removal, err := c.PrepareRemoval(t.Context(), options(), false)
	if err != nil {
		t.Fatal(err)
	}
	removal.record.State = stateUninstalling
	if err := c.keep(t.Context(), removal.record); err != nil {
		t.Fatal(err)
	}
	refused("upgrade after a removal that was broken off", c.PrepareUpgrade)
	o := options()
	o.AllowDowngrade = true // the anchor is of a later version
	o.ResetValues, o.Values = true, map[string]any{"log": map[string]any{"format": "json"}}
	i, err := c.PrepareUpgrade(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if err := i.begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r, err := c.Find(t.Context()); err != nil || r.Lost || len(r.Values) != 1 {
		t.Errorf("%+v %v", r, err)
	}
}
