package envoy

import (
	"fmt"
	"net/netip"
)

// UserID is the user that the proxy has to run as: what it dials itself is not redirected to it again.
const UserID = 1337

// Redirection is the script for `nft -f -`, in the network namespace of a pod, that leads the pod's TCP over IPv4 to its proxy.
// Probes that come from the given address pass by, as do connections of the pod with itself. `nft delete table ip RedirectTable`
// takes it away.
func Redirection(probes netip.Addr) string {
	return fmt.Sprintf(`table ip %[1]s {
	chain inbound {
		type nat hook prerouting priority dstnat; policy accept;
		ip saddr %[2]s return
		meta l4proto tcp redirect to :%[3]d
	}
	chain outbound {
		type nat hook output priority -100; policy accept;
		oifname "lo" return
		meta skuid %[4]d return
		meta l4proto tcp redirect to :%[5]d
	}
}
`, RedirectTable, probes, InboundPort, UserID, OutboundPort)
}

// RedirectTable is the table of the rules.
const RedirectTable = "lab_envoy"
