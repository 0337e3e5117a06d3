package cluster

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"lateen.dev/lateen/internal/check"
)

func gatewayObject(version, kind, namespace, name string, spec map[string]any) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "gateway.networking.k8s.io/" + version, "kind": kind, "spec": spec}}
	u.SetNamespace(namespace)
	u.SetName(name)
	return u
}

func definition(name string, versions ...any) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "spec": map[string]any{"versions": versions}}}
	u.SetName(name + ".gateway.networking.k8s.io")
	return u
}

// Nothing acts on routes, and no status can say so: whoever checks is told.
func TestRoutesForTheMeshAreNamed(t *testing.T) {
	v1 := map[string]any{"name": "v1", "served": true, "storage": true}
	parent := func(ref map[string]any) map[string]any { return map[string]any{"parentRefs": []any{ref}} }
	for name, x := range map[string]struct {
		ref   map[string]any
		named bool
	}{
		"of a waypoint":                      {map[string]any{"name": "waypoint"}, true},
		"of one in another namespace":        {map[string]any{"name": "waypoint", "namespace": "other"}, false},
		"of an ingress":                      {map[string]any{"name": "ingress", "kind": "Gateway", "group": "gateway.networking.k8s.io"}, false},
		"of a Service":                       {map[string]any{"name": "web", "kind": "Service", "group": ""}, true},
		"of something else of such a name":   {map[string]any{"name": "waypoint", "kind": "Waypoint", "group": "example.com"}, false},
		"of another group's kind by default": {map[string]any{"name": "waypoint", "kind": "Service"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := good()
			r.custom = []*unstructured.Unstructured{
				definition("gateways", v1), gatewayObject("v1", "Gateway", "shop", "waypoint", map[string]any{"gatewayClassName": "istio-waypoint"}),
				gatewayObject("v1", "Gateway", "shop", "ingress", map[string]any{"gatewayClassName": "nginx"}),
				definition("tcproutes", map[string]any{"name": "v1alpha2", "served": true, "storage": true}, map[string]any{"name": "v1alpha1", "served": false}),
				gatewayObject("v1alpha2", "TCPRoute", "shop", "split", parent(x.ref)),
			}
			report := r.run(t, Installed)
			i := slices.IndexFunc(report.Results, func(r check.Result) bool { return r.Code == "LAT130" })
			if i < 0 {
				t.Fatal("routes are not looked at")
			}
			if got := report.Results[i]; (got.Outcome == check.Warning) != x.named || strings.Contains(got.Cause, "TCPRoute shop/split") != x.named {
				t.Errorf("got %s: %s%s", got.Outcome, got.Found, got.Cause)
			}
		})
	}
}
