package cluster

import (
	"cmp"
	"context"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"lateen.dev/lateen/internal/model"
)

// unreadKinds are those that users of Istio and the Gateway API write for a mesh. The control plane reads none of them, so that no status says
// that they have no effect.
var unreadKinds = []struct {
	group, kind, resource string
	// aims are what an object of the kind is for. There are none if it is not attached to anything.
	aims func(spec map[string]any) []aim
}{
	{model.GatewayGroup, "HTTPRoute", "httproutes", parents}, {model.GatewayGroup, "GRPCRoute", "grpcroutes", parents}, {model.GatewayGroup, "TLSRoute", "tlsroutes", parents},
	{model.GatewayGroup, "TCPRoute", "tcproutes", parents}, {model.GatewayGroup, "UDPRoute", "udproutes", parents},
	{model.NetworkGroup, "VirtualService", "virtualservices", gatewaysOf}, {model.NetworkGroup, "DestinationRule", "destinationrules", everything},
	{model.NetworkGroup, "EnvoyFilter", "envoyfilters", targets}, {"telemetry.istio.io", "Telemetry", "telemetries", targets},
	{"extensions.istio.io", "WasmPlugin", "wasmplugins", targets}, {"extensions.istio.io", "TrafficExtension", "trafficextensions", targets},
}

// aim is something that an object is for. An empty namespace is the object's own.
type aim struct{ group, kind, namespace, name string }

// waypointClasses are the classes of Gateways that are waypoints.
var waypointClasses = []string{"lateen-waypoint", "istio-waypoint"}

var definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// objectsPage is how many objects one answer holds.
const objectsPage = 500

// probeUnread finds objects for the mesh of kinds that nothing acts on. An ingress's or a gateway's are that one's.
func probeUnread(ctx context.Context, t *Target) (string, *Finding) {
	var meant []string
	var waypoints map[string]bool
	for _, k := range unreadKinds {
		err := t.eachOf(ctx, k.group, k.resource, func(o *unstructured.Unstructured) error {
			spec, _, _ := unstructured.NestedMap(o.Object, "spec")
			aims := k.aims(spec)
			if waypoints == nil && slices.ContainsFunc(aims, aim.isGateway) {
				var err error
				if waypoints, err = t.waypoints(ctx); err != nil {
					return err
				}
			}
			if slices.ContainsFunc(aims, func(a aim) bool {
				return a.isMesh() || a.isGateway() && waypoints[cmp.Or(a.namespace, o.GetNamespace())+"/"+a.name]
			}) {
				meant = append(meant, called(k.kind, o))
			}
			return nil
		})
		if err != nil {
			return "", unable(err)
		}
	}
	if len(meant) > 0 {
		return "", finding("node proxies read no requests, and waypoints of this mesh do not read these kinds yet: write AuthorizationPolicies for what is to be refused, and delete what no gateway or sidecar of another mesh needs",
			"without effect, and without a status that says so: %s", some(meant))
	}
	return "none that is meant for the mesh", nil
}

func (a aim) isGateway() bool { return a.group == model.GatewayGroup && a.kind == "Gateway" }

// isMesh says whether it is a part of the mesh, whatever objects there are.
func (a aim) isMesh() bool {
	switch a.group {
	case "":
		return a.kind == "" || a.kind == "Service"
	case model.NetworkGroup:
		return a.kind == "ServiceEntry" || a.kind == "Hostname"
	case model.GatewayGroup:
		return a.kind == "GatewayClass" && slices.Contains(waypointClasses, a.name)
	}
	return false
}

// everything is the aim of an object that names none.
func everything(map[string]any) []aim { return []aim{{}} }

// parents are what a route of the Gateway API is attached to: nothing if it names none.
func parents(spec map[string]any) []aim {
	refs, _ := spec["parentRefs"].([]any)
	return aimsOf(refs, model.GatewayGroup, "Gateway")
}

// targets are what an object of Istio's is attached to. One with labels of pods in place of that may be for any proxy.
func targets(spec map[string]any) []aim {
	refs, _ := spec["targetRefs"].([]any)
	if one, has := spec["targetRef"]; has {
		refs = append(slices.Clone(refs), one)
	}
	if len(refs) == 0 {
		return everything(spec)
	}
	return aimsOf(refs, "", "")
}

// gatewaysOf are what a VirtualService is for: the mesh, unless it names gateways of Istio alone.
func gatewaysOf(spec map[string]any) []aim {
	names, _ := spec["gateways"].([]any)
	if len(names) == 0 || slices.Contains(names, any("mesh")) {
		return everything(spec)
	}
	return nil
}

// aimsOf reads references, of which the group and the kind may be left out.
func aimsOf(refs []any, defaultGroup, defaultKind string) []aim {
	var out []aim
	for _, raw := range refs {
		ref, _ := raw.(map[string]any)
		field := func(name string) string { s, _ := ref[name].(string); return s }
		group, given := ref["group"].(string)
		if !given {
			group = defaultGroup
		}
		out = append(out, aim{group, cmp.Or(field("kind"), defaultKind), field("namespace"), field("name")})
	}
	return out
}

// waypoints are the Gateways that are meant as waypoints.
func (t *Target) waypoints(ctx context.Context) (map[string]bool, error) {
	out := map[string]bool{}
	return out, t.each(ctx, "gateways", func(g *unstructured.Unstructured) error {
		class, _, _ := unstructured.NestedString(g.Object, "spec", "gatewayClassName")
		out[g.GetNamespace()+"/"+g.GetName()] = slices.Contains(waypointClasses, class)
		return nil
	})
}

// each calls f for the objects of one of the Gateway API's kinds, of which there are none if it has no definition.
func (t *Target) each(ctx context.Context, resource string, f func(*unstructured.Unstructured) error) error {
	return t.eachOf(ctx, model.GatewayGroup, resource, f)
}

// eachOf is the same for a kind of any group.
func (t *Target) eachOf(ctx context.Context, group, resource string, f func(*unstructured.Unstructured) error) error {
	definition, err := t.Cluster.Dynamic.Resource(definitions).Get(ctx, resource+"."+group, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	version := ""
	versions, _, _ := unstructured.NestedSlice(definition.Object, "spec", "versions")
	for _, raw := range versions {
		v, _ := raw.(map[string]any)
		if served, _ := v["served"].(bool); served {
			version, _ = v["name"].(string)
		}
		if stored, _ := v["storage"].(bool); stored && version != "" && version == v["name"] {
			break
		}
	}
	for next := ""; version != ""; {
		page, err := t.Cluster.Dynamic.Resource(schema.GroupVersionResource{Group: group, Version: version, Resource: resource}).List(ctx, metav1.ListOptions{Limit: objectsPage, Continue: next})
		if err != nil {
			return err
		}
		for i := range page.Items {
			if err := f(&page.Items[i]); err != nil {
				return err
			}
		}
		if next = page.GetContinue(); next == "" {
			return nil
		}
	}
	return nil
}
