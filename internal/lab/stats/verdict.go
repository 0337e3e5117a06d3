package stats

import (
	"fmt"
	"math"
	"slices"

	"lateen.dev/lateen/internal/lab/results"
)

// MinPairs is the least number of rounds that a judgement may rest on: with fewer the rank test cannot reach its level
// whatever was measured.
const MinPairs = 6

// level is the probability below which the rank test counts as a witness.
const level = 0.05

// Witness names two planes that are alike (the same program twice), whose difference is the noise floor.
type Witness struct{ Baseline, Plane string }

// Judge compares every plane of a cell with the baseline, one verdict for each metric and plane, in the order of planes and
// metrics. The metrics named are those that the scenario declared beforehand; Holm's correction is over them. Where a
// witness is given, its floor is the one that differences must exceed.
func Judge(cell results.Cell, baseline string, planes, metrics []string, witness *Witness) []results.Verdict {
	floors := map[string]float64{}
	if witness != nil {
		for _, m := range metrics {
			if i, ok := Ratio(PairsOf(cell.Blocks, witness.Baseline, witness.Plane, m)); ok {
				floors[m] = Floor(i)
			}
		}
	}
	var verdicts []results.Verdict
	for _, plane := range planes {
		if plane == baseline {
			continue
		}
		group := make([]results.Verdict, 0, len(metrics))
		var p []float64
		for _, m := range metrics {
			pairs := PairsOf(cell.Blocks, baseline, plane, m)
			v := results.Verdict{Metric: m, Baseline: baseline, Plane: plane, Pairs: len(pairs), Floor: floors[m], P: SignedRank(logRatios(pairs))}
			if i, ok := Ratio(pairs); ok {
				v.Ratio, v.Low, v.High = i.Estimate, i.Low, i.High
			}
			group = append(group, v)
			p = append(p, v.P)
		}
		for i, holm := range Holm(p) {
			group[i].Holm = holm
			group[i].Judgement, group[i].Why = judgement(group[i], rejected(cell.Blocks, baseline, plane))
		}
		verdicts = append(verdicts, group...)
	}
	return verdicts
}

// PairsOf collects a metric of two planes by rounds in which both have it and both blocks count.
func PairsOf(blocks []results.Block, baseline, plane, metric string) []Pair {
	value := func(round int, name string) (float64, bool) {
		for _, b := range blocks {
			if b.Round == round && b.Plane == name && b.Counted() {
				v, ok := b.Metrics[metric]
				return v, ok
			}
		}
		return 0, false
	}
	var rounds []int
	for _, b := range blocks {
		rounds = append(rounds, b.Round)
	}
	slices.Sort(rounds)
	var pairs []Pair
	for _, r := range slices.Compact(rounds) {
		a, okA := value(r, baseline)
		b, okB := value(r, plane)
		if p := (Pair{a, b}); okA && okB && p.usable() {
			pairs = append(pairs, p)
		}
	}
	return pairs
}

func rejected(blocks []results.Block, planes ...string) int {
	n := 0
	for _, b := range blocks {
		if !b.Counted() && slices.Contains(planes, b.Plane) {
			n++
		}
	}
	return n
}

func judgement(v results.Verdict, rejected int) (judgement, why string) {
	if v.Pairs < MinPairs {
		why = fmt.Sprintf("%d rounds count on both sides, %d are needed", v.Pairs, MinPairs)
		if rejected > 0 {
			why += fmt.Sprintf("; %d blocks were rejected for what their environment did", rejected)
		}
		return results.Invalid, why
	}
	if !(Interval{v.Ratio, v.Low, v.High}).Excludes(1) {
		return results.Indistinguishable, "the interval includes 1"
	}
	// The end of the interval that lies nearer to 1 must be beyond the noise.
	nearest := math.Max(v.Low, 1/v.High)
	if v.Floor > 0 && nearest <= v.Floor {
		return results.Indistinguishable, fmt.Sprintf("within the noise of two alike, a factor of %.3f", v.Floor)
	}
	if v.Holm > level {
		return results.Indistinguishable, fmt.Sprintf("the rank test does not agree (p = %.3f over all metrics looked at): more rounds would tell", v.Holm)
	}
	if (v.Ratio < 1) == results.BetterIsLower(v.Metric) {
		return results.Faster, ""
	}
	return results.Slower, ""
}
