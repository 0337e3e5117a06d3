package report

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"lateen.dev/lateen/internal/lab/results"
)

// curves plots the headline, P99 and the cost over the parameter that differs between a scenario's cells, one group of plots
// for each setting of the other parameters.
func curves(r *results.Results, ds []digest) []chart {
	axis := axisOf(ds)
	if axis == "" {
		return nil
	}
	groups := map[string][]*digest{}
	var order []string
	for i := range ds {
		d := &ds[i]
		if _, ok := parameter(d, axis); !ok {
			continue
		}
		key := otherParams(d, axis)
		if groups[key] == nil {
			order = append(order, key)
		}
		groups[key] = append(groups[key], d)
	}
	var charts []chart
	for _, key := range order {
		group := groups[key]
		slices.SortStableFunc(group, func(a, b *digest) int {
			va, _ := parameter(a, axis)
			vb, _ := parameter(b, axis)
			return cmp.Compare(va, vb)
		})
		var metrics []string
		for _, m := range []string{group[0].headline(), results.ResponseP99, cpuTotal(results.RoleAll)} {
			if m != "" && !slices.Contains(metrics, m) {
				metrics = append(metrics, m)
			}
		}
		for _, m := range metrics {
			if c, ok := curveChart(r, group, axis, key, m); ok {
				charts = append(charts, c)
			}
		}
	}
	return charts
}

// axisOf is the numeric parameter with the most values; empty without one that has two.
func axisOf(ds []digest) string {
	values := map[string]map[float64]bool{}
	for i := range ds {
		for name := range ds[i].cell.Params {
			if v, ok := parameter(&ds[i], name); ok {
				if values[name] == nil {
					values[name] = map[float64]bool{}
				}
				values[name][v] = true
			}
		}
	}
	best := ""
	for _, name := range sortedKeys(values) {
		if len(values[name]) >= 2 && (best == "" || len(values[name]) > len(values[best])) {
			best = name
		}
	}
	return best
}

// parameter reads a parameter's number; a unit behind it is left away.
func parameter(d *digest, name string) (float64, bool) {
	text := strings.TrimSpace(d.cell.Params[name])
	digits := strings.TrimRightFunc(text, func(r rune) bool { return (r < '0' || r > '9') && r != '.' })
	v, err := strconv.ParseFloat(digits, 64)
	return v, err == nil && !math.IsNaN(v) && !math.IsInf(v, 0)
}

func otherParams(d *digest, axis string) string {
	others := maps.Clone(d.cell.Params)
	delete(others, axis)
	var parts []string
	for _, name := range sortedKeys(others) {
		parts = append(parts, clean(name)+" "+clean(others[name]))
	}
	return strings.Join(parts, ", ")
}

func curveChart(r *results.Results, group []*digest, axis, setting, metric string) (chart, bool) {
	const left, right, top, bottom = 60.0, 466.0, 12.0, 240.0
	type point struct{ x, y float64 }
	series := map[string][]point{}
	var planes []string
	xs := map[float64]bool{}
	low, high, pooled := math.Inf(1), 0.0, false
	for _, d := range group {
		at, _ := parameter(d, axis)
		for i := range d.sides {
			s := &d.sides[i]
			v, ok := s.get(metric)
			if q, isResponse := responseQuantiles[metric]; !ok && isResponse {
				v, ok = percentile(s.pooled, q)
				pooled = pooled || ok
			}
			if !ok || v <= 0 {
				continue
			}
			if series[s.plane.Name] == nil {
				planes = append(planes, s.plane.Name)
			}
			series[s.plane.Name] = append(series[s.plane.Name], point{at, v})
			xs[at] = true
			low, high = math.Min(low, v), math.Max(high, v)
		}
	}
	if len(xs) < 2 {
		return chart{}, false
	}
	places := slices.Sorted(maps.Keys(xs))
	x := scale{low: places[0], high: places[len(places)-1], from: left + 14, to: right - 14, log: places[0] > 0 && places[len(places)-1]/places[0] >= 8}
	y := scale{low: 0, high: high * 1.08, from: bottom, to: top}
	if high/low > 20 {
		y.low, y.high, y.log = low/1.2, high*1.2, true
	}
	var g drawing
	for _, v := range y.ticks() {
		g.line(left, y.at(v), right, y.at(v), "grid", "")
		g.text(left-6, y.at(v)+4, "end", "soft", tick(v))
	}
	last := math.Inf(-1)
	for _, v := range places {
		g.line(x.at(v), bottom, x.at(v), bottom+5, "grid", "")
		if x.at(v)-last > 28 {
			g.text(x.at(v), bottom+18, "middle", "soft", tick(v))
			last = x.at(v)
		}
	}
	name := clean(strings.ReplaceAll(axis, "_", " "))
	g.text((left+right)/2, bottom+36, "middle", "soft", shortened(name, 50))
	var entries []legendEntry
	var said []string
	for _, plane := range planes {
		st := styleOf(r, plane)
		var path [][2]float64
		for _, p := range series[plane] {
			path = append(path, [2]float64{x.at(p.x), y.at(p.y)})
		}
		g.curve(path, st.class, st.dash)
		for _, p := range path {
			g.marker(p[0], p[1], st.shape, st.class, true)
		}
		label := clean(plane)
		entries = append(entries, legendEntry{label, st})
		first, final := series[plane][0], series[plane][len(series[plane])-1]
		said = append(said, label+" goes from "+number(first.y)+" at "+tick(first.x)+" to "+number(final.y)+" at "+tick(final.x))
	}
	g.height = g.legend(bottom+62, entries) + 8
	c := chart{title: metricTitle(metric) + " by " + name, description: "Medians over the blocks that count."}
	if pooled {
		c.description = "Medians over the blocks that count; where single blocks are too short, of all blocks' samples together."
	}
	if setting != "" {
		c.title += " (" + setting + ")"
	}
	if y.log {
		c.description += " The vertical axis is logarithmic."
	}
	c.svg = g.svg(c.title + ": " + strings.Join(said, "; ") + ".")
	return c, true
}

// metricTitle is a metric's name where no table says that it is a response time.
func metricTitle(metric string) string {
	if _, ok := responseQuantiles[metric]; ok || metric == results.ResponseAvg {
		return "Response time " + metricName(metric) + ", ms,"
	}
	return metricName(metric)
}
