package conditions

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/replica"
	kubesource "lateen.dev/lateen/internal/source/kube"
)

// holding is what a replica has in force of an object whose present version is refused.
type holding int

const (
	nothing     holding = iota
	before              // the version before
	strictestOf         // the present version in its strictest reading
)

func held(v replica.Version, refused kubesource.Refused) holding {
	switch {
	case v == replica.Version{}:
		return nothing
	case v.Generation == refused.Generation:
		return strictestOf
	}
	return before
}

// mostReplicas is how many of them are named.
const mostReplicas = 5

// elsewhere says what other replicas have in force of a refused object, if that is not what this one has: one that has started since knows
// no earlier version. Proxies are connected to all of them.
func (w *Writer) elsewhere(key model.Key, refused kubesource.Refused, live *model.Object) string {
	if w.Versions == nil || !replica.Kinds(key) {
		return ""
	}
	here := nothing
	if live != nil {
		here = held(replica.VersionOf(live), refused)
	}
	others := map[holding][]string{}
	versions := w.Versions(key)
	for _, name := range slices.Sorted(maps.Keys(versions)) {
		if has := held(versions[name], refused); has != here {
			others[has] = append(others[has], name)
		}
	}
	var note strings.Builder
	for _, has := range []holding{before, strictestOf, nothing} {
		names := others[has]
		if len(names) == 0 {
			continue
		}
		more := ""
		if len(names) > mostReplicas {
			more = fmt.Sprintf(" and %d more", len(names)-mostReplicas)
		}
		what := "nothing of it has effect, since no earlier version is known there"
		switch {
		case has == before:
			what = "the version before it is in force"
		case has == strictestOf:
			what = "it is in force in its strictest reading, since no earlier version is known there: " + refused.Strictest
		}
		fmt.Fprintf(&note, ". For proxies of replica %s%s %s", strings.Join(names[:min(len(names), mostReplicas)], ", "), more, what)
	}
	return note.String()
}
