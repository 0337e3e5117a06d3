package translate

import (
	"slices"

	securityv1 "istio.io/client-go/pkg/apis/security/v1"
)

// Demands says whether workloads that a PeerAuthentication selects refuse plaintext on a port, under the mode that they would have without
// it. A port that the object does not name, such as 0, stands for all such ports.
func Demands(selecting *securityv1.PeerAuthentication, inherited Mode, port uint32) bool {
	base, differing := portModes(selecting, inherited)
	return (base == Strict) != slices.Contains(differing, port)
}
