package translate

import (
	"slices"

	networkingv1 "istio.io/client-go/pkg/apis/networking/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lateen.dev/lateen/internal/gen/workload"
	"lateen.dev/lateen/internal/model/wellknown"
)

// Intent is through which Gateways connections to an object are to go.
type Intent struct {
	// Gateways are those of them that this mesh's own proxies serve: the waypoint, and its canary. They need not be ready.
	Gateways []*Waypoint
	// Asked is the waypoint that the object's labels ask for, or its namespace's; empty if they ask for none. Why says why it takes none of the
	// object's connections; empty if it does.
	Asked, Why string
}

// Same says whether two are the same to all that depends on them.
func (i Intent) Same(o Intent) bool {
	return i.Asked == o.Asked && i.Why == o.Why && slices.EqualFunc(i.Gateways, o.Gateways, SameServer)
}

// intent finds the Gateways of a service or a workload.
func (c Context) intent(o metav1.Object, canary bool, takes func(*Waypoint) string) Intent {
	ns, name, none := wish(o.GetLabels(), o.GetNamespace())
	if !none && name == "" {
		ns, name, none = wish(c.labels(), o.GetNamespace())
	}
	if none || name == "" || c.Servers == nil {
		return Intent{}
	}
	out := Intent{Asked: ns + "/" + name}
	admits := func(w *Waypoint) string {
		if !w.allows(o.GetNamespace(), c.Namespace) {
			return "does not admit namespace " + o.GetNamespace() + "; let its listener's allowedRoutes do so"
		}
		return takes(w)
	}
	primary := c.Servers(ns, name)
	switch {
	case primary == nil:
		out.Why = "is not there, or not served by this mesh's proxies"
		if w := c.find(ns, name); w != nil {
			out.Why = "is not served by this mesh's proxies; whoever runs it enforces its policies"
		}
	default:
		if out.Why = admits(primary); out.Why == "" {
			out.Gateways = append(out.Gateways, primary)
		}
	}
	if !canary {
		return out
	}
	if ns, name, _ := c.canaryWish(o); name != "" && ns+"/"+name != out.Asked {
		if w := c.Servers(ns, name); w != nil && admits(w) == "" {
			out.Gateways = append(out.Gateways, w)
		}
	}
	return out
}

// serviceIntent is that of a service; private keeps it from waypoints of other namespaces.
func (c Context) serviceIntent(o metav1.Object, private bool) Intent {
	switch o.GetLabels()[wellknown.GatewayManaged] {
	case managedByMesh, managedByEastWest:
		return Intent{}
	}
	own := false
	out := c.intent(o, true, func(w *Waypoint) string {
		own = own || isOwn(o, w)
		switch {
		case isOwn(o, w):
			return "is the service's own"
		case w.Traffic != trafficForServices && w.Traffic != trafficForEverything:
			return "does not take traffic for services; set its label " + wellknown.WaypointFor + " to service or all"
		case private && w.Namespace != o.GetNamespace():
			return "is of another namespace, and the service is exported to its own only"
		}
		return ""
	})
	if own {
		return Intent{}
	}
	return out
}

// ServiceIntent is that of a Service.
func ServiceIntent(svc *corev1.Service, ctx Context) Intent {
	visibility, published := ServiceVisibility(svc)
	if !published || svc.Spec.Type == corev1.ServiceTypeExternalName {
		return Intent{}
	}
	return ctx.serviceIntent(svc, visibility == workload.Service_NAMESPACE)
}

// EntryIntent is that of a ServiceEntry's hosts.
func EntryIntent(se *networkingv1.ServiceEntry, ctx Context) Intent {
	visibility, published := EntryVisibility(se)
	if !published {
		return Intent{}
	}
	return ctx.serviceIntent(se, visibility == workload.Service_NAMESPACE)
}

// WorkloadIntent is that of what is sent to a workload itself: a pod, a WorkloadEntry.
func WorkloadIntent(o metav1.Object, ctx Context) Intent {
	if name := o.GetLabels()[wellknown.GatewayName]; name != "" && (ctx.find(o.GetNamespace(), name) != nil || ctx.Servers != nil && ctx.Servers(o.GetNamespace(), name) != nil) {
		return Intent{} // it is a waypoint itself
	}
	return ctx.intent(o, false, func(w *Waypoint) string {
		if w.Traffic != trafficForWorkloads && w.Traffic != trafficForEverything {
			return "does not take traffic for workloads; set its label " + wellknown.WaypointFor + " to workload or all"
		}
		return ""
	})
}

// EntryWorkloadIntent is that of a WorkloadEntry.
func EntryWorkloadIntent(we *networkingv1.WorkloadEntry, ctx Context) Intent {
	if len(we.Spec.Labels) == 0 {
		return WorkloadIntent(we, ctx)
	}
	o := &networkingv1.WorkloadEntry{}
	o.Name, o.Namespace, o.Labels = we.Name, we.Namespace, EntryLabels(we)
	return WorkloadIntent(o, ctx)
}

// EndpointIntents are those of the endpoints that are written into a ServiceEntry, by the uid of each. hosts are those of its hosts that are its own.
func EndpointIntents(mesh Mesh, se *networkingv1.ServiceEntry, hosts []string, ctx Context) map[string]Intent {
	if len(hosts) == 0 || ImplicitEndpoints(se) {
		return nil
	}
	out := map[string]Intent{}
	names := newEndpointNames(mesh, se.Namespace, se.Name)
	for _, e := range se.Spec.Endpoints {
		if !mesh.reachable(e) {
			continue
		}
		if uid, first := names.of(e); first {
			o := &networkingv1.WorkloadEntry{}
			o.Name, o.Namespace, o.Labels = se.Name, se.Namespace, e.Labels
			out[uid] = WorkloadIntent(o, ctx)
		}
	}
	return out
}
