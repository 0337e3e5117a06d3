package api

import "strings"

// Kind is one kind of object that the engine stores, with every way to spell it.
type Kind struct {
	Name       string   // "Deployment"
	Plural     string   // "deployments"
	Short      []string // "deploy"
	APIVersion string   // "apps/v1"
	Namespaced bool
}

// Kinds are the kinds users meet most, in the order in which `get all` and completion list them.
// A kind that is not here can still be applied; LookupKind then needs its exact name.
var kinds = []Kind{
	{"Namespace", "namespaces", []string{"ns"}, "v1", false},
	{"Node", "nodes", []string{"no"}, "v1", false},
	{"ServiceAccount", "serviceaccounts", []string{"sa"}, "v1", true},
	{"Pod", "pods", []string{"po"}, "v1", true},
	{"Service", "services", []string{"svc"}, "v1", true},
	{"Deployment", "deployments", []string{"deploy"}, "apps/v1", true},
	{"AuthorizationPolicy", "authorizationpolicies", []string{"ap"}, "security.istio.io/v1", true},
	{"PeerAuthentication", "peerauthentications", []string{"pa"}, "security.istio.io/v1", true},
	{"RequestAuthentication", "requestauthentications", []string{"ra"}, "security.istio.io/v1", true},
	{"VirtualService", "virtualservices", []string{"vs"}, "networking.istio.io/v1", true},
	{"DestinationRule", "destinationrules", []string{"dr"}, "networking.istio.io/v1", true},
	{"ServiceEntry", "serviceentries", []string{"se"}, "networking.istio.io/v1", true},
	{"Sidecar", "sidecars", nil, "networking.istio.io/v1", true},
	{"WorkloadEntry", "workloadentries", []string{"we"}, "networking.istio.io/v1", true},
	{"EnvoyFilter", "envoyfilters", nil, "networking.istio.io/v1alpha3", true},
	{"Telemetry", "telemetries", []string{"telemetry"}, "telemetry.istio.io/v1", true},
	{"WasmPlugin", "wasmplugins", nil, "extensions.istio.io/v1alpha1", true},
	{"Gateway", "gateways", []string{"gtw"}, "gateway.networking.k8s.io/v1", true},
	{"GatewayClass", "gatewayclasses", []string{"gc"}, "gateway.networking.k8s.io/v1", false},
	{"HTTPRoute", "httproutes", nil, "gateway.networking.k8s.io/v1", true},
	{"GRPCRoute", "grpcroutes", nil, "gateway.networking.k8s.io/v1", true},
	{"ConfigMap", "configmaps", []string{"cm"}, "v1", true},
	{"Secret", "secrets", nil, "v1", true},
}

// Kinds lists the kinds users meet most.
func Kinds() []Kind { return append([]Kind(nil), kinds...) }

// LookupKind finds a kind by its name, plural or short name, in any case.
func LookupKind(s string) (Kind, bool) {
	s, _, _ = strings.Cut(strings.ToLower(s), ".")
	for _, k := range kinds {
		if s == strings.ToLower(k.Name) || s == k.Plural {
			return k, true
		}
		for _, short := range k.Short {
			if s == short {
				return k, true
			}
		}
	}
	return Kind{}, false
}
