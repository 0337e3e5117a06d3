package model

import "slices"

// Status is the truth value of a condition.
type Status string

// The values of a condition's status, spelled as Kubernetes spells them.
const (
	True    Status = "True"
	False   Status = "False"
	Unknown Status = "Unknown"
)

// Condition tells the author of an object what the mesh made of it.
type Condition struct {
	// Type is what is claimed: "Accepted", "Enforced".
	Type   string `json:"type"`
	Status Status `json:"status"`
	// Reason is one word for programs, Message a sentence for people.
	Reason  string `json:"reason"`
	Message string `json:"message"`
	// Generation is the model generation from which this was concluded.
	Generation uint64 `json:"observedGeneration"`
}

// says whether another condition tells the author the same.
func (c Condition) says(o Condition) bool {
	o.Generation = c.Generation
	return c == o
}

// Report is all that the author of an object is told of it. The Gateway API has conditions in three places of a status: of the object,
// of each parent that it attaches to, and of each of its listeners.
type Report struct {
	Conditions []Condition
	// Parts is nil for an object that has neither parents, listeners nor proxies, as most have.
	Parts *Parts
}

// Parts are the conditions of what an object consists of or attaches to.
type Parts struct {
	// Parents are in the order of the object's references to them.
	Parents []ParentConditions
	// Listeners are in the order of the object's listeners.
	Listeners []ListenerConditions
	// Unready says that none of the proxies of a Gateway can take connections, as far as their pods tell.
	Unready bool
}

// Unready says that an object has proxies of its own, none of which can take connections.
func (r Report) Unready() bool { return r.Parts != nil && r.Parts.Unready }

// Parents are the conditions of the object's parents.
func (r Report) Parents() []ParentConditions {
	if r.Parts == nil {
		return nil
	}
	return r.Parts.Parents
}

// Listeners are the conditions of the object's listeners.
func (r Report) Listeners() []ListenerConditions {
	if r.Parts == nil {
		return nil
	}
	return r.Parts.Listeners
}

// ParentRef names what an object attaches to: a Gateway, a listener of one, or a Service.
type ParentRef struct {
	Group, Kind, Namespace, Name string
	// Section is the name of a listener or of a port. Empty: the whole parent.
	Section string
	// Port is a port number of the parent. 0: every port.
	Port int32
}

// ParentConditions is how an object stands to one parent.
type ParentConditions struct {
	Parent ParentRef
	// Controller is the name of the controller that speaks, as GatewayClasses have it.
	Controller string
	Conditions []Condition
}

// ListenerConditions is what became of one listener.
type ListenerConditions struct {
	Name       string
	Conditions []Condition
}

// says whether another report tells the author the same.
func (r Report) says(o Report) bool {
	same := func(a, b []Condition) bool { return slices.EqualFunc(a, b, Condition.says) }
	return same(r.Conditions, o.Conditions) && r.Unready() == o.Unready() &&
		slices.EqualFunc(r.Parents(), o.Parents(), func(a, b ParentConditions) bool {
			return a.Parent == b.Parent && a.Controller == b.Controller && same(a.Conditions, b.Conditions)
		}) &&
		slices.EqualFunc(r.Listeners(), o.Listeners(), func(a, b ListenerConditions) bool { return a.Name == b.Name && same(a.Conditions, b.Conditions) })
}
