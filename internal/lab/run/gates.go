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
	envLateness = "lateness_ms"
	envKept     = results.EnvKept
	envBusy     = "generator_busy"
)

// atItsLimit is the share of its time, running or waiting to run, from which on the generator could not have done more.
const atItsLimit = 0.95

// environment is what a block's surroundings did. Nothing in it depends on answers: not on how many there were, nor on how long
// they took.
func environment(s account.Shares, r report) map[string]float64 {
	e := map[string]float64{envOther: s.Other, envSteal: s.Steal}
	if s.KnowsStalled {
		e[envStalled] = s.Stalled
	}
	if r.Rates.Wanted > 0 {
		e[envLateness] = r.Lateness.P99
		e[envBusy] = r.Generator.CPUShare + r.Generator.WaitShare
		if due := r.Counts.Intended; due > 0 && r.Counts.Unsent <= due {
			begun := float64(due-r.Counts.Unsent) / float64(due)
			e[results.EnvBegun], e[envKept] = begun, kept(r, begun)
		}
	}
	return e
}

// kept is the share of the due requests that were begun while others were due. Those that the generator begins afterwards, until
// their time limit, are in its histograms and say nothing of the rate. What had been begun by the end of the measured time is what was
// answered by then, what failed, and what was under way: by Little's law the rate of answers times what one takes, and no more than
// the connections carry.
func kept(r report, begun float64) float64 {
	underWay := r.Rates.Achieved * r.Service.Avg / 1e3
	if places := float64(r.Config.Connections * max(1, r.Config.Streams)); places > 0 {
		underWay = min(underWay, places)
	}
	in := r.Rates.Achieved*r.Measured + float64(r.Counts.Failed) + underWay
	if float64(r.Counts.Intended)-in <= r.Rates.Wanted*lastMoment {
		return begun
	}
	return min(begun, in/float64(r.Counts.Intended))
}

// lastMoment is how many seconds' requests may be missing at the end of the measured time without the rate being too high: a machine
// that halts for a moment just then has kept it until there.
const lastMoment = 0.1

// rejected lists the gates that a block fails. None of them looks at what the plane did: requests that fail, or that are never
// begun because its connections are busy, are its result, unless the generator itself was at its limit.
func rejected(e map[string]float64, gates results.Gates, cell scenario.Cell) []string {
	var failed []string
	most := func(name, what string, limit float64) {
		if v, ok := e[name]; ok && v > limit {
			failed = append(failed, fmt.Sprintf("%s %.3g, at most %.3g", what, v, limit))
		}
	}
	most(envOther, "other processes' share of the machine", gates.OtherCPU)
	most(envSteal, "share stolen by the hypervisor", gates.Steal)
	if cell.Beside == nil { // a load beside it takes the generator's time on purpose
		most(envLateness, "the generator's own lateness at P99 in ms", gates.Lateness)
	}
	kept, known := e[envKept]
	if busy := e[envBusy]; known && kept < gates.Achieved && busy > atItsLimit && !cell.Saturates {
		failed = append(failed, fmt.Sprintf("the generator was at its limit, running or waiting to run for %.3g of its time: share of the due requests begun in time %.3g, at least %.3g", busy, kept, gates.Achieved))
	}
	return failed
}
