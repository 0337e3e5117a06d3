package printer

import (
	"strings"
	"testing"
	"unicode/utf8"

	"lateen.dev/lateen/internal/check"
	"lateen.dev/lateen/internal/cli/term"
)

func TestAReportOfChecksFitsItsTerminal(t *testing.T) {
	report := check.Report{Results: []check.Result{
		{Code: "LAT001", Title: "root", Outcome: check.OK, Found: strings.Repeat("found ", 30)},
		{Code: "LAT014", Title: "accelerator", Outcome: check.Warning, Cause: "it is on and cannot work here: " + strings.Repeat("why ", 30), Fix: check.AcceleratorFix},
	}}
	for _, columns := range []int{0, 80, 100} {
		var text strings.Builder
		if err := Check(&text, report, columns, term.Style{}); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(text.String()) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); columns > 0 && n > columns {
				t.Errorf("at %d columns: %d: %s", columns, n, line)
			}
		}
		if words := strings.Join(strings.Fields(text.String()), " "); !strings.Contains(words, "fix: "+check.AcceleratorFix) || !strings.Contains(words, strings.TrimSpace(strings.Repeat("why ", 30))) {
			t.Errorf("at %d columns words are missing:\n%s", columns, text.String())
		}
		if lines := strings.Count(text.String(), "\n"); columns == 0 && lines != 4 {
			t.Errorf("without bounds there are %d lines:\n%s", lines, text.String())
		}
	}
}
