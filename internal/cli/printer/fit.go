package printer

import (
	"math"
	"slices"
	"unicode/utf8"
)

// leastName is what a name keeps of itself in a table that has too little room.
const leastName = 15

// readableName is what a name that is copied keeps while there are columns that may go.
const readableName = 26

// gap is the room between two columns.
const gap = 3

// Fit makes the grid no wider than a terminal, as far as that goes: columns that may go go, in the order given, once the names cannot
// be shortened enough. A shortened name keeps its beginning and its end. The names in columns that are copied are shortened only if
// they are too wide even without the spare columns. Columns are counted from 0.
func (g *Grid) Fit(width int, names, spare []int) {
	wide := make([]int, len(g.heading))
	for _, line := range append([][]string{g.heading}, g.rows...) {
		for i, cell := range line {
			wide[i] = max(wide[i], utf8.RuneCountInString(cell))
		}
	}
	least := func(i int) int {
		if slices.Contains(names, i) {
			return min(wide[i], max(leastName, utf8.RuneCountInString(g.heading[i])))
		}
		return wide[i]
	}
	var dropped map[int]bool
	for _, whole := range []int{math.MaxInt, readableName, 0} {
		var fits bool
		if dropped, fits = dropFor(width, len(wide), spare, func(i int) int {
			if g.copied[i] {
				return max(least(i), min(wide[i], whole))
			}
			return least(i)
		}); fits {
			break
		}
	}
	for total(len(wide), dropped, func(i int) int { return wide[i] }) > width {
		chosen := -1
		for _, i := range names {
			if !dropped[i] && wide[i] > least(i) && (chosen < 0 || g.cutBefore(i, chosen, wide)) {
				chosen = i
			}
		}
		if chosen < 0 {
			break
		}
		wide[chosen]--
	}
	right, copied := map[int]bool{}, map[int]bool{}
	pick := func(line []string) (out []string) {
		for i, cell := range line {
			if dropped[i] {
				continue
			}
			if g.right[i] {
				right[len(out)] = true
			}
			if g.copied[i] {
				copied[len(out)] = true
			}
			out = append(out, shortened(cell, wide[i]))
		}
		return out
	}
	g.heading = pick(g.heading)
	for i, row := range g.rows {
		g.rows[i] = pick(row)
	}
	g.right, g.copied = right, copied
}

// cutBefore says whether column i of this width loses a character before column j does: names that are copied are cut last, and then
// as few of them as possible. The widest column decides otherwise.
func (g *Grid) cutBefore(i, j int, wide []int) bool {
	if g.copied[i] != g.copied[j] {
		return !g.copied[i]
	}
	if g.copied[i] {
		if a, b := g.cellsAs(i, wide[i]), g.cellsAs(j, wide[j]); a != b {
			return a < b
		}
	}
	return wide[i] > wide[j]
}

// cellsAs counts the cells of a column that are at least so wide.
func (g *Grid) cellsAs(column, width int) (count int) {
	for _, row := range g.rows {
		if utf8.RuneCountInString(row[column]) >= width {
			count++
		}
	}
	return count
}

// dropFor chooses the spare columns that go so that a table of so many columns fits, the first ones first. A column that went stays
// if there is room for it after wider ones have gone.
func dropFor(width, columns int, spare []int, of func(int) int) (dropped map[int]bool, fits bool) {
	dropped = map[int]bool{}
	var gone []int
	for _, i := range spare {
		if i < columns && total(columns, dropped, of) > width {
			dropped[i], gone = true, append(gone, i)
		}
	}
	if total(columns, dropped, of) > width {
		return dropped, false
	}
	for _, i := range slices.Backward(gone) {
		delete(dropped, i)
		if total(columns, dropped, of) > width {
			dropped[i] = true
		}
	}
	return dropped, true
}

// total is how wide a table of so many columns is.
func total(columns int, dropped map[int]bool, of func(int) int) int {
	sum := -gap
	for i := range columns {
		if !dropped[i] {
			sum += of(i) + gap
		}
	}
	return sum
}

// Drop leaves out a column. Columns are counted from 0.
func (g *Grid) Drop(column int) {
	without := func(marks map[int]bool) map[int]bool {
		left := map[int]bool{}
		for i, is := range marks {
			switch {
			case i < column:
				left[i] = is
			case i > column:
				left[i-1] = is
			}
		}
		return left
	}
	g.right, g.copied = without(g.right), without(g.copied)
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
