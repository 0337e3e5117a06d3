package kube

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"lateen.dev/lateen/internal/engine/api"
)

// A label by kind and name must not go to the object that another group calls the same.
func TestAPatchKeepsToTheGroup(t *testing.T) {
	const istio, k8s = "networking.istio.io", "gateway.networking.k8s.io"
	e, c := mesh(t, nil)
	resource := func(group string) schema.GroupVersionResource {
		return schema.GroupVersionResource{Group: group, Version: "v1", Resource: "gateways"}
	}
	create := func(group string) {
		o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": group + "/v1", "kind": "Gateway", "metadata": map[string]any{"name": "gw", "namespace": "shop"}}}
		if _, err := e.Dynamic.Resource(resource(group)).Namespace("shop").Create(t.Context(), o, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	labelled := func(group string) string {
		o, err := e.Dynamic.Resource(resource(group)).Namespace("shop").Get(t.Context(), "gw", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return o.GetLabels()["a"]
	}
	label := func(group, value string) error {
		_, err := c.Label(t.Context(), api.Key{Group: group, Kind: "Gateway", Namespace: "shop", Name: "gw"}, map[string]*string{"a": &value})
		return err
	}
	create(istio)
	if err := label("", "only"); err != nil || labelled(istio) != "only" {
		t.Errorf("the only one has %q: %v", labelled(istio), err)
	}
	create(k8s)
	if err := label("", "any"); err == nil || !strings.Contains(err.Error(), "gateways."+k8s+" or gateways."+istio) || labelled(istio) != "only" || labelled(k8s) != "" {
		t.Errorf("an ambiguous name labelled %q and %q: %v", labelled(istio), labelled(k8s), err)
	}
	if err := label(istio, "istio"); err != nil || labelled(istio) != "istio" || labelled(k8s) != "" {
		t.Errorf("labelled %q and %q: %v", labelled(istio), labelled(k8s), err)
	}
	list, err := c.Get(t.Context(), api.GetRequest{Kind: "Gateway", Group: istio, Namespace: "shop", Name: "gw"})
	if err != nil || len(list.Items) != 1 || list.Items[0].APIVersion != istio+"/v1" || list.Items[0].Key.Group != istio {
		t.Errorf("%+v: %v", list, err)
	}
	if _, err := c.Get(t.Context(), api.GetRequest{Kind: "Gateway", Namespace: "shop", Name: "gw"}); err == nil {
		t.Error("a get of an ambiguous name was answered")
	}
	for asked, want := range map[string]string{"gateways": k8s + "/v1 " + istio + "/v1", "gateways." + istio: istio + "/v1", "gtw." + k8s: k8s + "/v1"} {
		list, err := c.Get(t.Context(), api.GetRequest{Kind: asked, Namespace: "shop"})
		var versions []string
		for _, o := range list.Items {
			versions = append(versions, o.APIVersion)
		}
		if got := strings.Join(versions, " "); err != nil || got != want {
			t.Errorf("get %s lists %q, want %q: %v", asked, got, want, err)
		}
	}
}

// A cluster with one of the two groups answers with the objects of that one.
func TestAListLeavesOutAGroupThatTheClusterDoesNotHave(t *testing.T) {
	e, c := mesh(t, nil)
	absent := map[string]bool{}
	e.Dynamic.(*dynamicfake.FakeDynamicClient).PrependReactor("list", "gateways", func(a clienttesting.Action) (bool, runtime.Object, error) {
		group := a.GetResource().Group
		return absent[group], nil, apierrors.NewNotFound(a.GetResource().GroupResource(), "")
	})
	absent["networking.istio.io"] = true
	if list, err := c.Get(t.Context(), api.GetRequest{Kind: "Gateway", AllNamespaces: true}); err != nil || len(list.Items) > 0 {
		t.Errorf("%+v: %v", list, err)
	}
	absent["gateway.networking.k8s.io"] = true
	var refusal *api.Error
	if _, err := c.Get(t.Context(), api.GetRequest{Kind: "Gateway", AllNamespaces: true}); !errors.As(err, &refusal) || refusal.Code != http.StatusNotFound {
		t.Errorf("without either group: %v", err)
	}
}
