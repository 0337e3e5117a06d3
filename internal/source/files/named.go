package files

import (
	"cmp"
	"slices"

	"lateen.dev/lateen/internal/model"
)

// Identity is an object as far as it takes to name it.
type Identity struct {
	Key model.Key
	// Bare says that the object does not name the namespace that its kind has: it is in the default one if nobody says otherwise.
	Bare bool

	line int
}

// Identities lists the objects of a file, in its order, whether what they say is valid or not. A problem is left of what cannot be
// named: text that is no YAML, an object without a name, an unknown kind.
func Identities(file string, data []byte) ([]Identity, []Problem) {
	objects, problems := Decode(file, data)
	var found []Identity
	for _, o := range objects {
		_, namespace := identify(metadataOf(o.JSON))
		found = append(found, Identity{Key: o.Key, Bare: namespace == "" && o.Namespace != "", line: o.Line})
	}
	var left []Problem
	for _, p := range problems {
		switch {
		case p.Severity != Refused:
		case p.start == 0:
			left = append(left, p)
		case !slices.ContainsFunc(found, func(i Identity) bool { return i.Key == p.key && i.line == p.start }):
			found = append(found, Identity{Key: p.key, Bare: p.bare, line: p.start})
		}
	}
	slices.SortStableFunc(found, func(a, b Identity) int { return cmp.Compare(a.line, b.line) })
	return found, left
}
