package waypoint

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/model/wellknown"
)

// The classes whose Gateways are deployed. They need no object of their own to be known.
const (
	Class      = "lateen-waypoint"
	IstioClass = "istio-waypoint"
)

// The ports of a waypoint's pods.
const (
	HBONEPort   = 15008
	MetricsPort = 15020
	ReadyPort   = 15021
)

// Managed is the value of the label gateway.istio.io/managed on the objects of a waypoint, whoever deploys it. Services with it have no waypoint
// themselves.
const Managed = "istio.io-mesh-controller"

// Controller is the name of the controller of a class's Gateways; empty if it is not known. object is the GatewayClass, or nil if there is
// none of the name.
func Controller(class string, object *gatewayv1.GatewayClass) string {
	if object != nil {
		return string(object.Spec.ControllerName)
	}
	return map[string]string{Class: wellknown.LateenWaypointController, IstioClass: wellknown.MeshController}[class]
}

// Serves says whether Gateways of a class are deployed. object is the GatewayClass, or nil if there is none of the name.
func Serves(class string, object *gatewayv1.GatewayClass, istioToo bool) bool {
	controller := Controller(class, object)
	return controller == wellknown.LateenWaypointController || istioToo && controller == wellknown.MeshController
}

// Deployed says whether the objects of a Gateway are to be made. As in Istio, a Gateway that names the host of its addresses is served by
// something that exists already.
func Deployed(gw *gatewayv1.Gateway) bool {
	addresses := gw.Spec.Addresses
	return gw.DeletionTimestamp == nil && (len(addresses) == 0 || len(addresses) == 1 && (addresses[0].Type == nil || *addresses[0].Type == gatewayv1.IPAddressType))
}

// Account is the service account that a Gateway's pods run as.
func Account(gw *gatewayv1.Gateway) string {
	if named := gw.Annotations[wellknown.GatewayServiceAccount]; named != "" {
		return named
	}
	return gw.Name
}

// NamesAccount says whether a Gateway's author names the service account. It is the author's then, even if it has the Gateway's name.
func NamesAccount(gw *gatewayv1.Gateway) bool {
	return gw.Annotations[wellknown.GatewayServiceAccount] != ""
}

// Named is a Gateway as messages name it.
func Named(gw *gatewayv1.Gateway) string { return "Gateway " + gw.Namespace + "/" + gw.Name }

// check refuses a Gateway from which no objects can be made.
func check(gw *gatewayv1.Gateway) error {
	switch why := validation.IsDNS1035Label(gw.Name); {
	case len(why) > 0:
		return refuse(ReasonInvalid, "%s: metadata.name is %q, and its Service cannot have this name: %s; give the Gateway another name", Named(gw), gw.Name, why[0])
	case gw.Annotations[wellknown.GatewayNameOverride] != "":
		return refuse(ReasonInvalid, "%s: annotation %s has no meaning here, since a waypoint's objects have its Gateway's name; remove the annotation", Named(gw), wellknown.GatewayNameOverride)
	case len(gw.Spec.Listeners) == 0:
		return refuse(ReasonInvalid, "%s: spec.listeners is empty; add {name: mesh, port: %d, protocol: HBONE}", Named(gw), HBONEPort)
	}
	if account := gw.Annotations[wellknown.GatewayServiceAccount]; account != "" {
		if why := validation.IsDNS1123Subdomain(account); len(why) > 0 {
			return refuse(ReasonInvalid, "%s: annotation %s is %q, which is no name of a ServiceAccount: %s; correct it", Named(gw), wellknown.GatewayServiceAccount, account, why[0])
		}
	}
	if !slices.ContainsFunc(gw.Spec.Listeners, func(l gatewayv1.Listener) bool { return l.Port == HBONEPort }) {
		return refuse(ReasonInvalid, "%s: spec.listeners has none with port %d, to which node proxies connect; add {name: mesh, port: %[2]d, protocol: HBONE}", Named(gw), HBONEPort)
	}
	return nil
}

// Of another controller, or of tools: they stay on the Gateway.
var notCopied = []string{"kubectl.kubernetes.io/last-applied-configuration", wellknown.ControllerVersion, wellknown.GatewayNameOverride, wellknown.GatewayServiceAccount}

// annotations are those of every object of a Gateway. spec.infrastructure chooses them; without it they are the Gateway's own, as in Istio.
func annotations(gw *gatewayv1.Gateway) map[string]string {
	out := map[string]string{}
	if infra := gw.Spec.Infrastructure; infra != nil && infra.Annotations != nil {
		for k, v := range infra.Annotations {
			out[string(k)] = string(v)
		}
	} else {
		for k, v := range gw.Annotations {
			out[k] = v
		}
	}
	for k := range out {
		if strings.HasPrefix(k, model.GatewayGroup+"/") || slices.Contains(notCopied, k) {
			delete(out, k)
		}
	}
	return out
}

// labels are those of every object of a Gateway: chosen as annotations are, and the mesh's own before them.
func labels(gw *gatewayv1.Gateway) map[string]string {
	out := map[string]string{}
	if infra := gw.Spec.Infrastructure; infra != nil && infra.Labels != nil {
		for k, v := range infra.Labels {
			out[string(k)] = string(v)
		}
	} else {
		for k, v := range gw.Labels {
			out[k] = v
		}
	}
	for k := range out {
		if strings.HasPrefix(k, model.GatewayGroup+"/") {
			delete(out, k)
		}
	}
	out[wellknown.GatewayName] = gw.Name
	out[wellknown.GatewayClassName] = string(gw.Spec.GatewayClassName)
	out[wellknown.GatewayManaged] = Managed
	return out
}

// object is the metadata of an object of a Gateway, which the API server removes with it.
func object(gw *gatewayv1.Gateway, name string) metav1.ObjectMeta {
	yes := true
	return metav1.ObjectMeta{Namespace: gw.Namespace, Name: name, Labels: labels(gw), Annotations: annotations(gw),
		OwnerReferences: []metav1.OwnerReference{{APIVersion: gatewayv1.GroupVersion.String(), Kind: "Gateway", Name: gw.Name, UID: gw.UID, Controller: &yes}}}
}

// Owns says whether an object with these owners belongs to a Gateway.
func Owns(gw *gatewayv1.Gateway, owners []metav1.OwnerReference) bool {
	return slices.ContainsFunc(owners, func(o metav1.OwnerReference) bool { return o.Kind == "Gateway" && o.UID == gw.UID })
}
