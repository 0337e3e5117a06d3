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
		{"too few rounds", blocks(5, results.ResponseP50, map[string]float64{"none": 1, "lateen": 3}, .01), results.ResponseP50, nil, results.TooFew, "too few rounds (5 of 6)"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			verdicts := stats.Judge(tc.cell, "none", []string{"none", "lateen"}, []string{tc.metric}, tc.witness)
			if len(verdicts) != 1 {
				t.Fatalf("got %d verdicts", len(verdicts))
			}
			if v := verdicts[0]; v.Judgement != tc.want || !strings.Contains(v.SaysWhy(), tc.why) {
				t.Errorf("got %s (%s), want %s: %+v", v.Judgement, v.Why, tc.want, v)
			}
		})
	}
}

// Shares of failed requests are compared by differences: against a plane on which nothing ever fails there is no ratio.
func TestFailuresAreJudgedAgainstNone(t *testing.T) {
	cell := func(noise float64) results.Cell {
		var c results.Cell
		for r := 1; r <= 8; r++ {
			for plane, share := range map[string]float64{"none": 0, "none-2": noise * float64(r%2), "lateen": 0.05 + float64(r)/1000} {
				c.Blocks = append(c.Blocks, results.Block{Plane: plane, Round: r, Metrics: map[string]float64{results.FailedShare: share}})
			}
		}
		return c
	}
	witness := &stats.Witness{Baseline: "none", Plane: "none-2"}
	judge := func(c results.Cell, plane string) results.Verdict {
		return stats.Judge(c, "none", []string{plane}, []string{results.FailedShare}, witness)[0]
	}
	v := judge(cell(0), "lateen")
	if v.Judgement != results.Slower || v.Pairs != 8 {
		t.Errorf("five in a hundred against none: %+v", v)
	}
	near(t, "difference", v.Ratio, 0.0545, 1e-9)
	if v := judge(cell(0), "none-2"); v.Judgement != results.Indistinguishable || v.Why != "the interval includes 0" {
		t.Errorf("none against none: %+v", v)
	}
	if v := judge(cell(0.2), "lateen"); v.Judgement != results.Indistinguishable || !strings.Contains(v.Why, "noise of two alike") {
		t.Errorf("with noise of two alike: %+v", v)
	}
}

// A floor of fewer rounds than a verdict needs is none.
func TestAWitnessNeedsAsManyRounds(t *testing.T) {
	cell := blocks(8, results.ResponseP50, map[string]float64{"none": 1, "none-2": 1, "lateen": 2}, .02)
	for i := range cell.Blocks {
		if b := &cell.Blocks[i]; b.Plane == "none-2" && b.Round > 2 {
			b.Rejected = []string{"steal 0.04"}
		}
	}
	for _, witness := range []*stats.Witness{{Baseline: "none", Plane: "none-2"}, {Baseline: "none", Plane: "never"}} {
		v := stats.Judge(cell, "none", []string{"lateen"}, []string{results.ResponseP50}, witness)[0]
		if v.Judgement != results.TooFew || !strings.Contains(v.Why, "the noise floor was not measured") {
			t.Errorf("%s: %+v", witness.Plane, v)
		}
	}
}

// Whatever its other times are: a plane that broke is not the better one.
func TestAPlaneThatBrokeFailed(t *testing.T) {
	cell := blocks(8, results.ResponseP50, map[string]float64{"none": 1, "lateen": .5}, .02)
	cell.Blocks[3].Failed = []string{"a process ended meanwhile: proxies n1"}
	v := stats.Judge(cell, "none", []string{"lateen"}, []string{results.ResponseP50}, nil)[0]
	if v.Judgement != results.Failed || !strings.Contains(v.Why, "lateen failed in 1 block") || strings.Contains(v.Why, "proxies n1") {
		t.Errorf("%+v", v)
	}
}

// What the surroundings did spoils a block's times; that a plane broke in it is a result all the same.
func TestAPlaneThatBrokeInARejectedBlockFailed(t *testing.T) {
	cell := blocks(8, results.ResponseP50, map[string]float64{"none": 1, "lateen": .5}, .02)
	for i := range cell.Blocks {
		if b := &cell.Blocks[i]; b.Plane == "lateen" && b.Round == 3 {
			b.Failed, b.Rejected = []string{"a process ended meanwhile: proxies n1"}, []string{"other processes' share of the machine 0.3, at most 0.1"}
		}
	}
	v := stats.Judge(cell, "none", []string{"lateen"}, []string{results.ResponseP50}, nil)[0]
	if v.Pairs != 7 || v.Judgement != results.Failed || v.Why != "lateen failed in 1 block" {
		t.Errorf("%+v", v)
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
	if alone.Judgement != results.Slower || together.Judgement != results.TooFew || together.Needed != 9 {
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
	if v.Pairs != 5 || v.Says() != "too few rounds (5 of 6)" || !strings.Contains(v.Why, "3 blocks were rejected") {
		t.Errorf("%+v", v)
	}
	near(t, "ratio", v.Ratio, 2, 0.05)
	for i := range cell.Blocks {
		if b := &cell.Blocks[i]; b.Round > 1 {
			b.Rejected = nil
		}
	}
	v = stats.Judge(cell, "none", []string{"lateen"}, []string{results.ResponseP50, "a", "b", "c"}, nil)[0]
	if v.Pairs != 7 || v.Why != "1 block was rejected for what its environment did; about 2 more rounds would tell" {
		t.Errorf("one rejected: %+v", v)
	}
}

// With as many rounds as are needed the smallest probability there is, corrected for all metrics, reaches the level; with one
// fewer it does not.
func TestTheLeastRoundsAreThoseThatCanTell(t *testing.T) {
	same := func(n int) []float64 {
		d := make([]float64, n)
		for i := range d {
			d[i] = float64(i + 1)
		}
		return d
	}
	for metrics, want := range map[int]int{1: 6, 2: 7, 3: 7, 4: 8, 6: 8, 7: 9} {
		n := stats.MinPairs(metrics)
		if n != want {
			t.Errorf("%d metrics: %d rounds, want %d", metrics, n, want)
		}
		if p := float64(metrics) * stats.SignedRank(same(n)); p > 0.05 {
			t.Errorf("%d metrics, %d rounds: the least probability is %v", metrics, n, p)
		}
		if p := float64(metrics) * stats.SignedRank(same(n-1)); p <= 0.05 {
			t.Errorf("%d metrics: %d rounds would do: %v", metrics, n-1, p)
		}
	}
}

// Two planes without proxies say nothing of what proxies cost; what their whole path wavered by is the floor then.
func TestTheNoiseOfWhatAlikePlanesHaveNot(t *testing.T) {
	proxies, all := results.CPUPerRequest(results.RoleProxies, "total"), results.CPUPerRequest(results.RoleAll, "total")
	for _, tt := range []struct {
		noise float64
		want  string
	}{{0.01, results.Faster}, {2, results.Indistinguishable}} {
		var cell results.Cell
		for r := 1; r <= 8; r++ {
			wave := 1 + tt.noise*float64(r%2)
			for plane, m := range map[string]map[string]float64{
				"none": {all: 50}, "none-2": {all: 50 * wave}, "lateen": {all: 150, proxies: 100 + float64(r)/100}, "envoy": {all: 250, proxies: 200},
			} {
				cell.Blocks = append(cell.Blocks, results.Block{Plane: plane, Round: r, Metrics: m})
			}
		}
		witness := &stats.Witness{Baseline: "none", Plane: "none-2"}
		v := stats.Judge(cell, "envoy", []string{"lateen"}, []string{proxies}, witness)[0]
		if v.Judgement != tt.want || v.Floor < 1 {
			t.Errorf("noise %v: %+v", tt.noise, v)
		}
	}
}
