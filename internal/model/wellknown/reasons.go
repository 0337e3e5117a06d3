package wellknown

// The reasons of a Programmed condition.
const (
	// ReasonRefused is False's: a proxy names the object.
	ReasonRefused = "RefusedByProxy"
	// ReasonMayBeRefused is Unknown's where a proxy names others and says, or leaves open, that there are more.
	ReasonMayBeRefused = "MayBeRefused"
	// ReasonRefusalUnnamed is Unknown's where a proxy names nothing.
	ReasonRefusalUnnamed = "RefusalUnnamed"
	// ReasonAwaited is False's where a proxy has not acknowledged the object yet, or cannot be asked.
	ReasonAwaited = "AwaitingProxies"
	// ReasonNoProxies is Unknown's where nobody could acknowledge anything.
	ReasonNoProxies = "NoProxies"
	// ReasonProgrammed is True's: every proxy has acknowledged this generation of the object.
	ReasonProgrammed = "Programmed"
	// ReasonNotAccepted is False's where nothing was made of this generation of the object.
	ReasonNotAccepted = "NotAccepted"
	// ReasonStandIn is False's where this generation of the object is refused, and what stands in for it is made for the proxies.
	ReasonStandIn = "StandIn"
)

// ReasonAddressPending is the reason of an Accepted condition that is Unknown while a ServiceEntry has no virtual addresses yet. They are chosen
// after the entry is taken, and proxies are told of them in a later generation.
const ReasonAddressPending = "AddressPending"

// ReasonProgressing is the reason of a Deployed condition that is False while the Deployment goes on: its pods are on their way. All other
// reasons of False say that somebody must do something.
const ReasonProgressing = "Progressing"

// Reasons of a Deployed condition that is False because the deployer leaves a Gateway alone.
const (
	// ReasonTaken: an object of its name is somebody else's.
	ReasonTaken = "Taken"
	// ReasonLeftToIstio: Istio's controller is at work on it, and its status is Istio's.
	ReasonLeftToIstio = "LeftToIstio"
	// ReasonIstioUnknown: the deployer may not look whether Istio's controller is at work on it, or cannot read what it finds. What its status says stays.
	ReasonIstioUnknown = "IstioUnknown"
)
