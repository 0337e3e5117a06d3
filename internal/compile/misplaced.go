package compile

import (
	"maps"
	"slices"

	"lateen.dev/lateen/internal/model"
	"lateen.dev/lateen/internal/translate"
)

// Misplaced is a pod or node of which an address is remarkable: it belongs to somebody else, or is of no range of the node's.
type Misplaced struct {
	Key     model.Key
	Message string
}

// misplaced keeps what is told of such pods and nodes. They have no conditions in the cluster that a mesh may write, and nobody reads those of
// all pods: this is the list that people are shown.
type misplaced map[model.Key]string

// note keeps or drops what is told of a pod or node.
func (m misplaced) note(key model.Key, conditions []model.Condition) {
	for _, c := range conditions {
		if c.Reason == translate.ConflictedReason || c.Reason == translate.OutsideReason {
			m[key] = c.Message
			return
		}
	}
	delete(m, key)
}

// Misplaced lists the pods and nodes whose addresses are remarkable, in the order of their names.
func (c *Compiler) Misplaced() []Misplaced {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make([]Misplaced, 0, len(c.workloads.misplaced))
	for _, key := range slices.SortedFunc(maps.Keys(c.workloads.misplaced), model.Key.Compare) {
		out = append(out, Misplaced{key, c.workloads.misplaced[key]})
	}
	return out
}
