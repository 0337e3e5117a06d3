package report

import (
	"slices"
	"testing"

	"lateen.dev/lateen/internal/lab/results"
)

func TestFactsOfSeveralSettingsStandSideBySide(t *testing.T) {
	r := &results.Results{Planes: []results.Plane{{Name: "lateen", Kind: results.KindLateen}}}
	o := &results.Outcome{Facts: []results.Fact{
		{Plane: "lateen", Group: "start", Name: "CPU", Value: 0.5, Unit: "cores"},
		{Plane: "lateen", Group: "at rest", Name: "CPU", Value: 0.1, Unit: "cores", Target: 0.25},
		{Plane: "lateen", Group: "busy", Name: "CPU", Value: 0.4, Unit: "cores", Target: 0.25, Note: "said once"},
		{Plane: "lateen", Group: "busy", Name: "changes", Value: 30, Note: "said once"},
		{Plane: "lateen", Name: "alone", Value: 3, Unit: "s"},
	}}
	got := factTable(r, o)
	want := [][]string{{"CPU", "cores", "0.50", "0.10", "0.40 (missed)", "0.25"}, {"changes", "", "", "", "30.0", ""}}
	var titles []string
	for _, c := range got.columns {
		titles = append(titles, c.title)
	}
	if !slices.Equal(titles, []string{"what", "unit", "start", "at rest", "busy", "at most"}) {
		t.Errorf("columns %q", titles)
	}
	if !slices.EqualFunc(got.rows, want, slices.Equal) {
		t.Errorf("rows %q", got.rows)
	}
	if len(got.notes) != 1 {
		t.Errorf("notes %q", got.notes)
	}
	if rest := facts(r, o); len(rest.rows) != 1 || rest.rows[0][0] != "alone" {
		t.Errorf("the others: %q", rest.rows)
	}
	o.Facts = append(o.Facts, results.Fact{Plane: "none", Group: "busy", Name: "CPU", Value: 1})
	if both := factTable(r, o); both.columns[1].title != "side" || len(both.rows) != 3 {
		t.Errorf("with two planes: %q", both.rows)
	}
}
