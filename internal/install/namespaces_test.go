package install

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"lateen.dev/lateen/internal/control/conditions/withdraw"
)

// has gives the cluster an object of a kind that the charts do not have, or of one that they have.
func (c *Cluster) has(t *testing.T, r resource, kind, namespace, name string, change func(*unstructured.Unstructured)) {
	t.Helper()
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(r.GroupVersion().WithKind(kind))
	o.SetNamespace(namespace)
	o.SetName(name)
	if change != nil {
		change(o)
	}
	if err := c.Dynamic.(*dynamicfake.FakeDynamicClient).Tracker().Create(r.GroupVersionResource, o, namespace); err != nil {
		t.Fatal(err)
	}
}

func TestANamespaceStaysWhileSomebodyHasSomethingInIt(t *testing.T) {
	policies, leases := inNamespaces[0], inNamespaces[1]
	label := func(name, value string) func(*unstructured.Unstructured) {
		return func(o *unstructured.Unstructured) { o.SetLabels(map[string]string{name: value}) }
	}
	owned := func(apiVersion, kind string) func(*unstructured.Unstructured) {
		yes := true
		return func(o *unstructured.Unstructured) {
			o.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: "x", UID: "u", Controller: &yes}})
		}
	}
	for _, x := range []struct {
		name string
		put  func(*Cluster)
		want string
	}{
		{"nothing", func(*Cluster) {}, ""},
		{"what Kubernetes and the mesh make", func(c *Cluster) {
			c.has(t, resources["ServiceAccount"], "ServiceAccount", "ns", "default", nil)
			c.has(t, resources["ConfigMap"], "ConfigMap", "ns", "kube-root-ca.crt", nil)
			c.has(t, resources["ConfigMap"], "ConfigMap", "ns", rootCertificate, label(partOf, lateen))
			c.has(t, resources["Secret"], "Secret", "ns", "lateen-ca", nil)
			c.has(t, leases, "Lease", "ns", "lateen-control", nil)
			c.has(t, resources["ConfigMap"], "ConfigMap", "ns", "of-a-replica-set", owned("apps/v1", "ReplicaSet"))
		}, ""},
		{"the usual name of a mesh-wide policy", func(c *Cluster) { c.has(t, policies, "PeerAuthentication", "ns", "default", nil) }, "it has peerauthentications.security.istio.io/default"},
		{"a plugged-in CA", func(c *Cluster) { c.has(t, resources["Secret"], "Secret", "ns", "cacerts", nil) }, "it has secrets/cacerts"},
		{"another's root certificates", func(c *Cluster) {
			c.has(t, resources["ConfigMap"], "ConfigMap", "ns", rootCertificate, label("istio.io/config", "true"))
		}, "it has configmaps/istio-ca-root-cert"},
		{"somebody's Lease", func(c *Cluster) { c.has(t, leases, "Lease", "ns", "an-operator", nil) }, "it has leases.coordination.k8s.io/an-operator"},
		{"what is owned from outside of it", func(c *Cluster) {
			c.has(t, resources["ConfigMap"], "ConfigMap", "ns", "bundle", owned("trust.cert-manager.io/v1alpha1", "Bundle"))
		}, "it has configmaps/bundle"},
	} {
		c := cluster(t)
		x.put(c)
		if got, err := c.namespaces().inUse(t.Context(), "ns", nil); err != nil || got != x.want {
			t.Errorf("%s: %q, %v", x.name, got, err)
		}
	}
	c := cluster(t)
	c.has(t, policies, "PeerAuthentication", "ns", "default", nil)
	if got, err := c.namespaces().inUse(t.Context(), "ns", []string{"peerauthentications.security.istio.io"}); err != nil || got != "" {
		t.Errorf("a kind that goes keeps the namespace: %q, %v", got, err)
	}
}

// An object on a later page counts as well.
func TestEveryPageIsLookedAt(t *testing.T) {
	c := cluster(t)
	c.Dynamic.(*dynamicfake.FakeDynamicClient).PrependReactor("list", "secrets", func(a clienttesting.Action) (bool, runtime.Object, error) {
		list := &unstructured.UnstructuredList{Object: map[string]any{"apiVersion": "v1", "kind": "SecretList"}}
		name, next := "lateen-ca", "more"
		if a.(clienttesting.ListActionImpl).ListOptions.Continue == "more" {
			name, next = "theirs", ""
		}
		list.SetContinue(next)
		list.Items = []unstructured.Unstructured{{Object: map[string]any{"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": name, "namespace": "ns"}}}}
		return true, list, nil
	})
	if got, err := c.namespaces().inUse(t.Context(), "ns", nil); err != nil || got != "it has secrets/theirs" {
		t.Errorf("%q, %v", got, err)
	}
}

// What cannot be looked at may be there.
func TestWhatCannotBeListedKeepsTheNamespace(t *testing.T) {
	for _, refusal := range []error{
		apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "", errors.New("no")),
		apierrors.NewTooManyRequests("later", 1), apierrors.NewServiceUnavailable("an aggregated API is away"),
	} {
		c := cluster(t)
		c.Dynamic.(*dynamicfake.FakeDynamicClient).PrependReactor("list", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, refusal })
		if got, err := c.namespaces().inUse(t.Context(), "ns", nil); err != nil || !strings.HasPrefix(got, "its secrets cannot be listed: ") {
			t.Errorf("%v: %q, %v", refusal, got, err)
		}
	}
}

func TestUninstallingPlansToKeepWhatIsInUse(t *testing.T) {
	c := cluster(t)
	for _, name := range []string{DefaultNamespace, defaultRoot, "before"} {
		n := named("Namespace", "", name)
		own(n)
		c.put(t, n)
	}
	recorded(t, c, &Record{Namespace: DefaultNamespace, State: stateInstalled, Namespaces: []string{DefaultNamespace, defaultRoot}})
	plan := func() string {
		r, err := c.PrepareRemoval(t.Context(), options(), false)
		if err != nil {
			t.Fatal(err)
		}
		out := ""
		for _, s := range r.Plan.Steps {
			if s.Kind == "Namespace" {
				out += fmt.Sprintf("%s %s: %s; ", s.Action, s.Name, s.Why)
			}
		}
		return out
	}
	if got := plan(); got != "delete lateen-system: ; delete istio-system: ; keep before: it was there before; " {
		t.Error(got)
	}
	c.has(t, inNamespaces[0], "PeerAuthentication", defaultRoot, "default", nil)
	c.has(t, resources["Secret"], "Secret", DefaultNamespace, "cacerts", nil)
	if got := plan(); !strings.Contains(got, "keep lateen-system: it has secrets/cacerts; ") || !strings.Contains(got, "keep istio-system: it has peerauthentications.security.istio.io/default; ") {
		t.Error(got)
	}
}

// Users' objects say nothing of a mesh that is gone, and go on saying what others have written.
func TestConditionsAreTakenBack(t *testing.T) {
	c := cluster(t)
	recorded(t, c, &Record{Namespace: DefaultNamespace, State: stateInstalled})
	services := of("", "v1", "services", true)
	c.has(t, services, "Service", "shop", "web", func(o *unstructured.Unstructured) {
		o.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: withdraw.FieldManager, Subresource: "status", FieldsType: "FieldsV1", FieldsV1: &metav1.FieldsV1{Raw: []byte(`{"f:status":{"f:conditions":{}}}`)}}})
		o.Object["status"] = map[string]any{"loadBalancer": map[string]any{}, "conditions": []any{map[string]any{"type": "istio.io/WaypointBound", "status": "True"}, map[string]any{"type": "Theirs", "status": "True"}}}
	})
	r, err := c.PrepareRemoval(t.Context(), options(), false)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	o, err := c.Dynamic.Resource(services.GroupVersionResource).Namespace("shop").Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if list, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions"); len(list) != 1 || !strings.Contains(fmt.Sprint(list), "Theirs") {
		t.Errorf("conditions are %v", list)
	}
}

// Between the plan and its end somebody may have put something there.
func TestWhatComesAfterThePlanKeepsItsNamespace(t *testing.T) {
	c := cluster(t)
	for _, name := range []string{DefaultNamespace, defaultRoot} {
		n := named("Namespace", "", name)
		own(n)
		c.put(t, n)
	}
	recorded(t, c, &Record{Namespace: DefaultNamespace, State: stateInstalled, Namespaces: []string{DefaultNamespace, defaultRoot}})
	r, err := c.PrepareRemoval(t.Context(), options(), false)
	if err != nil {
		t.Fatal(err)
	}
	c.has(t, inNamespaces[0], "PeerAuthentication", defaultRoot, "default", nil)
	if err := r.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{DefaultNamespace: false, defaultRoot: true} {
		if o, err := c.objects().get(t.Context(), named("Namespace", "", name)); err != nil || (o != nil) != want {
			t.Errorf("%s: %v %v", name, o, err)
		}
	}
	for _, o := range []*unstructured.Unstructured{named("ConfigMap", DefaultNamespace, recordName), named("ClusterRoleBinding", "", anchorName)} {
		if live, err := c.objects().get(t.Context(), o); err != nil || live != nil {
			t.Errorf("%s stays: %v", called(o), err)
		}
	}
}
