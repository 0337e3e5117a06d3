package stats

import (
	"math"
	"slices"
)

// Median of a sample; NaN for an empty one.
func Median(sample []float64) float64 { return Quantile(sample, 0.5) }

// Quantile interpolates linearly between order statistics (type 7 of Hyndman and Fan 1996, the default of R and NumPy).
// q lies in [0, 1]. NaN for an empty sample.
func Quantile(sample []float64, q float64) float64 {
	if len(sample) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(sample))
	return quantileOfSorted(sorted, q)
}

func quantileOfSorted(sorted []float64, q float64) float64 {
	at := q * float64(len(sorted)-1)
	below := int(math.Floor(at))
	if below+1 >= len(sorted) {
		return sorted[len(sorted)-1]
	}
	return sorted[below] + (at-float64(below))*(sorted[below+1]-sorted[below])
}

// MinBeyond is how many samples must lie beyond a percentile before it may be printed.
const MinBeyond = 100

// Printable tells whether a percentile (q in (0, 1)) of n samples has enough of them beyond it.
func Printable(q float64, n uint64) bool { return (1-q)*float64(n) >= MinBeyond*(1-1e-9) }

// Samples is the least number of samples of which a percentile (q in (0, 1)) may be printed: 10,000 for P99.
func Samples(q float64) uint64 { return uint64(math.Ceil(MinBeyond * (1 - 1e-9) / (1 - q))) }

// QuantileRanks returns the ranks (from 1) of the two order statistics between which the q-quantile of the population lies
// with a probability of at least 95 %, whatever its distribution: the count of samples below the quantile is binomial. For
// n = 2000 and q = 0.99 these are 1971 and 1989. The interval is open where the sample is too small: low is then 0 or high
// is n+1.
func QuantileRanks(n int, q float64) (low, high int) {
	// The largest low with P(X < low) <= 2.5 % and the smallest high with P(X < high) >= 97.5 %.
	const tail = 0.025
	cumulative := 0.0 // P(X <= k-1)
	low, high = 0, n+1
	for k := 0; k <= n; k++ {
		if cumulative <= tail {
			low = k
		}
		cumulative += binomial(n, k, q)
		if cumulative >= 1-tail {
			high = k + 1
			break
		}
	}
	return low, high
}

func binomial(n, k int, p float64) float64 {
	if p <= 0 || p >= 1 {
		return math.NaN()
	}
	choose := lgamma(n+1) - lgamma(k+1) - lgamma(n-k+1)
	return math.Exp(choose + float64(k)*math.Log(p) + float64(n-k)*math.Log1p(-p))
}

func lgamma(n int) float64 {
	v, _ := math.Lgamma(float64(n))
	return v
}
