package report

import (
	"lateen.dev/lateen/internal/hostile/cases"
)

// Here is the name of this mesh among the outcomes of a case.
const Here = "waypoint"

// Differences says how the outcome of a peer differs from this mesh's.
func Differences(c cases.Case, outcomes map[string]Outcome, peer string) []string {
	return differences(c, outcomes[Here], outcomes[peer])
}

// Observe makes the table of the differences between this mesh and its peers. A case of two rules at once has none: together they may
// make a case of a third rule. What this mesh must never do holds for it as well.
func Observe(list []cases.Case, outcomes []map[string]Outcome) Table {
	observed := Table{}
	for i, c := range list {
		for _, peer := range Peers {
			if _, present := outcomes[i][peer]; !present || len(c.Rules) != 1 || c.Timing {
				continue
			}
			if d := Differences(c, outcomes[i], peer); len(d) > 0 {
				observed.Note(c.Rules[0], peer, outcomes[i][Here].words(), d)
			}
		}
	}
	return observed
}

// Waits reports whether a proxy said nothing and forwarded nothing, so that more time might change the outcome.
func (o Outcome) Waits() bool { return o.kind() == waits }
