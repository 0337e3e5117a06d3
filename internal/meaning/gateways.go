package meaning

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
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
	for _, g := range c.Gateways {
		d := Difference{Object: Object{Kind: "Gateway", Namespace: g.Namespace, Name: g.Name}, Field: "spec.gatewayClassName"}
		name := string(g.Spec.GatewayClassName)
		class := c.class(name)
		switch {
		case waypoint.Controller(name, class) == wellknown.MeshController:
			c.out.add("gateway-waypoint", d)
			c.unready(g)
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

// unready is about a waypoint that Istio passes by because its Gateway has no address yet. This mesh finds it by its Service.
func (c *comparison) unready(g *gatewayv1.Gateway) {
	own := slices.ContainsFunc(c.Services, func(s *corev1.Service) bool { return s.Namespace == g.Namespace && s.Name == g.Name })
	if len(g.Status.Addresses) == 0 && own {
		c.out.add("gateway-unready", Difference{Object: Object{Kind: "Gateway", Namespace: g.Namespace, Name: g.Name}, Field: "status.addresses",
			Keep: []string{"metadata:", "  labels: {" + wellknown.WaypointFor + ": none}"}})
	}
}
