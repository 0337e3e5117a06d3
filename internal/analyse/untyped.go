package analyse

import (
	"fmt"
	"slices"
	"strings"

	typev1beta1 "istio.io/api/type/v1beta1"
	securityv1 "istio.io/client-go/pkg/apis/security/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/translate"
)

// untyped is a service behind a waypoint that has ports without a protocol.
type untyped struct {
	key model.Key
	// waypoint is "namespace/name".
	waypoint string
	// classes are those whose policies the waypoint has.
	classes []string
	ports   []string
}

// text names the ports.
func (u untyped) text() string {
	noun := "port "
	if len(u.ports) > 1 {
		noun = "ports "
	}
	return noun + more(u.ports[:min(len(u.ports), namedPods)], len(u.ports)) + " of " + u.key.String()
}

// fix says where the author names the protocol.
func (u untyped) fix() string {
	if u.key.Kind == "ServiceEntry" {
		return "set spec.ports[].protocol of the ServiceEntry to HTTP, or to TCP if it carries no requests"
	}
	return "set appProtocol of the Service's port to http, or to tcp if it carries no requests"
}

// untypedServices are the services behind this mesh's waypoints that have ports without a protocol, in the order of their keys.
func untypedServices(in *Input, namespaces map[string]*corev1.Namespace) (out []untyped) {
	classes := map[string]int{}
	for i, c := range in.Requests.Classes {
		classes[c.Name] = i + 1
	}
	served := map[string]*translate.Waypoint{}
	for _, g := range in.Requests.Gateways {
		w := translate.Served(in.Mesh, g, nil)
		if i := classes[string(g.Spec.GatewayClassName)]; i > 0 {
			w = translate.Served(in.Mesh, g, in.Requests.Classes[i-1])
		}
		if w != nil {
			served[w.Ref()] = w
		}
	}
	if len(served) == 0 {
		return nil
	}
	look := func(key model.Key, o metav1.Object, ports []string, intent func(translate.Context) translate.Intent) {
		if len(ports) == 0 {
			return
		}
		asks := intent(translate.Context{Namespace: namespaces[o.GetNamespace()], Servers: func(ns, name string) *translate.Waypoint { return served[ns+"/"+name] }})
		if len(asks.Gateways) > 0 {
			w := asks.Gateways[0]
			out = append(out, untyped{key, w.Ref(), w.Classes(), ports})
		}
	}
	for _, s := range in.Requests.Services {
		look(model.ServiceKey(s.Namespace, s.Name), s, translate.UntypedPorts(s), func(ctx translate.Context) translate.Intent { return translate.ServiceIntent(s, ctx) })
	}
	for _, e := range in.ServiceEntries {
		look(model.ServiceEntryKey(e.Namespace, e.Name), e, translate.UntypedEntryPorts(e), func(ctx translate.Context) translate.Intent { return translate.EntryIntent(e, ctx) })
	}
	slices.SortFunc(out, func(a, b untyped) int { return a.key.Compare(b.key) })
	return out
}

// requestAuthentication names the ports without a protocol of the services that a RequestAuthentication holds for. A waypoint looks there at the first
// bytes, and refuses text that is no valid request.
func (a *analysis) requestAuthentication(ra *securityv1.RequestAuthentication, all []untyped) {
	if len(ra.Spec.GetJwtRules()) == 0 {
		return // it asks for no token
	}
	key := model.Key{Group: model.SecurityGroup, Kind: "RequestAuthentication", Namespace: ra.Namespace, Name: ra.Name}
	for i, ref := range translate.AuthenticationTargets(ra) {
		var names, fixes []string
		for _, u := range all {
			if u.targeted(a.Mesh, ra.Namespace, ref) {
				names = append(names, u.text())
				fixes = append(fixes, u.fix())
			}
		}
		if len(names) == 0 {
			continue
		}
		has := "has"
		if len(names) > 1 || strings.HasPrefix(names[0], "ports ") {
			has = "have"
		}
		a.add(key, Finding{Code: UntypedPort, Severity: Info, Field: fmt.Sprintf("spec.targetRefs[%d]", i),
			Message: more(names[:min(len(names), namedPods)], len(names)) + " " + has + " no protocol that the mesh knows: text that is no valid request is refused there, since a server might read a request with a token in it",
			Fix:     strings.Join(slices.Compact(slices.Sorted(slices.Values(fixes))), "; ")})
	}
}

// targeted says whether a targetRef of a policy of a namespace has the policy hold for a service.
func (u untyped) targeted(mesh translate.Mesh, namespace string, ref *typev1beta1.PolicyTargetReference) bool {
	if ref.GetNamespace() != "" && ref.GetNamespace() != namespace {
		return false
	}
	switch group := translate.TargetGroup(ref); {
	case group == model.GatewayGroup && ref.GetKind() == "Gateway":
		return u.waypoint == namespace+"/"+ref.GetName()
	case group == model.GatewayGroup && ref.GetKind() == "GatewayClass":
		return namespace == mesh.RootNamespace && slices.Contains(u.classes, ref.GetName())
	default:
		return u.key == model.Key{Group: group, Kind: ref.GetKind(), Namespace: namespace, Name: ref.GetName()}
	}
}
