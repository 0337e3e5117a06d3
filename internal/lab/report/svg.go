package report

import (
	"fmt"
	"html"
	"html/template"
	"math"
	"strconv"
	"strings"
)

// drawing is an SVG under construction. Its user unit is a pixel at 480 wide; the page scales it. Everything that comes from a
// document goes through text, which escapes.
type drawing struct {
	b      strings.Builder
	height float64
}

const drawingWidth = 480.0

func (d *drawing) put(format string, args ...any) { fmt.Fprintf(&d.b, format, args...) }

func coordinate(v float64) string { return strconv.FormatFloat(math.Round(v*10)/10, 'f', -1, 64) }

// text writes a line; anchor is start, middle or end.
func (d *drawing) text(x, y float64, anchor, class, s string) {
	if class != "" {
		class = ` class="` + class + `"`
	}
	d.put(`<text x="%s" y="%s" text-anchor="%s"%s>%s</text>`, coordinate(x), coordinate(y), anchor, class, html.EscapeString(s))
}

func (d *drawing) line(x1, y1, x2, y2 float64, class, dash string) {
	if dash != "" {
		dash = ` stroke-dasharray="` + dash + `"`
	}
	d.put(`<line x1="%s" y1="%s" x2="%s" y2="%s" class="%s"%s/>`, coordinate(x1), coordinate(y1), coordinate(x2), coordinate(y2), class, dash)
}

func (d *drawing) rect(x, y, w, h float64, class string, opacity float64) {
	d.put(`<rect x="%s" y="%s" width="%s" height="%s" class="%s" fill-opacity="%s"/>`, coordinate(x), coordinate(y), coordinate(math.Max(w, 0.5)), coordinate(h), class, coordinate(opacity))
}

func (d *drawing) curve(points [][2]float64, class, dash string) {
	var p strings.Builder
	for i, at := range points {
		if i > 0 {
			p.WriteByte(' ')
		}
		p.WriteString(coordinate(at[0]) + "," + coordinate(at[1]))
	}
	if dash != "" {
		dash = ` stroke-dasharray="` + dash + `"`
	}
	d.put(`<polyline points="%s" class="curve ink %s"%s/>`, p.String(), class, dash)
}

// marker draws one of five shapes, so that series differ without colour.
func (d *drawing) marker(x, y float64, shape int, class string, filled bool) {
	fill := `fill="none" stroke-width="2"`
	if filled {
		fill = `fill="currentColor"`
	}
	at := func(dx, dy float64) string { return coordinate(x+dx) + "," + coordinate(y+dy) }
	switch shape % 5 {
	case 0:
		d.put(`<circle cx="%s" cy="%s" r="4.5" class="ink %s" %s/>`, coordinate(x), coordinate(y), class, fill)
	case 1:
		d.put(`<polygon points="%s %s %s %s" class="ink %s" %s/>`, at(-4, -4), at(4, -4), at(4, 4), at(-4, 4), class, fill)
	case 2:
		d.put(`<polygon points="%s %s %s" class="ink %s" %s/>`, at(0, -5.5), at(5, 4), at(-5, 4), class, fill)
	case 3:
		d.put(`<polygon points="%s %s %s %s" class="ink %s" %s/>`, at(0, -5.5), at(5.5, 0), at(0, 5.5), at(-5.5, 0), class, fill)
	case 4:
		d.put(`<polygon points="%s %s %s" class="ink %s" %s/>`, at(0, 5.5), at(5, -4), at(-5, -4), class, fill)
	}
}

// cross marks what is no result.
func (d *drawing) cross(x, y float64, class string) {
	d.line(x-4, y-4, x+4, y+4, "ink "+class, "")
	d.line(x-4, y+4, x+4, y-4, "ink "+class, "")
}

// svg closes the drawing; label is its text alternative.
func (d *drawing) svg(label string) template.HTML {
	return template.HTML(fmt.Sprintf(`<svg viewBox="0 0 %s %s" role="img" aria-label="%s">%s</svg>`, coordinate(drawingWidth), coordinate(d.height), html.EscapeString(label), d.b.String()))
}

// scale maps values to positions, linearly or by logarithms.
type scale struct {
	low, high, from, to float64
	log                 bool
}

func (s scale) at(v float64) float64 {
	low, high := s.low, s.high
	if s.log {
		v, low, high = math.Log(v), math.Log(low), math.Log(high)
	}
	if high == low {
		return (s.from + s.to) / 2
	}
	return s.from + (v-low)/(high-low)*(s.to-s.from)
}

// ticks are round values within the scale: 1, 2 and 5 of every decade or an even step.
func (s scale) ticks() []float64 {
	var out []float64
	if s.log {
		steps := []float64{1, 2, 5}
		if math.Log10(s.high/s.low) > 2.5 {
			steps = []float64{1}
		}
		for decade := math.Floor(math.Log10(s.low)); decade <= math.Ceil(math.Log10(s.high)) && len(out) < 40; decade++ {
			for _, m := range steps {
				if v := m * math.Pow(10, decade); v >= s.low*0.999 && v <= s.high*1.001 {
					out = append(out, v)
				}
			}
		}
		return out
	}
	step := math.Pow(10, math.Floor(math.Log10((s.high-s.low)/2)))
	for _, m := range []float64{1, 2, 5, 10} {
		if (s.high-s.low)/(step*m) <= 6 {
			step *= m
			break
		}
	}
	for v := math.Ceil(s.low/step) * step; v <= s.high*1.0001 && len(out) < 40; v += step {
		out = append(out, v)
	}
	return out
}

// tick prints an axis value without needless digits.
func tick(v float64) string {
	if size := math.Abs(v); size >= 1000 && size < 1e7 {
		return minus(strconv.FormatFloat(v, 'f', 0, 64))
	}
	return minus(strconv.FormatFloat(v, 'g', 4, 64))
}

// legend writes names with their marks below a plot, in as many lines as it takes.
func (d *drawing) legend(y float64, entries []legendEntry) float64 {
	x := 8.0
	for _, e := range entries {
		name := shortened(e.name, 40)
		width := 54 + 7.4*float64(len([]rune(name)))
		if x+width > drawingWidth && x > 8 {
			x, y = 8, y+20
		}
		d.curve([][2]float64{{x, y - 4}, {x + 30, y - 4}}, e.style.class, e.style.dash)
		d.marker(x+15, y-4, e.style.shape, e.style.class, true)
		d.text(x+36, y, "start", "", name)
		x += width
	}
	return y
}

type legendEntry struct {
	name  string
	style style
}

// style tells series apart by colour, dashes and shape together.
type style struct {
	class, dash string
	shape       int
}

// shortened takes from the middle: the settings of a scenario often differ in their last word only.
func shortened(s string, most int) string {
	r := []rune(s)
	if len(r) <= most {
		return s
	}
	tail := (most - 1) / 2
	return strings.TrimRight(string(r[:most-1-tail]), " ") + "…" + strings.TrimLeft(string(r[len(r)-tail:]), " ")
}
