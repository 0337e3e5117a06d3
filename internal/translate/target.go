package translate

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	typev1beta1 "istio.io/api/type/v1beta1"
	"k8s.io/apimachinery/pkg/util/validation"

	"lateen.dev/lateen/internal/gen/l7"
	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/model/wellknown"
)

// Targets finds what targetRefs name.
type Targets struct {
	// Gateway finds a Gateway: served is nil for one that this mesh's proxies do not serve, and exists says whether there is one at all.
	Gateway func(namespace, name string) (served *Waypoint, class string, exists bool)
	// Class lists the Gateways of a class that this mesh serves; waypoints says whether its Gateways are waypoints.
	Class func(name string) (served []*Waypoint, waypoints bool)
	// Service finds a Service or a ServiceEntry, by its kind.
	Service func(kind, namespace, name string) (Bound, bool)
}

// Bound is a service that a policy may name: its names on the wire, "namespace/hostname", and its Gateways. Lost are names that it had a moment
// ago, which its waypoint may still serve.
type Bound struct {
	Hosts    []string
	Lost     []string
	Decision *Decision
}

// The kinds that a targetRef may name.
const (
	kindGateway      = "Gateway"
	kindGatewayClass = "GatewayClass"
	kindService      = "Service"
	kindServiceEntry = "ServiceEntry"
)

// waypointAccepted is the type of the condition by which a policy with targetRefs stands to what it names. The name and the reasons but
// NotBound are Istio's.
const waypointAccepted = wellknown.WaypointAccepted

// The reasons of waypointAccepted.
const (
	reasonAccepted       = "Accepted"
	reasonInvalid        = "Invalid"
	reasonPartly         = "PartiallyInvalid"
	reasonTargetNotFound = "TargetNotFound"
	reasonNotBound       = "NotBound"
	reasonNotServed      = "NotServed"
)

// attached is what came of a policy's targetRefs.
type attached struct {
	targets  []*l7.Target
	gateways []*Waypoint
	parents  []model.ParentConditions
	seen     map[string]bool
}

// attach resolves the targetRefs of a policy.
func attach(mesh Mesh, namespace string, refs []*typev1beta1.PolicyTargetReference, in Targets) *attached {
	a := &attached{seen: map[string]bool{}}
	for i, ref := range refs {
		c := a.attachOne(mesh, namespace, fmt.Sprintf("spec.targetRefs[%d]", i), ref, in)
		c.Type = waypointAccepted
		a.parents = append(a.parents, model.ParentConditions{Controller: wellknown.LateenWaypointController, Conditions: []model.Condition{c},
			Parent: model.ParentRef{Group: TargetGroup(ref), Kind: ref.GetKind(), Namespace: parentNamespace(namespace, ref), Name: ref.GetName()}})
	}
	return a
}

// groupOf reads the group of a reference: core is another name for the empty one, as in Istio.
// TargetGroup is the group of a targetRef. The group of Services has two names.
func TargetGroup(ref *typev1beta1.PolicyTargetReference) string {
	if ref.GetGroup() == "core" {
		return ""
	}
	return ref.GetGroup()
}

func parentNamespace(namespace string, ref *typev1beta1.PolicyTargetReference) string {
	if ref.GetKind() == kindGatewayClass {
		return ""
	}
	return namespace
}

func unattached(reason, format string, args ...any) model.Condition {
	return model.Condition{Status: model.False, Reason: reason, Message: fmt.Sprintf(format, args...)}
}

func attachedTo(message string) model.Condition {
	return model.Condition{Status: model.True, Reason: reasonAccepted, Message: message}
}

func (a *attached) attachOne(mesh Mesh, namespace, field string, ref *typev1beta1.PolicyTargetReference, in Targets) model.Condition {
	name := ref.GetName()
	switch {
	case name == "":
		return unattached(reasonInvalid, "%s.name is empty; name a Gateway, Service or ServiceEntry of namespace %s", field, namespace)
	case ref.GetNamespace() != "" && ref.GetNamespace() != namespace:
		return unattached(reasonInvalid, "%s.namespace is %.100q, and a policy holds for what is in its own namespace %s alone; write the policy there, and leave the field out", field, ref.GetNamespace(), namespace)
	}
	switch kind := TargetGroup(ref) + "/" + ref.GetKind(); kind {
	case model.GatewayGroup + "/" + kindGateway:
		return a.gateway(namespace, name, in)
	case model.GatewayGroup + "/" + kindGatewayClass:
		if namespace != mesh.RootNamespace {
			return unattached(reasonInvalid, "%s names a GatewayClass, which is for policies of namespace %s; move the policy there, or name a Gateway", field, mesh.RootNamespace)
		}
		return a.class(field, name, in)
	case "/" + kindService, model.NetworkGroup + "/" + kindServiceEntry:
		return a.service(mesh, ref.GetKind(), namespace, name, in)
	default:
		return unattached(reasonInvalid, "%s is of kind %.100q in group %.100q, to which no policy is attached; use kind Gateway or GatewayClass of group %s, Service of group \"\", or ServiceEntry of group %s",
			field, ref.GetKind(), ref.GetGroup(), model.GatewayGroup, model.NetworkGroup)
	}
}

func (a *attached) gateway(namespace, name string, in Targets) model.Condition {
	served, class, exists := in.Gateway(namespace, name)
	switch {
	case !exists:
		return unattached(reasonTargetNotFound, "there is no Gateway %s/%s, so no proxy enforces the policy for it; create the Gateway, or correct the name", namespace, name)
	case served == nil:
		return unattached(reasonNotServed, "Gateway %s/%s is of class %s, which this mesh's proxies do not serve; whoever runs it enforces the policy or does not", namespace, name, class)
	}
	a.add(served, gatewayTarget(served))
	return attachedTo("Gateway " + served.Ref() + " has the policy for all requests that it takes")
}

func (a *attached) class(field, name string, in Targets) model.Condition {
	served, waypoints := in.Class(name)
	if !waypoints {
		return unattached(reasonInvalid, "%s names GatewayClass %s, of which Gateways are no waypoints of this mesh; use %s", field, name, lateenWaypointClass)
	}
	for _, w := range served {
		a.add(w, gatewayTarget(w))
	}
	what := "of class " + name
	if name == IstioWaypointClass {
		what = "that are waypoints of this mesh, whatever their class,"
	}
	if len(served) == 0 {
		return attachedTo("there are no Gateways " + what + " at present; each that comes has the policy")
	}
	return attachedTo(fmt.Sprintf("%d Gateways %s have the policy for all requests that they take", len(served), what))
}

// service attaches to the hosts of a Service or a ServiceEntry. The policy names them whether they are bound to a waypoint or not, and that of a
// Service whether it exists or not. Proxies hear of policies before they hear that a service ends, begins or is bound, so the policy of a Service
// holds at every step. For the hosts that a
// ServiceEntry has lost it holds for a while.
func (a *attached) service(mesh Mesh, kind, namespace, name string, in Targets) model.Condition {
	of, exists := in.Service(kind, namespace, name)
	what := kind + " " + namespace + "/" + name
	d := cmp.Or(of.Decision, &Decision{})
	hosts := of.Hosts
	if !exists && kind == kindService && len(validation.IsDNS1123Label(name)) == 0 {
		hosts = []string{namespace + "/" + mesh.ServiceHost(namespace, name)}
	}
	for _, host := range slices.Sorted(slices.Values(slices.Concat(hosts, of.Lost))) {
		a.target(&l7.Target{Target: &l7.Target_Service{Service: host}})
	}
	a.gateways = append(a.gateways, d.Gateways...)
	switch {
	case !exists && len(of.Lost) > 0:
		return unattached(reasonTargetNotFound, "there is no %s any more; a waypoint that served it keeps the policy for half a minute, for requests that are on their way; create it, or correct the name", what)
	case !exists:
		return unattached(reasonTargetNotFound, "there is no %s that is of the mesh, so no proxy enforces the policy for it; create it, or correct the name", what)
	case d.Asked == "":
		return unattached(reasonNotBound, "%s uses no waypoint, so its connections go direct and no proxy enforces the policy; label it, or its namespace, %s", what, wellknown.UseWaypoint)
	case d.Why != "":
		return unattached(reasonNotBound, "%s asks for waypoint %s, which %s; %s", what, d.Asked, d.Why, d.Consequence())
	case d.Bound():
		return attachedTo(fmt.Sprintf("waypoint %s has the policy for requests to %s", d.Asked, what))
	}
	return attachedTo(fmt.Sprintf("waypoint %s has the policy for requests to %s; %s", d.Asked, what, d.Consequence()))
}

func gatewayTarget(w *Waypoint) *l7.Target {
	return &l7.Target{Target: &l7.Target_Gateway{Gateway: w.Ref()}}
}

// add notes a Gateway, and what of its traffic the policy is for.
func (a *attached) add(w *Waypoint, target *l7.Target) {
	a.gateways = append(a.gateways, w)
	a.target(target)
}

// target notes a target once.
func (a *attached) target(target *l7.Target) {
	if key := target.String(); !a.seen[key] {
		a.seen[key] = true
		a.targets = append(a.targets, target)
	}
}

// inForce says whether some proxy has the policy.
func (a *attached) inForce() bool { return len(a.gateways) > 0 }

// conditions adds to what is said of the policy itself how it stands to all that it names.
func (a *attached) conditions(own model.Condition) model.Report {
	held, failed := 0, []string{}
	reason := ""
	for _, p := range a.parents {
		if c := p.Conditions[0]; c.Status == model.True {
			held++
		} else {
			failed = append(failed, c.Message)
			if reason == "" {
				reason = c.Reason
			}
		}
	}
	all := model.Condition{Type: waypointAccepted, Status: model.True, Reason: reasonAccepted, Message: "proxies of waypoints have the policy"}
	if len(a.parents) == 1 && held == 1 {
		all.Message = a.parents[0].Conditions[0].Message
	}
	switch {
	case len(failed) == 0:
	case held > 0:
		all.Reason, all.Message = reasonPartly, strings.Join(failed, "; ")
	default:
		all.Status, all.Reason, all.Message = model.False, reason, strings.Join(failed, "; ")
		if own.Status == model.True {
			own.Status, own.Reason, own.Message = model.False, reason, "no proxy enforces the policy: "+all.Message
		}
	}
	return model.Report{Conditions: []model.Condition{own, all}, Parts: &model.Parts{Parents: a.parents}}
}
