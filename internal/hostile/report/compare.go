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

// Observe makes the table of the differences between this mesh and its peers. A case of two rules at once has no row of its own: it
// may differ where one of its rules does. The second result is the cases that differ where none does.
func Observe(list []cases.Case, outcomes []map[string]Outcome) (Table, []cases.Case) {
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
	var unexplained []cases.Case
	for i, c := range list {
		if len(c.Rules) != 1 && !c.Timing && !explained(c, outcomes[i], observed) {
			unexplained = append(unexplained, c)
		}
	}
	return observed, unexplained
}

func explained(c cases.Case, outcomes map[string]Outcome, observed Table) bool {
	for _, peer := range Peers {
		if _, present := outcomes[peer]; !present || len(Differences(c, outcomes, peer)) == 0 {
			continue
		}
		differs := false
		for _, rule := range c.Rules {
			differs = differs || observed[rule] != nil && len(observed[rule].Peers[peer]) > 0
		}
		if !differs {
			return false
		}
	}
	return true
}

// Waits reports whether a proxy said nothing and forwarded nothing, so that more time might change the outcome.
func (o Outcome) Waits() bool { return o.kind() == waits }
