package wellknown

// The values of the label istio.io/dataplane-mode that mean something.
const (
	ModeAmbient = "ambient"
	ModeNone    = "none"
)

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
