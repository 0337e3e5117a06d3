package conditions

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"lateen.dev/lateen/internal/control/conditions/withdraw"
	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/model/wellknown"
	"lateen.dev/lateen/internal/waypoint"
)

// istioManager is how the API server remembers what istiod wrote into a status. The record outlives istiod.
const istioManager = "pilot-discovery"

// deployed is the deployer's condition of a Gateway; nil if the deployer has not looked at it.
func deployed(gw *gatewayv1.Gateway) *metav1.Condition {
	i := slices.IndexFunc(gw.Status.Conditions, func(c metav1.Condition) bool { return c.Type == wellknown.Deployed })
	if i < 0 {
		return nil
	}
	return &gw.Status.Conditions[i]
}

// reason is that of the deployer's condition of a Gateway; empty if there is none, or if the deployer looks at the Gateway no more. A Gateway that is being
// deleted keeps its reason: another controller may still be at work on it.
func reason(gw *gatewayv1.Gateway) string {
	c := deployed(gw)
	if c == nil || gw.DeletionTimestamp == nil && !waypoint.Deployed(gw) {
		return ""
	}
	return c.Reason
}

// reasonIn is the reason of the deployer's condition in the status of a Gateway that was just read.
func reasonIn(u *unstructured.Unstructured) string {
	for _, raw := range rawConditions(u) {
		if c, ok := raw.(map[string]any); ok && text(c, "type") == wellknown.Deployed {
			return text(c, "reason")
		}
	}
	return ""
}

// ofIstiosClass says whether a Gateway of Istio's class is this mesh's to speak of. takenOver says that this mesh has Istio's place. present is what its
// status says.
func (w *Writer) ofIstiosClass(gw *gatewayv1.Gateway, takenOver bool, present written) bool {
	if present.gateway != nil && present.gateway.others {
		return false
	}
	switch reason(gw) {
	case wellknown.ReasonLeftToIstio, wellknown.ReasonIstioUnknown:
		return false
	case "", wellknown.ReasonTaken:
		return takenOver
	}
	return takenOver || w.Mesh.ServeIstioWaypoints
}

// givesUp says whether the conditions of a Gateway are to be removed: the deployer leaves the Gateway to another controller, and no third controller
// wrote conditions. A deployer that cannot tell whether Istio's controller runs is no reason. present is what the Gateway's status says.
func (w *Writer) givesUp(key model.Key, present written) bool {
	gw, is := w.Store.Gateway(key)
	if !is || present.gateway != nil && present.gateway.others {
		return false
	}
	why := reason(gw)
	return why == wellknown.ReasonLeftToIstio || why == wellknown.ReasonTaken
}

// believes says whether what the model has of a Gateway agrees with what was just read: it is the same object, and the deployer's reason is the same.
func (w *Writer) believes(key model.Key, u *unstructured.Unstructured) bool {
	gw, is := w.Store.Gateway(key)
	return is && gw.UID == u.GetUID() && reason(gw) == reasonIn(u)
}

// toldByOthers says whether another controller wrote a condition of a Gateway that this mesh would write.
func toldByOthers(u *unstructured.Unstructured) bool {
	for _, condition := range []string{accepted, programmed} {
		for _, manager := range withdraw.Managers(u, condition) {
			if manager != fieldManager && manager != istioManager {
				return true
			}
		}
	}
	return false
}

// programmedByIstio says whether Istio alone wrote the condition Programmed of a Gateway.
func programmedByIstio(u *unstructured.Unstructured) bool {
	managers := withdraw.Managers(u, programmed)
	return slices.Contains(managers, istioManager) && !slices.Contains(managers, fieldManager)
}
