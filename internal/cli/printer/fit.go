package printer

import (
	"slices"
	"unicode/utf8"
)

// leastName is what a name keeps of itself in a table that has too little room.
const leastName = 15

// gap is the room between two columns.
const gap = 3

// Fit makes the grid no wider than a terminal, as far as that goes: columns that may go go, in the order given, once the names cannot
// be shortened enough. A shortened name keeps its beginning and its end. Columns are counted from 0.
func (g *Grid) Fit(width int, names, spare []int) {
	dropped := map[int]bool{}
	wide := make([]int, len(g.heading))
	for _, line := range append([][]string{g.heading}, g.rows...) {
		for i, cell := range line {
			wide[i] = max(wide[i], utf8.RuneCountInString(cell))
		}
	}
	total := func(of func(int) int) int {
		sum := -gap
		for i := range wide {
			if !dropped[i] {
				sum += of(i) + gap
			}
		}
		return sum
	}
	least := func(i int) int {
		if slices.Contains(names, i) {
			return min(wide[i], max(leastName, utf8.RuneCountInString(g.heading[i])))
		}
		return wide[i]
	}
	for _, i := range spare {
		if total(least) > width {
			dropped[i] = true
		}
	}
	for total(func(i int) int { return wide[i] }) > width {
		widest := -1
		for _, i := range names {
			if !dropped[i] && wide[i] > least(i) && (widest < 0 || wide[i] > wide[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			break
		}
		wide[widest]--
	}
	right := map[int]bool{}
	pick := func(line []string) (out []string) {
		for i, cell := range line {
			if dropped[i] {
				continue
			}
			if g.right[i] {
				right[len(out)] = true
			}
			out = append(out, shortened(cell, wide[i]))
		}
		return out
	}
	g.heading = pick(g.heading)
	for i, row := range g.rows {
		g.rows[i] = pick(row)
	}
	g.right = right
}

// Drop leaves out a column. Columns are counted from 0.
func (g *Grid) Drop(column int) {
	right := map[int]bool{}
	for i, is := range g.right {
		switch {
		case i < column:
			right[i] = is
		case i > column:
			right[i-1] = is
		}
	}
	g.right = right
	g.heading = slices.Delete(g.heading, column, column+1)
	for i, row := range g.rows {
		g.rows[i] = slices.Delete(row, column, column+1)
	}
}

// Width is how wide the grid's lines are.
func (g *Grid) Width() int {
	sum := -gap
	for i := range g.heading {
		wide := 0
		for _, line := range append([][]string{g.heading}, g.rows...) {
			wide = max(wide, utf8.RuneCountInString(line[i]))
		}
		sum += wide + gap
	}
	return sum
}

// Narrowed makes a grid about connections no wider than a terminal, as Fit does, and tries first to have names shorter: without the
// namespace home, then without the hashes of pods. A width of 0 has no bounds.
func Narrowed(width int, home string, draw func(Names) *Grid, names, spare []int) *Grid {
	var grid *Grid
	for _, written := range levels(home) {
		if grid = draw(written); width == 0 || grid.Width() <= width {
			return grid
		}
	}
	grid.Fit(width, names, spare)
	return grid
}

// shortened leaves out the middle of a text that is too long.
func shortened(text string, width int) string {
	runes := []rune(text)
	switch {
	case len(runes) <= width:
		return text
	case width < 2:
		return "…"
	}
	tail := width / 2
	return string(runes[:width-1-tail]) + "…" + string(runes[len(runes)-tail:])
}
