package stats

import (
	"math"

	"gonum.org/v1/gonum/mathext"
)

// ChiSquare is Pearson's statistic of counts against an even share for each, and its degrees of freedom. Counts that chance alone
// has shared out come to about as much as there are degrees of freedom; less means more even than chance.
func ChiSquare(counts []float64) (statistic float64, freedom int) {
	total := 0.0
	for _, c := range counts {
		total += c
	}
	if total == 0 || len(counts) < 2 {
		return 0, 0
	}
	mean := total / float64(len(counts))
	for _, c := range counts {
		statistic += (c - mean) * (c - mean) / mean
	}
	return statistic, len(counts) - 1
}

// ChiSquareTail is how probable a statistic of at least so much is by chance.
func ChiSquareTail(statistic float64, freedom int) float64 {
	if freedom < 1 || math.IsNaN(statistic) {
		return math.NaN()
	}
	if statistic <= 0 {
		return 1
	}
	return mathext.GammaIncRegComp(float64(freedom)/2, statistic/2)
}
