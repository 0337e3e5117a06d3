package run

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"lateen.dev/lateen/internal/lab/dataplanes"
	"lateen.dev/lateen/internal/lab/results"
	"lateen.dev/lateen/internal/lab/scenario"
	"lateen.dev/lateen/internal/lab/stats"
)

// judge computes the verdicts of a scenario's cells: of every plane against the first one, of lateen against each peer, of each waypoint
// against lateen without one, of lateen's waypoint against others, and of every second self against its first.
func (s *session) judge(sc *scenario.Scenario, out *results.Outcome) {
	planes := s.options.planes(sc)
	for i := range out.Cells {
		c := &out.Cells[i]
		if c.Untimed {
			continue
		}
		c.Verdicts = nil
		for _, pair := range comparisons(planes, witnesses(planes, sc), sc.Variants, c.Blocks) {
			metrics := slices.DeleteFunc(slices.Clone(sc.Metrics), func(m string) bool {
				return !measured(c.Blocks, pair.baseline, m) && !broke(c.Blocks, pair.baseline)
			})
			c.Verdicts = append(c.Verdicts, stats.Judge(*c, pair.baseline, pair.planes, metrics, pair.witness)...)
		}
	}
	out.Failures = append(out.Failures, s.failures(sc, out.Cells)...) // behind planes that could not be started
	if s.workers > 0 {
		out.Notes = append(out.Notes, fmt.Sprintf("every proxy ran %d workers here, whatever its plane's settings say", s.workers))
		out.Notes = append(out.Notes, s.uncounted...)
	}
}

// comparison is one baseline and what is set beside it.
type comparison struct {
	baseline string
	planes   []string
	witness  *stats.Witness
}

// comparisons are those that the planes of a cell allow. Each has a witness of those declared, whether it was measured or not:
// package stats judges nothing without its noise.
func comparisons(specs []dataplanes.Spec, twice []string, variants []scenario.Variant, blocks []results.Block) []comparison {
	var there []string
	for _, b := range blocks {
		if !slices.Contains(there, b.Plane) {
			there = append(there, b.Plane)
		}
	}
	alike := func(name string) *stats.Witness {
		if slices.Contains(twice, name) {
			return &stats.Witness{Baseline: name, Plane: witness(name)}
		}
		return nil
	}
	first := specs[0].Name
	floor := alike(first)
	if floor == nil {
		floor = alike(twice[0])
	}
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
		if w := alike(spec.Name); w != nil && slices.Contains(there, witness(spec.Name)) {
			peers = append(peers, comparison{baseline: spec.Name, planes: []string{witness(spec.Name)}, witness: w})
		}
		if spec.Kind == results.KindLateen {
			w := floor
			if own := alike(spec.Name); own != nil {
				w = own
			}
			other := comparison{baseline: spec.Name, witness: w}
			for _, v := range variants {
				if name := variant(spec.Name, v); slices.Contains(there, name) {
					other.planes = append(other.planes, name)
				}
			}
			if spec.Name == results.KindLateen && spec.Name != first {
				other.planes = append(other.planes, waypoints(specs, there, first, hasWaypoint)...)
			}
			if len(other.planes) > 0 {
				peers = append(peers, other)
			}
		}
		if spec.Kind == results.KindEnvoyWaypoint && spec.Name != first {
			own := func(s dataplanes.Spec) bool { return s.Kind == results.KindWaypoint }
			if ours := waypoints(specs, there, first, own); len(ours) > 0 {
				peers = append(peers, comparison{baseline: spec.Name, planes: ours, witness: floor})
			}
			continue
		}
		if spec.Kind == results.KindNone || spec.Kind == results.KindLateen || spec.Kind == results.KindWaypoint || spec.Kind == results.KindUnderTest || spec.Name == first {
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

// hasWaypoint says whether requests of a plane pass a waypoint, whoever's it is.
func hasWaypoint(s dataplanes.Spec) bool {
	return s.Kind == results.KindWaypoint || s.Kind == results.KindEnvoyWaypoint
}

// waypoints are the planes of certain kinds that were measured, without the one that all are compared with.
func waypoints(specs []dataplanes.Spec, there []string, first string, wanted func(dataplanes.Spec) bool) (names []string) {
	for _, s := range specs {
		if wanted(s) && s.Name != first && slices.Contains(there, s.Name) {
			names = append(names, s.Name)
		}
	}
	return names
}

// measured says whether any block of a plane has a metric.
func measured(blocks []results.Block, plane, metric string) bool {
	return slices.ContainsFunc(blocks, func(b results.Block) bool {
		_, has := b.Metrics[metric]
		return has && b.Plane == plane
	})
}

// seen is the median of something in the environment of a plane's blocks that count.
func seen(blocks []results.Block, plane, name string) (float64, bool) {
	var values []float64
	for _, b := range blocks {
		if v, known := b.Environment[name]; known && b.Plane == plane && b.Counted() {
			values = append(values, v)
		}
	}
	return stats.Median(values), len(values) > 0
}

// kinds are failed requests by kind, in words.
func kinds(counts map[string]uint64) string {
	var parts []string
	for _, kind := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%d %s", counts[kind], kind))
	}
	return strings.Join(parts, ", ")
}

// broke says whether a plane failed in any block: what rejects one says nothing about that.
func broke(blocks []results.Block, plane string) bool {
	return slices.ContainsFunc(blocks, func(b results.Block) bool { return b.Plane == plane && len(b.Failed) > 0 })
}

// failures says what planes failed at, a line for each plane and kind, in blocks that were rejected too: what spoils a block's times
// does not end processes. In a cell that kills something, requests that fail are what
// it is about; in one that asks for more than the services can do, so is the rate.
func (s *session) failures(sc *scenario.Scenario, cells []results.Cell) []string {
	var list []string
	for _, c := range cells {
		of := scenario.Cell{}
		if i := slices.IndexFunc(sc.Cells, func(o scenario.Cell) bool { return o.Name == c.Name }); i >= 0 {
			of = sc.Cells[i]
		}
		for _, plane := range planesOf(s.doc.Planes, c.Blocks) {
			say := func(format string, args ...any) {
				list = append(list, c.Name+", "+plane+": "+fmt.Sprintf(format, args...))
			}
			broken, last, blocks := 0, "", 0
			for _, b := range c.Blocks {
				if b.Plane != plane {
					continue
				}
				blocks++
				if len(b.Failed) > 0 {
					broken, last = broken+1, strings.Join(b.Failed, "; ")
				}
			}
			if broken > 0 {
				say("failed in %d of %s: %s", broken, plural(blocks, "block"), last)
			}
			if share, errs := stats.FailedShare(c.Blocks, plane); share > stats.ManyFailed && of.Kill == nil {
				say("%.3g %% of the requests failed: %s", 100*share, kinds(errs))
			}
			if share, errs := stats.FailedShareOfRejected(c.Blocks, plane); share > stats.ManyFailed && of.Kill == nil {
				say("%.3g %% of the requests failed in rejected blocks: %s", 100*share, kinds(errs))
			}
			if kept, ok := seen(c.Blocks, plane, envKept); ok && kept < s.options.Gates.Achieved && !of.Saturates && of.Kill == nil {
				say("the server fell behind: %.3g %% of requests started on schedule; for the rest there was no free connection", 100*kept)
			}
		}
	}
	return list
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

// longWait is how many milliseconds half of the requests take if they wait for the timer of a delayed acknowledgement.
const longWait = 35

// findings says in words what was counted and explains times: acknowledgements that waited for their timer.
func findings(known []results.Plane, cells []results.Cell) []string {
	var notes []string
	for _, c := range cells {
		for _, plane := range planesOf(known, c.Blocks) {
			if begun, ok := seen(c.Blocks, plane, results.EnvBegun); ok && begun < 0.99 {
				notes = append(notes, fmt.Sprintf("%s, %s: the server fell behind: %.3g %% of requests started, some of them late; the rest never started and are in no percentile", c.Name, plane, 100*begun))
			}
		}
	}
	for _, c := range cells {
		if c.Untimed {
			continue
		}
		delayed, worth := map[string]float64{}, false
		for _, plane := range planesOf(known, c.Blocks) {
			delayed[plane], _ = results.DelayedACKs(func(metric string) (float64, bool) { return median(c.Blocks, plane, metric) })
			p50, _ := median(c.Blocks, plane, results.ServiceP50)
			worth = worth || delayed[plane] >= results.ManyDelayedACKs && p50 >= longWait
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
