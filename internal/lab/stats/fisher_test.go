package stats_test

import (
	"fmt"
	"math"
	"testing"

	"lateen.dev/lateen/internal/lab/stats"
)

// The probabilities of the first four are those of Fisher's tea tasting and of tables counted out by hand: 2·C(8,0)·C(8,4)/C(16,4),
// and so on.
func TestFisher(t *testing.T) {
	for _, tc := range []struct {
		a, n, b, m int
		want       float64
	}{
		{3, 4, 1, 4, 34.0 / 70},
		{4, 4, 0, 4, 2.0 / 70},
		{0, 8, 4, 8, 2 * 70.0 / 1820},
		{0, 6, 6, 6, 2.0 / 924},
		{5, 5, 7, 7, 1},
		{0, 5, 0, 9, 1},
		{0, 0, 0, 0, 1},
		{2, 6, 2, 6, 1},
	} {
		near(t, fmt.Sprint(tc), stats.Fisher(tc.a, tc.n, tc.b, tc.m), tc.want, 1e-9)
		near(t, fmt.Sprint(tc, " the other way"), stats.Fisher(tc.b, tc.m, tc.a, tc.n), tc.want, 1e-9)
	}
	if p := stats.Fisher(3, 2, 0, 1); !math.IsNaN(p) {
		t.Errorf("three of two: %v", p)
	}
}
