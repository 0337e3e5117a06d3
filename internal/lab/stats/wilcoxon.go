package stats

import (
	"math"
	"slices"
)

// mostExact is the largest number of differences whose ranks are permuted exactly; beyond it the normal approximation is
// better than what a median of rounds can tell apart.
const mostExact = 60

// SignedRank is Wilcoxon's signed-rank test: the two-sided probability of differences as lopsided as these if none had a
// direction. Zeros are left out and equal sizes share their mean rank (Wilcoxon's own treatment); the distribution is exact
// given these ranks up to 60 differences, and a normal approximation with correction for ties and continuity beyond.
// 1 when no difference is left.
func SignedRank(differences []float64) float64 {
	var sized []float64
	for _, d := range differences {
		if d != 0 && !math.IsNaN(d) {
			sized = append(sized, d)
		}
	}
	n := len(sized)
	if n == 0 {
		return 1
	}
	slices.SortFunc(sized, func(a, b float64) int {
		switch a, b = math.Abs(a), math.Abs(b); {
		case a < b:
			return -1
		case a > b:
			return 1
		}
		return 0
	})
	// Ranks are doubled: a mean rank ends in a half at most, and whole numbers count exactly.
	doubled := make([]int, n)
	ties := 0.0
	for from := 0; from < n; {
		to := from + 1
		for to < n && math.Abs(sized[to]) == math.Abs(sized[from]) {
			to++
		}
		for at := from; at < to; at++ {
			doubled[at] = from + to + 1 // twice the mean of from+1 … to
		}
		size := float64(to - from)
		ties += size*size*size - size
		from = to
	}
	positive, total := 0, 0
	for at, d := range sized {
		total += doubled[at]
		if d > 0 {
			positive += doubled[at]
		}
	}
	least := min(positive, total-positive)
	if n > mostExact {
		mean := float64(n*(n+1)) / 4
		variance := float64(n*(n+1)*(2*n+1))/24 - ties/48
		z := (float64(least)/2 - mean + 0.5) / math.Sqrt(variance)
		return math.Min(1, math.Erfc(-z/math.Sqrt2))
	}
	return math.Min(1, 2*probabilityOfAtMost(doubled, total, least))
}

// probabilityOfAtMost is the chance that the ranks of a random half of signs add up to at most `least`.
func probabilityOfAtMost(ranks []int, total, least int) float64 {
	ways := make([]float64, total+1)
	ways[0] = 1
	reached := 0
	for _, rank := range ranks {
		for sum := reached; sum >= 0; sum-- {
			ways[sum+rank] += ways[sum]
		}
		reached += rank
	}
	sum := 0.0
	for at := 0; at <= least; at++ {
		sum += ways[at]
	}
	return sum / math.Exp2(float64(len(ranks)))
}

// Holm corrects probabilities for having been looked at together (Holm 1979): the result i belongs to p[i] and may be held
// against the level of a single test.
func Holm(p []float64) []float64 {
	order := make([]int, len(p))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		switch {
		case p[a] < p[b]:
			return -1
		case p[a] > p[b]:
			return 1
		}
		return 0
	})
	corrected := make([]float64, len(p))
	highest := 0.0
	for done, i := range order {
		highest = math.Max(highest, math.Min(1, p[i]*float64(len(p)-done)))
		corrected[i] = highest
	}
	return corrected
}
