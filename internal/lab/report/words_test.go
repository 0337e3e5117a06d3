package report

import (
	"strings"
	"testing"

	"lateen.dev/lateen/internal/lab/results"
)

// A long setting is shortened before its side, and in its middle: two rows of one cell must not read alike, nor those of two cells.
func TestRowsStayApartWhenTheyAreShortened(t *testing.T) {
	for _, tt := range []struct {
		name rowName
		most int
		want string
	}{
		{rowName{"8 connections", "lateen"}, 40, "8 connections · lateen"},
		{rowName{"64 connections, as fast as it comes", "envoy-balanced"}, 36, "64 connec…it comes · envoy-balanced"},
		{rowName{"compiled server without NODELAY, 30 ms", "lateen"}, 40, "compiled server…NODELAY, 30 ms · lateen"},
		{rowName{"", "lateen"}, 4, "la…n"},
		{rowName{"a cell with a long name", strings.Repeat("x", 40)}, 20, "a ce…ame · " + strings.Repeat("x", 4) + "…" + strings.Repeat("x", 4)},
	} {
		if got := tt.name.within(tt.most); got != tt.want {
			t.Errorf("%v in %d: %q, want %q", tt.name, tt.most, got, tt.want)
		}
	}
}

func TestGatesAreSaidInWordsAndOpenOnesAreNamed(t *testing.T) {
	for _, tt := range []struct {
		gates results.Gates
		want  []string
	}{
		{results.Gates{OtherCPU: 0.1, Steal: 0.01, Lateness: 5, Achieved: 0.99}, []string{"A block is rejected if other processes use more than 10 % of the machine or the hypervisor takes more than 1 %. ", "It is rejected as well if the generator's own lateness exceeds 5.00 ms at P99 or a generator at its own limit begins less than 99 % of the due"}},
		{results.Gates{OtherCPU: 1, Steal: 0.01, Lateness: 1000}, []string{"A block is rejected if the hypervisor takes more than 1 %.", "opened the gates on other processes, the generator's lateness and the rate: "}},
		{results.Gates{OtherCPU: 1, Steal: 1, Lateness: 1000}, []string{"No gate on the environment was set. "}},
	} {
		got := gatesText(tt.gates)
		for _, want := range tt.want {
			if !strings.Contains(got, want) {
				t.Errorf("%+v: %q lacks %q", tt.gates, got, want)
			}
		}
	}
}

// A variant is compared with lateen, not with the baseline of the others: table and drawing show that difference, and say to what.
func TestVariantsStandBesideWhatTheyVary(t *testing.T) {
	r := sample(t)
	r.Planes = append(r.Planes, results.Plane{Name: "lateen-no-log", Kind: results.KindLateen})
	c := &r.Scenarios[0].Cells[0]
	for _, b := range c.Blocks {
		if b.Plane == "lateen" {
			b.Plane = "lateen-no-log"
			c.Blocks = append(c.Blocks, b)
		}
	}
	c.Verdicts = append(c.Verdicts, results.Verdict{Metric: results.ResponseP50, Baseline: "lateen", Plane: "lateen-no-log", Ratio: 0.9, Low: 0.88, High: 0.92, Pairs: 8, Judgement: results.Faster})
	ds := digests(r, &r.Scenarios[0])
	said := false
	for _, row := range mainTable(ds).rows {
		said = said || strings.Contains(strings.Join(row, "|"), "lateen-no-log|") && strings.Contains(strings.Join(row, "|"), "−10.0 % to lateen|")
	}
	if !said {
		t.Errorf("no such row: %q", mainTable(ds).rows)
	}
	drawn := 0
	for _, c := range forests(r, ds) {
		if c.title == "Ratio to lateen: P50" {
			drawn++
		}
		if strings.HasPrefix(c.title, "Ratio to none") && strings.Contains(string(c.svg), "lateen-no-log") {
			t.Errorf("%s has a row of a variant", c.title)
		}
	}
	if drawn != 1 {
		t.Errorf("drawn %d times", drawn)
	}
}
