package run

import (
	"bytes"
	"strings"
	"testing"

	"lateen.dev/lateen/internal/cli/term"
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
		if err := Summary(&out, &results.Results{Scenarios: []results.Outcome{{Scenario: "s", Cells: []results.Cell{{Name: "a", Verdicts: verdicts}}}}}, 0); err != nil {
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
	if err := Summary(&out, r, 0); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"rejected: a, lateen: none of 2 blocks counts; of the last: share stolen by the hypervisor 0.04, at most 0.01\n",
		"note: a, none: the server fell behind: 52.8 % of requests started, some of them late; the rest never started and are in no percentile\n",
	} {
		if strings.Count(out.String(), want) != 1 {
			t.Errorf("%q is not in\n%s", want, out.String())
		}
	}
	if strings.Contains(out.String(), "rejected: a, none") {
		t.Error("one of its blocks counts")
	}
}

// A line that is wider than its terminal goes on in the next one, and no table is read so.
func TestTheSummaryFitsItsTerminal(t *testing.T) {
	metrics := map[string]float64{results.ResponseP50: 1.234, results.ResponseP90: 12.345, results.ResponseP99: 123.456, results.ServiceP50: 1.2, results.QPS: 1000,
		results.CPUPerRequest(results.RoleAll, "total"): 123, results.CPUPerRequest(results.RoleProxies, "total"): 45}
	cell := results.Cell{Name: "compiled server without NODELAY, 30 ms", Blocks: []results.Block{
		{Plane: "none", Round: 1, Metrics: metrics}, {Plane: "lateen", Round: 1, Metrics: metrics, Rejected: []string{"other processes' share of the machine 0.3, at most 0.1"}}}}
	for _, m := range []string{results.ResponseP50, results.CPUPerRequest(results.RoleProxies, "total"), results.FailedShare} {
		cell.Verdicts = append(cell.Verdicts, results.Verdict{Metric: m, Baseline: "none", Plane: "lateen", Pairs: 2, Ratio: 2, Low: 1.5, High: 2.5, Floor: 1.03, Judgement: results.TooFew, Counted: 2, Needed: 8, Why: "6 blocks were rejected for what their environment did"})
	}
	r := &results.Results{Planes: []results.Plane{{Name: "none"}, {Name: "lateen"}}, Scenarios: []results.Outcome{{Scenario: "details-nagle", Title: "A server that writes twice without TCP_NODELAY, and what comes of it", Cells: []results.Cell{cell}}}}
	for _, columns := range []int{80, 100, 160} {
		var out bytes.Buffer
		if err := Summary(&out, r, columns); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(out.String()) {
			if line = strings.TrimSuffix(line, "\n"); term.Width(line) > columns {
				t.Errorf("%d columns: %d in %q", columns, term.Width(line), line)
			}
		}
		if strings.Count(out.String(), "too few rounds (2 of 8)") != 3 || !strings.Contains(out.String(), "1.234") {
			t.Errorf("%d columns:\n%s", columns, out.String())
		}
	}
	var out bytes.Buffer
	if err := Summary(&out, r, 0); err != nil || strings.Count(out.String(), "too few rounds (2 of 8): 6 blocks were rejected for what their environment did\n") != 3 {
		t.Errorf("%v, a pipe has\n%s", err, out.String())
	}
}

// Settings differ by one word in their middle. They are told apart in every table, however narrow it is.
func TestNamesOfSettingsAreNotShortened(t *testing.T) {
	cell := func(name string) results.Cell {
		c := results.Cell{Name: name}
		for _, plane := range []string{"none", "none-2", "lateen"} {
			c.Blocks = append(c.Blocks, results.Block{Plane: plane, Round: 1, Metrics: map[string]float64{results.ResponseP50: 1}})
		}
		for _, metric := range []string{"service_p50_ms", "qps", "cpu_us_per_request.all.total"} {
			c.Verdicts = append(c.Verdicts, results.Verdict{Metric: metric, Baseline: "none", Plane: "lateen", Judgement: results.TooFew, Counted: 1, Needed: 7})
		}
		return c
	}
	r := &results.Results{Planes: []results.Plane{{Name: "none"}, {Name: "none-2"}, {Name: "lateen"}}, Scenarios: []results.Outcome{{Scenario: "s", Cells: []results.Cell{
		cell("details with NODELAY, 30 ms"), cell("details without NODELAY, 30 ms"), cell("same node, new connections, closed loop (saturated)"),
	}}}}
	for _, columns := range []int{0, 80, 100, 160} {
		var out bytes.Buffer
		if err := Summary(&out, r, columns); err != nil {
			t.Fatal(err)
		}
		text := out.String()
		for _, word := range []string{"with", "without", "(saturated)", "connections,"} {
			n := 0
			for _, f := range strings.Fields(text) {
				if f == word {
					n++
				}
			}
			if n < 2 { // the times and the verdicts
				t.Errorf("%d columns: %q stands %d times in\n%s", columns, word, n, text)
			}
		}
		for line := range strings.Lines(text) {
			if w := term.Width(strings.TrimRight(line, "\n")); columns > 0 && w > columns {
				t.Errorf("%d columns: %d wide: %q", columns, w, line)
			}
		}
	}
}

// A setting of which nothing was measured is no row of a comparison, and metrics have the names that the report gives them.
func TestTheSummaryComparesOnlyWhatWasMeasured(t *testing.T) {
	cpu := results.CPUPerRequest(results.RoleAll, "total")
	cell := func(name string) results.Cell {
		c := results.Cell{Name: name}
		for _, metric := range []string{results.ServiceP50, cpu, results.FailedShare} {
			c.Verdicts = append(c.Verdicts, results.Verdict{Metric: metric, Baseline: "none", Plane: "lateen", Pairs: 8, Ratio: 1.5, Low: 1.25, High: 1.75, Floor: 1.03, Judgement: results.Indistinguishable})
		}
		return c
	}
	counted := results.Cell{Name: "30 ms apart, counted", Untimed: true} // system calls are counted apart, and no metric is compared
	r := &results.Results{Scenarios: []results.Outcome{{Scenario: "s", Cells: []results.Cell{cell("30 ms apart"), counted}}}}
	for _, columns := range []int{0, 80, 100, 160} {
		var out bytes.Buffer
		if err := Summary(&out, r, columns); err != nil {
			t.Fatal(err)
		}
		text := out.String()
		for _, want := range []string{"service time P50 ", "CPU of whole path ", "RATIO of failed: the difference of the two shares\n"} {
			if !strings.Contains(text, want) {
				t.Errorf("%d columns: %q is not in\n%s", columns, want, text)
			}
		}
		if strings.Contains(text, "counted") || strings.Contains(text, "cpu_us_per") || strings.Contains(text, "…") {
			t.Errorf("%d columns:\n%s", columns, text)
		}
	}
}
