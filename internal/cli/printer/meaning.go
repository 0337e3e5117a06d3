package printer

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"lateen.dev/lateen/internal/meaning"
)

const (
	// narrow is the width of what is not written to a terminal, and wide the most that a line of text has.
	narrow, wide = 80, 100
	// mostOfRule is how many differences of one rule are written out; JSON has all.
	mostOfRule = 10
)

// MeaningWidth is the width of a page about differences on a terminal of so many columns; 0 is none.
func MeaningWidth(columns int) int {
	if columns == 0 {
		return narrow
	}
	return min(max(columns, 40), wide)
}

// Meaning writes what would mean something else in this mesh: a count, then a block for each difference, the gravest first.
func Meaning(w io.Writer, r meaning.Report, width int) error {
	p := &paragraphs{width: width}
	p.summary(r)
	of := map[string]int{}
	left := map[string]int{}
	severity := meaning.Severity("")
	for _, d := range r.Differences {
		group := string(d.Severity) + " " + d.Rule
		if of[group]++; of[group] > mostOfRule {
			left[group]++
			continue
		}
		if d.Severity != severity {
			severity = d.Severity
			p.line("")
			p.line(strings.ToUpper(severity.Words()))
		}
		p.difference(d)
	}
	for _, group := range sorted(left) {
		_, rule, _ := strings.Cut(group, " ")
		p.line("")
		p.wrap("  ", fmt.Sprintf("and %d more of rule %s: -o json has all", left[group], rule))
	}
	if len(r.Unread) > 0 {
		p.line("")
		p.line("NOT COMPARED")
		for _, what := range r.Unread {
			p.wrap("  - ", what)
		}
	}
	p.line("")
	_, err := w.Write(p.text.Bytes())
	return err
}

func sorted(counts map[string]int) []string {
	var keys []string
	for k := range counts {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// paragraphs are text of a width under construction.
type paragraphs struct {
	width int
	text  bytes.Buffer
}

func (p *paragraphs) line(text string) { p.text.WriteString(text + "\n") }

// wrap writes a paragraph behind a lead, later lines below its beginning.
func (p *paragraphs) wrap(lead, text string) {
	indent := strings.Repeat(" ", utf8.RuneCountInString(lead))
	line := lead
	empty := true
	for _, word := range strings.Fields(text) {
		if !empty && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > p.width {
			p.line(line)
			line, empty = indent, true
		}
		if !empty {
			line += " "
		}
		line += word
		empty = false
	}
	p.line(line)
}

func (p *paragraphs) summary(r meaning.Report) {
	if len(r.Differences) == 0 {
		if len(r.Unread) == 0 {
			p.wrap("", "Everything means the same here as in the Istio that runs.")
		} else {
			p.wrap("", "What was compared means the same here as in the Istio that runs. Not everything could be compared.")
		}
		return
	}
	p.wrap("", "Some things mean something else here than in the Istio that runs:")
	for _, s := range meaning.Severities {
		if n := r.Count(s); n > 0 {
			p.line(fmt.Sprintf("%6d  %s", n, s.Words()))
		}
	}
}

func (p *paragraphs) difference(d meaning.Difference) {
	p.line("")
	head := d.Object.String()
	if d.Field != "" {
		head += "  " + d.Field
	}
	p.wrap("  ", head)
	p.wrap("    today  ", d.Today)
	p.wrap("    then   ", d.Then)
	if len(d.Objects) > 0 {
		names := strings.Join(d.Objects, ", ")
		if d.More > 0 {
			names += fmt.Sprintf(" and %d more", d.More)
		}
		p.wrap("    these  ", names)
	}
	lead := "    keep   "
	for _, l := range d.Keep {
		if comment, is := strings.CutPrefix(l, "# "); is {
			p.wrap(lead+"# ", comment)
		} else {
			p.line(lead + l)
		}
		lead = strings.Repeat(" ", len(lead))
	}
	switch {
	case d.Accepted:
		p.wrap("    note   ", "accepted by --accept-difference="+d.Named())
	case d.Refuses:
		p.wrap("    note   ", "the take-over is refused because of it; to accept it: --accept-difference="+d.Named())
	}
}
