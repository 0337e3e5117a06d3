// Package translate owns the meaning of objects: pure functions from the model's types to wire resources and conditions.
// It keeps no state, reads no clock, and knows neither where objects come from nor who receives the resources.
package translate

import (
	"net/netip"
	"strconv"
	"strings"

	"lateen.dev/lateen/internal/gen/workload"
	"lateen.dev/lateen/internal/model"
)

// Mesh is what every translation needs to know about the mesh as a whole.
type Mesh struct {
	TrustDomain string // "cluster.local"
	// TrustDomainAliases are further names of the mesh's trust domain, which policies may mean it by.
	TrustDomainAliases []string
	ClusterID          string // "Kubernetes"
	Network            string // "" on a single network
	RootNamespace      string // "istio-system": policies there hold for the whole mesh
	DomainSuffix       string // "cluster.local", of service names
	// ServeIstioWaypoints says that this mesh's proxies serve the Gateways of Istio's waypoint class as well as those of its own.
	ServeIstioWaypoints bool
	// BindWaypoints says when connections go through a waypoint; empty is BindWhenReady.
	BindWaypoints BindMode
	// AutoAllowWaypoints has workloads behind a waypoint of this mesh admit its identity by a policy of their own; see AllowWaypoint.
	AutoAllowWaypoints bool
}

// ServiceHost is the DNS name of a service.
func (m Mesh) ServiceHost(namespace, name string) string {
	return name + "." + namespace + ".svc." + m.DomainSuffix
}

// ServiceResource is the WDS name of a service: "namespace/hostname".
func (m Mesh) ServiceResource(namespace, name string) string {
	return namespace + "/" + m.ServiceHost(namespace, name)
}

// WorkloadEntryResource is the WDS name of a WorkloadEntry, which is its workload's uid.
func (m Mesh) WorkloadEntryResource(namespace, name string) string {
	return m.ClusterID + "/networking.istio.io/WorkloadEntry/" + namespace + "/" + name
}

// EndpointResource is the WDS name of an endpoint that is written into a ServiceEntry.
func (m Mesh) EndpointResource(namespace, name, address string) string {
	return m.ClusterID + "/networking.istio.io/ServiceEntry/" + namespace + "/" + name + "/" + address
}

// NetworkEndpointResource is the WDS name of the nth endpoint of a ServiceEntry that has a network and no address. No address holds a slash.
func (m Mesh) NetworkEndpointResource(namespace, name string, nth int, network string) string {
	return m.EndpointResource(namespace, name, "network/"+strconv.Itoa(nth)+"/"+network)
}

// PodResource is the WDS name of a pod, which is its workload's uid.
func (m Mesh) PodResource(namespace, name string) string {
	return m.ClusterID + "//Pod/" + namespace + "/" + name
}

// WorkloadAliases are the names other than its own under which a proxy may ask for a workload: "network/ip".
func WorkloadAliases(w *workload.Workload) []string {
	aliases := make([]string, 0, len(w.Addresses))
	for _, a := range w.Addresses {
		if ip, ok := netip.AddrFromSlice(a); ok {
			aliases = append(aliases, w.Network+"/"+ip.String())
		}
	}
	return aliases
}

// ServiceAliases are the names other than its own under which a proxy may ask for a service.
func ServiceAliases(s *workload.Service) []string {
	aliases := make([]string, 0, len(s.Addresses))
	for _, a := range s.Addresses {
		if ip, ok := netip.AddrFromSlice(a.Address); ok {
			aliases = append(aliases, a.Network+"/"+ip.String())
		}
	}
	return aliases
}

// trustDomain is the mesh's trust domain as workloads carry it: proxies assume cluster.local when the field is empty.
func (m Mesh) trustDomain() string {
	if m.TrustDomain == "cluster.local" {
		return ""
	}
	return m.TrustDomain
}

// verdict collects what is to be said to an object's author: the object is in force, except for what the notes name.
type verdict struct {
	reason string
	notes  []string
	bound  string // the waypoint that the object uses
	// unbound is why the object does not use the waypoint that it asks for; nil if it does, or asks for none.
	unbound *model.Condition
}

func newVerdict() *verdict { return &verdict{} }

// note adds a remark. One with a reason names something that has no effect; one without only informs.
func (v *verdict) note(reason, message string) {
	if v.reason == "" {
		v.reason = reason
	}
	v.notes = append(v.notes, message)
}

// conditions renders the verdict, the first reason standing for all.
func (v *verdict) conditions() []model.Condition {
	c := accepted()
	if len(v.notes) > 0 {
		c.Message = strings.Join(v.notes, "; ")
	}
	if v.reason != "" {
		c.Reason = v.reason
	}
	out := []model.Condition{c}
	if v.bound != "" {
		out = append(out, model.Condition{Type: "WaypointBound", Status: model.True, Reason: "Accepted", Message: "connections go through waypoint " + v.bound})
	}
	if v.unbound != nil {
		out = append(out, *v.unbound)
	}
	return out
}

// accepted is the condition of an object that does what it says.
func accepted() model.Condition {
	return model.Condition{Type: "Accepted", Status: model.True, Reason: "Accepted", Message: "the object is accepted as it is written"}
}

func partly(message string) model.Condition {
	return model.Condition{Type: "Accepted", Status: model.True, Reason: "UnsupportedValue", Message: message}
}

func rejected(reason, message string) model.Condition {
	return model.Condition{Type: "Accepted", Status: model.False, Reason: reason, Message: message}
}

// Refused is the condition of an object of which the present version is not taken as it is written.
func Refused(message string) model.Condition { return rejected("Invalid", message) }

// NotImplemented is the condition of an object whose kind this mesh does not honour.
func NotImplemented(reason string) model.Condition {
	return rejected("NotImplemented", "stored but ignored: "+reason)
}

// Accepted is the condition of an object that is in force as it is written.
func Accepted() model.Condition { return accepted() }
