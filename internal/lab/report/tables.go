package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"lateen.dev/lateen/internal/lab/results"
)

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// headline is the metric that the differences of a cell's rows are about: the first that its scenario declared.
func (d *digest) headline() string {
	for _, v := range d.cell.Verdicts {
		if v.Baseline == d.baseline {
			return v.Metric
		}
	}
	return ""
}

// queued tells whether requests waited for a connection: what the service took is then another story.
func (d *digest) queued() bool {
	return slices.ContainsFunc(d.sides, func(s side) bool {
		response, ok := s.get(results.ResponseP50)
		service, okService := s.get(results.ServiceP50)
		return ok && okService && response > 2*service
	})
}

var (
	responseColumns = []string{results.ResponseAvg, results.ResponseP50, results.ResponseP75, results.ResponseP90, results.ResponseP99}
	serviceColumns  = []string{results.ServiceP50, results.ServiceP90, results.ServiceP99}
)

// mainTable has the shape of the published ones, with what they lack behind it.
func mainTable(ds []digest) table {
	t := table{caption: "Response time in ms"}
	service, closed := false, false
	for i := range ds {
		service = service || slices.Contains(serviceColumns, ds[i].headline())
		service = service || ds[i].queued()
		closed = closed || ds[i].cell.Load.QPS == 0 || ds[i].headline() == results.QPS || slices.ContainsFunc(ds[i].cell.Verdicts, func(v results.Verdict) bool { return v.Metric == results.QPS })
	}
	t.columns = []column{{title: "setting", keep: len(ds) > 1}, text("side")}
	for _, m := range responseColumns {
		t.columns = append(t.columns, numeric(metricName(m)))
	}
	if service {
		t.caption += ", from the intended start; service time from the sending"
		t.columns = append(t.columns, numeric("service P50"), numeric("service P90"), numeric("service P99"))
	}
	failing := slices.ContainsFunc(ds, func(d digest) bool { return slices.ContainsFunc(d.sides, side.failing) })
	closed = closed || slices.ContainsFunc(ds, func(d digest) bool { return slices.ContainsFunc(d.sides, d.behind) })
	t.columns = append(t.columns, numeric("requests/s"), numeric("failed requests"), column{title: "difference"}, column{title: "95 % interval"}, column{title: "verdict"},
		numeric("CPU, µs/request"), numeric("of it proxies"), numeric("system calls/request"), numeric("blocks"))
	pooled, missing, reasons := false, false, false
	for i := range ds {
		d := &ds[i]
		for j := range d.sides {
			s := &d.sides[j]
			row := []string{"", clean(s.label)}
			if len(ds) > 1 && j == 0 {
				row[0] = clean(d.cell.Name)
			}
			for _, m := range responseColumns {
				cell := s.response(m)
				pooled = pooled || strings.HasSuffix(cell, pooledMark)
				missing = missing || cell == none
				row = append(row, cell)
			}
			if service {
				for _, m := range serviceColumns {
					cell := s.text(m)
					missing = missing || cell == none
					row = append(row, cell)
				}
			}
			rate := none
			if closed {
				rate = s.text(results.QPS)
			}
			failed := none
			if v, ok := s.get(results.FailedShare); ok && failing {
				failed = share(v)
			}
			diff, interval, verdict := verdictCells(d, s)
			reasons = reasons || slices.ContainsFunc([]string{results.TooFew, results.Invalid, results.Failed, results.Indistinguishable}, func(p string) bool { return strings.HasPrefix(verdict, p) })
			row = append(row, rate, failed, diff, interval, verdict, overText(s, cpuTotal), s.text(cpuTotal(results.RoleProxies)), overText(s, allCalls), fmt.Sprintf("%d of %d", s.counted, s.blocks))
			t.add(row...)
		}
	}
	if pooled {
		t.notes = append(t.notes, pooledMark+" of all blocks' samples together: single blocks are too short for it.")
	}
	for i := range ds {
		for j := range ds[i].sides {
			s, where := &ds[i].sides[j], ""
			if len(ds) > 1 {
				where = clean(ds[i].cell.Name) + ", "
			}
			switch told := where + clean(s.label); {
			case s.begun < 0.99:
				t.notes = append(t.notes, fmt.Sprintf("%s: the server fell behind: %s of requests started, some of them late; the rest never started and are in no percentile.", told, rough(s.begun)))
			case s.kept < 0.99:
				t.notes = append(t.notes, fmt.Sprintf("%s: the server fell behind: %s of requests started on schedule; the rest started late and are included.", told, rough(s.kept)))
			}
		}
	}
	if missing {
		t.notes = append(t.notes, none+" not measured, or fewer than 100 samples lie beyond it.")
	}
	if reasons {
		t.notes = append(t.notes, "The table of verdicts says why a verdict is failed or indistinguishable, and why rounds do not count.")
	}
	for i := range ds {
		if c := ds[i].counts; c != nil && c.Load.QPS != ds[i].cell.Load.QPS {
			t.notes = append(t.notes, "System calls were counted in blocks of their own, at a lower rate where tracing would slow down too much; the loads are named below.")
			break
		}
	}
	return t.trimmed()
}

func overText(s *side, metric func(string) string) string {
	if v, ok := s.overPath(metric); ok {
		return number(v)
	}
	return none
}

// verdictCells are difference, interval and verdict of a side's row: those of the headline.
func verdictCells(d *digest, s *side) (diff, interval, verdict string) {
	if s.plane.Name == d.baseline {
		return none, none, none
	}
	for _, v := range d.verdicts(s.plane.Name) {
		if v.Metric != d.headline() {
			continue
		}
		diff, interval = verdictDifference(d.cell, v)
		if diff != none {
			diff = ShortName(v.Metric) + " " + diff
			if to := d.side(v.Baseline); v.Baseline != d.baseline && to != nil {
				diff += " to " + clean(to.label)
			}
		}
		return diff, interval, clean(v.Says())
	}
	return none, none, none
}

// ShortName is a metric's name without its unit.
func ShortName(metric string) string {
	name, _, _ := strings.Cut(metricName(metric), ", ")
	return name
}

func judged(v results.Verdict) string {
	return clean(v.SaysWhy())
}

var allRoles = []string{results.RoleGenerator, results.RoleApp, results.RoleProxies, results.RoleWaypoint, results.RoleAgent, results.RoleControl}

// dividedRoles are those whose time is told for user space and the kernel apart.
var dividedRoles = []string{results.RoleProxies, results.RoleWaypoint}

// costTable is what a request costs, by role.
func costTable(ds []digest) table {
	t := table{caption: "Cost by role", columns: []column{{title: "setting", keep: len(ds) > 1}, text("side")}}
	type source struct {
		title, metric string
		divided       string // the role of which this is user space or the kernel; empty for other numbers
		user          bool
	}
	var sources []source
	for _, role := range allRoles {
		sources = append(sources, source{title: "CPU " + roleName(role) + ", µs/request", metric: cpuTotal(role)})
	}
	for _, role := range dividedRoles {
		sources = append(sources,
			source{roleName(role) + " in user space, µs/request", results.CPUPerRequest(role, "user"), role, true},
			source{roleName(role) + " in the kernel, µs/request", results.CPUPerRequest(role, "system"), role, false})
	}
	for _, role := range pathRoles {
		sources = append(sources, source{title: "system calls " + roleName(role) + "/request", metric: allCalls(role)})
	}
	for _, role := range pathRoles {
		sources = append(sources, source{title: "sleeps " + roleName(role) + "/request", metric: results.SwitchesPerRequest(role)})
	}
	for _, role := range []string{results.RoleProxies, results.RoleWaypoint, results.RoleAgent, results.RoleControl} {
		sources = append(sources, source{title: "memory " + roleName(role) + ", MiB (PSS)", metric: results.PSS(role)})
	}
	for _, s := range sources {
		t.columns = append(t.columns, numeric(s.title))
	}
	any, split, withheld := false, false, false
	eachSide(ds, func(d *digest, s *side, setting string) {
		withheld = withheld || s.withheld
		row := []string{setting, clean(s.label)}
		for _, from := range sources {
			cell := s.text(from.metric)
			any = any || cell != none
			if share, ok := s.split[from.divided]; ok && from.divided != "" {
				low, high := share.Low, share.High
				if !from.user {
					low, high = 1-high, 1-low
				}
				total := s.medians[cpuTotal(from.divided)]
				cell += fmt.Sprintf(" (%s to %s)", number(low*total), number(high*total))
				split = true
			}
			row = append(row, cell)
		}
		t.add(row...)
	})
	if !any {
		return table{}
	}
	if split {
		t.notes = append(t.notes, "User space and kernel: by the share of each over all blocks together, with its 95 % interval over blocks.")
	}
	if withheld {
		t.notes = append(t.notes, "Where user space and kernel are not told apart ("+none+"), the kernel counts them by who runs at its ticks, with which a load may be in step, and the blocks together do not tell the share to a tenth.")
	}
	return t.trimmed()
}

// eachSide visits all rows; setting is empty but in a cell's first row.
func eachSide(ds []digest, visit func(d *digest, s *side, setting string)) {
	for i := range ds {
		for j := range ds[i].sides {
			setting := ""
			if j == 0 && len(ds) > 1 {
				setting = clean(ds[i].cell.Name)
			}
			visit(&ds[i], &ds[i].sides[j], setting)
		}
	}
}

// verdictTable is every verdict with what it rests on.
func verdictTable(r *results.Results, ds []digest) table {
	t := table{caption: "Verdicts", columns: []column{{title: "setting", keep: len(ds) > 1}, text("compared"), text("metric"), numeric("difference"), column{title: "95 % interval"},
		numeric("noise (A/A)"), numeric("rounds"), numeric("p (Holm)"), text("verdict")}}
	floorless := false
	for i := range ds {
		for _, v := range ds[i].cell.Verdicts {
			diff, interval := verdictDifference(ds[i].cell, v)
			floorless = floorless || v.Floor == 0 && !results.ByDifference(v.Metric)
			t.add(clean(ds[i].cell.Name), clean(v.Plane)+" to "+clean(v.Baseline), clean(metricName(v.Metric)), diff, interval, noiseText(v), strconv.Itoa(v.Pairs), probability(v.Holm), judged(v))
		}
	}
	if len(t.rows) == 0 {
		return t
	}
	t.notes = append(t.notes, "Ratios are medians over rounds with bootstrap intervals over rounds; a verdict needs an interval without 1, beyond the noise of two planes that are alike, and Wilcoxon's signed-rank test with Holm's correction over the cell's metrics. Faster means better, for CPU time and memory too.")
	if floorless {
		t.notes = append(t.notes, "Where the noise of two alike was not measured, a small difference may be noise.")
	}
	return t.trimmed()
}

func probability(p float64) string {
	if p < 0.001 {
		return "<0.001"
	}
	return strconv.FormatFloat(p, 'f', 3, 64)
}

var distributionQuantiles = []struct {
	title string
	q     float64
}{{"P50", 0.5}, {"P90", 0.9}, {"P99", 0.99}, {"P99.9", 0.999}, {"P99.99", 0.9999}}

// distributionTable is the response times of all blocks together.
func distributionTable(ds []digest) table {
	t := table{caption: "Response time of all blocks together, ms, with 95 % intervals by order statistics", columns: []column{{title: "setting", keep: len(ds) > 1}, text("side"), numeric("samples")}}
	for _, q := range distributionQuantiles {
		t.columns = append(t.columns, numeric(q.title))
	}
	any, unread := false, 0
	eachSide(ds, func(d *digest, s *side, setting string) {
		unread += s.unread
		row := []string{setting, clean(s.label), none}
		if s.pooled != nil {
			any = true
			row[2] = strconv.FormatInt(s.pooled.TotalCount(), 10)
		}
		for _, q := range distributionQuantiles {
			ms, ok := percentile(s.pooled, q.q)
			if !ok {
				row = append(row, none)
				continue
			}
			low, high := percentileInterval(s.pooled, q.q)
			row = append(row, fmt.Sprintf("%s (%s to %s)", number(ms), number(low), number(high)))
		}
		t.add(row...)
	})
	if !any {
		t.rows = nil
	}
	if unread > 0 {
		t.notes = append(t.notes, count(unread, "histogram", "histograms")+" could not be read.")
	}
	return t.trimmed()
}

// furtherTable is every metric that no other table shows, so that nothing measured is hidden.
func furtherTable(ds []digest) table {
	shown := map[string]bool{}
	for _, m := range responseColumns {
		shown[m] = true
	}
	for _, role := range allRoles {
		for _, m := range []string{cpuTotal(role), allCalls(role), results.SwitchesPerRequest(role), results.PSS(role)} {
			shown[m] = true
		}
	}
	for _, part := range []string{"total", "user", "system"} {
		shown[results.CPUPerRequest(results.RoleAll, part)] = true
	}
	for _, direction := range []string{results.Outbound, results.Inbound} {
		for _, m := range workerMetrics(direction) {
			shown[m] = true
		}
	}
	// Of the roles outside the path no split and no sleeps: they are not on it.
	for _, role := range dividedRoles {
		shown[results.CPUPerRequest(role, "user")], shown[results.CPUPerRequest(role, "system")] = true, true
	}
	t := table{caption: "Everything else that was measured", columns: []column{{title: "setting", keep: len(ds) > 1}, text("side"), text("metric"), numeric("median")}}
	eachSide(ds, func(d *digest, s *side, setting string) {
		lead := clean(s.label)
		for _, m := range slices.SortedFunc(maps.Keys(s.medians), func(a, b string) int { return cmp.Compare(a, b) }) {
			if shown[m] {
				continue
			}
			t.add(setting, lead, clean(metricName(m)), number(s.medians[m]))
			setting, lead = "", ""
		}
		for _, kind := range sortedKeys(s.errors) {
			t.add(setting, lead, "failed: "+clean(kind), strconv.FormatUint(s.errors[kind], 10))
			setting, lead = "", ""
		}
	})
	return t.trimmed()
}

// loadTable says how each cell was loaded.
func loadTable(ds []digest) table {
	t := table{caption: "Loads", columns: []column{text("setting"), text("generator's command")}}
	for i := range ds {
		for _, c := range []*results.Cell{ds[i].cell, ds[i].counts} {
			if c != nil && c.Load.Command != "" {
				t.add(clean(c.Name), clean(c.Load.Command))
			}
		}
	}
	return t
}

// facts are numbers that belong to no block.
func facts(r *results.Results, o *results.Outcome) table {
	t := table{caption: "Numbers of the scenario as a whole", columns: []column{text("what"), text("side"), numeric("value"), {title: "unit"}, {title: "note"}}}
	for _, f := range o.Facts {
		if f.Group != "" {
			continue // factTable's
		}
		side := ""
		if f.Plane != "" {
			side = f.Plane
		}
		t.add(clean(f.Name), clean(side), number(f.Value), clean(f.Unit), clean(f.Note))
	}
	return t.trimmed()
}

// factTable sets facts of several settings side by side, with what the design allows.
func factTable(r *results.Results, o *results.Outcome) table {
	groups, rows := results.FactTable(o.Facts)
	t := table{caption: "Numbers by setting", columns: []column{text("what")}}
	several := slices.ContainsFunc(rows, func(row results.FactRow) bool { return row.Plane != rows[0].Plane })
	if several {
		t.columns = append(t.columns, text("side"))
	}
	t.columns = append(t.columns, column{title: "unit"})
	for _, g := range groups {
		t.columns = append(t.columns, numeric(clean(g)))
	}
	t.columns = append(t.columns, numeric("at most"))
	noted := map[string]bool{}
	for _, row := range rows {
		cells := []string{clean(row.Name)}
		if several {
			cells = append(cells, clean(row.Plane))
		}
		cells = append(cells, clean(row.Unit))
		for _, g := range groups {
			v, ok := row.Values[g]
			switch {
			case !ok:
				cells = append(cells, "")
			case row.Missed[g]:
				cells = append(cells, number(v)+" (missed)")
			default:
				cells = append(cells, number(v))
			}
		}
		limit := ""
		if row.Target > 0 {
			limit = number(row.Target)
		}
		t.add(append(cells, limit)...)
		if row.Note != "" && !noted[row.Note] {
			noted[row.Note] = true
			t.notes = append(t.notes, clean(row.Name)+": "+clean(row.Note)+".")
		}
	}
	return t.trimmed()
}
