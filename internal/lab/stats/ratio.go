package stats

import (
	"math"
	"math/rand/v2"
	"slices"
)

// Pair is one metric of two blocks of the same round.
type Pair struct{ Baseline, Plane float64 }

// usable pairs have a ratio with a logarithm.
func (p Pair) usable() bool {
	return p.Baseline > 0 && p.Plane > 0 && !math.IsInf(p.Baseline+p.Plane, 0)
}

// Interval is an estimate with its 95 % interval.
type Interval struct{ Estimate, Low, High float64 }

// Excludes tells whether the interval leaves a value out.
func (i Interval) Excludes(value float64) bool { return value < i.Low || value > i.High }

const (
	resamples = 10_000
	// seed makes every run of the statistics over the same blocks the same.
	seed = 0x6c617465656e
)

// Ratio estimates plane over baseline as the median of the pairs' log-ratios, with a percentile bootstrap over pairs: what
// varies is the round, not the request. Pairs that have no ratio (zero, negative, infinite) are left out; ok is false when
// none is left.
func Ratio(pairs []Pair) (i Interval, ok bool) {
	i, ok = medianOf(logRatios(pairs))
	if !ok {
		return Interval{}, false
	}
	return Interval{math.Exp(i.Estimate), math.Exp(i.Low), math.Exp(i.High)}, true
}

// Difference estimates plane less baseline in the same way, for metrics that may be zero.
func Difference(pairs []Pair) (i Interval, ok bool) { return medianOf(differences(pairs)) }

func medianOf(sample []float64) (i Interval, ok bool) {
	if len(sample) == 0 {
		return Interval{}, false
	}
	random := rand.New(rand.NewPCG(seed, uint64(len(sample))))
	medians := make([]float64, resamples)
	drawn := make([]float64, len(sample))
	for r := range medians {
		for d := range drawn {
			drawn[d] = sample[random.IntN(len(sample))]
		}
		slices.Sort(drawn)
		medians[r] = quantileOfSorted(drawn, 0.5)
	}
	slices.Sort(medians)
	return Interval{Median(sample), quantileOfSorted(medians, 0.025), quantileOfSorted(medians, 0.975)}, true
}

func logRatios(pairs []Pair) []float64 {
	var logs []float64
	for _, p := range pairs {
		if p.usable() {
			logs = append(logs, math.Log(p.Plane)-math.Log(p.Baseline))
		}
	}
	return logs
}

func differences(pairs []Pair) []float64 {
	var all []float64
	for _, p := range pairs {
		if d := p.Plane - p.Baseline; !math.IsNaN(d) && !math.IsInf(d, 0) {
			all = append(all, d)
		}
	}
	return all
}

// Floor is the noise between planes that are alike, as a factor of at least 1: the farther end of the interval of their
// ratio from 1. A difference within it is noise.
func Floor(i Interval) float64 { return math.Max(i.High, 1/i.Low) }

// DifferenceFloor is that noise for differences: the farther end of the interval from 0.
func DifferenceFloor(i Interval) float64 { return math.Max(math.Abs(i.Low), math.Abs(i.High)) }
