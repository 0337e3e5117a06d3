package api

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
)

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

// shared are the API versions of the kinds whose name several groups have. The first is that of the kind without a group.
var shared = map[string][]string{"Gateway": {"gateway.networking.k8s.io/v1", "networking.istio.io/v1"}}

// SharedKind lists the API groups that have a kind of the name; nil if only one has. The name is spelled as in Kind.Name.
func SharedKind(name string) []string {
	var groups []string
	for _, version := range shared[name] {
		group, _, _ := strings.Cut(version, "/")
		groups = append(groups, group)
	}
	return groups
}

// SharedGroup is the group of a kind as Key.Group has it: empty for a kind whose name tells its group.
func SharedGroup(kind, group string) string {
	if len(shared[kind]) == 0 {
		return ""
	}
	return group
}

// NamedGroup is the group that a word such as gateways.networking.istio.io names. It is empty if the word names none, or if the kind alone
// tells the group.
func NamedGroup(word string) string {
	name, group, _ := strings.Cut(strings.ToLower(word), ".")
	k, _ := LookupKind(name)
	return SharedGroup(k.Name, group)
}

// Ambiguous is the error of a request for an object by a name that objects of several groups have. Its fix names every spelling.
func Ambiguous(k Key) *Error {
	kind, _ := LookupKind(k.Kind)
	var spellings []string
	for _, group := range SharedKind(kind.Name) {
		spellings = append(spellings, kind.Plural+"."+group)
	}
	return &Error{Code: http.StatusConflict, Message: fmt.Sprintf("%s %q is in several API groups", strings.ToLower(k.Kind), k.Name),
		Fix: "write " + strings.Join(spellings, " or ") + " in place of the kind"}
}

// LookupKind finds a kind by its name, plural or short name, in any case. An API group may follow after a dot; it tells apart kinds of the
// same name, and a group that has no such kind is not found.
func LookupKind(s string) (Kind, bool) {
	s, group, qualified := strings.Cut(strings.ToLower(s), ".")
	for _, k := range kinds {
		if s != strings.ToLower(k.Name) && s != k.Plural && !slices.Contains(k.Short, s) {
			continue
		}
		if !qualified || len(shared[k.Name]) == 0 {
			return k, true
		}
		for _, version := range shared[k.Name] {
			if strings.HasPrefix(version, group+"/") {
				k.APIVersion = version
				return k, true
			}
		}
		return Kind{}, false
	}
	return Kind{}, false
}
