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
		"of a ServiceEntry":                  {map[string]any{"name": "world", "kind": "ServiceEntry", "group": "networking.istio.io"}, true},
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

// The control plane reads none of these kinds either.
func TestObjectsOfIstiosKindsThatHaveNoEffectAreNamed(t *testing.T) {
	const list = `
VirtualService networking.istio.io/v1 virtualservices
DestinationRule networking.istio.io/v1 destinationrules
EnvoyFilter networking.istio.io/v1alpha3 envoyfilters
Telemetry telemetry.istio.io/v1 telemetries
WasmPlugin extensions.istio.io/v1alpha1 wasmplugins`
	refs := func(group, kind, name string) map[string]any {
		return map[string]any{"targetRefs": []any{map[string]any{"group": group, "kind": kind, "name": name}}}
	}
	const gateways = "gateway.networking.k8s.io"
	for name, x := range map[string]struct {
		kind  string
		spec  map[string]any
		named bool
	}{
		"routes":                             {"VirtualService", map[string]any{"hosts": []any{"web"}}, true},
		"routes of the mesh and a gateway":   {"VirtualService", map[string]any{"gateways": []any{"edge", "mesh"}}, true},
		"routes of a gateway of Istio's":     {"VirtualService", map[string]any{"gateways": []any{"edge"}}, false},
		"subsets":                            {"DestinationRule", map[string]any{"host": "web"}, true},
		"a patch":                            {"EnvoyFilter", map[string]any{}, true},
		"a patch of a class of waypoints":    {"EnvoyFilter", refs(gateways, "GatewayClass", "istio-waypoint"), true},
		"a patch of another class":           {"EnvoyFilter", refs(gateways, "GatewayClass", "istio"), false},
		"telemetry of all":                   {"Telemetry", map[string]any{}, true},
		"telemetry of a waypoint":            {"Telemetry", map[string]any{"targetRef": map[string]any{"group": gateways, "kind": "Gateway", "name": "waypoint"}}, true},
		"an extension of a Service":          {"WasmPlugin", refs("", "Service", "web"), true},
		"an extension of somebody's gateway": {"WasmPlugin", refs(gateways, "Gateway", "ingress"), false},
	} {
		t.Run(name, func(t *testing.T) {
			r := good()
			v1 := map[string]any{"name": "v1", "served": true, "storage": true}
			r.custom = []*unstructured.Unstructured{definition("gateways", v1), gatewayObject("v1", "Gateway", "shop", "waypoint", map[string]any{"gatewayClassName": "lateen-waypoint"}),
				gatewayObject("v1", "Gateway", "shop", "ingress", map[string]any{"gatewayClassName": "nginx"})}
			for line := range strings.SplitSeq(strings.TrimSpace(list), "\n") {
				f := strings.Fields(line)
				if f[0] != x.kind {
					continue
				}
				group, version, _ := strings.Cut(f[1], "/")
				d := definition(f[2], map[string]any{"name": version, "served": true, "storage": true})
				d.SetName(f[2] + "." + group)
				o := gatewayObject("", f[0], "shop", "one", x.spec)
				o.SetAPIVersion(f[1])
				r.custom = append(r.custom, d, o)
			}
			got := result(t, r.run(t, Installed), "LAT130")
			if (got.Outcome == check.Warning) != x.named || strings.Contains(got.Cause, x.kind+" shop/one") != x.named {
				t.Errorf("got %s: %s%s", got.Outcome, got.Found, got.Cause)
			}
			if x.named && (!strings.Contains(got.Fix, "waypoints of this mesh do not read") || strings.Contains(got.Fix, "not Lateen's yet")) {
				t.Errorf("the cure is %q", got.Fix)
			}
		})
	}
}
