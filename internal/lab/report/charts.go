package report

import (
	"fmt"
	"html/template"
	"math"
	"strings"

	"lateen.dev/lateen/internal/lab/results"
)

// chart is a drawing with a sentence that says what it shows; its numbers stand in tables beside it.
type chart struct {
	title, description string
	svg                template.HTML
}

// judgementClass is how the page marks a verdict.
func judgementClass(text string) string {
	for prefix, class := range map[string]string{results.Faster: "faster", results.Slower: "slower", results.Indistinguishable: "alike", results.TooFew: "invalid", results.Invalid: "invalid", results.Failed: "invalid"} {
		if strings.HasPrefix(text, prefix) {
			return class
		}
	}
	return ""
}

var kindColours = map[string]string{results.KindNone: "c0", results.KindLateen: "c1", results.KindZtunnel: "c2", results.KindEnvoy: "c3", results.KindLinkerd: "c4"}

var dashes = []string{"", "7 4", "2 3", "10 3 2 3", "5 2"}

// styleOf is the same for a plane in all charts of a report.
func styleOf(r *results.Results, name string) style {
	for i, p := range r.Planes {
		if p.Name == name {
			class, known := kindColours[p.Kind]
			if !known {
				class = "c5"
			}
			return style{class: class, dash: dashes[i%len(dashes)], shape: i}
		}
	}
	return style{class: "c5"}
}

// scenarioCharts draws a scenario: ratios with their intervals, curves over its parameter, cost by role, distributions.
func scenarioCharts(r *results.Results, ds []digest) []chart {
	var charts []chart
	charts = append(charts, forests(r, ds)...)
	charts = append(charts, curves(r, ds)...)
	if c, ok := cpuBars(r, ds); ok {
		charts = append(charts, c)
	}
	for i := range ds {
		if c, ok := distribution(r, &ds[i], len(ds) > 1); ok {
			charts = append(charts, c)
		}
	}
	return charts
}

// distribution overlays the response times of a cell's planes over their percentiles; a line ends where fewer than 100 samples
// lie beyond.
func distribution(r *results.Results, d *digest, named bool) (chart, bool) {
	const left, right, top, bottom = 56.0, 468.0, 12.0, 250.0
	nines, low, high := 0.0, math.Inf(1), 0.0
	for i := range d.sides {
		if h := d.sides[i].pooled; h != nil && h.TotalCount() >= 200 {
			nines = math.Max(nines, math.Log10(float64(h.TotalCount())/100))
			low = math.Min(low, float64(h.ValueAtPercentile(1))/perMillisecond)
			last := 100 * (1 - 100/float64(h.TotalCount()))
			high = math.Max(high, float64(h.ValueAtPercentile(last))/perMillisecond)
		}
	}
	if nines <= 0 || !(low > 0) || !(high >= low) {
		return chart{}, false
	}
	x := scale{low: 0, high: nines, from: left, to: right}
	y := scale{low: low / 1.15, high: high * 1.15, from: bottom, to: top, log: true}
	var g drawing
	for _, v := range y.ticks() {
		g.line(left, y.at(v), right, y.at(v), "grid", "")
		g.text(left-6, y.at(v)+4, "end", "soft", tick(v))
	}
	for _, q := range []float64{0, 0.5, 0.9, 0.99, 0.999, 0.9999} {
		if at := -math.Log10(1 - q); at <= nines+1e-9 {
			g.line(x.at(at), top, x.at(at), bottom, "grid", "")
			anchor := "middle"
			if x.at(at) > right-20 {
				anchor = "end"
			}
			g.text(x.at(at), bottom+17, anchor, "soft", tick(100*q)+" %")
		}
	}
	var entries []legendEntry
	var said []string
	for i := range d.sides {
		s := &d.sides[i]
		if s.pooled == nil || s.pooled.TotalCount() < 200 {
			continue
		}
		st := styleOf(r, s.plane.Name)
		var points [][2]float64
		end := math.Log10(float64(s.pooled.TotalCount()) / 100)
		for step := 0; step <= 120; step++ {
			at := end * float64(step) / 120
			ms := float64(s.pooled.ValueAtPercentile(100*(1-math.Pow(10, -at)))) / perMillisecond
			points = append(points, [2]float64{x.at(at), y.at(math.Min(math.Max(ms, y.low), y.high))})
		}
		g.curve(points, st.class, st.dash)
		for _, mark := range []int{30, 75, 120} {
			g.marker(points[mark][0], points[mark][1], st.shape, st.class, true)
		}
		entries = append(entries, legendEntry{clean(s.label), st})
		if ms, ok := percentile(s.pooled, 0.5); ok {
			said = append(said, clean(s.label)+" has a P50 of "+number(ms)+" ms")
		}
	}
	g.height = g.legend(bottom+44, entries) + 8
	c := chart{title: "Response time by percentile, ms" + suffix(d, named), description: "All blocks that count, together; logarithmic on both axes. Lower is better. A line ends where fewer than 100 samples lie beyond."}
	c.svg = g.svg(c.title + ": " + strings.Join(said, ", ") + ".")
	return c, true
}

func suffix(d *digest, named bool) string {
	if !named {
		return ""
	}
	return ", " + clean(d.cell.Name)
}

// forests draws the ratios to the baseline with their intervals and the noise of two alike, one plot for each metric.
func forests(r *results.Results, ds []digest) []chart {
	type kind struct{ baseline, metric string }
	var kinds []kind
	seen := map[kind]bool{}
	for i := range ds {
		for j := range ds[i].sides {
			for _, v := range ds[i].verdicts(ds[i].sides[j].plane.Name) {
				if k := (kind{v.Baseline, v.Metric}); !seen[k] {
					seen[k] = true
					kinds = append(kinds, k)
				}
			}
		}
	}
	var charts []chart
	for _, k := range kinds {
		if c, ok := forest(r, ds, k.baseline, k.metric); ok {
			charts = append(charts, c)
		}
	}
	return charts
}

// rowName is what a row is called: its setting, where there are several, and its side.
type rowName struct{ setting, side string }

func (n rowName) String() string { return n.within(1000) }

// within is the name in so many characters at most; the setting is shortened before the side, which tells rows apart.
func (n rowName) within(most int) string {
	if n.setting == "" {
		return shortened(n.side, most)
	}
	const between = " · "
	setting := shortened(n.setting, max(8, most-len([]rune(between+n.side)))) + between
	return setting + shortened(n.side, max(1, most-len([]rune(setting))))
}

// setting is a cell's name where there are several.
func (d *digest) setting(several bool) string {
	if !several {
		return ""
	}
	return clean(d.cell.Name)
}

type forestRow struct {
	name rowName
	v    results.Verdict
	st   style
}

func forest(r *results.Results, ds []digest, baseline, metric string) (chart, bool) {
	var rows []forestRow
	low, high := 0.9, 1/0.9
	for i := range ds {
		d := &ds[i]
		for j := range d.sides {
			s := &d.sides[j]
			if base := d.side(baseline); base == nil || alike(base.plane, s.plane) {
				continue // the witness is the band
			}
			for _, v := range d.verdicts(s.plane.Name) {
				if v.Metric != metric || v.Baseline != baseline || results.ByDifference(metric) || !(v.Ratio > 0 && v.Low > 0 && v.High > 0) || math.IsInf(v.High, 0) {
					continue
				}
				if few(d.cell, v) {
					v.Low, v.High = v.Ratio, v.Ratio
				}
				rows = append(rows, forestRow{rowName{d.setting(len(ds) > 1), clean(s.label)}, v, styleOf(r, s.plane.Name)})
				low, high = math.Min(low, v.Low), math.Max(high, v.High)
				if v.Floor > 1 && v.Floor < 10 {
					low, high = math.Min(low, 1/v.Floor), math.Max(high, v.Floor)
				}
			}
		}
	}
	if len(rows) == 0 {
		return chart{}, false
	}
	const left, right, rowHeight = 14.0, 466.0, 40.0
	x := scale{low: low / 1.04, high: high * 1.04, from: left, to: right, log: true}
	var g drawing
	bottom := 8 + rowHeight*float64(len(rows))
	ticks := x.ticks()
	if x.high/x.low < 4 { // decades are too coarse
		ticks = nil
		for _, v := range []float64{0.25, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.1, 1.25, 1.5, 1.75, 2, 2.5, 3, 4} {
			clear := len(ticks) == 0 || x.at(v)-x.at(ticks[len(ticks)-1]) > 38
			if v == 1 && !clear {
				ticks, clear = ticks[:len(ticks)-1], true // the line of no difference has its number always
			}
			if v >= x.low && v <= x.high && clear {
				ticks = append(ticks, v)
			}
		}
	}
	for _, v := range ticks {
		g.line(x.at(v), 4, x.at(v), bottom, "grid", "")
		g.text(math.Min(math.Max(x.at(v), left+10), right-10), bottom+16, "middle", "soft", "×"+tick(v))
	}
	var said []string
	for i, row := range rows {
		top := 8 + rowHeight*float64(i)
		y := top + 28
		if f := row.v.Floor; f > 1 {
			from, to := math.Max(1/f, x.low), math.Min(f, x.high)
			g.rect(x.at(from), y-9, x.at(to)-x.at(from), 18, "band", 1)
		}
		g.line(x.at(1), y-12, x.at(1), y+12, "one", "")
		estimate, _ := difference(row.v.Ratio, row.v.Low, row.v.High)
		verdict := shortened(estimate+" "+sign(row.v.Judgement)+clean(row.v.Says()), 30)
		g.text(left, top+13, "start", "", row.name.within(62-len([]rune(verdict))))
		g.text(right, top+13, "end", "", verdict)
		g.line(x.at(row.v.Low), y, x.at(row.v.High), y, "ink "+row.st.class, "")
		for _, end := range []float64{row.v.Low, row.v.High} {
			g.line(x.at(end), y-5, x.at(end), y+5, "ink "+row.st.class, "")
		}
		if results.Unjudged(row.v.Judgement) || row.v.Judgement == results.Failed {
			g.cross(x.at(row.v.Ratio), y, row.st.class)
		} else {
			g.marker(x.at(row.v.Ratio), y, row.st.shape, row.st.class, row.v.Judgement != results.Indistinguishable)
		}
		said = append(said, row.name.String()+" "+verdict)
	}
	g.height = bottom + 24
	c := chart{title: "Ratio to " + clean(rows[0].v.Baseline) + ": " + metricName(metric)}
	better := "Left of ×1 is better."
	if !results.BetterIsLower(metric) {
		better = "Right of ×1 is better."
	}
	c.description = "Bars are 95 % intervals over rounds, logarithmic; " + strings.ToLower(better[:1]) + strings.TrimSuffix(better[1:], ".") + ". A grey band is the noise of two planes that are alike. Filled marks are verdicts, hollow ones indistinguishable, crosses too few rounds or failed."
	c.svg = g.svg(c.title + ". " + strings.Join(said, "; ") + ".")
	return c, true
}

func sign(judgement string) string {
	switch judgement {
	case results.Faster:
		return "▲ "
	case results.Slower:
		return "▼ "
	case results.Indistinguishable:
		return "≈ "
	}
	return "✕ "
}

var roleOpacity = map[string]float64{results.RoleGenerator: 0.2, results.RoleApp: 0.5, results.RoleProxies: 1}

// cpuBars stacks what each role on the path uses for a request.
func cpuBars(r *results.Results, ds []digest) (chart, bool) {
	type bar struct {
		name  rowName
		parts [3]float64
		sum   float64
		st    style
	}
	var bars []bar
	most := 0.0
	eachSide(ds, func(d *digest, s *side, _ string) {
		if base := d.side(d.baseline); base != nil && alike(base.plane, s.plane) {
			return // the witness of the noise; its numbers are in the tables
		}
		b := bar{name: rowName{d.setting(len(ds) > 1), clean(s.label)}, st: styleOf(r, s.plane.Name)}
		for i, role := range pathRoles {
			v, ok := s.get(cpuTotal(role))
			if !ok && (role != results.RoleProxies || s.proxied()) || v < 0 {
				return // a stack without one of its parts would lie
			}
			b.parts[i] = v
			b.sum += v
		}
		most = math.Max(most, b.sum)
		bars = append(bars, b)
	})
	if len(bars) == 0 || most <= 0 {
		return chart{}, false
	}
	const left, right, rowHeight = 8.0, 472.0, 42.0
	var g drawing
	x := scale{low: 0, high: most, from: left, to: right}
	lead := left
	for i, role := range pathRoles {
		g.put(`<g class="c0">`)
		g.rect(lead, 4, 14, 14, "fill ink", roleOpacity[role])
		g.put(`</g>`)
		g.text(lead+20, 16, "start", "", roleName(pathRoles[i]))
		lead += 36 + 7.6*float64(len(roleName(role)))
	}
	top := 30.0
	var said []string
	for _, b := range bars {
		g.text(left, top+12, "start", "", b.name.within(54))
		g.text(right, top+12, "end", "", number(b.sum)+" µs")
		from := 0.0
		g.put(`<g class="%s">`, b.st.class)
		for i, v := range b.parts {
			if v <= 0 {
				continue
			}
			width := x.at(from+v) - x.at(from)
			g.rect(x.at(from), top+17, width, 18, "fill ink", roleOpacity[pathRoles[i]])
			if width > 40 {
				class := "plain"
				if pathRoles[i] == results.RoleProxies {
					class = "plain onfill"
				}
				g.text(x.at(from)+width/2, top+30.5, "middle", class, number(v))
			}
			from += v
		}
		g.put(`</g>`)
		said = append(said, fmt.Sprintf("%s %s µs, of it proxies %s", b.name, number(b.sum), number(b.parts[2])))
		top += rowHeight
	}
	g.height = top + 4
	c := chart{title: "CPU time per request by role, µs", description: "Everything on the path of a request, medians over blocks: generator, application, proxies from left to right. Less is better."}
	c.svg = g.svg(c.title + ". " + strings.Join(said, "; ") + ".")
	return c, true
}
