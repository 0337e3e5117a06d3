package conditions

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/model/wellknown"
	"lateen.dev/lateen/internal/replica"
	"lateen.dev/lateen/internal/translate"
)

// gatewayStatus is what a Gateway's status says beside conditions: of its listeners, and where it is found.
type gatewayStatus struct {
	listeners []listener
	// addresses are those that the mesh goes by; kept says that they are somebody else's, and left alone.
	addresses []address
	kept      bool
	// others says that a controller which is neither this mesh's nor Istio's wrote a condition of the Gateway.
	others bool
	// istios says that the condition Programmed is Istio's: what its proxies had acknowledged says nothing of this mesh's.
	istios bool
}

type listener struct {
	name       string
	conditions []Condition
	// odd says that there stands something that is never written here.
	odd bool
}

type address struct{ kind, value string }

// The Gateway API's reasons of what is not programmed. A listener waits for what its Gateway waits for.
const (
	reasonPending     = string(gatewayv1.ListenerReasonPending)
	reasonNoResources = string(gatewayv1.GatewayReasonNoResources)
)

// gateway works out what is to be said of a waypoint. has says whether the proxies have it.
func (w *Writer) gateway(e model.Entry, version replica.Version, has model.Condition, present *gatewayStatus) *gatewayStatus {
	gw, ok := e.Object.Value.(*gatewayv1.Gateway)
	if !ok {
		return nil
	}
	out := &gatewayStatus{}
	for _, l := range e.Listeners() {
		at := listener{name: l.Name}
		for _, c := range l.Conditions {
			at.conditions = append(at.conditions, told(c.Type, c, version))
			if c.Type == accepted {
				at.conditions = append(at.conditions, told(programmed, listenerProgrammed(c, has), version))
			}
		}
		out.listeners = append(out.listeners, at)
	}
	own := address{string(gatewayv1.HostnameAddressType), translate.OwnAddress(w.Mesh, gw)}
	// Whoever runs the waypoint says where.
	out.kept = addressOfOthers(gw, own.value) || present != nil && slices.ContainsFunc(present.addresses, func(a address) bool { return a.value != own.value })
	if _, has := w.Store.Service(model.ServiceKey(gw.Namespace, gw.Name)); has {
		out.addresses = []address{own}
	}
	return out
}

// reachable says whether a Gateway that the proxies have can be used: whether its Service has an address, and a pod is ready behind it. has is
// what is to be said of one that can. A Gateway that could be used stays so while its pods come and go, unless somebody must do something
// about them. During a rollout one ready pod is enough.
func (w *Writer) reachable(e model.Entry, has model.Condition, present written) model.Condition {
	gw, ok := e.Object.Value.(*gatewayv1.Gateway)
	if !ok {
		return has
	}
	name := gw.Namespace + "/" + gw.Name
	if svc, there := w.Store.Service(model.ServiceKey(gw.Namespace, gw.Name)); there && svc.Spec.ClusterIP == "" && svc.Spec.Type != corev1.ServiceTypeExternalName && !addressOfOthers(gw, translate.OwnAddress(w.Mesh, gw)) {
		return model.Condition{Status: model.False, Reason: reasonNoAddress, Message: "Service " + name + " has no address yet"}
	}
	if !e.Unready() {
		return has
	}
	out := model.Condition{Status: model.False, Reason: reasonPending, Message: "no pod behind Service " + name + " is ready"}
	c := deployed(gw)
	if c == nil {
		return out // somebody else runs its pods
	}
	if c.Status != metav1.ConditionTrue && c.Reason != wellknown.ReasonProgressing {
		out.Reason = reasonNoResources
	} else if present.uid == string(gw.UID) && slices.ContainsFunc(present.conditions, func(c Condition) bool { return c.Type == programmed && c.Status == string(model.True) }) {
		return has
	}
	out.Message += ": " + c.Message
	return out
}

// addressOfOthers says whether a Gateway is found at another address than that of the Service of its name.
func addressOfOthers(gw *gatewayv1.Gateway, own string) bool {
	return slices.ContainsFunc(gw.Status.Addresses, func(a gatewayv1.GatewayStatusAddress) bool { return a.Value != own })
}

// listenerProgrammed says whether the proxies have a listener, by whether it is accepted and whether they have its Gateway.
func listenerProgrammed(taken, has model.Condition) model.Condition {
	switch {
	case taken.Status != model.True:
		return model.Condition{Status: model.False, Reason: reasonInvalid, Message: "nothing is made of it for the proxies: see " + accepted}
	case has.Status == model.True:
		return model.Condition{Status: model.True, Reason: programmed, Message: has.Message}
	}
	return model.Condition{Status: has.Status, Reason: reasonPending, Message: has.Message}
}

// invalid names the listeners that are not used.
func (g *gatewayStatus) invalid() (names []string) {
	for _, l := range g.listeners {
		if slices.ContainsFunc(l.conditions, func(c Condition) bool { return c.Type == accepted && c.Status != string(model.True) }) {
			names = append(names, l.name)
		}
	}
	return names
}

// readGateway takes what is said of a Gateway out of its status; nil for what is none.
func readGateway(u *unstructured.Unstructured) *gatewayStatus {
	if u.GetKind() != "Gateway" {
		return nil
	}
	out := &gatewayStatus{others: toldByOthers(u), istios: programmedByIstio(u)}
	each := func(field string, f func(map[string]any)) {
		list, _, _ := unstructured.NestedFieldNoCopy(u.Object, "status", field)
		all, _ := list.([]any)
		for _, raw := range all {
			if m, ok := raw.(map[string]any); ok {
				f(m)
			}
		}
	}
	each("addresses", func(m map[string]any) {
		out.addresses = append(out.addresses, address{cmp.Or(text(m, "type"), string(gatewayv1.IPAddressType)), text(m, "value")})
	})
	each("listeners", func(m map[string]any) {
		kinds, _ := m["supportedKinds"].([]any)
		l := listener{name: text(m, "name"), odd: number(m["attachedRoutes"]) != 0 || len(kinds) > 0}
		list, _ := m["conditions"].([]any)
		for _, raw := range list {
			if c, ok := raw.(map[string]any); ok {
				l.conditions = append(l.conditions, asCondition(c))
			}
		}
		out.listeners = append(out.listeners, l)
	})
	return out
}

// same says whether a status says what is wanted, whenever it came to be.
func (g *gatewayStatus) same(want *gatewayStatus) bool {
	return (want.kept || slices.Equal(g.addresses, want.addresses)) && slices.EqualFunc(g.listeners, want.listeners, func(a, b listener) bool {
		return a.name == b.name && !a.odd && same(a.conditions, b.conditions)
	})
}

// since gives the listeners' conditions the times when they came to be.
func (g *gatewayStatus) since(now *gatewayStatus, at string) {
	if g == nil {
		return
	}
	for i := range g.listeners {
		var before []Condition
		if now != nil {
			if j := slices.IndexFunc(now.listeners, func(l listener) bool { return l.name == g.listeners[i].name }); j >= 0 {
				before = now.listeners[j].conditions
			}
		}
		g.listeners[i].conditions = since(g.listeners[i].conditions, before, at)
	}
}

// into writes it into a merge patch of a status. No route is attached to anything: none has an effect in this version.
func (g *gatewayStatus) into(status map[string]any) {
	if g == nil {
		return
	}
	listeners := []any{}
	for _, l := range g.listeners {
		conditions := []any{}
		for _, c := range l.conditions {
			raw := map[string]any{}
			c.into(raw)
			conditions = append(conditions, raw)
		}
		listeners = append(listeners, map[string]any{"name": l.name, "attachedRoutes": 0, "supportedKinds": []any{}, "conditions": conditions})
	}
	status["listeners"] = listeners
	if g.kept {
		return
	}
	if len(g.addresses) == 0 {
		status["addresses"] = nil
		return
	}
	addresses := []any{}
	for _, a := range g.addresses {
		addresses = append(addresses, map[string]any{"type": a.kind, "value": a.value})
	}
	status["addresses"] = addresses
}
