package report

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"lateen.dev/lateen/internal/lab/results"
)

// Markdown writes the report as GitHub's Markdown; its tables are padded, so that they read well as plain text too.
func Markdown(w io.Writer, r *results.Results) error {
	d := compose(r, false)
	p := printer{w: w}
	p.line("# %s", markdown(d.title))
	p.line("")
	for _, t := range d.warnings {
		p.line("**%s**", markdown(t))
		p.line("")
	}
	for _, t := range d.verdicts {
		p.line("- %s", paragraph(t))
	}
	if len(d.verdicts) > 0 {
		p.line("")
	}
	if len(d.summary.rows) > 0 {
		p.table(d.summary)
	}
	for _, t := range d.about {
		p.line("%s", paragraph(t))
		p.line("")
	}
	if d.command != "" {
		p.line("    %s", d.command) // an indented block shows everything as it is
		p.line("")
	}
	for i := range d.sections {
		p.section(&d.sections[i], 2)
	}
	return p.err
}

// printer writes lines until the first error.
type printer struct {
	w   io.Writer
	err error
}

func (p *printer) line(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format+"\n", args...)
	}
}

func (p *printer) section(s *section, level int) {
	p.line("%s %s", strings.Repeat("#", level), markdown(s.title))
	p.line("")
	for _, t := range s.text {
		p.line("%s", paragraph(t))
		p.line("")
	}
	for _, t := range s.items {
		p.line("- %s", paragraph(t))
	}
	if len(s.items) > 0 {
		p.line("")
	}
	for _, t := range s.tables {
		p.table(t)
	}
	for i := range s.inner {
		p.section(&s.inner[i], level+1)
	}
}

func (p *printer) table(t table) {
	if t.caption != "" {
		p.line("%s:", paragraph(t.caption))
		p.line("")
	}
	rows := [][]string{make([]string, len(t.columns))}
	for i, c := range t.columns {
		rows[0][i] = markdown(c.title)
	}
	for _, r := range t.rows {
		escaped := make([]string, len(r))
		for i, cell := range r {
			escaped[i] = markdown(cell)
		}
		rows = append(rows, escaped)
	}
	widths := make([]int, len(t.columns))
	for _, r := range rows {
		for i, cell := range r {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell), 3)
		}
	}
	for n, r := range rows {
		var b strings.Builder
		for i, cell := range r {
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if t.columns[i].numeric {
				cell = pad + cell
			} else {
				cell += pad
			}
			b.WriteString("| " + cell + " ")
		}
		p.line("%s|", b.String())
		if n == 0 {
			b.Reset()
			for i, c := range t.columns {
				rule := " " + strings.Repeat("-", widths[i])
				if c.numeric {
					rule += ":"
				} else {
					rule += " "
				}
				b.WriteString("|" + rule)
			}
			p.line("%s|", b.String())
		}
	}
	p.line("")
	for _, n := range t.notes {
		p.line("%s", paragraph(n))
		p.line("")
	}
}

// markdown escapes what would be more than text: tables' bars, emphasis, code, links and HTML.
func markdown(s string) string { return markdownEscapes.Replace(s) }

var markdownEscapes = strings.NewReplacer(`\`, `\\`, "|", `\|`, "*", `\*`, "`", "\\`", "[", `\[`, "]", `\]`, "<", "&lt;", "~~", `\~\~`, "__", `\_\_`)

// paragraph escapes what starts a line, where more characters have a meaning.
func paragraph(s string) string {
	s = markdown(s)
	if s != "" && strings.ContainsRune("#+-=>~", rune(s[0])) {
		return `\` + s
	}
	return s
}
