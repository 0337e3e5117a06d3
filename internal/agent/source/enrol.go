package source

import "lateen.dev/lateen/internal/model/wellknown"

// Enrolled decides whether the user wants the pod in the mesh: its own label first, then its namespace's. A pod on the
// node's network is never enrolled, since its connections are the node's. A static pod is never enrolled either: it has no
// identity, so its node proxy would get no certificate for it and refuse every connection.
func Enrolled(p Pod, namespace Namespace) bool {
	if _, static := p.Annotations[ConfigMirror]; static || p.HostNetwork {
		return false
	}
	return wellknown.Enrolled(p.Labels, namespace.Labels)
}

// DecidedByNamespace says whether the namespace's labels decide if the pod is enrolled. Otherwise the pod alone does.
func DecidedByNamespace(p Pod) bool {
	enrols := Namespace{Labels: map[string]string{wellknown.DataplaneMode: wellknown.ModeAmbient}}
	return Enrolled(p, enrols) != Enrolled(p, Namespace{})
}

// Enrols says whether the namespace wants its pods in the mesh.
func (n Namespace) Enrols() bool { return wellknown.Enrols(n.Labels) }
