package report

import (
	_ "embed"
	"html/template"
	"io"

	"lateen.dev/lateen/internal/lab/results"
)

//go:embed page.html
var pageText string

//go:embed page.css
var pageStyle string

var page = template.Must(template.New("page").Parse(pageText))

// Stylesheet is the report page's, for pages that are to look like it.
func Stylesheet() string { return pageStyle }

// HTML writes the report as one page that needs nothing beside it: no script, no request, light and dark, wide and narrow.
func HTML(w io.Writer, r *results.Results) error {
	d := compose(r, true)
	out := htmlPage{Title: d.title, Style: template.CSS(pageStyle), Verdicts: d.verdicts, About: d.about, Warnings: d.warnings, Command: d.command}
	if len(d.summary.rows) > 0 {
		out.Summary = append(out.Summary, htmlTableOf(d.summary))
	}
	ids := 0
	for i := range d.sections {
		out.Sections = append(out.Sections, htmlOf(&d.sections[i], 2, &ids))
	}
	return page.Execute(w, out)
}

// The types below are what page.html reads; its engine escapes every text in them.
type htmlPage struct {
	Title           string
	Style           template.CSS
	About, Warnings []string
	Verdicts        []string
	Summary         []htmlTable
	Command         string
	Sections        []htmlSection
}

type htmlSection struct {
	ID              int
	Level           int
	Title           string
	Foreign, Folded bool
	Text, Items     []string
	Charts          []htmlChart
	Tables          []htmlTable
	Inner           []htmlSection
}

type htmlChart struct {
	Title, Description string
	SVG                template.HTML
}

type htmlTable struct {
	Caption string
	Columns []htmlCell
	Rows    []htmlRow
	Notes   []string
}

// htmlRow is a row, or the heading of the rows that follow.
type htmlRow struct {
	Group string
	Span  int
	Cells []htmlCell
}

type htmlCell struct {
	Text    string
	Numeric bool
	// Class is a judgement, which the page also marks by a sign.
	Class string
	// Wide columns may break lines.
	Wide bool
}

func htmlOf(s *section, level int, ids *int) htmlSection {
	*ids++
	out := htmlSection{ID: *ids, Level: level, Title: s.title, Foreign: s.foreign, Folded: s.folded, Text: s.text, Items: s.items}
	for _, c := range s.charts {
		out.Charts = append(out.Charts, htmlChart{c.title, c.description, c.svg})
	}
	for _, t := range s.tables {
		out.Tables = append(out.Tables, htmlTableOf(t))
	}
	for i := range s.inner {
		out.Inner = append(out.Inner, htmlOf(&s.inner[i], level+1, ids))
	}
	return out
}

// wideCell is the length in bytes from which a cell may take several lines.
const wideCell = 24

func htmlTableOf(t table) htmlTable {
	out := htmlTable{Caption: t.caption, Notes: t.notes}
	// A setting is a heading of its rows: on a narrow screen its column would push the numbers out of sight.
	grouped := len(t.columns) > 2 && t.columns[0].title == "setting" && t.columns[1].title == "side"
	first := 0
	if grouped {
		first = 1
	}
	for _, c := range t.columns[first:] {
		out.Columns = append(out.Columns, htmlCell{Text: c.title, Numeric: c.numeric})
	}
	for _, r := range t.rows {
		if grouped && r[0] != "" {
			out.Rows = append(out.Rows, htmlRow{Group: r[0], Span: len(out.Columns)})
		}
		var row htmlRow
		for i := first; i < len(r); i++ {
			cell := htmlCell{Text: r[i], Numeric: t.columns[i].numeric, Wide: !t.columns[i].numeric && len(r[i]) > wideCell}
			if t.columns[i].title == "verdict" {
				cell.Class = judgementClass(r[i])
			}
			row.Cells = append(row.Cells, cell)
		}
		out.Rows = append(out.Rows, row)
	}
	return out
}
