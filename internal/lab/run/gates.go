package run

import (
	"fmt"

	"lateen.dev/lateen/internal/lab/account"
	"lateen.dev/lateen/internal/lab/results"
	"lateen.dev/lateen/internal/lab/scenario"
)

// Names of what the gates look at.
const (
	envOther    = "other_cpu"
	envSteal    = "steal"
	envStalled  = "psi_some"
	envLateness = "lateness"
	envAchieved = "achieved"
)

// environment is what a block's surroundings did, as shares.
func environment(s account.Shares, r report) map[string]float64 {
	e := map[string]float64{envOther: s.Other, envSteal: s.Steal}
	if s.KnowsStalled {
		e[envStalled] = s.Stalled
	}
	if r.Rates.Wanted > 0 {
		e[envAchieved] = r.Rates.Achieved / r.Rates.Wanted
		if r.Response.P99 > 0 {
			e[envLateness] = r.Lateness.P99 / r.Response.P99
		}
	}
	return e
}

// rejected lists the gates that a block fails. None of them looks at how fast anything was. A cell whose services cannot keep
// the rate is not rejected for it: that is its result.
func rejected(e map[string]float64, gates results.Gates, cell scenario.Cell) []string {
	var failed []string
	most := func(name, what string, limit float64) {
		if v, ok := e[name]; ok && v > limit {
			failed = append(failed, fmt.Sprintf("%s %.3g, at most %.3g", what, v, limit))
		}
	}
	most(envOther, "other processes' share of the machine", gates.OtherCPU)
	most(envSteal, "share stolen by the hypervisor", gates.Steal)
	most(envLateness, "the generator's own lateness over the response time at P99", gates.Lateness)
	if v, ok := e[envAchieved]; ok && v < gates.Achieved && !cell.Saturates {
		failed = append(failed, fmt.Sprintf("share of the wanted rate %.3g, at least %.3g", v, gates.Achieved))
	}
	return failed
}
