package stats_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"lateen.dev/lateen/internal/lab/results"
	"lateen.dev/lateen/internal/lab/stats"
)

func near(t *testing.T, what string, got, want, within float64) {
	t.Helper()
	if math.IsNaN(got) || math.Abs(got-want) > within {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// The values are those of numpy.quantile.
func TestQuantile(t *testing.T) {
	sample := []float64{3, 1, 4, 1, 5, 9, 2, 6}
	for q, want := range map[float64]float64{0: 1, 0.1: 1, 0.5: 3.5, 0.9: 6.9, 1: 9} {
		near(t, fmt.Sprint(q), stats.Quantile(sample, q), want, 1e-12)
	}
	if !math.IsNaN(stats.Median(nil)) {
		t.Error("the median of nothing is a number")
	}
	if sample[0] != 3 {
		t.Error("the sample was sorted in place")
	}
}

// The ranks are those of scipy.stats.binom.
func TestQuantileRanks(t *testing.T) {
	for _, tc := range []struct {
		n         int
		q         float64
		low, high int
	}{{2000, 0.99, 1971, 1989}, {100, 0.5, 40, 61}, {1000, 0.9, 881, 919}, {20, 0.99, 19, 21}} {
		if low, high := stats.QuantileRanks(tc.n, tc.q); low != tc.low || high != tc.high {
			t.Errorf("n %d, q %v: got %d and %d, want %d and %d", tc.n, tc.q, low, high, tc.low, tc.high)
		}
	}
}

func TestPercentilesNeedSamplesBeyond(t *testing.T) {
	for _, tc := range []struct {
		q    float64
		n    uint64
		want bool
	}{{0.99, 10_000, true}, {0.99, 9_999, false}, {0.5, 200, true}, {0.999, 99_999, false}, {0.999, 100_000, true}} {
		if got := stats.Printable(tc.q, tc.n); got != tc.want {
			t.Errorf("q %v of %d samples: got %v", tc.q, tc.n, got)
		}
	}
}

// The probabilities are those of scipy.stats.wilcoxon; with ties, of all permutations of the signs counted out.
func TestSignedRank(t *testing.T) {
	for _, tc := range []struct {
		differences []float64
		want        float64
	}{
		{[]float64{.1, .2, .3, .4, .5, .6}, 0.03125},
		{[]float64{0.31, -0.12, 0.55, 0.08, -0.27, 0.91, 0.44, 0.15}, 0.109375},
		{[]float64{-.01, .02, .03, -.04, .05, .06, .07, .08, .09, .1, .11, .12}, 0.0048828125},
		{[]float64{1, 1, -1, 2, 2, 3, 0}, 0.125},
		{[]float64{1, -1, 1, -1}, 1},
		{[]float64{.5, .5, .5, .5, .5, .5, .5}, 0.015625},
		{nil, 1},
		{[]float64{0, 0}, 1},
		// Eighty differences with ties and zeros: the normal approximation.
		{[]float64{
			.6, 1.1, .6, -1, 1.2, .7, -.2, .9, .7, .6, .3, .8, -.4, .1, -.2, .9, .3, 0, -.5, 0, .3, 0, 1.6, 1.3, -2.4, -1.6, .1, -.1, .5, .5,
			2.4, -.8, -.1, 2.3, .9, 1, -.2, -1.3, .5, .4, -.9, -.4, .2, -.6, .2, .4, .3, -.2, .9, 1.2, .6, -.5, 1, -.2, 1.2, -.8, 1.2, .3, -.9, 0,
			.4, .6, -.7, -.8, .5, -.2, .5, 1.1, -1.3, .6, 1.5, 0, -.5, 1.1, .6, 1.2, 0, -1.2, .2, -.1,
		}, 0.010117337855907205},
	} {
		near(t, fmt.Sprint(tc.differences), stats.SignedRank(tc.differences), tc.want, 1e-12)
	}
}

func TestHolm(t *testing.T) {
	got := stats.Holm([]float64{0.04, 0.01, 0.03, 0.005})
	for i, want := range []float64{0.06, 0.03, 0.06, 0.02} {
		near(t, fmt.Sprint(i), got[i], want, 1e-12)
	}
	near(t, "never above 1", stats.Holm([]float64{0.9, 0.8})[0], 1, 0)
}

// A 95 % interval holds what is true in about 95 of 100 experiments; a median of 12 pairs somewhat less exactly.
func TestTheIntervalHoldsWhatIsTrue(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	const experiments, rounds = 200, 12
	held := 0
	for range experiments {
		pairs := make([]stats.Pair, rounds)
		for i := range pairs {
			machine := math.Exp(random.NormFloat64()) // hits both sides alike
			pairs[i] = stats.Pair{Baseline: machine * math.Exp(0.05*random.NormFloat64()), Plane: 1.2 * machine * math.Exp(0.05*random.NormFloat64())}
		}
		i, ok := stats.Ratio(pairs)
		if !ok || i.Low > i.Estimate || i.Estimate > i.High {
			t.Fatalf("%+v is no interval", i)
		}
		if !i.Excludes(1.2) {
			held++
		}
	}
	if held < experiments*88/100 || held > experiments*99/100 {
		t.Errorf("%d of %d intervals hold the true ratio", held, experiments)
	}
}

func TestTheSameBlocksGiveTheSameInterval(t *testing.T) {
	pairs := []stats.Pair{{1, 1.1}, {2, 2.1}, {3, 3.5}, {1, 0.9}, {1, 1.2}, {2, 2.2}, {0, 1}, {1, math.Inf(1)}}
	a, _ := stats.Ratio(pairs)
	b, _ := stats.Ratio(pairs)
	if a != b {
		t.Errorf("%+v, then %+v", a, b)
	}
	if _, ok := stats.Ratio([]stats.Pair{{0, 1}}); ok {
		t.Error("a ratio without a usable pair")
	}
}

// blocks makes a cell: for each round a block of every plane whose metric is the plane's factor times the round's machine.
func blocks(rounds int, metric string, factors map[string]float64, noise float64) results.Cell {
	random := rand.New(rand.NewPCG(3, 4))
	var cell results.Cell
	for r := 1; r <= rounds; r++ {
		machine := 1 + random.Float64()
		for _, plane := range []string{"none", "none-2", "lateen"} {
			if f, ok := factors[plane]; ok {
				cell.Blocks = append(cell.Blocks, results.Block{Plane: plane, Round: r, Metrics: map[string]float64{metric: f * machine * (1 + noise*(random.Float64()-0.5))}})
			}
		}
	}
	return cell
}

func TestJudge(t *testing.T) {
	witness := &stats.Witness{Baseline: "none", Plane: "none-2"}
	for _, tc := range []struct {
		name    string
		cell    results.Cell
		metric  string
		witness *stats.Witness
		want    string
		why     string
	}{
		{"half the latency", blocks(8, results.ResponseP50, map[string]float64{"none": 1, "none-2": 1, "lateen": .5}, .02), results.ResponseP50, witness, results.Faster, ""},
		{"half the throughput", blocks(8, results.QPS, map[string]float64{"none": 1, "lateen": .5}, .02), results.QPS, nil, results.Slower, ""},
		{"twice the throughput", blocks(8, results.QPS, map[string]float64{"none": 1, "lateen": 2}, .02), results.QPS, nil, results.Faster, ""},
		{"no difference", blocks(8, results.ResponseP50, map[string]float64{"none": 1, "lateen": 1}, .1), results.ResponseP50, nil, results.Indistinguishable, "includes 1"},
		{"clear, yet less than the noise of two alike", blocks(8, results.ResponseP50, map[string]float64{"none": 1, "none-2": 1.3, "lateen": 1.2}, .01), results.ResponseP50, witness, results.Indistinguishable, "noise of two alike"},
		{"too few rounds", blocks(5, results.ResponseP50, map[string]float64{"none": 1, "lateen": 3}, .01), results.ResponseP50, nil, results.Invalid, "5 rounds"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			verdicts := stats.Judge(tc.cell, "none", []string{"none", "lateen"}, []string{tc.metric}, tc.witness)
			if len(verdicts) != 1 {
				t.Fatalf("got %d verdicts", len(verdicts))
			}
			if v := verdicts[0]; v.Judgement != tc.want || !strings.Contains(v.Why, tc.why) {
				t.Errorf("got %s (%s), want %s: %+v", v.Judgement, v.Why, tc.want, v)
			}
		})
	}
}

// Six rounds can be clear about one metric, but not about one of ten that were looked at.
func TestManyMetricsNeedMoreRounds(t *testing.T) {
	metrics := []string{results.ResponseP50}
	cell := blocks(6, results.ResponseP50, map[string]float64{"none": 1, "lateen": 2}, .02)
	for i := range 9 {
		name := fmt.Sprint("m", i)
		metrics = append(metrics, name)
		for b := range cell.Blocks {
			cell.Blocks[b].Metrics[name] = float64(1 + (b*7+i)%5)
		}
	}
	alone := stats.Judge(cell, "none", []string{"lateen"}, metrics[:1], nil)[0]
	together := stats.Judge(cell, "none", []string{"lateen"}, metrics, nil)[0]
	if alone.Judgement != results.Slower || together.Judgement != results.Indistinguishable || !strings.Contains(together.Why, "rank test") {
		t.Errorf("alone %s, together %s (%s)", alone.Judgement, together.Judgement, together.Why)
	}
}

func TestRejectedBlocksDoNotCount(t *testing.T) {
	cell := blocks(8, results.ResponseP50, map[string]float64{"none": 1, "lateen": 2}, .02)
	for i := range cell.Blocks {
		if b := &cell.Blocks[i]; b.Round <= 3 && b.Plane == "none" {
			b.Rejected = []string{"steal 0.04"}
			b.Metrics[results.ResponseP50] = 1000
		}
	}
	v := stats.Judge(cell, "none", []string{"lateen"}, []string{results.ResponseP50}, nil)[0]
	if v.Pairs != 5 || v.Judgement != results.Invalid || !strings.Contains(v.Why, "3 blocks were rejected") {
		t.Errorf("%+v", v)
	}
	near(t, "ratio", v.Ratio, 2, 0.05)
}
