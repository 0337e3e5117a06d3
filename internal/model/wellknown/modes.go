package wellknown

// The values of the label istio.io/dataplane-mode that mean something.
const (
	ModeAmbient = "ambient"
	ModeNone    = "none"
)

// Enrols reports whether the labels of a namespace put its pods into the mesh.
func Enrols(namespaceLabels map[string]string) bool {
	return namespaceLabels[DataplaneMode] == ModeAmbient
}

// Enrolled reports whether labels put a pod into the mesh. The pod's own label decides if its value means something, else the label of its
// namespace. It is for callers to leave out pods that cannot be captured.
func Enrolled(podLabels, namespaceLabels map[string]string) bool {
	switch podLabels[DataplaneMode] {
	case ModeNone:
		return false
	case ModeAmbient:
		return true
	}
	return Enrols(namespaceLabels)
}

// Injection is the label by which Istio's injector knows the namespaces whose pods get sidecars.
const Injection = "istio-injection"

// UnknownMode says what is wrong with the value of the label istio.io/dataplane-mode; empty if it means something, or is not given.
func UnknownMode(labels map[string]string) string {
	value, given := labels[DataplaneMode]
	if !given || value == ModeAmbient || value == ModeNone {
		return ""
	}
	return DataplaneMode + "=" + value + " has no effect: use " + ModeAmbient + " to put pods into the mesh, " + ModeNone + " to keep them out"
}
