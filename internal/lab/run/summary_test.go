package run

import (
	"bytes"
	"strings"
	"testing"

	"lateen.dev/lateen/internal/lab/results"
)

// A comparison that rests on no round has no number, and one that rests on fewer rounds than a verdict needs no interval.
func TestTheSummaryHasNoNumberThatWasNotMeasured(t *testing.T) {
	for _, tt := range []struct {
		pairs           int
		ratio, interval string
	}{{0, "-", "-"}, {6, "0.987", "-"}, {7, "0.987", "0.900-1.100"}} {
		var verdicts []results.Verdict
		for _, metric := range []string{"m0", "m1"} { // two metrics need 7 rounds
			v := results.Verdict{Metric: metric, Baseline: "none", Plane: "lateen", Pairs: tt.pairs, Judgement: results.Invalid}
			if tt.pairs > 0 {
				v.Ratio, v.Low, v.High = 0.987, 0.9, 1.1
			}
			verdicts = append(verdicts, v)
		}
		var out bytes.Buffer
		if err := Summary(&out, &results.Results{Scenarios: []results.Outcome{{Scenario: "s", Cells: []results.Cell{{Name: "a", Verdicts: verdicts}}}}}); err != nil {
			t.Fatal(err)
		}
		rows := 0
		for line := range strings.Lines(out.String()) {
			if f := strings.Fields(line); len(f) > 0 && f[len(f)-1] == results.Invalid {
				rows++
				if f = f[len(f)-4:]; f[0] != tt.ratio || f[1] != tt.interval {
					t.Errorf("%d rounds: %q", tt.pairs, line)
				}
			}
		}
		if rows != 2 {
			t.Errorf("%d rounds: %d rows in\n%s", tt.pairs, rows, out.String())
		}
	}
}

func TestOneBlockIsOne(t *testing.T) {
	cells := []results.Cell{{Blocks: []results.Block{{Plane: "a"}}}}
	if got := tally(cells, []int{0}); got != "1 block" {
		t.Errorf("got %q", got)
	}
	cells[0].Blocks = append(cells[0].Blocks, results.Block{Plane: "a", Rejected: []string{"steal"}})
	if got := tally(cells, []int{0}); got != "2 blocks, 1 of them rejected" {
		t.Errorf("got %q", got)
	}
}

func TestWhyNothingCountsIsSaid(t *testing.T) {
	spoilt := []string{"share stolen by the hypervisor 0.04, at most 0.01"}
	r := &results.Results{Planes: []results.Plane{{Name: "none"}, {Name: "lateen"}}, Scenarios: []results.Outcome{{Scenario: "s", Cells: []results.Cell{{Name: "a", Blocks: []results.Block{
		{Plane: "none", Round: 1, Rejected: spoilt}, {Plane: "none", Round: 2, Environment: map[string]float64{results.EnvBegun: 0.528}},
		{Plane: "lateen", Round: 1, Rejected: spoilt}, {Plane: "lateen", Round: 2, Rejected: spoilt},
	}}}}}}
	var out bytes.Buffer
	if err := Summary(&out, r); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"rejected: a, lateen: none of 2 blocks counts; of the last: share stolen by the hypervisor 0.04, at most 0.01\n",
		"note: a, none: 52.8 % of the due requests were begun, some of them after the block; the others are in no percentile\n",
	} {
		if strings.Count(out.String(), want) != 1 {
			t.Errorf("%q is not in\n%s", want, out.String())
		}
	}
	if strings.Contains(out.String(), "rejected: a, none") {
		t.Error("one of its blocks counts")
	}
}
