package stats

import (
	"math"
	"testing"
)

func TestChiSquareOfCounts(t *testing.T) {
	for _, c := range []struct {
		counts    []float64
		statistic float64
		freedom   int
	}{
		{[]float64{8, 8, 8, 8}, 0, 3},
		{[]float64{1, 31}, 28.125, 1},
		{[]float64{10, 20, 30}, 10, 2},
		{[]float64{0, 0}, 0, 0},
		{[]float64{5}, 0, 0},
		{nil, 0, 0},
	} {
		if x, df := ChiSquare(c.counts); math.Abs(x-c.statistic) > 1e-12 || df != c.freedom {
			t.Errorf("%v: %v with %d degrees of freedom, want %v with %d", c.counts, x, df, c.statistic, c.freedom)
		}
	}
}

// With even degrees of freedom the tail is a sum of Poisson probabilities, with one it is the normal distribution's.
func TestChiSquareTailAgainstClosedForms(t *testing.T) {
	for _, df := range []int{2, 4, 6, 10, 30, 100, 300} {
		for _, x := range []float64{0.001, 0.5, 1, 2, 5, 10, 29, 31, 60, 99, 101, 150, 299, 320, 600} {
			want, term := 0.0, math.Exp(-x/2)
			for i := range df / 2 {
				if i > 0 {
					term *= x / 2 / float64(i)
				}
				want += term
			}
			if got := ChiSquareTail(x, df); math.Abs(got-want) > 1e-10 {
				t.Errorf("%v with %d degrees of freedom: %v, want %v", x, df, got, want)
			}
		}
	}
	for _, x := range []float64{0.01, 0.5, 1, 3.84, 10, 28.125} {
		if got, want := ChiSquareTail(x, 1), math.Erfc(math.Sqrt(x/2)); math.Abs(got-want) > 1e-12 {
			t.Errorf("%v with 1 degree of freedom: %v, want %v", x, got, want)
		}
	}
	if ChiSquareTail(0, 3) != 1 || !math.IsNaN(ChiSquareTail(1, 0)) || ChiSquareTail(1e6, 3) != 0 {
		t.Error("the ends of the range are wrong")
	}
}

// The tables at the back of every book.
func TestChiSquareTailAgainstTables(t *testing.T) {
	for _, c := range []struct {
		statistic float64
		freedom   int
		tail      float64
	}{{7.815, 3, 0.05}, {11.345, 3, 0.01}, {0.352, 3, 0.95}, {24.996, 15, 0.05}, {43.773, 30, 0.05}, {18.493, 30, 0.95}} {
		if got := ChiSquareTail(c.statistic, c.freedom); math.Abs(got-c.tail) > 5e-5 {
			t.Errorf("%v with %d degrees of freedom: %v, want %v", c.statistic, c.freedom, got, c.tail)
		}
	}
}
