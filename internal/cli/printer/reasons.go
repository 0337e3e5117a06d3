package printer

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"lateen.dev/lateen/internal/cli/term"
)

// reasonHeading is the last column of tables that say why an object is as it is.
const reasonHeading = "REASON"

// printWithin writes the grid on a terminal that is width characters wide; 0 is no terminal. Reasons that make it too wide stand below the table,
// as lines that are broken between words: a reason that is cut says nothing.
func (g *Grid) printWithin(w io.Writer, width int) error {
	var below []string
	if width > 0 && g.Width() > width && g.heading[len(g.heading)-1] == reasonHeading {
		below = g.takeReasons()
	}
	if width > 0 {
		fit(g, width)
	}
	if err := g.Print(w, ""); err != nil {
		return err
	}
	for _, reason := range below {
		for _, line := range term.Fold(reason, width, 2) {
			if _, err := fmt.Fprintln(w, line); err != nil {
				return err
			}
		}
	}
	return nil
}

// takeReasons removes the last column and returns its texts, each behind the name of its row.
func (g *Grid) takeReasons() (texts []string) {
	last, name := len(g.heading)-1, slices.Index(g.heading, "NAME")
	g.heading = g.heading[:last]
	for i, row := range g.rows {
		if row[last] != "-" {
			texts = append(texts, strings.Join(row[:name+1], "/")+": "+row[last])
		}
		g.rows[i] = row[:last]
	}
	return texts
}
