package wellknown

// The reasons of a Programmed condition.
const (
	// ReasonRefused is False's: a proxy names the object.
	ReasonRefused = "RefusedByProxy"
	// ReasonMayBeRefused is Unknown's where a proxy names others and says, or leaves open, that there are more.
	ReasonMayBeRefused = "MayBeRefused"
	// ReasonRefusalUnnamed is Unknown's where a proxy names nothing.
	ReasonRefusalUnnamed = "RefusalUnnamed"
)
