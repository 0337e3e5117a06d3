package redirect

import "net/netip"

// The ports and marks that the rules share with every node proxy. They are those of Istio's in-pod redirection, so that an unmodified
// ztunnel works behind these rules.
const (
	// OutboundPort is where the proxy accepts what the pod dials.
	OutboundPort = 15001
	// InboundPort is where the proxy accepts plaintext that others dial to the pod.
	InboundPort = 15006
	// TunnelPort is where the proxy accepts HBONE; it is reached directly.
	TunnelPort = 15008

	// ProxyMark is on every socket of the proxy in a pod's namespace; such packets are never redirected.
	ProxyMark = 0x539
	// ReturnMark is on a connection that the proxy made from a foreign source address, so that the answers to that
	// address come back to the proxy.
	ReturnMark = 0x111
	// MarkMask is the part of a mark that is ours; the other bits belong to whoever sets them.
	MarkMask = 0xfff

	// RouteTable delivers everything locally; RulePriority is the policy rule that leads ReturnMark there.
	RouteTable   = 100
	RulePriority = 32764
)

// Probe addresses: the node's health checks come from them and bypass the proxy.
var (
	Probe4 = netip.MustParseAddr("169.254.7.127")
	Probe6 = netip.MustParseAddr("fd16:9254:7127:1337:ffff:ffff:ffff:ffff")
)
