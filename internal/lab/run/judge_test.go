package run

import (
	"slices"
	"strings"
	"testing"

	"lateen.dev/lateen/internal/lab/results"
)

// Acknowledgements of both ends together are worth a word, where requests waited for them.
func TestFindingsAreAboutWaitsForAcknowledgements(t *testing.T) {
	block := func(p50, generator, app float64) results.Block {
		return results.Block{Plane: "none", Metrics: map[string]float64{results.ServiceP50: p50,
			results.DelayedACKsPerRequest(results.RoleGenerator): generator, results.DelayedACKsPerRequest(results.RoleApp): app}}
	}
	for name, tt := range map[string]struct {
		block results.Block
		want  bool
	}{
		"both ends together": {block(44, 0.125, 0.125), true},
		"few":                {block(44, 0.125, 0), false},
		"no wait":            {block(4, 0.5, 0.5), false},
	} {
		cells := []results.Cell{{Name: "c", Blocks: []results.Block{tt.block}}}
		notes := findings([]results.Plane{{Name: "none"}}, cells)
		said := slices.ContainsFunc(notes, func(n string) bool {
			return strings.HasPrefix(n, "c, none: 0.25 acknowledgements for each request waited for their timer")
		})
		if said != tt.want || len(notes) > 0 != tt.want {
			t.Errorf("%s: %q", name, notes)
		}
	}
}
