package report

import (
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/HdrHistogram/hdrhistogram-go"

	"lateen.dev/lateen/internal/lab/results"
	"lateen.dev/lateen/internal/lab/stats"
)

// digest is a cell as the tables and plots want it: a side for each plane that has blocks.
type digest struct {
	cell *results.Cell
	// counts is the untimed cell that its system calls come from, if there is one.
	counts *results.Cell
	// baseline is the plane that the others are compared with.
	baseline string
	sides    []side
}

// side is one plane in one cell.
type side struct {
	plane results.Plane
	label string
	// blocks were measured, counted of them count.
	blocks, counted int
	medians         map[string]float64
	pooled          *hdrhistogram.Histogram
	unread          int
	errors          map[string]uint64
	// split is the share of user space by role, over all blocks together, where it is known; withheld says that the proxies' is not.
	split    map[string]stats.Interval
	withheld bool
	// begun is the median share of the due requests that were begun at all, kept of those begun in time; 1 where nobody asked.
	begun, kept float64
}

// digests of a scenario's timed cells, each with what its untimed twin counted. Untimed cells without a twin stand alone.
func digests(r *results.Results, o *results.Outcome) []digest {
	var all []digest
	taken := map[*results.Cell]bool{}
	for i := range o.Cells {
		if c := &o.Cells[i]; !c.Untimed {
			d := digestOf(r, c)
			if twin := untimedTwin(o, c); twin != nil {
				taken[twin] = true
				d.takeCounts(twin)
			}
			all = append(all, d)
		}
	}
	for i := range o.Cells {
		if c := &o.Cells[i]; c.Untimed && !taken[c] {
			all = append(all, digestOf(r, c))
		}
	}
	return slices.DeleteFunc(all, func(d digest) bool { return len(d.sides) == 0 })
}

// untimedTwin is the cell that counted under the same setting: the one that is called after it, else the first. Its rate may
// be lower: tracing slows down.
func untimedTwin(o *results.Outcome, c *results.Cell) *results.Cell {
	same := func(a, b results.Load) bool {
		a.Seconds, a.Warmup, a.Command, a.QPS = b.Seconds, b.Warmup, b.Command, b.QPS
		return a == b
	}
	var twin *results.Cell
	for i := range o.Cells {
		t := &o.Cells[i]
		if !t.Untimed || !maps.Equal(t.Params, c.Params) || !same(t.Load, c.Load) {
			continue
		}
		if strings.HasPrefix(t.Name, c.Name+",") {
			return t
		}
		if twin == nil && len(c.Params) > 0 {
			twin = t
		}
	}
	return twin
}

func digestOf(r *results.Results, c *results.Cell) digest {
	d := digest{cell: c, baseline: baselineOf(r, c)}
	for _, p := range r.Planes {
		s := side{plane: p, label: p.Name, medians: map[string]float64{}, errors: map[string]uint64{}, split: map[string]stats.Interval{}}
		values := map[string][]float64{}
		for i := range c.Blocks {
			b := &c.Blocks[i]
			if b.Plane != p.Name {
				continue
			}
			s.blocks++
			if !b.Counted() {
				continue
			}
			s.counted++
			for name, v := range b.Metrics {
				if !math.IsNaN(v) && !math.IsInf(v, 0) {
					values[name] = append(values[name], v)
				}
			}
			for kind, n := range b.Errors {
				s.errors[kind] += n
			}
		}
		if s.blocks == 0 {
			continue
		}
		for name, v := range values {
			s.medians[name] = stats.Median(v)
		}
		s.pooled, s.unread = pool(c.Blocks, p.Name)
		s.divide(c.Blocks, r.Machine.ExactSplit)
		s.begun, s.kept = environment(c.Blocks, p.Name, results.EnvBegun), environment(c.Blocks, p.Name, results.EnvKept)
		d.sides = append(d.sides, s)
	}
	slices.SortStableFunc(d.sides, func(a, b side) int { return before(d, a) - before(d, b) })
	return d
}

// divide takes each role's time apart by the share of user space over all blocks: that of one is chance on most kernels.
func (s *side) divide(blocks []results.Block, exact bool) {
	for _, role := range append([]string{results.RoleAll}, allRoles...) {
		user, system := results.CPUPerRequest(role, "user"), results.CPUPerRequest(role, "system")
		delete(s.medians, user)
		delete(s.medians, system)
		total, ok := s.get(cpuTotal(role))
		if !ok {
			continue
		}
		share, known := stats.UserShare(blocks, s.plane.Name, role, exact)
		if !known {
			s.withheld = s.withheld || total > 0 && role == results.RoleProxies
			continue
		}
		s.split[role] = share
		s.medians[user], s.medians[system] = total*share.Estimate, total*(1-share.Estimate)
	}
}

// environment is the median of a share in the environment of a plane's blocks that count, 1 where it was not asked for.
func environment(blocks []results.Block, plane, name string) float64 {
	var values []float64
	for i := range blocks {
		if v, known := blocks[i].Environment[name]; known && blocks[i].Plane == plane && blocks[i].Counted() && v >= 0 && v <= 1 {
			values = append(values, v)
		}
	}
	if len(values) == 0 {
		return 1
	}
	return stats.Median(values)
}

// before puts the baseline first.
func before(d digest, s side) int {
	if s.plane.Name == d.baseline {
		return 0
	}
	return 1
}

// baselineOf is what the cell's verdicts compare with, else no mesh, else the first plane that has blocks.
func baselineOf(r *results.Results, c *results.Cell) string {
	if len(c.Verdicts) > 0 {
		return c.Verdicts[0].Baseline
	}
	has := func(name string) bool {
		return slices.ContainsFunc(c.Blocks, func(b results.Block) bool { return b.Plane == name })
	}
	for _, p := range r.Planes {
		if p.Kind == results.KindNone && has(p.Name) {
			return p.Name
		}
	}
	for _, p := range r.Planes {
		if has(p.Name) {
			return p.Name
		}
	}
	return ""
}

// takeCounts adds what was counted, which holds although times under strace do not.
func (d *digest) takeCounts(twin *results.Cell) {
	d.counts = twin
	for i := range d.sides {
		s := &d.sides[i]
		values := map[string][]float64{}
		for j := range twin.Blocks {
			if b := &twin.Blocks[j]; b.Plane == s.plane.Name && b.Counted() {
				for name, v := range b.Metrics {
					if isCount(name) && !math.IsNaN(v) && !math.IsInf(v, 0) {
						values[name] = append(values[name], v)
					}
				}
			}
		}
		for name, v := range values {
			if _, known := s.medians[name]; !known {
				s.medians[name] = stats.Median(v)
			}
		}
	}
}

// alike tells whether two planes are one program with one set of settings: the witnesses of the noise floor.
func alike(a, b results.Plane) bool {
	return a.Name != b.Name && a.Kind == b.Kind && a.Path == b.Path && a.Version == b.Version && a.SHA256 == b.SHA256 && maps.Equal(a.Settings, b.Settings)
}

// nature says what a plane is where its name does not: no mesh, or another plane a second time.
func nature(r *results.Results, p results.Plane) string {
	for _, earlier := range r.Planes {
		if earlier.Name == p.Name {
			break
		}
		if alike(earlier, p) {
			return clean(earlier.Name) + " a second time (A/A)"
		}
	}
	if p.Kind == results.KindNone {
		return "no mesh"
	}
	return ""
}

// spoken is a side's plane in a sentence, where the bare word "none" would read as "nobody".
func (s *side) spoken() string {
	if s.plane.Kind == results.KindNone {
		return "the plane " + clean(s.label)
	}
	return clean(s.label)
}

func (d *digest) side(name string) *side {
	for i := range d.sides {
		if d.sides[i].plane.Name == name {
			return &d.sides[i]
		}
	}
	return nil
}

// verdicts of a plane in the order that they were declared in: against the cell's baseline, or of a plane that is compared with
// another one alone, as lateen's variants are with lateen, against that.
func (d *digest) verdicts(plane string) []results.Verdict {
	against := func(baseline string) (v []results.Verdict) {
		for _, one := range d.cell.Verdicts {
			if one.Plane == plane && one.Baseline == baseline {
				v = append(v, one)
			}
		}
		return v
	}
	if v := against(d.baseline); len(v) > 0 {
		return v
	}
	for _, one := range d.cell.Verdicts {
		if one.Plane == plane {
			return against(one.Baseline)
		}
	}
	return nil
}

// get is a median over blocks.
func (s *side) get(metric string) (float64, bool) {
	v, ok := s.medians[metric]
	return v, ok
}

// failing tells whether a request of the side failed in a block that counts.
func (s side) failing() bool { return len(s.errors) > 0 || s.medians[results.FailedShare] > 0 }

// behind tells whether a side was too slow for the cell's rate.
func (d digest) behind(s side) bool {
	rate, ok := s.medians[results.QPS]
	return ok && d.cell.Load.QPS > 0 && rate < 0.99*d.cell.Load.QPS
}

func (s *side) text(metric string) string {
	if v, ok := s.get(metric); ok {
		return number(v)
	}
	return none
}

var responseQuantiles = map[string]float64{
	results.ResponseP50: 0.5, results.ResponseP75: 0.75, results.ResponseP90: 0.9, results.ResponseP99: 0.99, results.ResponseP999: 0.999,
}

// pooledMark marks a percentile of all blocks together.
const pooledMark = "†"

// response is a response time for the tables: the median of the blocks', else that of all blocks' samples together, marked.
func (s *side) response(metric string) string {
	if v, ok := s.get(metric); ok {
		return number(v)
	}
	if q, ok := responseQuantiles[metric]; ok {
		if v, ok := percentile(s.pooled, q); ok {
			return number(v) + pooledMark
		}
	}
	return none
}

// pathRoles are those whose work a request waits for.
var pathRoles = []string{results.RoleGenerator, results.RoleApp, results.RoleProxies}

// overPath is a role metric over the whole path: the document's own sum, else that of the roles, if none of them lacks it.
func (s *side) overPath(metric func(role string) string) (sum float64, ok bool) {
	if v, known := s.get(metric(results.RoleAll)); known {
		return v, true
	}
	for _, role := range pathRoles {
		v, known := s.get(metric(role))
		if !known && (role != results.RoleProxies || s.proxied()) {
			return 0, false
		}
		sum += v
	}
	return sum, true
}

// proxied tells whether proxies are on the plane's path.
func (s *side) proxied() bool {
	return s.plane.Kind != results.KindNone && s.plane.Kind != results.KindUnderTest
}

func cpuTotal(role string) string { return results.CPUPerRequest(role, "total") }
func allCalls(role string) string { return results.SyscallsPerRequest(role, results.CallsAll) }

// isCount tells whether a metric holds under strace.
func isCount(metric string) bool {
	return strings.HasPrefix(metric, "syscalls_per_request.") || strings.HasPrefix(metric, "delayed_acks_per_request.")
}
