// Package model owns the mesh's objects as the control plane sees them: typed, keyed, indexed and stamped with a generation.
// It does not know where objects come from, what wire resources they become, or who asks for those.
package model

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
)

// Key names one object. Group is part of it because two APIs may use one kind name (Gateway is both Istio's and the Gateway API's).
type Key struct {
	Group     string
	Kind      string
	Namespace string // empty for a cluster-scoped kind
	Name      string
}

// String renders the key as people write it: "Service default/reviews", "Node n1".
func (k Key) String() string {
	if k.Namespace == "" {
		return k.Kind + " " + k.Name
	}
	return k.Kind + " " + k.Namespace + "/" + k.Name
}

// Compare orders keys by group, kind, namespace and name.
func (k Key) Compare(o Key) int {
	for _, c := range [4]int{
		strings.Compare(k.Group, o.Group),
		strings.Compare(k.Kind, o.Kind),
		strings.Compare(k.Namespace, o.Namespace),
		strings.Compare(k.Name, o.Name),
	} {
		if c != 0 {
			return c
		}
	}
	return 0
}

// Support says what this mesh does with a kind.
type Support int

const (
	// Implemented kinds change what the mesh does.
	Implemented Support = iota
	// Elsewhere marks kinds that are none of the control plane's business: somebody else runs or reads them (Deployment).
	Elsewhere
	// Ineffective marks kinds that users expect a mesh to honour and that this one does not honour yet.
	Ineffective
)

// String renders the support level as the debug pages show it.
func (s Support) String() string {
	switch s {
	case Implemented:
		return "implemented"
	case Elsewhere:
		return "elsewhere"
	case Ineffective:
		return "ineffective"
	}
	return fmt.Sprintf("Support(%d)", int(s))
}

// Object is one decoded object and where it was written.
type Object struct {
	Key
	APIVersion string
	// Value is a pointer to the typed object, such as *corev1.Service, *appsv1.Deployment or *securityv1.AuthorizationPolicy.
	// It is nil for a kind that is kept without being understood. Nobody changes it once decoded.
	Value any
	// JSON is the object as it was written, converted to JSON, without any default filled in. It, File and Line are empty for an
	// object that comes from a cluster, which has it.
	JSON []byte
	File string
	Line int // 1-based line of File on which the object starts
	// Support is this mesh's promise about the kind; Reason explains it in a sentence for the levels Elsewhere and Ineffective.
	Support Support
	Reason  string
	// Refused says what is wrong with the present version, if this is not that but its strictest reading, which stands in for it.
	Refused string
}

// Digest names a version of the object: what is the same as it was written, or in what the mesh reads of it, has the same.
func (o *Object) Digest() string {
	const most = 16 // bytes; nobody gains by two versions of one object of the same name
	text := o.JSON
	if len(text) == 0 {
		text, _ = json.Marshal(o.Value) // what came as JSON or protobuf can be written as JSON
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:most])
}
