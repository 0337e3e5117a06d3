package analyse

import (
	networkingv1 "istio.io/client-go/pkg/apis/networking/v1"
	securityv1 "istio.io/client-go/pkg/apis/security/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/translate"
)

// Read picks the objects of the analysis out of all objects of a mesh. An object that stands in for a refused version is left out, since its author
// has not written it.
func Read(mesh translate.Mesh, entries []model.Entry) *Input {
	in := &Input{Mesh: mesh}
	for _, e := range entries {
		if e.Object.Refused != "" {
			continue
		}
		switch v := e.Object.Value.(type) {
		case *corev1.ConfigMap:
			if e.Object.Key == mesh.ConfigKey() {
				in.PathNormalization = translate.ReadMeshConfig(mesh, v).Settings.GetPathNormalization()
			}
		case *corev1.Namespace:
			in.Namespaces = append(in.Namespaces, v)
		case *corev1.Pod:
			in.Pods = append(in.Pods, v)
		case *appsv1.Deployment:
			in.Deployments = append(in.Deployments, v)
		case *corev1.ServiceAccount:
			in.ServiceAccounts = append(in.ServiceAccounts, v)
		case *networkingv1.WorkloadEntry:
			in.WorkloadEntries = append(in.WorkloadEntries, v)
		case *networkingv1.ServiceEntry:
			in.ServiceEntries = append(in.ServiceEntries, v)
		case *securityv1.AuthorizationPolicy:
			in.AuthorizationPolicies = append(in.AuthorizationPolicies, v)
		case *securityv1.PeerAuthentication:
			in.PeerAuthentications = append(in.PeerAuthentications, v)
		case *securityv1.RequestAuthentication:
			in.Requests.Authentications = append(in.Requests.Authentications, v)
		case *corev1.Service:
			in.Requests.Services = append(in.Requests.Services, v)
		case *gatewayv1.Gateway:
			in.Requests.Gateways = append(in.Requests.Gateways, v)
		case *gatewayv1.GatewayClass:
			in.Requests.Classes = append(in.Requests.Classes, v)
		}
	}
	return in
}
