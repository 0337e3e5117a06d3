package source

import "lateen.dev/lateen/internal/model/wellknown"

const (
	modeAmbient = "ambient"
	modeNone    = "none"
)

// Enrolled decides whether the user wants the pod in the mesh: its own label first, then its namespace's. A pod on the
// node's network is never enrolled, since its connections are the node's.
func Enrolled(p Pod, namespace Namespace) bool {
	if p.HostNetwork {
		return false
	}
	switch p.Labels[wellknown.DataplaneMode] {
	case modeNone:
		return false
	case modeAmbient:
		return true
	}
	return namespace.Enrols()
}

// Enrols says whether the namespace wants its pods in the mesh.
func (n Namespace) Enrols() bool { return n.Labels[wellknown.DataplaneMode] == modeAmbient }
