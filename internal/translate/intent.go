package translate

import (
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
	// object's connections, and Reason is the code of that; both are empty if it does.
	Asked, Why, Reason string
	// Foreign says that the waypoint is not served by this mesh's proxies, and can be used.
	Foreign bool
	// Canary is the canary if somebody else's proxies serve it and it can be used.
	Canary string
	// Unfit says that the waypoint takes traffic of another kind than the object's: the object is not meant to go through it.
	Unfit bool
	// Own says that the object's own labels ask for the waypoint, not its namespace's.
	Own bool
	// Admits says whether a Gateway may have the object's Binding: one whose allowedRoutes admit the object, and that may see it. Nil: none may.
	Admits func(*Waypoint) bool
}

// AtOnce is the decision where the Address names the waypoint whenever it can be found.
func (i Intent) AtOnce(found bool) *Decision {
	d := &Decision{Asked: i.Asked, Ready: found, Foreign: i.Foreign, Why: i.Why, Reason: i.Reason, Gateways: i.Gateways, Canary: true}
	if found && (i.Why == "" || i.Foreign) {
		d.Way = i.Asked
	}
	return d
}

// The codes of why a waypoint takes none of an object's connections. They are Istio's.
const (
	reasonNotReady       = "WaypointIsNotReady"
	reasonDenied         = "AttachmentDenied"
	reasonTraffic        = "UnsupportedTrafficType"
	reasonCrossNamespace = "CrossNamespaceWaypointForbidden"
)

// ReasonRefused is the code of a waypoint that the object's own workloads would refuse.
const ReasonRefused = "PolicyRefusesWaypoint"

// obstacle is why a waypoint takes none of an object's connections; the zero one is none.
type obstacle struct{ reason, why string }

// intent finds the Gateways of a service or a workload. takes says what keeps a waypoint from the object's connections, beside its allowedRoutes.
func (c Context) intent(o metav1.Object, canary bool, takes func(*Waypoint) obstacle) Intent {
	ns, name, none := wish(o.GetLabels(), o.GetNamespace())
	own := name != ""
	if !none && name == "" {
		ns, name, none = wish(c.labels(), o.GetNamespace())
	}
	if c.Servers == nil {
		return Intent{}
	}
	admits := func(w *Waypoint) obstacle {
		if !w.allows(o.GetNamespace(), c.Namespace) {
			return obstacle{reasonDenied, "does not admit namespace " + o.GetNamespace() + "; let its listener's allowedRoutes do so"}
		}
		return takes(w)
	}
	out := Intent{Admits: func(w *Waypoint) bool {
		// A proxy refuses traffic of another kind by itself, and says so to the client.
		reason := admits(w).reason
		return reason == "" || reason == reasonTraffic
	}}
	if none || name == "" {
		return out
	}
	out.Asked, out.Own = ns+"/"+name, own
	judge := func(w *Waypoint) bool {
		found := admits(w)
		out.Reason, out.Why = found.reason, found.why
		out.Unfit = found.reason == reasonTraffic
		return found == obstacle{}
	}
	primary := c.Servers(ns, name)
	switch foreign := c.find(ns, name); {
	case primary != nil:
		if judge(primary) {
			out.Gateways = append(out.Gateways, primary)
		}
	case foreign != nil:
		if out.Foreign = judge(foreign); out.Foreign {
			out.Why = "is not served by this mesh's proxies; whoever runs it enforces its policies"
		}
	default:
		out.Reason, out.Why = reasonNotReady, "is not there, or not served by this mesh's proxies"
	}
	if !canary {
		return out
	}
	if ns, name, _ := c.canaryWish(o); name != "" && ns+"/"+name != out.Asked {
		if w := c.Servers(ns, name); w != nil {
			if admits(w) == (obstacle{}) {
				out.Gateways = append(out.Gateways, w)
			}
		} else if w := c.find(ns, name); w != nil && admits(w) == (obstacle{}) {
			out.Canary = w.Ref()
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
	out := c.intent(o, true, func(w *Waypoint) obstacle {
		own = own || isOwn(o, w)
		switch {
		case isOwn(o, w):
			return obstacle{reasonTraffic, "is the service's own"}
		case w.Traffic != trafficForServices && w.Traffic != trafficForEverything:
			return obstacle{reasonTraffic, "does not take traffic for services; set its label " + wellknown.WaypointFor + " to service or all"}
		case private && w.Namespace != o.GetNamespace():
			return obstacle{reasonCrossNamespace, "is of another namespace, and the service is exported to its own only"}
		}
		return obstacle{}
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
	out := ctx.intent(o, false, func(w *Waypoint) obstacle {
		if w.Traffic != trafficForWorkloads && w.Traffic != trafficForEverything {
			return obstacle{reasonTraffic, "does not take traffic for workloads; set its label " + wellknown.WaypointFor + " to workload or all"}
		}
		return obstacle{}
	})
	// A waypoint takes services by default: what a namespace asks for is not meant for its workloads unless the Gateway says so.
	out.Unfit = out.Unfit || out.Reason == reasonNotReady && !out.Own
	return out
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
