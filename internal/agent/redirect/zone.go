package redirect

import (
	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// The proxy delivers to the pod from the client's own address. The port is the kernel's choice, and it may choose the
// very port of a connection of the same client that was redirected: to connection tracking both would be one connection
// from the client to the pod, and the second would be redirected like the first, into the proxy. A zone of its own for
// what the proxy opens inside the pod tells the two apart. Only the direction from the proxy is in the zone: the pod's
// answers carry nothing to know them by, and they differ from those of a redirected connection anyway.
const (
	zoneTable = "lateen-zone"
	zoneChain = "deliver"
	// DeliveryZone is the zone of connections that the proxy opens inside the pod.
	DeliveryZone = 0x539
)

// zone is: oifname "lo" meta l4proto tcp meta mark & MarkMask == ProxyMark ct original zone set DeliveryZone.
func zone() handTable {
	return handTable{
		name: zoneTable, chain: zoneChain, hook: nftables.ChainHookOutput, priority: nftables.ChainPriorityRaw,
		rules: []handRule{byHand(leavesBy("lo"), tcp(), markIs(expr.CmpOpEq, ProxyMark),
			&expr.Immediate{Register: 1, Data: binaryutil.NativeEndian.PutUint16(DeliveryZone)},
			directed{key: unix.NFT_CT_ZONE, direction: original, set: true},
		)},
		needs: "conntrack zones (NF_CONNTRACK_ZONES)",
	}
}
