package printer

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"lateen.dev/lateen/internal/cli/term"
)

// Grid is a table under construction: a heading and rows of cells, aligned by their widest.
type Grid struct {
	heading []string
	rows    [][]string
	right   map[int]bool
	copied  map[int]bool
}

// NewGrid returns a grid with the given heading.
func NewGrid(heading ...string) *Grid {
	return &Grid{heading: heading, right: map[int]bool{}, copied: map[int]bool{}}
}

// Right aligns columns to the right, for numbers; the first column is 0.
func (g *Grid) Right(columns ...int) *Grid {
	for _, c := range columns {
		g.right[c] = true
	}
	return g
}

// Copied marks columns whose cells readers copy, such as names. Fit cuts them last; the first column is 0.
func (g *Grid) Copied(columns ...int) *Grid {
	for _, c := range columns {
		g.copied[c] = true
	}
	return g
}

// Row adds a row. An empty cell shows as "-", so that columns stay countable for cut and awk.
func (g *Grid) Row(cells ...string) {
	row := make([]string, len(g.heading))
	for i := range row {
		row[i] = "-"
		if i < len(cells) && cells[i] != "" {
			row[i] = term.EscapeLine(cells[i])
		}
	}
	g.rows = append(g.rows, row)
}

// Len is the number of rows.
func (g *Grid) Len() int { return len(g.rows) }

// Print writes the grid, each line after the indent.
func (g *Grid) Print(w io.Writer, indent string) error {
	width := make([]int, len(g.heading))
	lines := append([][]string{g.heading}, g.rows...)
	for _, line := range lines {
		for i, cell := range line {
			width[i] = max(width[i], utf8.RuneCountInString(cell))
		}
	}
	for _, line := range lines {
		var b strings.Builder
		for i, cell := range line {
			pad := strings.Repeat(" ", width[i]-utf8.RuneCountInString(cell))
			if g.right[i] {
				cell = pad + cell
			} else {
				cell += pad
			}
			if i > 0 {
				b.WriteString("   ")
			}
			b.WriteString(cell)
		}
		if _, err := fmt.Fprintln(w, indent+strings.TrimRight(b.String(), " ")); err != nil {
			return err
		}
	}
	return nil
}

// Age writes a duration as kubectl does: the largest unit that keeps two digits of meaning.
func Age(since, now time.Time) string {
	if since.IsZero() {
		return ""
	}
	switch d := now.Sub(since); {
	case d < 0:
		return "0s"
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	default:
		return fmt.Sprintf("%dd", int(d.Hours()/24))
	}
}

// Bytes writes a size in binary units with one digit after the point.
func Bytes(n uint64) string {
	const unit = 1024
	if n < unit {
		return fmt.Sprintf("%d B", n)
	}
	value, i := float64(n)/unit, 0
	for value >= unit && i < 4 {
		value /= unit
		i++
	}
	return fmt.Sprintf("%.1f %ciB", value, "KMGTP"[i])
}
