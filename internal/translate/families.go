package translate

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"

	"lateen.dev/lateen/internal/gen/workload"
)

// ipFamilies are the address families of a Service: those that the API server gave it, else those of its cluster IPs. Proxies tell a
// Service from a ServiceEntry by them, since a control plane sends none for an entry: a Service with a cluster IP always has some.
func ipFamilies(svc *corev1.Service) workload.IPFamilies {
	has := map[corev1.IPFamily]bool{}
	for _, family := range svc.Spec.IPFamilies {
		has[family] = true
	}
	if len(has) == 0 {
		for _, text := range ClusterIPs(svc) {
			if addr, err := netip.ParseAddr(text); err == nil {
				has[familyOf(addr.Unmap())] = true
			}
		}
	}
	switch {
	case has[corev1.IPv4Protocol] && has[corev1.IPv6Protocol]:
		return workload.IPFamilies_DUAL
	case has[corev1.IPv4Protocol]:
		return workload.IPFamilies_IPV4_ONLY
	case has[corev1.IPv6Protocol]:
		return workload.IPFamilies_IPV6_ONLY
	}
	return workload.IPFamilies_AUTOMATIC
}

func familyOf(addr netip.Addr) corev1.IPFamily {
	if addr.Is4() {
		return corev1.IPv4Protocol
	}
	return corev1.IPv6Protocol
}
