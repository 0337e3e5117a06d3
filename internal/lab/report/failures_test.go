package report

import (
	"bytes"
	"strings"
	"testing"

	"lateen.dev/lateen/internal/lab/results"
)

// What planes failed at is at the head of the report, in the first table, and where blocks were rejected beside that.
func TestFailuresAreInTheReport(t *testing.T) {
	r := sample(t)
	o := &r.Scenarios[0]
	c := &o.Cells[0]
	o.Failures = []string{"2 connections, lateen: 5 % of the requests failed: 600 status_503"}
	for i := range c.Blocks {
		b := &c.Blocks[i]
		b.Metrics[results.FailedShare] = 0
		if b.Plane == "lateen" {
			b.Metrics[results.FailedShare], b.Metrics[results.QPS], b.Errors = 0.05, 950, map[string]uint64{"status_503": 75}
			if b.Round == 8 {
				b.Rejected = []string{"share stolen by the hypervisor 0.04, at most 0.01"}
			}
		}
	}
	judge(c, []string{results.ResponseP50, results.FailedShare})
	var out bytes.Buffer
	if err := Markdown(&out, r); err != nil {
		t.Fatal(err)
	}
	text := out.String()
	for _, want := range []string{
		"twopods-conn: 2 connections, lateen: 5 % of the requests failed: 600 status_503", "| failed requests |", "|             5 % |", "|        950 |",
		"+5 points", "+5 points to +5 points", "5 % of the requests failed with lateen", "round 8 (share stolen by the hypervisor 0.04, at most 0.01; failed requests: 75 status_503)",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the report lacks %q", want)
		}
	}
}

// Gates look at the environment alone, but what a plane does may be what spoils it.
func TestRejectionsThatAreNotAlikeAreSaid(t *testing.T) {
	for spoilt, want := range map[int]string{
		0: "", 3: "",
		8: "Not alike for all planes: 8 of 8 blocks of the plane lateen, and 0 of 8 blocks of the plane none; chance alone seldom does that (p below 0.001,",
	} {
		r := sample(t)
		c := &r.Scenarios[0].Cells[0]
		r.Scenarios = r.Scenarios[:1]
		r.Scenarios[0].Cells = r.Scenarios[0].Cells[:1]
		for i := range c.Blocks {
			b := &c.Blocks[i]
			if b.Rejected = nil; b.Plane == "lateen" && b.Round <= spoilt || b.Plane == "ztunnel" && b.Round == 1 {
				b.Rejected = []string{"other processes' share of the machine 0.3, at most 0.1"}
			}
		}
		var out bytes.Buffer
		if err := Markdown(&out, r); err != nil {
			t.Fatal(err)
		}
		text := strings.Join(strings.Fields(out.String()), " ")
		if said := strings.Contains(text, "Not alike for all planes"); said != (want != "") || !strings.Contains(text, want) {
			t.Errorf("%d rejected: want %q in\n%s", spoilt, want, out.String()[strings.Index(out.String(), "Rejected blocks"):])
		}
	}
}

// A document of before says nothing of a limit that it has not.
func TestALimitThatIsNotThereIsNotSaid(t *testing.T) {
	if got := gatesText(results.Gates{OtherCPU: 0.1, Steal: 0.01, Achieved: 0.99}); strings.Contains(got, "lateness") {
		t.Errorf("got %q", got)
	}
}
