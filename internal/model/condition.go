package model

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
