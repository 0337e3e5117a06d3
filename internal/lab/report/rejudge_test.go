package report

import (
	"bytes"
	"reflect"
	"strings"
	"testing"

	"lateen.dev/lateen/internal/lab/results"
)

func markdownOf(t *testing.T, r *results.Results) string {
	t.Helper()
	var out bytes.Buffer
	if err := Markdown(&out, r); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// A document whose verdicts an older program wrote is judged as this one judges, and the report says where that differs.
func TestVerdictsAreJudgedAgainFromTheBlocks(t *testing.T) {
	r, old := sample(t), sample(t)
	Rejudge(r)
	if len(r.Remarks) > 0 || !reflect.DeepEqual(r.Scenarios, old.Scenarios) {
		t.Errorf("nothing was to be changed: %q", r.Remarks)
	}
	v := &old.Scenarios[0].Cells[1].Verdicts[0]
	v.Judgement, v.Why, v.Floor = results.Invalid, "the noise floor was not measured", 0
	Rejudge(old)
	if !reflect.DeepEqual(r.Scenarios, old.Scenarios) {
		t.Error("the verdict is not that of the blocks")
	}
	text := markdownOf(t, old)
	if want := "1 of 68 are not those of the document, which another version of this program wrote (4 connections, P50 of lateen to none: slower, was invalid)"; !strings.Contains(text, want) {
		t.Errorf("the report lacks %q", want)
	}
	// The noise is that of the two that were alike, and of nobody if they have no block.
	for i := range old.Scenarios[0].Cells {
		c := &old.Scenarios[0].Cells[i]
		for j := range c.Blocks {
			if c.Blocks[j].Plane == "none-2" {
				c.Blocks[j].Rejected = []string{"x"}
			}
		}
	}
	Rejudge(old)
	for _, v := range old.Scenarios[0].Cells[0].Verdicts {
		if v.Judgement != results.TooFew {
			t.Errorf("without the witness: %+v", v)
		}
	}
}

// One round has a difference, and neither an interval nor noise.
func TestOneRoundHasNoInterval(t *testing.T) {
	r := sample(t)
	for i := range r.Scenarios {
		for j := range r.Scenarios[i].Cells {
			c := &r.Scenarios[i].Cells[j]
			c.Blocks = c.Blocks[:4]
		}
	}
	Rejudge(r)
	for i := range r.Scenarios {
		ds := digests(r, &r.Scenarios[i])
		for _, d := range ds {
			for _, v := range d.cell.Verdicts {
				if v.Pairs != 1 || v.Floor != 0 {
					t.Errorf("%+v", v)
				}
			}
		}
		for _, c := range verdictTable(r, ds).columns { // columns without a value are left out
			if c.title == "95 % interval" || strings.HasPrefix(c.title, "noise") {
				t.Errorf("there is a column %q", c.title)
			}
		}
	}
}

// What is in no percentile, or came after its time, is said of each row.
func TestRequestsThatWereNotBegunAreSaid(t *testing.T) {
	r := sample(t)
	c := &r.Scenarios[0].Cells[0]
	for i := range c.Blocks {
		b := &c.Blocks[i]
		b.Environment = map[string]float64{results.EnvBegun: 1, results.EnvKept: 0.995}
		switch b.Plane {
		case "lateen":
			b.Environment[results.EnvBegun], b.Environment[results.EnvKept] = 0.528, 0.23
		case "ztunnel":
			b.Environment[results.EnvKept] = 0.7
		}
	}
	text := markdownOf(t, r)
	for _, want := range []string{
		"2 connections, lateen: the server fell behind: 52.8 % of requests started, some of them late; the rest never started and are in no percentile.",
		"2 connections, ztunnel: the server fell behind: 70 % of requests started on schedule; the rest started late and are included.",
	} {
		if strings.Count(text, want) != 1 {
			t.Errorf("the report lacks %q", want)
		}
	}
	if strings.Count(text, "the server fell behind") != 2 {
		t.Error("more is said than there is")
	}
}

// Nothing about acknowledgements is guessed from a time alone.
func TestATimeAloneIsNoDelayedAcknowledgement(t *testing.T) {
	r := sample(t)
	c := &r.Scenarios[1].Cells[0]
	for i := range c.Blocks {
		delete(c.Blocks[i].Metrics, results.DelayedACKsPerRequest(results.RoleGenerator))
		delete(c.Blocks[i].Metrics, results.DelayedACKsPerRequest(results.RoleApp))
	}
	var out bytes.Buffer
	if err := Explain(&out, r); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(out.String(), "looks like") || !strings.Contains(out.String(), "it may be the service itself") {
		t.Errorf("got:\n%s", out.String())
	}
}

func TestWhatHasNoBlocksHasNoGates(t *testing.T) {
	r := sample(t)
	if !strings.Contains(markdownOf(t, r), "A block is rejected if") {
		t.Error("the gates are gone")
	}
	for i := range r.Scenarios {
		r.Scenarios[i].Cells = nil
	}
	if strings.Contains(markdownOf(t, r), "A block is rejected if") {
		t.Error("gates without a block")
	}
}

func TestACurveSaysWhatIsPooled(t *testing.T) {
	r := sample(t)
	pooled, medians := 0, 0
	for _, c := range curves(r, digests(r, &r.Scenarios[0])) {
		if strings.Contains(c.description, "all blocks' samples together") {
			pooled++
			if !strings.Contains(c.title, "P99") {
				t.Errorf("%s: %s", c.title, c.description)
			}
		} else {
			medians++
		}
	}
	if pooled != 1 || medians == 0 {
		t.Errorf("%d and %d curves", pooled, medians)
	}
}
