package stats

import "math"

// Fisher is the probability that chance alone shares the events out between two groups at least as unevenly: a of n in the one, b of
// m in the other (Fisher's exact test, both sides). It is 1 where there is nothing to compare.
func Fisher(a, n, b, m int) float64 {
	if a < 0 || b < 0 || a > n || b > m {
		return math.NaN()
	}
	of := func(n, k int) float64 { // the logarithm of the binomial coefficient
		all, _ := math.Lgamma(float64(n + 1))
		in, _ := math.Lgamma(float64(k + 1))
		out, _ := math.Lgamma(float64(n - k + 1))
		return all - in - out
	}
	events := a + b
	probability := func(x int) float64 { return math.Exp(of(n, x) + of(m, events-x) - of(n+m, events)) }
	// Splits that are as probable as the one that is there differ from it by rounding.
	limit := probability(a) * (1 + 1e-9)
	sum := 0.0
	for x := max(0, events-m); x <= min(n, events); x++ {
		if p := probability(x); p <= limit {
			sum += p
		}
	}
	return min(1, sum)
}
