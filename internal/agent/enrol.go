package agent

import (
	"lateen.dev/lateen/internal/agent/source"
	"lateen.dev/lateen/internal/model/wellknown"
)

const (
	modeAmbient = "ambient"
	modeNone    = "none"
)

// enrolled decides whether the user wants the pod in the mesh: its own label first, then its namespace's. A pod on the
// node's network is never enrolled, since its connections are the node's.
func enrolled(p source.Pod, namespace source.Namespace) bool {
	if p.HostNetwork {
		return false
	}
	switch p.Labels[wellknown.DataplaneMode] {
	case modeNone:
		return false
	case modeAmbient:
		return true
	}
	return namespace.Labels[wellknown.DataplaneMode] == modeAmbient
}
