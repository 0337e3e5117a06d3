package translate

import (
	"net/netip"
	"slices"
	"strings"

	networkingv1 "istio.io/client-go/pkg/apis/networking/v1"
)

// Allocated are the virtual addresses that Istio's control plane has chosen for those hosts of a ServiceEntry that need some (AutoHosts), as
// it writes them into status.addresses: the first of each family. Clients may still have them from DNS when the mesh changes hands.
func Allocated(se *networkingv1.ServiceEntry) map[string][]netip.Addr {
	if len(se.Status.Addresses) == 0 {
		return nil
	}
	wanted := AutoHosts(se)
	out := map[string][]netip.Addr{}
	for _, a := range se.Status.Addresses {
		host := strings.ToLower(a.GetHost())
		addr, err := netip.ParseAddr(a.GetValue())
		if err != nil || addr.Zone() != "" || !slices.Contains(wanted, host) {
			continue
		}
		addr = addr.Unmap()
		if !slices.ContainsFunc(out[host], func(have netip.Addr) bool { return have.Is4() == addr.Is4() }) {
			out[host] = append(out[host], addr)
		}
	}
	return out
}
