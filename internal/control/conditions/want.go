package conditions

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"lateen.dev/lateen/internal/control/conditions/withdraw"
	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/model/wellknown"
	"lateen.dev/lateen/internal/replica"
	kubesource "lateen.dev/lateen/internal/source/kube"
	"lateen.dev/lateen/internal/waypoint"
)

// The types of conditions that are written. On Gateways and their classes they are the Gateway API's, on Services Istio's.
const (
	accepted   = "Accepted"
	programmed = "Programmed"
	// bound is how the model calls that connections go through a waypoint.
	bound = "WaypointBound"
)

// Reasons of the Gateway API, and of Istio for what is not bound to the waypoint that it asks for.
const (
	reasonNoAddress = "AddressNotAssigned"
	reasonInvalid   = "Invalid"
)

var unbound = []string{"WaypointIsNotReady", "AttachmentDenied", "UnsupportedTrafficType", "CrossNamespaceWaypointForbidden"}

// Condition is one that is, or is to be, in an object's status.
type Condition struct {
	Type, Status, Reason, Message string
	Generation                    int64 // of the object; 0 for a kind that has none
	Since                         string
}

// alike says whether two say the same, whenever it came to be.
func (c Condition) alike(o Condition) bool {
	o.Since = c.Since
	return c == o
}

// wanted is what an object's status is to say, but for when it came to be.
type wanted struct {
	uid        string
	conditions []Condition
	parents    []parent       // how it stands to its parents; empty if it has none
	gateway    *gatewayStatus // nil unless it is a Gateway
}

// told is a condition as it is written into a status.
func told(kind string, c model.Condition, version replica.Version) Condition {
	return Condition{Type: kind, Status: string(c.Status), Reason: c.Reason, Message: clip(c.Message), Generation: version.Generation}
}

// owned are the types of conditions of a kind that are ours; all others are left alone.
func owned(key model.Key) []string { return withdraw.Types(key.Group) }

// kinds are those whose objects have conditions written.
func kinds(key model.Key) bool {
	return replica.Kinds(key) || key.Group == model.GatewayGroup && key.Kind == "GatewayClass"
}

// want works out what is to be said of an object of which present is said now. ok is false if there is no such object, or if it is none of
// ours.
func (w *Writer) want(key model.Key, present written) (_ wanted, ok bool) {
	refused, isRefused := w.Cluster.Refusal(key)
	e, live := w.Store.Entry(key)
	if isRefused {
		// The object may not be in the store at all, or with the version before.
		if key.Kind == "Gateway" || key.Kind == "GatewayClass" {
			if !live || !w.ours(e.Object, present) {
				return wanted{}, false // whose it is cannot be read
			}
		}
		types := owned(key)
		taken, has := w.refusal(key, refused, e.Object)
		return wanted{conditions: []Condition{
			{Type: accepted, Status: string(taken.Status), Reason: taken.Reason, Message: taken.Message, Generation: refused.Generation},
			{Type: types[len(types)-1], Status: string(has.Status), Reason: has.Reason, Message: has.Message, Generation: refused.Generation},
		}}, true
	}
	if !live {
		return wanted{}, false
	}
	version := replica.VersionOf(e.Object)
	out := wanted{uid: version.UID, parents: parents(e.Parents(), version)}
	said := map[string]model.Condition{}
	for _, c := range e.Conditions {
		said[c.Type] = c
	}
	add := func(kind string, c model.Condition) { out.conditions = append(out.conditions, told(kind, c, version)) }
	taken, known := said[accepted]
	through, isBound := said[bound]
	if !isBound && known && slices.Contains(unbound, taken.Reason) {
		through, isBound = model.Condition{Status: model.False, Reason: taken.Reason, Message: taken.Message}, true
	}
	switch key.Group {
	case "":
		if isBound {
			add(wellknown.WaypointBound, through)
		}
		return out, true
	case model.GatewayGroup:
		if !w.ours(e.Object, present) {
			return wanted{}, false
		}
		if !known {
			return out, true
		}
		if present.gateway != nil && present.gateway.istios {
			present.conditions = nil // an earlier Programmed is kept, and Istio's is none of this mesh
		}
		if key.Kind == "GatewayClass" {
			add(accepted, model.Condition{Status: model.True, Reason: accepted, Message: "Gateways of this class are waypoints"})
			return out, true
		}
		has := taken
		if taken.Status == model.False && taken.Reason == reasonNoAddress {
			taken = model.Condition{Status: model.True, Reason: accepted, Message: "it is a waypoint"}
		} else {
			if has = w.programmed(key, version, taken, present, programmed); has.Status == model.True {
				has = w.reachable(e, has, present)
			}
		}
		out.gateway = w.gateway(e, version, has, present.gateway)
		if names := out.gateway.invalid(); len(names) > 0 && taken.Reason == accepted {
			taken.Reason, taken.Message = string(gatewayv1.GatewayReasonListenersNotValid), "listeners that node proxies do not use: "+strings.Join(names, ", ")
		}
		add(accepted, taken)
		add(programmed, has)
		return out, true
	}
	if !known {
		return out, true // it is being compiled
	}
	add(accepted, taken)
	if isBound {
		add(wellknown.WaypointBound, through)
	}
	if attached, has := said[wellknown.WaypointAccepted]; has {
		add(wellknown.WaypointAccepted, attached)
	}
	add(wellknown.Programmed, w.programmed(key, version, taken, present, wellknown.Programmed))
	return out, true
}

// refusal is what is said of an object of which the present version is not taken: that it is not, and what the proxies have instead. live is
// what the model has of it; nil if nothing.
func (w *Writer) refusal(key model.Key, refused kubesource.Refused, live *model.Object) (taken, has model.Condition) {
	message := clip(refused.Condition.Message)
	if note := w.elsewhere(key, refused, live); note != "" {
		message = clipTo(message, maxMessage-len(note)) + note
	}
	taken = model.Condition{Type: accepted, Status: model.False, Reason: reasonInvalid, Message: message}
	has = model.Condition{Type: wellknown.Programmed, Status: model.False, Reason: wellknown.ReasonNotAccepted, Message: "this generation of the object is not with the proxies: see " + accepted}
	if live != nil && held(replica.VersionOf(live), refused) == strictestOf {
		has.Reason, has.Message = wellknown.ReasonStandIn, "the proxies are given this generation of the object in its strictest reading, and not as it is written: see "+accepted
	}
	return taken, has
}

// Refusal is what an object's status is to say, by whichever replica leads, if its present version is not taken; ok is false if it is, or if the
// object is none of ours. Readers of the pages are told the same.
func (w *Writer) Refusal(refused kubesource.Refused) (_ []model.Condition, ok bool) {
	e, live := w.Store.Entry(refused.Key)
	if isGateway := refused.Key.Group == model.GatewayGroup; !replica.Kinds(refused.Key) || isGateway && (!live || !w.ours(e.Object, written{})) {
		return nil, false
	}
	taken, has := w.refusal(refused.Key, refused, e.Object)
	return []model.Condition{taken, has}, true
}

// programmed says whether the proxies have an object. What they all have once acknowledged stays acknowledged: a proxy or a replica that
// comes later, or is away for a while, changes nothing of that; one that refuses it does.
func (w *Writer) programmed(key model.Key, version replica.Version, taken model.Condition, present written, name string) model.Condition {
	if taken.Status != model.True {
		return model.Condition{Status: model.False, Reason: wellknown.ReasonNotAccepted, Message: "nothing is made of it for the proxies: see " + accepted}
	}
	v := w.Programmed(key, version)
	if v.Reason == wellknown.ReasonAwaited || v.Reason == wellknown.ReasonNoProxies {
		for _, c := range present.conditions {
			if present.uid == version.UID && c.Type == name && c.Status == string(model.True) && c.Generation == version.Generation {
				return model.Condition{Status: model.True, Reason: c.Reason, Message: c.Message}
			}
		}
	}
	return model.Condition{Status: v.Status, Reason: v.Reason, Message: v.Message}
}

// ours says whether a Gateway or a GatewayClass is this mesh's to speak of: another controller speaks of the others. present is what its status says.
func (w *Writer) ours(o *model.Object, present written) bool {
	switch value := o.Value.(type) {
	case *gatewayv1.GatewayClass:
		return slices.Contains(w.Controllers, string(value.Spec.ControllerName))
	case *gatewayv1.Gateway:
		class, _ := w.Store.GatewayClass(string(value.Spec.GatewayClassName))
		controller := waypoint.Controller(string(value.Spec.GatewayClassName), class)
		controlled := slices.Contains(w.Controllers, controller)
		if controller == wellknown.MeshController {
			return w.ofIstiosClass(value, controlled, present)
		}
		return controlled
	}
	return true
}

// settled says whether the proxies have an object, as far as there is anything that they should have.
func (c Condition) settled() bool {
	return c.Type != programmed && c.Type != wellknown.Programmed || c.Status == string(metav1.ConditionTrue)
}
