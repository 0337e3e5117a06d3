package redirect

import (
	"encoding/binary"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

const (
	// DNSPort is where the proxy answers what the pod asks its resolver.
	DNSPort = 15053
	// DNSZone is the connection tracking zone of what the proxy asks resolvers over UDP. The pod may ask the same resolver
	// from the same port at the same time; in one zone the two would be one connection, and the proxy's would be redirected
	// to the proxy.
	DNSZone = 1

	domain = 53
)

// capturesDNS says whether the pod's questions go to the proxy: not if it may reach port 53 directly.
func (s Settings) capturesDNS() bool {
	return !s.BypassDNS && !slices.Contains(s.OutboundPorts, domain)
}

// redirectDNS is for questions over UDP; those over TCP are connections like others. It comes after what leaves through the loopback interface: a resolver in the pod itself is the pod's affair.
func redirectDNS(s Settings) [][]expr.Any {
	var rules [][]expr.Any
	for _, r := range s.OutboundRanges {
		rules = append(rules, rule(udp(), portIs(domain), within(destination, r), accept()))
	}
	return append(rules, rule(udp(), portIs(domain), markIs(expr.CmpOpNeq, ProxyMark), redirectTo(DNSPort)))
}

// dnsZones come before connection tracking. The replies that the proxy gives the pod have the resolver's address and port
// by the time they arrive; they carry the mark of its socket, and a reply from outside carries none.
func dnsZones(chain func(string, nftables.ChainType, *nftables.ChainHook, *nftables.ChainPriority) *nftables.Chain) []ruledChain {
	set := []expr.Any{
		&expr.Immediate{Register: 1, Data: binaryutil.NativeEndian.PutUint16(DNSZone)},
		&expr.Ct{Register: 1, Key: expr.CtKeyZONE, SourceRegister: true},
	}
	return []ruledChain{
		{
			chain: chain("dns-asked", nftables.ChainTypeFilter, nftables.ChainHookOutput, nftables.ChainPriorityRaw),
			rules: [][]expr.Any{rule(udp(), portIs(domain), markIs(expr.CmpOpEq, ProxyMark), set)},
		},
		{
			chain: chain("dns-replied", nftables.ChainTypeFilter, nftables.ChainHookPrerouting, nftables.ChainPriorityRaw),
			rules: [][]expr.Any{rule(udp(), comesFrom(domain), markIs(expr.CmpOpNeq, ProxyMark), set)},
		},
	}
}

func udp() []expr.Any { return protocol(expr.CmpOpEq, unix.IPPROTO_UDP) }

func comesFrom(port uint16) []expr.Any {
	return []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 0, Len: 2},
		compare(expr.CmpOpEq, binary.BigEndian.AppendUint16(nil, port)),
	}
}
