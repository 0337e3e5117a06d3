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
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

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
	// written finds in the spec's JSON what the decoded object no longer tells.
	written func(spec []byte) []fault
	// check finds what the types cannot say.
	check func(metav1.Object) []fault
	// reads, if set, says of an object of an ineffective kind whether the mesh reads it all the same.
	reads func(metav1.Object) bool
	// admit fills in what an API server's admission would; nil if that is nothing the mesh reads.
	admit func(metav1.Object)
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
	reasonUnread    = "waypoints of this mesh do not read it yet, and node proxies work at L4"
	reasonExtension = "waypoints of this mesh run no extensions"
	reasonTelemetry = "waypoints of this mesh log as the MeshConfig says and count by themselves; they do not read it yet"
	reasonGateways  = "this mesh has no gateways for traffic from outside yet"
	reasonSidecars  = "it configures sidecars, and this mesh has none"

	reasonRegistration = "machines do not register themselves; write a WorkloadEntry for each"
)

var (
	istioSecurity = []string{"v1", "v1beta1"}
	istioNetwork  = []string{"v1", "v1beta1", "v1alpha3"}
)

// kinds lists every kind that a user of Kubernetes and Istio may reasonably hand over.
var kinds = indexKinds([]kind{
	{group: coreGroup, name: "Namespace", versions: []string{"v1"}, cluster: true, plain: plain[corev1.Namespace]},
	{group: coreGroup, name: "Node", versions: []string{"v1"}, cluster: true, plain: plain[corev1.Node]},
	{group: coreGroup, name: "ServiceAccount", versions: []string{"v1"}, plain: plain[corev1.ServiceAccount]},
	{group: coreGroup, name: "Service", versions: []string{"v1"}, plain: plain[corev1.Service], check: checkService},
	{group: coreGroup, name: "Pod", versions: []string{"v1"}, plain: plain[corev1.Pod], check: checkPod, admit: admitPod},
	{group: securityGroup, name: "AuthorizationPolicy", versions: istioSecurity, check: checkAuthorizationPolicy, written: checkRulesWritten,
		istio: istio(func(o *securityv1.AuthorizationPolicy) proto.Message { return &o.Spec })},
	{group: securityGroup, name: "PeerAuthentication", versions: istioSecurity, check: checkPeerAuthentication,
		istio: istio(func(o *securityv1.PeerAuthentication) proto.Message { return &o.Spec })},
	{group: securityGroup, name: "RequestAuthentication", versions: istioSecurity, check: checkRequestAuthentication,
		istio: istio(func(o *securityv1.RequestAuthentication) proto.Message { return &o.Spec })},
	{group: networkGroup, name: "ServiceEntry", versions: istioNetwork, check: checkServiceEntry,
		istio: istio(func(o *networkingv1.ServiceEntry) proto.Message { return &o.Spec })},
	{group: networkGroup, name: "WorkloadEntry", versions: istioNetwork, check: checkWorkloadEntry,
		istio: istio(func(o *networkingv1.WorkloadEntry) proto.Message { return &o.Spec })},
	{group: gatewayGroup, name: "GatewayClass", versions: []string{"v1", "v1beta1"}, cluster: true, plain: plain[gatewayv1.GatewayClass]},
	{group: gatewayGroup, name: "Gateway", versions: []string{"v1", "v1beta1"}, plain: plain[gatewayv1.Gateway], check: checkGateway},

	{group: appsGroup, name: "Deployment", versions: []string{"v1"}, support: model.Elsewhere, reason: reasonEngine,
		plain: plain[appsv1.Deployment], check: checkDeployment},
	{group: coreGroup, name: "ConfigMap", versions: []string{"v1"}, support: model.Ineffective, reason: reasonData, plain: plain[corev1.ConfigMap], check: checkConfigMap, reads: isMeshConfig},
	{group: coreGroup, name: "Secret", versions: []string{"v1"}, support: model.Ineffective, reason: reasonData, plain: plain[corev1.Secret]},

	without(networkGroup, "VirtualService", reasonUnread, istioNetwork, istio(func(o *networkingv1.VirtualService) proto.Message { return &o.Spec })),
	without(networkGroup, "DestinationRule", reasonUnread, istioNetwork, istio(func(o *networkingv1.DestinationRule) proto.Message { return &o.Spec })),
	without(networkGroup, "Gateway", reasonGateways, istioNetwork, istio(func(o *networkingv1.Gateway) proto.Message { return &o.Spec })),
	without(networkGroup, "WorkloadGroup", reasonRegistration, istioNetwork, istio(func(o *networkingv1.WorkloadGroup) proto.Message { return &o.Spec })),
	without(networkGroup, "Sidecar", reasonSidecars, istioNetwork, istio(func(o *networkingv1.Sidecar) proto.Message { return &o.Spec })),
	without(networkGroup, "EnvoyFilter", "it patches Envoy's configuration, and no proxy of this mesh is Envoy", []string{"v1alpha3"},
		istio(func(o *networkingv1alpha3.EnvoyFilter) proto.Message { return &o.Spec })),
	without(networkGroup, "ProxyConfig", reasonSidecars, []string{"v1beta1"}, istio(func(o *networkingv1beta1.ProxyConfig) proto.Message { return &o.Spec })),
	without("telemetry.istio.io", "Telemetry", reasonTelemetry, []string{"v1", "v1alpha1"}, istio(func(o *telemetryv1.Telemetry) proto.Message { return &o.Spec })),
	without("extensions.istio.io", "WasmPlugin", reasonExtension, []string{"v1alpha1"}, istio(func(o *extensionsv1alpha1.WasmPlugin) proto.Message { return &o.Spec })),
	kept("extensions.istio.io", "TrafficExtension", reasonExtension, "v1alpha1"),

	kept(gatewayGroup, "HTTPRoute", reasonUnread, "v1", "v1beta1"),
	kept(gatewayGroup, "GRPCRoute", reasonUnread, "v1", "v1alpha2"),
	kept(gatewayGroup, "TLSRoute", reasonUnread, "v1", "v1alpha3", "v1alpha2"),
	kept(gatewayGroup, "TCPRoute", reasonUnread, "v1alpha2", "v1"),
	kept(gatewayGroup, "UDPRoute", reasonUnread, "v1alpha2"),
	kept(gatewayGroup, "ListenerSet", reasonGateways, "v1"),
	kept(gatewayGroup, "ReferenceGrant", reasonUnread, "v1", "v1beta1"),
	kept(gatewayGroup, "BackendTLSPolicy", reasonUnread, "v1", "v1alpha3"),

	kept(appsGroup, "ReplicaSet", "local meshes cannot run ReplicaSets; a Deployment does the same", "v1"),
	kept(appsGroup, "StatefulSet", "local meshes cannot run StatefulSets; Pods with spec.hostname, and with a headless Service's name as spec.subdomain, have stable names, too", "v1"),
	kept(appsGroup, "DaemonSet", "local meshes cannot run DaemonSets", "v1"),
	kept("batch", "Job", "local meshes cannot run Jobs", "v1"),
	kept("batch", "CronJob", "local meshes cannot run CronJobs", "v1"),
	kept("networking.k8s.io", "Ingress", reasonGateways, "v1"),
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

// without is a namespaced kind that is read strictly and has no effect.
func without(group, name, reason string, versions []string, decode func() (metav1.Object, proto.Message)) kind {
	k := kept(group, name, reason, versions...)
	k.istio = decode
	return k
}

// plain makes an empty object of a Kubernetes type.
func plain[T any, P interface {
	*T
	metav1.Object
}]() metav1.Object {
	return P(new(T))
}

// istio makes an empty object of an Istio type and hands out its spec.
func istio[T any, P interface {
	*T
	metav1.Object
}](spec func(P) proto.Message) func() (metav1.Object, proto.Message) {
	return func() (metav1.Object, proto.Message) {
		o := P(new(T))
		return o, spec(o)
	}
}

// foreign is a kind that has nothing to do with a mesh and usually travels with manifests that do.
func foreign(group, name string, cluster bool, versions ...string) kind {
	return kind{group: group, name: name, versions: versions, cluster: cluster, support: model.Elsewhere, reason: reasonKube}
}

// KindNamed finds a kind that can be stored by its name or its plural, in any case.
func KindNamed(word string) (name string, namespaced, known bool) {
	word, _, _ = strings.Cut(strings.ToLower(word), ".")
	for _, k := range kinds {
		if singular := strings.ToLower(k.name); word == singular || word == plural(singular) {
			return k.name, !k.cluster, true
		}
	}
	return "", false, false
}

// plural is the resource name of a kind, as Kubernetes forms it.
func plural(singular string) string {
	switch {
	case strings.HasSuffix(singular, "endpoints"):
		return singular
	case strings.HasSuffix(singular, "y") && !strings.HasSuffix(singular, "ay"):
		return strings.TrimSuffix(singular, "y") + "ies"
	case strings.HasSuffix(singular, "s"):
		return singular + "es"
	}
	return singular + "s"
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
