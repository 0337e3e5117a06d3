package stats

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"lateen.dev/lateen/internal/lab/results"
)

// level is the probability below which the rank test counts as a witness.
const level = 0.05

// MinPairs is the least number of rounds that a judgement may rest on when it is one of several, for so many metrics: with fewer
// the rank test cannot reach its level, by Holm's correction, whatever was measured. For one metric they are 6, for three 7.
func MinPairs(metrics int) int {
	n, least := 1, 1.0 // least: the probability that all n differences have the sign they have, or all the other
	for ; least*float64(metrics) > level; n++ {
		least = 2 / math.Exp2(float64(n+1))
	}
	return n
}

// Witness names two planes that are alike (the same program twice), whose difference is the noise floor.
type Witness struct{ Baseline, Plane string }

// Judge compares every plane of a cell with the baseline, one verdict for each metric and plane, in the order of planes and
// metrics. The metrics named are those that the scenario declared beforehand; Holm's correction is over them. Where a
// witness is given, its floor is the one that differences must exceed, and without enough of its rounds there is no verdict.
func Judge(cell results.Cell, baseline string, planes, metrics []string, witness *Witness) []results.Verdict {
	floors, witnessed := map[string]float64{}, map[string]int{}
	if witness != nil {
		for _, m := range metrics {
			pairs := PairsOf(cell.Blocks, witness.Baseline, witness.Plane, results.NoiseOf(m))
			if own := PairsOf(cell.Blocks, witness.Baseline, witness.Plane, m); len(own) > 0 {
				pairs = own
			}
			witnessed[m] = len(pairs)
			if i, ok := compare(m, pairs); ok {
				if len(pairs) >= MinPairs(len(metrics)) { // of fewer an interval says nothing
					floors[m] = floorOf(m, i)
				}
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
			v := results.Verdict{Metric: m, Baseline: baseline, Plane: plane, Pairs: len(pairs), Floor: floors[m]}
			if results.ByDifference(m) {
				v.P = SignedRank(differences(pairs))
			} else {
				v.P = SignedRank(logRatios(pairs))
			}
			if i, ok := compare(m, pairs); ok {
				v.Ratio, v.Low, v.High = i.Estimate, i.Low, i.High
			}
			group = append(group, v)
			p = append(p, v.P)
		}
		for i, holm := range Holm(p) {
			group[i].Holm = holm
			v, least := &group[i], MinPairs(len(metrics))
			v.Judgement, v.Why = judgement(*v, least, rejected(cell.Blocks, baseline, plane))
			if v.Judgement == results.TooFew {
				v.Counted, v.Needed = v.Pairs, least
				v.Why = alsoMore(v.Why, moreRounds(rounds(cell.Blocks), v.Pairs, least))
			} else if witness != nil && witnessed[v.Metric] < least {
				v.Judgement, v.Counted, v.Needed = results.TooFew, witnessed[v.Metric], least
				v.Why = alsoMore(fmt.Sprintf("the noise floor was not measured: it is that of %s and %s", witness.Baseline, witness.Plane),
					moreRounds(rounds(cell.Blocks), witnessed[v.Metric], least))
			}
			if said := broken(cell.Blocks, baseline, plane); said != "" {
				v.Judgement, v.Why, v.Counted, v.Needed = results.Failed, said, 0, 0
			}
			if said := failing(cell.Blocks, baseline, plane); said != "" && v.Metric != results.FailedShare {
				v.Why = strings.TrimPrefix(v.Why+"; "+said, "; ")
			}
		}
		verdicts = append(verdicts, group...)
	}
	return verdicts
}

// compare is plane against baseline as the metric asks for.
func compare(metric string, pairs []Pair) (Interval, bool) {
	if results.ByDifference(metric) {
		return Difference(pairs)
	}
	return Ratio(pairs)
}

func floorOf(metric string, i Interval) float64 {
	if results.ByDifference(metric) {
		return DifferenceFloor(i)
	}
	return Floor(i)
}

// broken says in how many blocks one of the planes broke, rejected ones included: that is a result, and no result is lost for what
// the surroundings did. How it broke is said once, in the outcome.
func broken(blocks []results.Block, planes ...string) string {
	var said []string
	for _, plane := range planes {
		n := 0
		for _, b := range blocks {
			if b.Plane == plane && len(b.Failed) > 0 {
				n++
			}
		}
		if n > 0 {
			count := "blocks"
			if n == 1 {
				count = "block"
			}
			said = append(said, fmt.Sprintf("%s failed in %d %s", plane, n, count))
		}
	}
	return strings.Join(said, "; ")
}

// failing says which of the planes left many requests without a good answer.
func failing(blocks []results.Block, planes ...string) string {
	var said []string
	for _, plane := range planes {
		if share, _ := FailedShare(blocks, plane); share > ManyFailed {
			said = append(said, fmt.Sprintf("%.3g %% of the requests failed with %s", 100*share, plane))
		}
	}
	return strings.Join(said, "; ")
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
		if p := (Pair{a, b}); okA && okB && (p.usable() || results.ByDifference(metric) && len(differences([]Pair{p})) > 0) {
			pairs = append(pairs, p)
		}
	}
	return pairs
}

// rounds is how many rounds a cell has been measured in.
func rounds(blocks []results.Block) int {
	var all []int
	for _, b := range blocks {
		if !slices.Contains(all, b.Round) {
			all = append(all, b.Round)
		}
	}
	return len(all)
}

// mostMore is the largest number of rounds that an estimate of more rounds names: beyond it nothing but chance was seen.
const mostMore = 1000

// moreRounds estimates how many more rounds bring the missing ones, if as many of them count as of those measured so far; 0 where
// none counted, which allows no estimate.
func moreRounds(measured, counted, needed int) int {
	if counted == 0 || measured == 0 {
		return 0
	}
	return int(math.Ceil(float64(needed-counted) * float64(measured) / float64(counted)))
}

// roundsOfRankTest estimates how many more rounds the rank test needs to reach its level, if the differences stay as they are: the
// test's normal deviate grows with the square root of the rounds. 0 where nothing was seen.
func roundsOfRankTest(v results.Verdict) int {
	if v.P <= 0 || v.P >= 1 || v.Holm < v.P {
		return 0
	}
	deviate := func(p float64) float64 { return math.Sqrt2 * math.Erfinv(1-p) }
	scale := deviate(level*v.P/v.Holm) / deviate(v.P)
	more := math.Ceil(float64(v.Pairs)*scale*scale) - float64(v.Pairs)
	if !(more >= 1 && more <= mostMore) {
		return 0
	}
	return int(more)
}

// alsoMore adds to a reason how many more rounds a verdict takes, where that can be estimated.
func alsoMore(why string, more int) string {
	if more == 0 {
		return why
	}
	said := fmt.Sprintf("about %d more rounds would tell", more)
	if more == 1 {
		said = "about 1 more round would tell"
	}
	if why == "" {
		return said
	}
	return why + "; " + said
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

func judgement(v results.Verdict, least, rejected int) (judgement, why string) {
	if v.Pairs < least {
		switch {
		case rejected == 1:
			why = "1 block was rejected for what its environment did"
		case rejected > 1:
			why = fmt.Sprintf("%d blocks were rejected for what their environment did", rejected)
		}
		return results.TooFew, why
	}
	// The end of the interval that lies nearer to no difference must be beyond the noise.
	same, nearest, noise := 1.0, math.Max(v.Low, 1/v.High), "a factor of %.3f"
	if results.ByDifference(v.Metric) {
		same, nearest, noise = 0, math.Max(v.Low, -v.High), "%.3g"
	}
	if !(Interval{v.Ratio, v.Low, v.High}).Excludes(same) {
		return results.Indistinguishable, fmt.Sprintf("the interval includes %g", same)
	}
	if v.Floor > 0 && nearest <= v.Floor {
		return results.Indistinguishable, "within the noise of two alike, " + fmt.Sprintf(noise, v.Floor)
	}
	if v.Holm > level {
		why := fmt.Sprintf("the rank test does not agree (p = %.3f over all metrics looked at)", v.Holm)
		return results.Indistinguishable, alsoMore(why, roundsOfRankTest(v))
	}
	if (v.Ratio < same) == results.BetterIsLower(v.Metric) {
		return results.Faster, ""
	}
	return results.Slower, ""
}
