package stats

import "math"

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
	return upperGamma(float64(freedom)/2, statistic/2)
}

const (
	gammaSteps   = 100_000
	gammaPrecise = 1e-15
)

// upperGamma is the regularized upper incomplete gamma function, by its series where that converges fast and by Lentz's method for
// its continued fraction elsewhere (DLMF 8.7.1 and 8.9.2).
func upperGamma(a, x float64) float64 {
	logGamma, _ := math.Lgamma(a)
	scale := math.Exp(a*math.Log(x) - x - logGamma)
	if x < a+1 {
		term := 1 / a
		sum := term
		for n := 1.0; n < gammaSteps && term > sum*gammaPrecise; n++ {
			term *= x / (a + n)
			sum += term
		}
		return max(0, 1-scale*sum)
	}
	const tiny = 1e-300
	b := x + 1 - a
	c, d := 1/tiny, 1/b
	fraction := d
	for n := 1.0; n < gammaSteps; n++ {
		an := -n * (n - a)
		b += 2
		if d = an*d + b; math.Abs(d) < tiny {
			d = tiny
		}
		if c = b + an/c; math.Abs(c) < tiny {
			c = tiny
		}
		d = 1 / d
		step := c * d
		fraction *= step
		if math.Abs(step-1) < gammaPrecise {
			break
		}
	}
	return min(1, scale*fraction)
}
