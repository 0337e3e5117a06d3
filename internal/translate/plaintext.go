package translate

import (
	securityv1 "istio.io/client-go/pkg/apis/security/v1"
)

// Demands says whether workloads that a PeerAuthentication selects refuse plaintext on a port, under the mode that they would have without
// it. A port that the object does not name, such as 0, stands for all such ports.
func Demands(selecting *securityv1.PeerAuthentication, inherited Mode) func(port uint32) bool {
	base, ports := portModes(selecting, inherited)
	differing := make(map[uint32]bool, len(ports))
	for _, port := range ports {
		differing[port] = true
	}
	return func(port uint32) bool { return (base == Strict) != differing[port] }
}
