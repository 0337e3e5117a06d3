// Package analyse owns the search for objects that are valid and do not do what their author meant: a policy that names an identity which
// no pod has, a selector that chooses no pod, a rule that refuses everybody. It reads no cluster, file or clock: typed objects come in
// and findings go out, in a fixed order. How a policy is enforced is package translate's to say; this package reads its output.
package analyse

import (
	"cmp"
	"slices"
	"strings"

	networkingv1 "istio.io/client-go/pkg/apis/networking/v1"
	securityv1 "istio.io/client-go/pkg/apis/security/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"lateen.dev/lateen/internal/gen/l7"
	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/translate"
)

// Input is the objects of a mesh.
type Input struct {
	Mesh translate.Mesh
	// PathNormalization is how waypoints normalise paths before policies see them.
	PathNormalization l7.PathNormalization
	// OwnIdentityAccounts are the service accounts ("namespace/name") whose pods present a certificate of their own, captured or not.
	OwnIdentityAccounts []string

	Namespaces []*corev1.Namespace
	Pods       []*corev1.Pod
	// Deployments stand for pods that are about to be made. A selector that chooses their template, or a rule that names its account, is no mistake.
	Deployments     []*appsv1.Deployment
	WorkloadEntries []*networkingv1.WorkloadEntry
	ServiceEntries  []*networkingv1.ServiceEntry
	// ServiceAccounts are all accounts, whether a pod runs as them or not. On Kubernetes nobody lists them, and the pods' accounts are known alone.
	ServiceAccounts []*corev1.ServiceAccount

	AuthorizationPolicies []*securityv1.AuthorizationPolicy
	PeerAuthentications   []*securityv1.PeerAuthentication

	Requests Requests
}

// Requests are the objects that say which requests waypoints search for tokens.
type Requests struct {
	Authentications []*securityv1.RequestAuthentication
	Services        []*corev1.Service
	Gateways        []*gatewayv1.Gateway
	Classes         []*gatewayv1.GatewayClass
}

// Severity says how sure it is that the author meant something else.
type Severity string

// The severities.
const (
	// Warning: the object can hardly do what its author meant.
	Warning Severity = "warning"
	// Info: the object does as written, and the finding describes the effect.
	Info Severity = "info"
)

// State is the state of an object because of a finding. It is empty if the object is in force as it is written.
type State string

// The states.
const (
	Ineffective State = "ineffective" // the object changes nothing
	Partial     State = "partial"     // in force, and not all of it, or not as it was meant
	RefusingAll State = "refuses-all" // in force, and lets nobody connect, which its author can hardly mean
	DryRun      State = "dry-run"     // the policy reports, and enforces nothing
)

// Code names a kind of finding. Codes are part of the command line's contract: they are added, never renamed.
type Code string

// The codes.
const (
	PrincipalScheme       Code = "principal-scheme"        // a principal begins with spiffe://
	PrincipalForm         Code = "principal-form"          // a principal is not trust-domain/ns/namespace/sa/account
	ForeignTrustDomain    Code = "foreign-trust-domain"    // a principal is of another trust domain than the mesh
	UnknownNamespace      Code = "unknown-namespace"       // a rule names a namespace that does not exist
	UnknownServiceAccount Code = "unknown-service-account" // a rule names an account that does not exist
	UnmatchedPattern      Code = "unmatched-pattern"       // a pattern of a rule matches no identity
	PeerWithoutPods       Code = "peer-without-pods"       // a rule names an account or namespace that no pod has now
	PeerNotEnrolled       Code = "peer-not-enrolled"       // the pods that a rule names connect without an identity
	UndeclaredPort        Code = "undeclared-port"         // a rule names a port that no container declares
	UnmatchedPath         Code = "unmatched-path"          // a rule for waypoints has a pattern that matches no path
	EscapedPath           Code = "escaped-path"            // a rule for waypoints has a pattern that matches paths with escapes alone

	SelectsNoPod         Code = "selects-no-pod"         // no pod has the labels of a selector
	NamespaceMissing     Code = "namespace-missing"      // the policy's own namespace does not exist
	NamespaceWithoutPods Code = "namespace-without-pods" // nothing runs in the policy's namespace
	NotEnforced          Code = "not-enforced"           // pods that the policy chooses are not enrolled
	Unsupported          Code = "unsupported"            // node proxies do not enforce the policy
	PartlyEnforced       Code = "partly-enforced"        // node proxies enforce a part of the policy
	RefusesAll           Code = "refuses-all"            // an ALLOW policy that lets nobody connect
	AllowsNothing        Code = "allows-nothing"         // an ALLOW policy that adds nothing to other ALLOW policies
	DeniesAll            Code = "denies-all"             // a DENY policy that lets nobody connect
	DeniesNothing        Code = "denies-nothing"         // a DENY policy that matches nobody
	PolicyDryRun         Code = "dry-run"                // the policy only reports

	UntypedPort Code = "untyped-port" // a port without a protocol, of a service behind a RequestAuthentication

	UnknownMode    Code = "unknown-dataplane-mode" // the label istio.io/dataplane-mode has a value without meaning
	InjectionLabel Code = "injection-label"        // the namespace asks for sidecars
)

// Object names the object of a finding.
type Object struct {
	Group     string `json:"group,omitempty"`
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

// Key is the object's key in the model.
func (o Object) Key() model.Key {
	return model.Key{Group: o.Group, Kind: o.Kind, Namespace: o.Namespace, Name: o.Name}
}

func objectOf(k model.Key) Object {
	return Object{Group: k.Group, Kind: k.Kind, Namespace: k.Namespace, Name: k.Name}
}

// Finding is one thing that the author of an object should know. Its JSON form is part of the command line's contract: fields are added,
// never renamed.
type Finding struct {
	Object   Object   `json:"object"`
	Code     Code     `json:"code"`
	Severity Severity `json:"severity"`
	State    State    `json:"state,omitempty"`
	// Field is where in the object it stands, as in spec.rules[0].from[0].source.principals[1]; empty for the object as a whole.
	Field string `json:"field,omitempty"`
	// Message is a sentence without the object's name and without its full stop.
	Message string `json:"message"`
	// Fix is the remedy; empty if none is needed.
	Fix string `json:"fix,omitempty"`
	// Pods are the first of the pods concerned ("namespace/name"), and MorePods is how many others there are.
	Pods     []string `json:"pods,omitempty"`
	MorePods int      `json:"morePods,omitempty"`
}

// analysis is the findings under construction.
type analysis struct {
	*Input
	*index
	out []Finding
}

// kinds are the kinds of the objects that findings are about.
var kinds = []string{"AuthorizationPolicy", "Namespace", "PeerAuthentication", "RequestAuthentication"}

// Judges reports whether findings can be about objects of this kind, in any case of letters.
func Judges(kind string) bool {
	return slices.ContainsFunc(kinds, func(k string) bool { return strings.EqualFold(k, kind) })
}

// Analyse returns the findings about all objects, ordered by object; of one object warnings come first. The work grows with
// the pods, with the policies and with the pods that each selector chooses, not with pods times policies.
func Analyse(in *Input) []Finding { return analyse(in).out }

func analyse(in *Input) *analysis {
	a := &analysis{Input: in, index: newIndex(in)}
	a.namespaceLabels()
	for _, p := range a.policies {
		a.authorization(p)
	}
	for _, p := range in.PeerAuthentications {
		a.peerAuthentication(p)
	}
	if len(in.Requests.Authentications) > 0 {
		untyped := untypedServices(in, a.namespaces)
		for _, p := range in.Requests.Authentications {
			a.requestAuthentication(p, untyped)
		}
	}
	slices.SortStableFunc(a.out, func(x, y Finding) int {
		return cmp.Or(x.Object.Key().Compare(y.Object.Key()), cmp.Compare(rank(x), rank(y)), strings.Compare(x.Field, y.Field), strings.Compare(x.Message, y.Message))
	})
	return a
}

// rank orders the findings of one object: warnings first, then findings that make the object ineffective, then findings about the whole object.
func rank(f Finding) int {
	n := 0
	if f.Severity != Warning {
		n += 4
	}
	if f.State != Ineffective {
		n += 2
	}
	if f.Field != "" {
		n++
	}
	return n
}

func (a *analysis) add(about model.Key, f Finding) {
	f.Object = objectOf(about)
	a.out = append(a.out, f)
}
