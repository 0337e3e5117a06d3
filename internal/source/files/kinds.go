package files

import (
	"strings"

	extensionsv1alpha1 "istio.io/client-go/pkg/apis/extensions/v1alpha1"
	networkingv1 "istio.io/client-go/pkg/apis/networking/v1"
	networkingv1alpha3 "istio.io/client-go/pkg/apis/networking/v1alpha3"
	networkingv1beta1 "istio.io/client-go/pkg/apis/networking/v1beta1"
	securityv1 "istio.io/client-go/pkg/apis/security/v1"
	telemetryv1 "istio.io/client-go/pkg/apis/telemetry/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"google.golang.org/protobuf/proto"

	"lateen.dev/lateen/internal/model"
)

// kind is what the decoder knows about one kind of object.
type kind struct {
	group    string
	name     string
	versions []string // the first is the one to recommend
	cluster  bool     // cluster-scoped: no namespace
	support  model.Support
	reason   string
	// plain makes an empty object whose every field encoding/json understands.
	plain func() metav1.Object
	// istio makes an empty object and hands out its spec, which is a protobuf message and must be decoded as one.
	istio func() (metav1.Object, proto.Message)
	// check finds what the types cannot say.
	check func(metav1.Object) []fault
}

const (
	coreGroup     = ""
	appsGroup     = "apps"
	securityGroup = "security.istio.io"
	networkGroup  = "networking.istio.io"
	gatewayGroup  = "gateway.networking.k8s.io"

	reasonEngine    = "the engine runs it; the control plane does not read it"
	reasonData      = "no part mounts it or reads environment variables from it yet"
	reasonKube      = "Kubernetes acts on it; the mesh does not read it"
	reasonWaypoints = "node proxies work at L4 and this mesh has no waypoints or gateways yet"
	reasonRegistry  = "hosts and workloads outside the mesh's own pods are not part of this mesh yet"
	reasonSidecars  = "it configures sidecars, and this mesh has none"
)

var (
	istioSecurity = []string{"v1", "v1beta1"}
	istioNetwork  = []string{"v1", "v1beta1", "v1alpha3"}
)

// kinds lists every kind that a user of Kubernetes and Istio may reasonably hand over.
var kinds = indexKinds([]kind{
	{group: coreGroup, name: "Namespace", versions: []string{"v1"}, cluster: true,
		plain: func() metav1.Object { return &corev1.Namespace{} }},
	{group: coreGroup, name: "Node", versions: []string{"v1"}, cluster: true,
		plain: func() metav1.Object { return &corev1.Node{} }},
	{group: coreGroup, name: "ServiceAccount", versions: []string{"v1"},
		plain: func() metav1.Object { return &corev1.ServiceAccount{} }},
	{group: coreGroup, name: "Service", versions: []string{"v1"},
		plain: func() metav1.Object { return &corev1.Service{} }, check: checkService},
	{group: coreGroup, name: "Pod", versions: []string{"v1"},
		plain: func() metav1.Object { return &corev1.Pod{} }, check: checkPod},
	{group: securityGroup, name: "AuthorizationPolicy", versions: istioSecurity, check: checkAuthorizationPolicy,
		istio: func() (metav1.Object, proto.Message) {
			o := &securityv1.AuthorizationPolicy{}
			return o, &o.Spec
		}},
	{group: securityGroup, name: "PeerAuthentication", versions: istioSecurity, check: checkPeerAuthentication,
		istio: func() (metav1.Object, proto.Message) {
			o := &securityv1.PeerAuthentication{}
			return o, &o.Spec
		}},

	{group: appsGroup, name: "Deployment", versions: []string{"v1"}, support: model.Elsewhere, reason: reasonEngine,
		plain: func() metav1.Object { return &appsv1.Deployment{} }, check: checkDeployment},
	{group: coreGroup, name: "ConfigMap", versions: []string{"v1"}, support: model.Ineffective, reason: reasonData,
		plain: func() metav1.Object { return &corev1.ConfigMap{} }},
	{group: coreGroup, name: "Secret", versions: []string{"v1"}, support: model.Ineffective, reason: reasonData,
		plain: func() metav1.Object { return &corev1.Secret{} }},

	{group: securityGroup, name: "RequestAuthentication", versions: istioSecurity, support: model.Ineffective, reason: reasonWaypoints,
		istio: func() (metav1.Object, proto.Message) {
			o := &securityv1.RequestAuthentication{}
			return o, &o.Spec
		}},
	{group: networkGroup, name: "VirtualService", versions: istioNetwork, support: model.Ineffective, reason: reasonWaypoints,
		istio: func() (metav1.Object, proto.Message) {
			o := &networkingv1.VirtualService{}
			return o, &o.Spec
		}},
	{group: networkGroup, name: "DestinationRule", versions: istioNetwork, support: model.Ineffective, reason: reasonWaypoints,
		istio: func() (metav1.Object, proto.Message) {
			o := &networkingv1.DestinationRule{}
			return o, &o.Spec
		}},
	{group: networkGroup, name: "Gateway", versions: istioNetwork, support: model.Ineffective, reason: reasonWaypoints,
		istio: func() (metav1.Object, proto.Message) {
			o := &networkingv1.Gateway{}
			return o, &o.Spec
		}},
	{group: networkGroup, name: "ServiceEntry", versions: istioNetwork, support: model.Ineffective, reason: reasonRegistry,
		istio: func() (metav1.Object, proto.Message) {
			o := &networkingv1.ServiceEntry{}
			return o, &o.Spec
		}},
	{group: networkGroup, name: "WorkloadEntry", versions: istioNetwork, support: model.Ineffective, reason: reasonRegistry,
		istio: func() (metav1.Object, proto.Message) {
			o := &networkingv1.WorkloadEntry{}
			return o, &o.Spec
		}},
	{group: networkGroup, name: "WorkloadGroup", versions: istioNetwork, support: model.Ineffective, reason: reasonRegistry,
		istio: func() (metav1.Object, proto.Message) {
			o := &networkingv1.WorkloadGroup{}
			return o, &o.Spec
		}},
	{group: networkGroup, name: "Sidecar", versions: istioNetwork, support: model.Ineffective, reason: reasonSidecars,
		istio: func() (metav1.Object, proto.Message) {
			o := &networkingv1.Sidecar{}
			return o, &o.Spec
		}},
	{group: networkGroup, name: "EnvoyFilter", versions: []string{"v1alpha3"}, support: model.Ineffective,
		reason: "it patches Envoy's configuration, and no proxy of this mesh is Envoy",
		istio: func() (metav1.Object, proto.Message) {
			o := &networkingv1alpha3.EnvoyFilter{}
			return o, &o.Spec
		}},
	{group: networkGroup, name: "ProxyConfig", versions: []string{"v1beta1"}, support: model.Ineffective, reason: reasonSidecars,
		istio: func() (metav1.Object, proto.Message) {
			o := &networkingv1beta1.ProxyConfig{}
			return o, &o.Spec
		}},
	{group: "telemetry.istio.io", name: "Telemetry", versions: []string{"v1", "v1alpha1"}, support: model.Ineffective, reason: reasonWaypoints,
		istio: func() (metav1.Object, proto.Message) {
			o := &telemetryv1.Telemetry{}
			return o, &o.Spec
		}},
	{group: "extensions.istio.io", name: "WasmPlugin", versions: []string{"v1alpha1"}, support: model.Ineffective, reason: reasonWaypoints,
		istio: func() (metav1.Object, proto.Message) {
			o := &extensionsv1alpha1.WasmPlugin{}
			return o, &o.Spec
		}},
	kept("extensions.istio.io", "TrafficExtension", reasonWaypoints, "v1alpha1"),

	keptCluster(gatewayGroup, "GatewayClass", reasonWaypoints, "v1", "v1beta1"),
	kept(gatewayGroup, "Gateway", reasonWaypoints, "v1", "v1beta1"),
	kept(gatewayGroup, "HTTPRoute", reasonWaypoints, "v1", "v1beta1"),
	kept(gatewayGroup, "GRPCRoute", reasonWaypoints, "v1", "v1alpha2"),
	kept(gatewayGroup, "TLSRoute", reasonWaypoints, "v1", "v1alpha3", "v1alpha2"),
	kept(gatewayGroup, "TCPRoute", reasonWaypoints, "v1alpha2", "v1"),
	kept(gatewayGroup, "UDPRoute", reasonWaypoints, "v1alpha2"),
	kept(gatewayGroup, "ListenerSet", reasonWaypoints, "v1"),
	kept(gatewayGroup, "ReferenceGrant", reasonWaypoints, "v1", "v1beta1"),
	kept(gatewayGroup, "BackendTLSPolicy", reasonWaypoints, "v1", "v1alpha3"),

	kept(appsGroup, "ReplicaSet", "no engine part runs it yet; a Deployment does the same", "v1"),
	kept(appsGroup, "StatefulSet", "no engine part runs it yet", "v1"),
	kept(appsGroup, "DaemonSet", "no engine part runs it yet", "v1"),
	kept("batch", "Job", "no engine part runs it yet", "v1"),
	kept("batch", "CronJob", "no engine part runs it yet", "v1"),
	kept("networking.k8s.io", "Ingress", "this mesh has no gateways yet", "v1"),
	kept("networking.k8s.io", "NetworkPolicy", "the mesh does not filter packets; an AuthorizationPolicy says who may connect", "v1"),
	kept(coreGroup, "Endpoints", "endpoints are resolved from a Service's selector only", "v1"),
	kept("discovery.k8s.io", "EndpointSlice", "endpoints are resolved from a Service's selector only", "v1"),

	foreign(coreGroup, "PersistentVolumeClaim", false, "v1"),
	foreign(coreGroup, "PersistentVolume", true, "v1"),
	foreign(coreGroup, "ResourceQuota", false, "v1"),
	foreign(coreGroup, "LimitRange", false, "v1"),
	foreign(coreGroup, "Event", false, "v1"),
	foreign("policy", "PodDisruptionBudget", false, "v1"),
	foreign("autoscaling", "HorizontalPodAutoscaler", false, "v2", "v1"),
	foreign("rbac.authorization.k8s.io", "Role", false, "v1"),
	foreign("rbac.authorization.k8s.io", "RoleBinding", false, "v1"),
	foreign("rbac.authorization.k8s.io", "ClusterRole", true, "v1"),
	foreign("rbac.authorization.k8s.io", "ClusterRoleBinding", true, "v1"),
	foreign("scheduling.k8s.io", "PriorityClass", true, "v1"),
	foreign("storage.k8s.io", "StorageClass", true, "v1"),
	foreign("apiextensions.k8s.io", "CustomResourceDefinition", true, "v1"),
	foreign("admissionregistration.k8s.io", "ValidatingWebhookConfiguration", true, "v1"),
	foreign("admissionregistration.k8s.io", "MutatingWebhookConfiguration", true, "v1"),
})

// kept is a namespaced kind that stays in the store without any effect.
func kept(group, name, reason string, versions ...string) kind {
	return kind{group: group, name: name, versions: versions, support: model.Ineffective, reason: reason}
}

func keptCluster(group, name, reason string, versions ...string) kind {
	k := kept(group, name, reason, versions...)
	k.cluster = true
	return k
}

// foreign is a kind that has nothing to do with a mesh and usually travels with manifests that do.
func foreign(group, name string, cluster bool, versions ...string) kind {
	return kind{group: group, name: name, versions: versions, cluster: cluster, support: model.Elsewhere, reason: reasonKube}
}

type groupKind struct{ group, kind string }

func indexKinds(all []kind) map[groupKind]kind {
	m := make(map[groupKind]kind, len(all))
	for _, k := range all {
		m[groupKind{k.group, k.name}] = k
	}
	return m
}

// apiVersion renders the recommended apiVersion of k.
func (k kind) apiVersion() string {
	if k.group == "" {
		return k.versions[0]
	}
	return k.group + "/" + k.versions[0]
}

// splitAPIVersion cuts "group/version"; the core group has no slash.
func splitAPIVersion(s string) (group, version string) {
	if g, v, ok := strings.Cut(s, "/"); ok {
		return g, v
	}
	return "", s
}
