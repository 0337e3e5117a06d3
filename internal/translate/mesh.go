// Package translate owns the meaning of objects: pure functions from the model's types to wire resources and conditions.
// It keeps no state, reads no clock, and knows neither where objects come from nor who receives the resources.
package translate

import (
	"net/netip"

	"lateen.dev/lateen/internal/gen/workload"
	"lateen.dev/lateen/internal/model"
)

// Mesh is what every translation needs to know about the mesh as a whole.
type Mesh struct {
	TrustDomain   string // "cluster.local"
	ClusterID     string // "Kubernetes"
	Network       string // "" on a single network
	RootNamespace string // "istio-system": policies there hold for the whole mesh
	DomainSuffix  string // "cluster.local", of service names
}

// ServiceHost is the DNS name of a service.
func (m Mesh) ServiceHost(namespace, name string) string {
	return name + "." + namespace + ".svc." + m.DomainSuffix
}

// ServiceResource is the WDS name of a service: "namespace/hostname".
func (m Mesh) ServiceResource(namespace, name string) string {
	return namespace + "/" + m.ServiceHost(namespace, name)
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

// accepted is the condition of an object that does what it says.
func accepted() model.Condition {
	return model.Condition{Type: "Accepted", Status: model.True, Reason: "Accepted", Message: "the object is in force"}
}

func partly(message string) model.Condition {
	return model.Condition{Type: "Accepted", Status: model.True, Reason: "UnsupportedValue", Message: message}
}

func rejected(reason, message string) model.Condition {
	return model.Condition{Type: "Accepted", Status: model.False, Reason: reason, Message: message}
}

// NotImplemented is the condition of an object whose kind this mesh does not honour.
func NotImplemented(kind, reason string) model.Condition {
	return rejected("NotImplemented", kind+" has no effect: "+reason)
}

// Accepted is the condition of an object that is in force as it is written.
func Accepted() model.Condition { return accepted() }
