package run

import (
	"fmt"
	"slices"

	"lateen.dev/lateen/internal/lab/procstat"
	"lateen.dev/lateen/internal/lab/results"
	"lateen.dev/lateen/internal/lab/scenario"
	"lateen.dev/lateen/internal/lab/stats"
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
func environment(s procstat.Shares, r report) map[string]float64 {
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

// most is how many times a limit a block may be disturbed where its whole round is: beyond it ratios within the round say little.
const most = results.MostOfLimit

// disturbances are the gates on what surroundings did: the name in a block's environment, words for people, and the limit.
func disturbances(gates results.Gates, cell scenario.Cell) []disturbance {
	list := []disturbance{
		{envOther, "other processes' share of the machine", gates.OtherCPU},
		{envSteal, "share stolen by the hypervisor", gates.Steal},
	}
	if cell.Beside == nil { // a load beside it takes the generator's time on purpose
		list = append(list, disturbance{envLateness, "the generator's own lateness at P99 in ms", gates.Lateness})
	}
	return list
}

type disturbance struct {
	name, what string
	limit      float64
}

// rejected lists the gates that a block fails. None of them looks at what the plane did: requests that fail, or that are never
// begun because its connections are busy, are its result, unless the generator itself was at its limit. around is what disturbed
// the other blocks of the round, by the name of the gate: a block may be disturbed as much as those, and by the limit more, up to
// so many times the limit. Ratios are taken within a round, and what all of its blocks met is in both terms. nil is a round that was quiet.
func rejected(e map[string]float64, gates results.Gates, cell scenario.Cell, around map[string]float64) []string {
	var failed []string
	for _, d := range disturbances(gates, cell) {
		limit := max(d.limit, min(around[d.name]+d.limit, most*d.limit))
		if v, known := e[d.name]; known && v > limit {
			failed = append(failed, fmt.Sprintf("%s %.3g, at most %.3g", d.what, v, limit))
		}
	}
	kept, known := e[envKept]
	if busy := e[envBusy]; known && kept < gates.Achieved && busy > atItsLimit && !cell.Saturates {
		failed = append(failed, fmt.Sprintf("the generator was at its limit, running or waiting to run for %.3g of its time: share of the due requests begun in time %.3g, at least %.3g", busy, kept, gates.Achieved))
	}
	return failed
}

// compareSurroundings judges the blocks of a round again, each beside the others: measure has held each against the limits alone.
// The last attempt stands for a plane whose block was measured again; earlier ones stay rejected.
func compareSurroundings(blocks []results.Block, round int, gates results.Gates, cell scenario.Cell) {
	last := map[string]int{}
	for i, b := range blocks {
		if b.Round == round && b.Environment != nil {
			last[b.Plane] = i
		}
	}
	for i := range blocks {
		b := &blocks[i]
		alone := rejected(b.Environment, gates, cell, nil)
		if at, known := last[b.Plane]; !known || at != i || len(alone) == 0 {
			continue
		}
		around := map[string]float64{}
		for _, d := range disturbances(gates, cell) {
			var others []float64
			for plane, at := range last {
				if v, known := blocks[at].Environment[d.name]; known && plane != b.Plane {
					others = append(others, v)
				}
			}
			if len(others) > 0 {
				around[d.name] = stats.Median(others)
			}
		}
		b.Rejected = slices.DeleteFunc(b.Rejected, func(why string) bool { return slices.Contains(alone, why) })
		b.Rejected = append(b.Rejected, rejected(b.Environment, gates, cell, around)...)
	}
}
