package cluster

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"lateen.dev/lateen/internal/model"
)

// routeKinds are the Gateway API's routes. The control plane reads none of them, so that no status says that they have no effect.
var routeKinds = []struct{ kind, resource string }{
	{"HTTPRoute", "httproutes"}, {"GRPCRoute", "grpcroutes"}, {"TLSRoute", "tlsroutes"}, {"TCPRoute", "tcproutes"}, {"UDPRoute", "udproutes"},
}

var definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// routePage is how many objects one answer holds.
const routePage = 500

// probeRoutes finds routes that are for the mesh: those of a waypoint, and those of a Service.
func probeRoutes(ctx context.Context, t *Target) (string, *Finding) {
	var meant []string
	var waypoints map[string]bool
	for _, k := range routeKinds {
		err := t.each(ctx, k.resource, func(route *unstructured.Unstructured) error {
			parents, _, _ := unstructured.NestedSlice(route.Object, "spec", "parentRefs")
			for _, raw := range parents {
				ref, _ := raw.(map[string]any)
				field := func(name string) string { s, _ := ref[name].(string); return s }
				group, given := ref["group"].(string)
				if !given {
					group = model.GatewayGroup
				}
				kind, namespace := cmp.Or(field("kind"), "Gateway"), cmp.Or(field("namespace"), route.GetNamespace())
				isGateway := group == model.GatewayGroup && kind == "Gateway"
				if isGateway && waypoints == nil {
					var err error
					if waypoints, err = t.waypoints(ctx); err != nil {
						return err
					}
				}
				if isGateway && waypoints[namespace+"/"+field("name")] || group == "" && kind == "Service" {
					meant = append(meant, fmt.Sprintf("%s %s/%s", k.kind, route.GetNamespace(), route.GetName()))
					return nil
				}
			}
			return nil
		})
		if err != nil {
			return "", unable(err)
		}
	}
	if len(meant) > 0 {
		return "", finding("node proxies read no requests, and waypoints are not Lateen's yet: nothing acts on these routes; express by AuthorizationPolicies what is to be refused, or delete them",
			"without effect, and without a status that says so: %s", some(meant))
	}
	return "none that is meant for the mesh", nil
}

// waypoints are the Gateways that are meant as waypoints.
func (t *Target) waypoints(ctx context.Context) (map[string]bool, error) {
	out := map[string]bool{}
	return out, t.each(ctx, "gateways", func(g *unstructured.Unstructured) error {
		class, _, _ := unstructured.NestedString(g.Object, "spec", "gatewayClassName")
		out[g.GetNamespace()+"/"+g.GetName()] = slices.Contains([]string{"lateen-waypoint", "istio-waypoint"}, class)
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
		page, err := t.Cluster.Dynamic.Resource(schema.GroupVersionResource{Group: group, Version: version, Resource: resource}).List(ctx, metav1.ListOptions{Limit: routePage, Continue: next})
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
