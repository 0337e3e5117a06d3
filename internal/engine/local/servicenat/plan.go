// Package servicenat makes cluster IPs work in a node's namespace: the kernel rewrites a connection's destination from a
// service's address to a random ready pod. It is told which pods those are, and leaves every other table of nftables alone.
package servicenat

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"lateen.dev/lateen/internal/engine/local/services"
)

// Plan is the translation table of a node.
type Plan struct {
	Ports []Port
	// Hairpins are the addresses of the pods. A pod that reaches itself through a service must not see its own address as the
	// source: its kernel would drop the packet.
	Hairpins []netip.Addr
}

// Port is one address and port of a service with at least one backend.
type Port struct {
	Chain    string // name of its chain, unique in the plan
	Addr     netip.AddrPort
	Protocol uint8
	Backends []netip.AddrPort
}

// PlanOf makes the plan for a list of services. Ports without backends are left out: connections to them are refused.
func PlanOf(svcs []services.Service) Plan {
	var p Plan
	for _, s := range svcs {
		if !s.ClusterIP.IsValid() {
			continue
		}
		for _, port := range s.Ports {
			protocol, ok := protocols[port.Protocol]
			if !ok || len(port.Backends) == 0 {
				continue
			}
			p.Ports = append(p.Ports, Port{
				Chain:    fmt.Sprintf("svc-%s-%d-%d", s.ClusterIP, protocol, port.Port),
				Addr:     netip.AddrPortFrom(s.ClusterIP, port.Port),
				Protocol: protocol,
				Backends: port.Backends,
			})
			for _, b := range port.Backends {
				p.Hairpins = append(p.Hairpins, b.Addr())
			}
		}
	}
	slices.SortFunc(p.Ports, func(a, b Port) int { return cmp.Compare(a.Chain, b.Chain) })
	p.Ports = slices.CompactFunc(p.Ports, func(a, b Port) bool { return a.Chain == b.Chain })
	slices.SortFunc(p.Hairpins, netip.Addr.Compare)
	p.Hairpins = slices.Compact(p.Hairpins)
	return p
}

// Equal compares two plans.
func (p Plan) Equal(o Plan) bool {
	return slices.Equal(p.Hairpins, o.Hairpins) && slices.EqualFunc(p.Ports, o.Ports, func(a, b Port) bool {
		return a.Chain == b.Chain && a.Addr == b.Addr && a.Protocol == b.Protocol && slices.Equal(a.Backends, b.Backends)
	})
}

var protocols = map[corev1.Protocol]uint8{
	corev1.ProtocolTCP: unix.IPPROTO_TCP,
	corev1.ProtocolUDP: unix.IPPROTO_UDP,
}
