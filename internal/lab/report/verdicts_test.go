package report

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"lateen.dev/lateen/internal/lab/results"
)

// A reader of a report of thousands of numbers wants the verdict first.
func TestAReportBeginsWithItsVerdictsAndAShortTable(t *testing.T) {
	r := sample(t)
	r.Scenarios = r.Scenarios[1:] // details-nagle
	text := markdownOf(t, r)
	lines := strings.Split(text, "\n")
	if lines[2] != "- details-nagle: lateen against none, by service time P50: faster." {
		t.Errorf("it begins with %q", lines[2])
	}
	end := 0
	for i, line := range lines {
		if strings.HasPrefix(line, "|") && strings.Contains(line, " ztunnel ") && end == 0 {
			end = i
		}
	}
	if end == 0 || end > 24 {
		t.Errorf("the table of verdicts ends in line %d", end)
	}
	for _, line := range lines[:end+1] {
		if utf8.RuneCountInString(line) > 100 {
			t.Errorf("%d columns: %s", utf8.RuneCountInString(line), line)
		}
	}
}

// A plane that is faster can cost more time of processors, which the table further down alone said.
func TestTheCostOfSeveralSettingsIsARange(t *testing.T) {
	r := sample(t)
	text := markdownOf(t, r)
	if want := "- twopods-conn: lateen against none, by CPU of whole path: more in all 4 settings ("; !strings.Contains(text, want) {
		t.Errorf("%q is not in\n%s", want, text[:1000])
	}
	for i := range r.Scenarios {
		for j := range r.Scenarios[i].Cells {
			for k := range r.Scenarios[i].Cells[j].Verdicts {
				if v := &r.Scenarios[i].Cells[j].Verdicts[k]; v.Metric == cpuTotal(results.RoleAll) {
					v.Judgement = results.TooFew
				}
			}
		}
	}
	for _, sentence := range Verdicts(r) {
		if strings.Contains(sentence, "CPU") {
			t.Errorf("without a judgement it says %s", sentence)
		}
	}
}

// Two rounds are no fault of the mesh, and no fault of the numbers either.
func TestTooFewRoundsAreCalledSo(t *testing.T) {
	r := sample(t)
	for i := range r.Scenarios {
		for j := range r.Scenarios[i].Cells {
			c := &r.Scenarios[i].Cells[j]
			kept := c.Blocks[:0]
			for _, b := range c.Blocks {
				if b.Round <= 2 {
					kept = append(kept, b)
				}
			}
			c.Blocks = kept
		}
	}
	Rejudge(r)
	r.Remarks = nil
	text := markdownOf(t, r)
	if !strings.Contains(text, "- twopods-conn: lateen against none, by P50: too few rounds (2 of 8) in all 4 settings.\n") || strings.Contains(text, "invalid") {
		t.Errorf("got\n%s", text[:min(len(text), 3000)])
	}
	if v := r.Scenarios[0].Cells[0].Verdicts[0]; v.Judgement != results.TooFew || v.Counted != 2 || v.Needed != 8 {
		t.Errorf("the document has %+v", v)
	}
}

// A plane has the name in a report that it has in the document, on the command line and in the terminal.
func TestAPlaneHasOneName(t *testing.T) {
	r := sample(t)
	text := markdownOf(t, r)
	ours, _, _ := strings.Cut(text, "### Published by others")
	if strings.Contains(ours, "again (A/A)") || strings.Count(ours, "no mesh") != 1 {
		t.Errorf("another name for none is in\n%s", ours)
	}
	if !strings.Contains(text, "Planes: none is no mesh; none-2 is none a second time (A/A).") {
		t.Error("nothing says what none-2 is")
	}
}

// Every number of a run, metric by metric, took thousands of lines.
func TestAReportGrowsWithItsSettingsNotWithItsMetrics(t *testing.T) {
	r := sample(t)
	before := strings.Count(markdownOf(t, r), "\n")
	for i := range r.Scenarios {
		for j := range r.Scenarios[i].Cells {
			for k := range r.Scenarios[i].Cells[j].Blocks {
				for n := range 100 {
					r.Scenarios[i].Cells[j].Blocks[k].Metrics[results.SyscallsPerRequest(results.RoleApp, fmt.Sprintf("call%d", n))] = 1
				}
			}
		}
	}
	if after := strings.Count(markdownOf(t, r), "\n"); after > before+2 {
		t.Errorf("%d lines were %d", after, before)
	}
}
