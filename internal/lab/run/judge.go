package run

import (
	"fmt"
	"slices"

	"lateen.dev/lateen/internal/lab/bench"
	"lateen.dev/lateen/internal/lab/results"
	"lateen.dev/lateen/internal/lab/scenario"
	"lateen.dev/lateen/internal/lab/stats"
)

// judge computes the verdicts of a scenario's cells: of every plane against the first one, of lateen against each peer, and of
// every second self against its first.
func (s *session) judge(sc *scenario.Scenario, out *results.Outcome) {
	for i := range out.Cells {
		c := &out.Cells[i]
		if c.Untimed {
			continue
		}
		c.Verdicts = nil
		for _, pair := range comparisons(s.options.Planes, c.Blocks) {
			metrics := slices.DeleteFunc(slices.Clone(sc.Metrics), func(m string) bool { return !measured(c.Blocks, pair.baseline, m) })
			c.Verdicts = append(c.Verdicts, stats.Judge(*c, pair.baseline, pair.planes, metrics, pair.witness)...)
		}
	}
	out.Notes = append(out.Notes, findings(s.doc.Planes, out.Cells)...)
}

// comparison is one baseline and what is set beside it.
type comparison struct {
	baseline string
	planes   []string
	witness  *stats.Witness
}

// comparisons are those that the planes of a cell allow.
func comparisons(specs []bench.Spec, blocks []results.Block) []comparison {
	var there []string
	for _, b := range blocks {
		if !slices.Contains(there, b.Plane) {
			there = append(there, b.Plane)
		}
	}
	alike := func(name string) *stats.Witness {
		if slices.Contains(there, name) && slices.Contains(there, witness(name)) {
			return &stats.Witness{Baseline: name, Plane: witness(name)}
		}
		return nil
	}
	first := specs[0].Name
	floor := alike(first)
	var list []comparison
	all := comparison{baseline: first, witness: floor}
	var peers []comparison
	for _, spec := range specs {
		if !slices.Contains(there, spec.Name) {
			continue
		}
		if spec.Name != first {
			all.planes = append(all.planes, spec.Name)
		}
		if w := alike(spec.Name); w != nil {
			peers = append(peers, comparison{baseline: spec.Name, planes: []string{witness(spec.Name)}, witness: w})
		}
		if spec.Kind == results.KindNone || spec.Kind == results.KindLateen || spec.Name == first {
			continue
		}
		if slices.Contains(there, results.KindLateen) {
			w := floor
			if own := alike(results.KindLateen); own != nil {
				w = own
			}
			peers = append(peers, comparison{baseline: spec.Name, planes: []string{results.KindLateen}, witness: w})
		}
	}
	if len(all.planes) > 0 {
		list = append(list, all)
	}
	return append(list, peers...)
}

// measured says whether any block of a plane has a metric.
func measured(blocks []results.Block, plane, metric string) bool {
	return slices.ContainsFunc(blocks, func(b results.Block) bool {
		_, has := b.Metrics[metric]
		return has && b.Plane == plane
	})
}

// median of a metric over a plane's blocks that count.
func median(blocks []results.Block, plane, metric string) (float64, bool) {
	var values []float64
	for _, b := range blocks {
		if v, has := b.Metrics[metric]; has && b.Plane == plane && b.Counted() {
			values = append(values, v)
		}
	}
	return stats.Median(values), len(values) > 0
}

// planesOf lists the planes that blocks are of, in the order of the document.
func planesOf(known []results.Plane, blocks []results.Block) []string {
	var names []string
	for _, p := range known {
		if slices.ContainsFunc(blocks, func(b results.Block) bool { return b.Plane == p.Name }) {
			names = append(names, p.Name)
		}
	}
	return names
}

// What is worth a word: half of the requests took as long as the timer of a delayed acknowledgement, and so many
// acknowledgements for each request waited for it.
const (
	longWait    = 35 // ms
	manyDelayed = 0.2
)

// findings says in words what was counted and explains times: acknowledgements that waited for their timer.
func findings(known []results.Plane, cells []results.Cell) []string {
	var notes []string
	for _, c := range cells {
		if c.Untimed {
			continue
		}
		delayed, worth := map[string]float64{}, false
		for _, plane := range planesOf(known, c.Blocks) {
			for _, role := range []string{results.RoleGenerator, results.RoleApp} {
				if v, ok := median(c.Blocks, plane, results.DelayedACKsPerRequest(role)); ok {
					delayed[plane] += v
				}
			}
			p50, _ := median(c.Blocks, plane, results.ServiceP50)
			worth = worth || delayed[plane] >= manyDelayed && p50 >= longWait
		}
		if !worth {
			continue
		}
		for _, plane := range planesOf(known, c.Blocks) {
			if p50, ok := median(c.Blocks, plane, results.ServiceP50); ok {
				notes = append(notes, fmt.Sprintf("%s, %s: %.2f acknowledgements for each request waited for their timer (40 ms); half of the requests took more than %.2f ms",
					c.Name, plane, delayed[plane], p50))
			}
		}
	}
	return notes
}
