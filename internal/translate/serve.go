package translate

import (
	"cmp"
	"maps"
	"slices"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"lateen.dev/lateen/internal/gen/l7"
	"lateen.dev/lateen/internal/model/wellknown"
)

// The waypoint classes that need no object. Policies for Istio's class are for all waypoints, see [Waypoint.Classes].
const (
	IstioWaypointClass  = "istio-waypoint"
	lateenWaypointClass = "lateen-waypoint"
)

// ServesClass says whether this mesh's own proxies serve Gateways of a class; class may be nil. The controller of the class decides, so that
// a Gateway has one master. Istio's class is served where a setting says so.
func ServesClass(mesh Mesh, name string, class *gatewayv1.GatewayClass) bool {
	var controller gatewayv1.GatewayController
	switch {
	case class != nil:
		controller = class.Spec.ControllerName
	case name == lateenWaypointClass:
		controller = wellknown.LateenWaypointController
	case name == IstioWaypointClass:
		controller = wellknown.MeshController
	}
	return controller == wellknown.LateenWaypointController || mesh.ServeIstioWaypoints && controller == wellknown.MeshController
}

// GatewayAccount is the service account of a Gateway's proxies, as Istio names it: the one of the annotation, else the Gateway's own name,
// behind which a Gateway that somebody else runs has its class.
func GatewayAccount(gw *gatewayv1.Gateway) string {
	name := gw.Name
	if gw.Spec.GatewayClassName == remoteGatewayClass {
		name += "-" + remoteGatewayClass
	}
	return cmp.Or(gw.Annotations[wellknown.GatewayServiceAccount], name)
}

// Served is a Gateway as its own proxies know it, whether it can be reached or not; nil if this mesh's proxies do not serve it.
func Served(mesh Mesh, gw *gatewayv1.Gateway, class *gatewayv1.GatewayClass) *Waypoint {
	if !ServesClass(mesh, string(gw.Spec.GatewayClassName), class) {
		return nil
	}
	w := declared(gw, class, newVerdict())
	w.Identity = gw.Namespace + "/" + GatewayAccount(gw)
	w.class = string(gw.Spec.GatewayClassName)
	return w
}

// parent is the Gateway as resources name it that are for it.
func (w *Waypoint) parent() *l7.Parent { return &l7.Parent{Gateway: w.Ref(), Identity: w.Identity} }

// Classes are the classes whose policies a Gateway has. As in Istio, a policy for GatewayClass istio-waypoint is one for all waypoints, whatever
// the class of each.
func (w *Waypoint) Classes() []string {
	if w.class == IstioWaypointClass {
		return []string{IstioWaypointClass}
	}
	return []string{w.class, IstioWaypointClass}
}

// parents are Gateways as resources name them, each once and in the order of their names.
func parents(gateways []*Waypoint) (out []*l7.Parent) {
	byName := map[string]*Waypoint{}
	for _, w := range gateways {
		byName[w.Ref()] = w
	}
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		out = append(out, byName[name].parent())
	}
	return out
}

// RequestGateway is the resource of a Gateway that this mesh serves.
func RequestGateway(w *Waypoint, settings *l7.MeshSettings) *l7.Gateway {
	traffic := map[string]l7.Traffic{trafficForServices: l7.Traffic_SERVICE, trafficForWorkloads: l7.Traffic_WORKLOAD, trafficForEverything: l7.Traffic_ALL}
	of, known := traffic[w.Traffic]
	if !known {
		of = l7.Traffic_NONE // "none", and what nothing can use
	}
	return &l7.Gateway{Namespace: w.Namespace, Name: w.Name, Class: w.class, Identity: w.Identity, Traffic: of, Settings: settings}
}

// ServiceBinding is the Binding of a service that is to be reached through Gateways; nil if there is none of these. name is the service's:
// "namespace/hostname". leaving are the names of the Gateways among them that get no new connections.
func ServiceBinding(name string, gateways []*Waypoint, leaving []string) *l7.Binding {
	if len(gateways) == 0 {
		return nil
	}
	return &l7.Binding{Parents: parents(gateways), Leaving: leaving, Destination: &l7.Binding_Service{Service: name}}
}

// WorkloadBinding is the same of a workload.
func WorkloadBinding(uid string, gateways []*Waypoint, leaving []string) *l7.Binding {
	if len(gateways) == 0 {
		return nil
	}
	return &l7.Binding{Parents: parents(gateways), Leaving: leaving, Destination: &l7.Binding_Workload{Workload: uid}}
}

// SameServer says whether two Gateways are the same to all that is for them; either may be nil.
func SameServer(a, b *Waypoint) bool {
	if a == nil || b == nil {
		return a == b
	}
	selector := func(w *Waypoint) string {
		if w.selector == nil {
			return ""
		}
		return w.selector.String()
	}
	return a.Ref() == b.Ref() && a.Identity == b.Identity && a.Traffic == b.Traffic && a.class == b.class && a.from == b.from && selector(a) == selector(b)
}
