package conditions

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"lateen.dev/lateen/internal/control/conditions/withdraw"
	"lateen.dev/lateen/internal/model/wellknown"
)

// istioManager is how the API server remembers what istiod wrote into a status. The record outlives istiod.
const istioManager = "pilot-discovery"

// deployedHere says whether this mesh's deployer is at work on a Gateway. As long as Istio's controller runs, or if an object of the Gateway's name is
// somebody else's, the deployer's condition says that it leaves the Gateway alone.
func deployedHere(gw *gatewayv1.Gateway) bool {
	return slices.ContainsFunc(gw.Status.Conditions, func(c metav1.Condition) bool {
		return c.Type == wellknown.Deployed && c.Reason != wellknown.ReasonTaken
	})
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
