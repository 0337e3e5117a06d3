package printer

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"lateen.dev/lateen/internal/cli/term"
	"lateen.dev/lateen/internal/engine/api"
)

// Change is what became of an object that is watched, in the words of kubectl get --output-watch-events.
type Change string

// The changes of a watched object.
const (
	Added    Change = "ADDED"
	Modified Change = "MODIFIED"
	Removed  Change = "DELETED"
)

// Watch writes objects one by one as they change. It is not safe for concurrent use.
type Watch struct {
	w io.Writer
	o Options
	// Events adds what became of each object.
	events bool
	width  func() int // how wide a line may be now; 0 is as wide as it needs
	kinds  map[string]*watchedKind
	begun  bool
	last   string // the kind that the last heading is of
}

// watchedKind is a table that grows: its heading stands once, so its columns are as wide as they were at first, and at least as wide
// as states and ages that may come.
type watchedKind struct {
	heading []string
	widths  []int
}

// usual are widths of columns whose cells change while they are watched.
var usual = map[string]int{"STATUS": len("ContainerCreating"), "STATE": len("ineffective"), "RESTARTS": len("RESTARTS"), "AGE": len("119s"), "READY": len("10/10"),
	"IP": len("10.244.100.100"), "EVENT": len("MODIFIED"), "NAME": 24}

// NewWatch returns a watch that writes in the format of the options. width is asked before each line of a table.
func NewWatch(w io.Writer, o Options, events bool, width func() int) *Watch {
	return &Watch{w: w, o: o, events: events, width: width, kinds: map[string]*watchedKind{}}
}

// Signature is what a change of an object must change to be worth a line: all of it in the formats for programs, its row without the
// age in a table.
func (p *Watch) Signature(object api.Object) (string, error) {
	if p.o.Format.Structured() || p.o.Format == Name {
		said, err := json.Marshal([]any{object.Conditions, object.Problems, object.Findings, object.Ignored})
		return string(object.Raw) + string(said), err
	}
	o := p.o
	o.Now = time.Time{} // every age is the same then
	_, row, err := row(object, o)
	return strings.Join(row, "\x00"), err
}

// Begin fixes the widths of columns by the objects that there are at first.
func (p *Watch) Begin(objects []api.Object) error {
	if p.o.Format.Structured() || p.o.Format == Name {
		return nil
	}
	for _, object := range objects {
		heading, cells, err := p.row(object, Added)
		if err != nil {
			return err
		}
		p.kind(object.Key.Kind, heading).widen(cells)
	}
	return nil
}

func (p *Watch) kind(name string, heading []string) *watchedKind {
	k := p.kinds[name]
	if k == nil {
		k = &watchedKind{heading: heading, widths: make([]int, len(heading))}
		for i, h := range heading {
			k.widths[i] = max(utf8.RuneCountInString(h), usual[h])
		}
		p.kinds[name] = k
	}
	return k
}

func (k *watchedKind) widen(cells []string) {
	for i, cell := range cells {
		k.widths[i] = max(k.widths[i], utf8.RuneCountInString(cell))
	}
}

// Write writes one change.
func (p *Watch) Write(object api.Object, change Change, now time.Time) error {
	switch {
	case p.o.Format.Structured():
		return p.structured(object, change)
	case p.o.Format == Name:
		return Objects(p.w, []api.Object{object}, p.o)
	}
	p.o.Now = now
	heading, cells, err := p.row(object, change)
	if err != nil {
		return err
	}
	k := p.kind(object.Key.Kind, heading)
	if p.last != object.Key.Kind {
		if p.last != "" {
			if _, err := fmt.Fprintln(p.w); err != nil {
				return err
			}
		}
		p.last = object.Key.Kind
		if err := p.line(k, k.heading); err != nil {
			return err
		}
	}
	return p.line(k, cells)
}

// row is a line of the table with what became of the object.
func (p *Watch) row(object api.Object, change Change) (heading, cells []string, err error) {
	if heading, cells, err = row(object, p.o); err != nil {
		return nil, nil, err
	}
	for i, h := range heading {
		if change == Removed && (h == "STATUS" || h == "STATE") {
			cells[i] = "Deleted"
		}
	}
	if p.events {
		heading, cells = slices.Insert(heading, 0, "EVENT"), slices.Insert(cells, 0, string(change))
	}
	return heading, cells, nil
}

// row is the heading of an object's table and its cells there.
func row(object api.Object, o Options) (heading, cells []string, err error) {
	o.grid = func(g *Grid) error {
		heading, cells = slices.Clone(g.heading), slices.Clone(g.rows[0])
		return nil
	}
	// The state that proxies report has a column only while they refuse an object: a heading that stands once cannot follow that.
	quiet := object
	if _, has := tables[object.Key.Kind]; has {
		quiet.Conditions, quiet.Problems = nil, nil
	}
	err = table(io.Discard, object.Key.Kind, []api.Object{quiet}, o)
	return heading, cells, err
}

// line writes cells below their headings. A cell that is wider than its column loses its middle in a terminal, and moves the rest of
// its line elsewhere.
func (p *Watch) line(k *watchedKind, cells []string) error {
	room := p.width()
	columns, widths := k.fit(room)
	var b strings.Builder
	for i, column := range columns {
		cell := term.EscapeLine(cells[column])
		if cell == "" {
			cell = "-"
		}
		if room > 0 {
			cell = shortened(cell, widths[i])
		}
		if i > 0 {
			b.WriteString(strings.Repeat(" ", gap))
		}
		b.WriteString(cell + strings.Repeat(" ", max(0, widths[i]-utf8.RuneCountInString(cell))))
	}
	_, err := fmt.Fprintln(p.w, strings.TrimRight(b.String(), " "))
	return err
}

// fit is which columns a line of some width has, and how wide they are.
func (k *watchedKind) fit(width int) (columns, widths []int) {
	if width == 0 {
		for i := range k.heading {
			columns = append(columns, i)
		}
		return columns, k.widths
	}
	grid := NewGrid(k.heading...)
	widest := make([]string, len(k.widths))
	for i, n := range k.widths {
		widest[i] = strings.Repeat("x", n)
	}
	grid.Row(widest...)
	fit(grid, width)
	for i, name := range grid.heading {
		columns = append(columns, slices.Index(k.heading, name))
		widths = append(widths, utf8.RuneCountInString(grid.rows[0][i]))
	}
	return columns, widths
}

func (p *Watch) structured(object api.Object, change Change) error {
	item, err := withConditions(object)
	if err != nil {
		return err
	}
	if p.o.Format == YAML && p.begun {
		if _, err := io.WriteString(p.w, "---\n"); err != nil {
			return err
		}
	}
	p.begun = true
	if p.events {
		item = map[string]any{"type": change, "object": item}
	}
	return Write(p.w, p.o.Format, item)
}
