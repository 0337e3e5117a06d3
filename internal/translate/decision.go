package translate

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lateen.dev/lateen/internal/gen/workload"
	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/model/wellknown"
)

// BindMode says when the Address of an object names the waypoint that the object asks for.
type BindMode string

const (
	// BindWhenReady names a waypoint once it is ready, and goes on naming it until the owner of the labels says otherwise.
	BindWhenReady BindMode = "when-ready"
	// BindAtOnce names a waypoint as soon and as long as its Gateway has an address, as Istio does.
	BindAtOnce BindMode = "at-once"
)

// Decision says which waypoint the Addresses of an object name.
type Decision struct {
	// Asked is the waypoint that the labels ask for, Way the one that the Addresses name; empty: connections go direct. Both are "namespace/name".
	Asked, Way string
	// Ready says that the asked waypoint can take the connections: its proxies said so, unless it is Foreign, which is not served by this mesh's.
	Ready, Foreign bool
	// Why says why the asked waypoint cannot be used, and Reason is the code of that; both are empty if it can.
	Why, Reason string
	// Unfit says that the asked waypoint takes traffic of another kind than the object's.
	Unfit bool
	// Own says that the object's own labels ask for it, not its namespace's.
	Own bool
	// Denied says that the waypoint of Way does not admit the object. It must have no connections of it, and they must not go past it.
	Denied bool
	// Canary says that the canary can take its share.
	Canary bool
	// Gateways are those of this mesh that have the object's Binding, Leaving the names of those among them that its Addresses no longer name.
	Gateways []*Waypoint
	Leaving  []string
	// DomainSuffix is that of services' names, by which a waypoint is named whose Gateway is not there.
	DomainSuffix string
}

// notAdmitted begins the host by which an Address names a waypoint that does not admit the object. A proxy of the waypoint takes what an Address
// sends to it, so its own host must not stand there.
const notAdmitted = "not-admitted."

// Bound says whether connections go through the asked waypoint, which is ready.
func (d *Decision) Bound() bool { return d.Asked != "" && d.Way == d.Asked && d.Ready }

// Consequence says where connections go of an object that is not bound.
func (d *Decision) Consequence() string {
	switch d.Way {
	case "":
		return "its connections go direct until it is bound, and L7 policies do not hold for them"
	case d.Asked:
		return "its connections are refused until the waypoint is ready; label it " + wellknown.UseWaypoint + "=" + noWaypoint + " to have them go direct"
	}
	return "its connections go through waypoint " + d.Way + " until the other one is ready"
}

// decided tells the author of an object what the decision is, and returns the waypoint that its Address names. unfit says whether the author hears that
// the waypoint takes other traffic.
func (c Context) decided(o metav1.Object, unfit bool, v *verdict) *Waypoint {
	d := c.Decision
	if label, ok := o.GetLabels()[wellknown.UseWaypoint]; ok && label == "" {
		// An author who lost the name in a template learns it by this.
		v.note("", fmt.Sprintf("label %s is empty, so connections go without a waypoint, as with %q", wellknown.UseWaypoint, noWaypoint))
	}
	switch {
	case d.Asked == "":
		return nil
	case d.Unfit:
		if unfit {
			v.note(d.Reason, fmt.Sprintf("waypoint %s %s; its connections go without it", d.Asked, d.Why))
		}
		return nil
	case d.Bound():
		v.bound = d.Asked
		if d.Foreign {
			v.bound += ": ready, not acknowledged"
		}
	default:
		why, reason := d.Why, d.Reason
		if reason == "" {
			why, reason = "has not acknowledged it yet", reasonNotReady
			if d.Foreign {
				why = "is not ready: it needs the condition Programmed, an address, and a pod that is ready"
			}
		}
		message := fmt.Sprintf("waypoint %s %s; %s", d.Asked, why, d.Consequence())
		v.note(reason, message)
		v.unbound = &model.Condition{Type: "WaypointBound", Status: model.False, Reason: reason, Message: message}
	}
	if d.Way == "" {
		return nil
	}
	namespace, name, _ := strings.Cut(d.Way, "/")
	host := Mesh{DomainSuffix: d.DomainSuffix}.ServiceHost(namespace, name)
	if d.Denied {
		host = notAdmitted + host
	} else if w := c.find(namespace, name); w != nil {
		return w
	}
	// Nobody is found there, so node proxies refuse the connections and say why.
	return &Waypoint{Namespace: namespace, Name: name, Address: &workload.GatewayAddress{
		Destination:   &workload.GatewayAddress_Hostname{Hostname: &workload.NamespacedHostname{Namespace: namespace, Hostname: host}},
		HboneMtlsPort: hbonePort,
	}}
}

// Same says whether two are the same to all that depends on them; either may be nil.
func (d *Decision) Same(o *Decision) bool {
	if d == nil || o == nil {
		return d == o
	}
	return d.Asked == o.Asked && d.Way == o.Way && d.Ready == o.Ready && d.Foreign == o.Foreign && d.Denied == o.Denied && d.Why == o.Why && slices.EqualFunc(d.Gateways, o.Gateways, SameServer) && slices.Equal(d.Leaving, o.Leaving)
}
