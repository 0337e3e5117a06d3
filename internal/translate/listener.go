package translate

import (
	"fmt"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"lateen.dev/lateen/internal/model"
)

// Listener is what is to be said of one of a waypoint's listeners.
type Listener struct {
	Name string
	// Accepted and ResolvedRefs are conditions of the Gateway API.
	Accepted, ResolvedRefs model.Condition
}

// ListenerConditions tells the author of a Gateway what became of its listeners.
func ListenerConditions(gw *gatewayv1.Gateway, class *gatewayv1.GatewayClass) []model.ListenerConditions {
	var out []model.ListenerConditions
	for _, l := range Listeners(gw, class) {
		out = append(out, model.ListenerConditions{Name: l.Name, Conditions: []model.Condition{l.Accepted, l.ResolvedRefs}})
	}
	return out
}

// Listeners judges the listeners of a Gateway that is a waypoint, in their order; class may be nil. Node proxies use one of them: that of the
// tunnel, or the one that the inbound binding names.
func Listeners(gw *gatewayv1.Gateway, class *gatewayv1.GatewayClass) []Listener {
	tunnel, _ := binding(gw, class)
	used := boundListener(gw, tunnel)
	out := make([]Listener, 0, len(gw.Spec.Listeners))
	for i := range gw.Spec.Listeners {
		l := &gw.Spec.Listeners[i]
		of := Listener{Name: string(l.Name)}
		listener := func(status model.Status, reason gatewayv1.ListenerConditionReason, message string) model.Condition {
			return model.Condition{Type: string(gatewayv1.ListenerConditionAccepted), Status: status, Reason: string(reason), Message: message}
		}
		switch {
		case l == used, l.Protocol == hboneListener && l.Port == hbonePort:
			of.Accepted = listener(model.True, gatewayv1.ListenerReasonAccepted, "node proxies send to it")
		case l.Protocol == hboneListener:
			of.Accepted = listener(model.False, gatewayv1.ListenerReasonPortUnavailable, fmt.Sprintf("node proxies send to port %d of a waypoint, whatever its listeners say; use that port", hbonePort))
		default:
			of.Accepted = listener(model.False, gatewayv1.ListenerReasonUnsupportedProtocol, fmt.Sprintf("node proxies do not use a listener with protocol %s and port %d; use protocol %s and port %d", l.Protocol, l.Port, hboneListener, hbonePort))
		}
		of.ResolvedRefs = model.Condition{Type: string(gatewayv1.ListenerConditionResolvedRefs), Status: model.True, Reason: string(gatewayv1.ListenerReasonResolvedRefs), Message: "it refers to nothing"}
		switch {
		case l.AllowedRoutes != nil && len(l.AllowedRoutes.Kinds) > 0:
			of.ResolvedRefs.Status, of.ResolvedRefs.Reason = model.False, string(gatewayv1.ListenerReasonInvalidRouteKinds)
			of.ResolvedRefs.Message = "routes have no effect in this version of the mesh, of whatever kind; leave allowedRoutes.kinds out"
		case l.TLS != nil && len(l.TLS.CertificateRefs) > 0:
			of.ResolvedRefs.Status, of.ResolvedRefs.Reason = model.False, string(gatewayv1.ListenerReasonInvalidCertificateRef)
			of.ResolvedRefs.Message = "the mesh reads no certificates from Secrets: its own are used; leave tls out"
		}
		out = append(out, of)
	}
	return out
}
