package compile

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"unicode"

	"lateen.dev/lateen/internal/gen/workload"
	"lateen.dev/lateen/internal/resourcekind"
)

// refusal says why a node proxy would refuse a resource; empty if it takes it. The rules are those of crates/config (service.rs, workload.rs,
// wire.rs).
func refusal(a *workload.Address) string {
	if s := a.GetService(); s != nil {
		return serviceRefusal(s)
	}
	w := a.GetWorkload()
	for part, text := range map[string]string{"namespace": w.GetNamespace(), "service account": w.GetServiceAccount(), "trust domain": w.GetTrustDomain()} {
		if part == "namespace" && text == "" || strings.ContainsFunc(text, func(r rune) bool { return r == '/' || unicode.IsControl(r) }) {
			return fmt.Sprintf("%s %q", part, text)
		}
	}
	for _, raw := range w.GetAddresses() {
		if _, ok := netip.AddrFromSlice(raw); !ok {
			return fmt.Sprintf("an address of %d bytes", len(raw))
		}
	}
	for key, list := range w.GetServices() {
		if _, host, ok := strings.Cut(key, "/"); !ok || host == "" {
			return "serves " + key
		}
		if why := portsRefusal(list.GetPorts()); why != "" {
			return why
		}
	}
	for _, g := range []*workload.GatewayAddress{w.GetWaypoint(), w.GetNetworkGateway()} {
		if why := gatewayRefusal(g); why != "" {
			return why
		}
	}
	if p := w.GetApplicationTunnel().GetPort(); p > 65535 {
		return fmt.Sprintf("application tunnel %d", p)
	}
	if w.GetUid() == "" || w.GetTunnelProtocol() == workload.TunnelProtocol_LEGACY_ISTIO_MTLS {
		return "no uid, or a tunnel of sidecars"
	}
	return ""
}

func serviceRefusal(s *workload.Service) string {
	seen := map[netip.Prefix]bool{}
	for _, at := range s.Addresses {
		addr, ok := netip.AddrFromSlice(at.Address)
		bits := addr.BitLen()
		if at.Length != nil {
			bits = int(*at.Length)
		}
		if addr.Is4In6() && bits >= 96 {
			addr, bits = addr.Unmap(), bits-96
		}
		block := netip.PrefixFrom(addr, bits)
		if !ok || !block.IsValid() || seen[block.Masked()] {
			return fmt.Sprintf("address %v, or twice", block)
		}
		seen[block.Masked()] = true
	}
	for _, g := range append([]*workload.WeightedWaypoint{{Destination: s.Waypoint}}, s.WeightedWaypoints...) {
		if why := gatewayRefusal(g.Destination); why != "" {
			return why
		}
	}
	if s.Hostname == "" || strings.Contains(s.Namespace, "/") {
		return fmt.Sprintf("name %q %q", s.Namespace, s.Hostname)
	}
	return portsRefusal(s.Ports)
}

func portsRefusal(ports []*workload.Port) string {
	for _, p := range ports {
		if p.ServicePort < 1 || p.ServicePort > 65535 || p.TargetPort > 65535 {
			return fmt.Sprintf("port %v", p)
		}
	}
	return ""
}

func gatewayRefusal(g *workload.GatewayAddress) string {
	if g == nil {
		return ""
	}
	_, ok := netip.AddrFromSlice(g.GetAddress().GetAddress())
	if g.Destination == nil || g.HboneMtlsPort > 65535 || g.GetAddress() != nil && !ok {
		return fmt.Sprintf("gateway %v", g)
	}
	return ""
}

// taken fails the test if a node proxy would refuse anything of the log.
func (p *plane) taken() {
	p.t.Helper()
	for _, r := range p.log.Live(resourcekind.Address) {
		p.get(resourcekind.Address, r.Name, func(message any) {
			if why := refusal(message.(*workload.Address)); why != "" {
				p.t.Errorf("%s is refused by proxies: %s", r.Name, why)
			}
		})
	}
}

func TestWhatTheDecoderTakesProxiesTake(t *testing.T) {
	for _, text := range odd {
		p := newPlane(t)
		p.put(text)
		if p.log.Len(resourcekind.Address) == 0 {
			t.Errorf("nothing came of %s", text)
		}
		p.taken()
	}
}

// odd are objects that the decoder takes and that tempt translation to make what proxies refuse.
var odd = []string{
	serviceEntry("shop", "twice", "01", "hosts: [a.example.com], resolution: STATIC, addresses: [192.0.2.1, 192.0.2.1, \"::ffff:192.0.2.1\", 192.0.2.1/32]"),
	serviceEntry("shop", "masked", "01", "hosts: [a.example.com], resolution: NONE, addresses: [192.0.2.1/24, 192.0.2.9/24, \"::ffff:192.0.2.0/120\", \"::/0\", 0.0.0.0/1]"),
	"apiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: shop}\nspec: {clusterIPs: [10.96.0.9, \"::ffff:10.96.0.9\", 10.96.0.9], ports: [{port: 80}]}\n",
	"apiVersion: networking.istio.io/v1\nkind: WorkloadEntry\nmetadata: {name: vm}\nspec: {address: \"::ffff:192.0.2.1\", serviceAccount: a.b, weight: 4294967295}\n",
}
