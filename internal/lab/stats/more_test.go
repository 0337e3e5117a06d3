package stats

import (
	"testing"

	"lateen.dev/lateen/internal/lab/results"
)

func TestHowManyMoreRoundsWouldTell(t *testing.T) {
	for _, tt := range []struct{ measured, counted, needed, want int }{
		{10, 5, 8, 6}, {7, 7, 8, 1}, {4, 0, 7, 0}, {0, 0, 7, 0}, {12, 3, 7, 16},
	} {
		if got := moreRounds(tt.measured, tt.counted, tt.needed); got != tt.want {
			t.Errorf("%d of %d rounds count and %d are needed: about %d more, want %d", tt.counted, tt.measured, tt.needed, got, tt.want)
		}
	}
	// Twice the deviate takes four times the rounds: p = 0.3173 is one standard deviation, 0.05 is 1.96.
	if got := roundsOfRankTest(results.Verdict{Pairs: 10, P: 0.3173, Holm: 0.3173}); got != 29 {
		t.Errorf("got %d more rounds, want 29 for 10 × 1.96² in all", got)
	}
	for name, v := range map[string]results.Verdict{
		"no difference":         {Pairs: 10, P: 1, Holm: 1},
		"hardly any":            {Pairs: 10, P: 0.95, Holm: 0.95},
		"a level reached":       {Pairs: 10, P: 0.01, Holm: 0.01},
		"a document's nonsense": {Pairs: 10, P: 0.5, Holm: 0.1},
	} {
		if got := roundsOfRankTest(v); got != 0 {
			t.Errorf("%s: got %d", name, got)
		}
	}
	if got := alsoMore("", 1); got != "about 1 more round would tell" {
		t.Errorf("got %q", got)
	}
	if got := alsoMore("why", 3); got != "why; about 3 more rounds would tell" {
		t.Errorf("got %q", got)
	}
}
