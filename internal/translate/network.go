package translate

import (
	"fmt"
	"slices"
	"strings"

	networkingapi "istio.io/api/networking/v1alpha3"

	"lateen.dev/lateen/internal/gen/workload"
)

const unixPrefix = "unix://"

// reachable says whether node proxies find a WorkloadEntry or an endpoint: by its address or host name, or by the gateway of its network, which
// knows where it is. Whether there is such a gateway is not asked.
func (m Mesh) reachable(e *networkingapi.WorkloadEntry) bool {
	if e.GetAddress() == "" {
		return m.elsewhere(e)
	}
	return !strings.HasPrefix(e.Address, unixPrefix)
}

// elsewhere says whether a WorkloadEntry or an endpoint is on another network than the mesh.
func (m Mesh) elsewhere(e *networkingapi.WorkloadEntry) bool {
	return e.GetNetwork() != "" && e.GetNetwork() != m.Network
}

// endpointNames are the WDS names of a ServiceEntry's endpoints, each given out once. An endpoint without an address is named by its network
// and by how many of that network came before: each counts, since each has ports, a place and a weight of its own.
type endpointNames struct {
	mesh            Mesh
	namespace, name string
	addresses       map[string]bool
	networks        map[string]int
}

func newEndpointNames(mesh Mesh, namespace, name string) *endpointNames {
	return &endpointNames{mesh: mesh, namespace: namespace, name: name, addresses: map[string]bool{}, networks: map[string]int{}}
}

// of returns an endpoint's name; false if its address was named before.
func (n *endpointNames) of(e *networkingapi.WorkloadEntry) (uid string, first bool) {
	if e.Address == "" {
		n.networks[e.Network]++
		return n.mesh.NetworkEndpointResource(n.namespace, n.name, n.networks[e.Network], e.Network), true
	}
	first = !n.addresses[e.Address]
	n.addresses[e.Address] = true
	return n.mesh.EndpointResource(n.namespace, n.name, e.Address), first
}

// tellUnreachable says of a ServiceEntry's endpoints which of them nobody reaches.
func tellUnreachable(mesh Mesh, endpoints []*networkingapi.WorkloadEntry, gateway func(string) *workload.GatewayAddress, v *verdict) {
	var unreachable, networks []string
	for i, e := range endpoints {
		switch {
		case !mesh.reachable(e):
			unreachable = append(unreachable, fmt.Sprintf("spec.endpoints[%d]", i))
		case mesh.elsewhere(e) && (gateway == nil || gateway(e.Network) == nil) && !slices.Contains(networks, e.Network):
			networks = append(networks, e.Network)
		}
	}
	if len(unreachable) > 0 {
		v.note("NoAddress", fmt.Sprintf("node proxies cannot reach %s: give each an IP address, a host name, or another network that a Gateway leads to", listed(unreachable)))
	}
	if len(networks) > 0 {
		slices.Sort(networks)
		v.note("NoNetworkGateway", fmt.Sprintf("endpoints are on networks %s and no Gateway leads there; add one of class %s with that network in its label", listed(networks), remoteGatewayClass))
	}
}
