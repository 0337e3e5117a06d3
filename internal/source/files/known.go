package files

import (
	"slices"
	"strings"

	"lateen.dev/lateen/internal/model"
)

// KnownKind is a kind of object that Decode reads, and what this mesh does with it.
type KnownKind struct {
	Name       string
	APIVersion string // the recommended one
	Namespaced bool
	Support    model.Support
	Reason     string // why Support is Elsewhere or Ineffective; empty for Implemented
}

// KnownKinds lists every kind that Decode reads, by name and API group.
func KnownKinds() []KnownKind {
	var known []KnownKind
	for _, k := range kinds {
		known = append(known, KnownKind{Name: k.name, APIVersion: k.apiVersion(), Namespaced: !k.cluster, Support: k.support, Reason: k.reason})
	}
	slices.SortFunc(known, func(a, b KnownKind) int {
		return strings.Compare(a.Name+" "+a.APIVersion, b.Name+" "+b.APIVersion)
	})
	return known
}
