package meaning

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"lateen.dev/lateen/internal/model/wellknown"
	"lateen.dev/lateen/internal/translate"
	"lateen.dev/lateen/internal/waypoint"
)

// Classes of Istio that need no object to be known.
const (
	ingressClass  = "istio"
	eastWestClass = "istio-east-west"
)

func (c *comparison) gateways() {
	used := binding{c}.used()
	for _, g := range c.Gateways {
		d := Difference{Object: Object{Kind: "Gateway", Namespace: g.Namespace, Name: g.Name}, Field: "spec.gatewayClassName"}
		name := string(g.Spec.GatewayClassName)
		class := c.class(name)
		switch {
		case waypoint.Controller(name, class) == wellknown.MeshController:
			c.out.add("gateway-waypoint", d)
			if used(g) {
				binding{c}.unready(g)
			}
		case name == eastWestClass:
			c.out.add("gateway-network", d)
		case name == ingressClass || class != nil && class.Spec.ControllerName == wellknown.IstioGatewayController:
			c.out.add("gateway-ingress", d)
		}
	}
}

// class finds a GatewayClass; nil if there is none of the name.
func (c *comparison) class(name string) *gatewayv1.GatewayClass {
	for _, class := range c.GatewayClasses {
		if class.Name == name {
			return class
		}
	}
	return nil
}

func (c *comparison) isWaypointClass(name string) bool {
	return translate.IsWaypointClass(name, c.class(name))
}

// binding compares when connections go through the waypoints that objects ask for.
type binding struct{ of *comparison }

// unready is about a waypoint that Istio passes by because its Gateway has no address yet. This mesh has connections go through it, unless it takes none.
func (b binding) unready(g *gatewayv1.Gateway) {
	if len(g.Status.Addresses) > 0 || b.traffic(g) == trafficForNothing {
		return
	}
	d := Difference{Object: Object{Kind: "Gateway", Namespace: g.Namespace, Name: g.Name}, Field: "status.addresses",
		Then: "connections to what asks for it go through it, and are refused until its proxies have acknowledged",
		Keep: []string{"metadata:", "  labels: {" + wellknown.WaypointFor + ": " + trafficForNothing + "}"}}
	if b.of.Settings.BindAtOnce {
		if b.ownService(g) == nil {
			return // it cannot be found by this mesh either
		}
		d.Severity, d.Then = RouteChanges, "connections go to its Service"
	}
	b.of.out.add("gateway-unready", d)
}

// trafficForNothing is the value of the label istio.io/waypoint-for by which a waypoint takes no connections.
const trafficForNothing = "none"

// traffic is what a waypoint takes by its own label, else by that of its class; empty if neither says so.
func (b binding) traffic(g *gatewayv1.Gateway) string {
	if own := g.Labels[wellknown.WaypointFor]; own != "" {
		return own
	}
	if class := b.of.class(string(g.Spec.GatewayClassName)); class != nil {
		return class.Labels[wellknown.WaypointFor]
	}
	return ""
}

// ownService is the Service of a Gateway's name; nil if there is none.
func (b binding) ownService(g *gatewayv1.Gateway) *corev1.Service {
	i := slices.IndexFunc(b.of.Services, func(s *corev1.Service) bool { return s.Namespace == g.Namespace && s.Name == g.Name })
	if i < 0 {
		return nil
	}
	return b.of.Services[i]
}

// unusable is about labels that name a waypoint which takes none of the object's connections. Istio has these go direct. This mesh refuses them, since
// they must not go past a waypoint's policies.
func (b binding) unusable() {
	if b.of.Settings.BindAtOnce || b.of.isUnread("gateways", "gatewayclasses", "namespaces") {
		return
	}
	type place struct {
		object Object
		then   string
	}
	found := map[place][]string{}
	b.intents(func(kind string, o metav1.Object, in translate.Intent) {
		if in.Asked == "" || in.Why == "" || in.Foreign || in.Unfit {
			return
		}
		at := place{Object{Kind: kind, Namespace: o.GetNamespace(), Name: o.GetName()}, fmt.Sprintf("connections are refused: waypoint %s %s", in.Asked, in.Why)}
		switch {
		case !in.Own:
			at.object = Object{Kind: "Namespace", Name: o.GetNamespace()}
		case kind == "Pod":
			at.object.Name = "" // those of a Deployment are alike
		}
		found[at] = append(found[at], kind+" "+o.GetNamespace()+"/"+o.GetName())
	})
	for at, objects := range found {
		d := Difference{Object: at.object, Field: "metadata.labels." + wellknown.UseWaypoint, Then: at.then}
		if at.object.Kind == "Namespace" || at.object.Kind == "Pod" {
			d.name(objects)
		}
		b.of.out.add("use-waypoint-unusable", d)
	}
}

// used says of Gateways whether an object asks for them as its waypoint. Where not all objects could be read each of them may be.
func (b binding) used() func(g *gatewayv1.Gateway) bool {
	if b.of.isUnread("gatewayclasses", "namespaces", "pods", "services", "serviceentries", "workloadentries") {
		return func(*gatewayv1.Gateway) bool { return true }
	}
	asked := map[string]bool{}
	b.intents(func(_ string, _ metav1.Object, in translate.Intent) {
		if in.Why == "" && !in.Unfit {
			asked[in.Asked] = true
		}
	})
	return func(g *gatewayv1.Gateway) bool { return asked[g.Namespace+"/"+g.Name] }
}

// isUnread says whether the caller may not list one of some resources.
func (c *comparison) isUnread(resources ...string) bool {
	return slices.ContainsFunc(c.Unread, func(unread string) bool {
		what, _, _ := strings.Cut(unread, ":")
		resource, _, _ := strings.Cut(what, ".")
		return slices.Contains(resources, resource)
	})
}

// intents tells what each object asks for.
func (b binding) intents(each func(kind string, o metav1.Object, in translate.Intent)) {
	context := b.waypoints()
	look := func(kind string, o metav1.Object, intent func(translate.Context) translate.Intent) {
		each(kind, o, intent(context(o.GetNamespace())))
	}
	for _, s := range b.of.Services {
		look("Service", s, func(ctx translate.Context) translate.Intent { return translate.ServiceIntent(s, ctx) })
	}
	for _, e := range b.of.ServiceEntries {
		look("ServiceEntry", e, func(ctx translate.Context) translate.Intent { return translate.EntryIntent(e, ctx) })
	}
	for _, e := range b.of.WorkloadEntries {
		look("WorkloadEntry", e, func(ctx translate.Context) translate.Intent { return translate.EntryWorkloadIntent(e, ctx) })
	}
	for _, p := range b.of.Pods {
		look("Pod", p, func(ctx translate.Context) translate.Intent { return translate.WorkloadIntent(p, ctx) })
	}
}

// waypoints finds the Gateways as this mesh does in the place of Istio, for the objects of a namespace.
func (b binding) waypoints() func(namespace string) translate.Context {
	mesh := translate.Mesh{DomainSuffix: "cluster.local", Network: b.of.Settings.Network, ServeIstioWaypoints: true}
	served, found := map[string]*translate.Waypoint{}, map[string]*translate.Waypoint{}
	for _, g := range b.of.Gateways {
		class := b.of.class(string(g.Spec.GatewayClassName))
		if w := translate.Served(mesh, g, class); w != nil {
			served[w.Ref()] = w
		}
		if w, _ := translate.Gateway(mesh, g, class, b.ownService(g)); w != nil {
			found[w.Ref()] = w
		}
	}
	return func(namespace string) translate.Context {
		return translate.Context{Namespace: b.of.namespaces[namespace],
			Servers:   func(ns, name string) *translate.Waypoint { return served[ns+"/"+name] },
			Waypoints: func(ns, name string) *translate.Waypoint { return found[ns+"/"+name] }}
	}
}
