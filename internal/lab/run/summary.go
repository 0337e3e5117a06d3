package run

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"lateen.dev/lateen/internal/cli/printer"
	"lateen.dev/lateen/internal/cli/term"
	labreport "lateen.dev/lateen/internal/lab/report"
	"lateen.dev/lateen/internal/lab/results"
	"lateen.dev/lateen/internal/lab/stats"
)

// Summary writes the run in short: a table for each scenario with medians over the blocks that count, and the verdicts. It is
// fitted to a terminal of so many columns; with 0 nothing is shortened, and verdicts have their reasons.
func Summary(to io.Writer, r *results.Results, columns int) error {
	line := func(format string, args ...any) error {
		text := fmt.Sprintf(format, args...)
		if columns > 0 {
			text = strings.Join(term.Fold(text, columns, 2), "\n")
		}
		_, err := fmt.Fprintln(to, text)
		return err
	}
	for _, s := range r.Scenarios {
		if _, err := fmt.Fprintln(to); err != nil {
			return err
		}
		if err := line("%s: %s", s.Scenario, s.Title); err != nil {
			return err
		}
		grid := printer.NewGrid("SETTING", "PLANE", "BLOCKS", "P50 ms", "P90 ms", "P99 ms", "SERVICE P50", "RATE", "FAILED", "CPU µs/req", "OF PROXIES").Right(2, 3, 4, 5, 6, 7, 8, 9, 10)
		for _, c := range s.Cells {
			if c.Untimed {
				continue
			}
			label := labelOf(c.Name, columns)
			for i, plane := range planesOf(r.Planes, c.Blocks) {
				grid.Row(label.row(i), plane, counts(c.Blocks, plane), number(c.Blocks, plane, results.ResponseP50, 3), number(c.Blocks, plane, results.ResponseP90, 3),
					number(c.Blocks, plane, results.ResponseP99, 3), number(c.Blocks, plane, results.ServiceP50, 3), number(c.Blocks, plane, results.QPS, 0), failedShare(c.Blocks, plane),
					number(c.Blocks, plane, results.CPUPerRequest(results.RoleAll, "total"), 0), number(c.Blocks, plane, results.CPUPerRequest(results.RoleProxies, "total"), 0))
			}
			label.rest(grid, len(planesOf(r.Planes, c.Blocks)))
		}
		if grid.Len() > 0 {
			if columns > 0 { // the cost of proxies is in that of all, and both are in the reports
				grid.Fit(columns, []int{1}, []int{10, 4, 8, 9, 7, 2})
			}
			if err := grid.Print(to, ""); err != nil {
				return err
			}
		}
		for _, c := range s.Cells {
			for _, plane := range planesOf(r.Planes, c.Blocks) {
				if said := allRejected(c.Blocks, plane); said != "" {
					if err := line("rejected: %s, %s: %s", c.Name, plane, said); err != nil {
						return err
					}
				}
			}
		}
		if err := verdicts(to, s, columns); err != nil {
			return err
		}
		if err := facts(to, s, columns); err != nil {
			return err
		}
		for _, f := range s.Failures {
			if err := line("failed: %s", f); err != nil {
				return err
			}
		}
		for _, note := range slices.Concat(s.Notes, findings(r.Planes, s.Cells)) {
			if err := line("note: %s", note); err != nil {
				return err
			}
		}
		if s.Failed != "" {
			if err := line("ended early: %s", s.Failed); err != nil {
				return err
			}
		}
	}
	return nil
}

// label is a cell's name over the rows of the cell: names of cells differ by one word in their middle, so that none is shortened.
type label []string

// labelOf folds a name to a quarter of the terminal; with no columns it stands in the first row as a whole.
func labelOf(name string, columns int) label {
	if columns == 0 {
		return label{name}
	}
	return term.Fold(name, max(columns/4, leastLabel), 0)
}

// leastLabel is the least width of a cell's name, in columns of the terminal.
const leastLabel = 16

func (l label) row(i int) string {
	if i < len(l) {
		return l[i]
	}
	return ""
}

// rest adds rows for what is left of the name below so many.
func (l label) rest(grid *printer.Grid, rows int) {
	for i := rows; i < len(l); i++ {
		grid.Row(l[i])
	}
}

// verdicts writes a table for each two planes that were compared.
func verdicts(to io.Writer, s results.Outcome, columns int) error {
	type pair struct{ plane, baseline string }
	var pairs []pair
	for _, c := range s.Cells {
		for _, v := range c.Verdicts {
			if p := (pair{v.Plane, v.Baseline}); !slices.Contains(pairs, p) {
				pairs = append(pairs, p)
			}
		}
	}
	shares := false
	for _, p := range pairs {
		grid := printer.NewGrid("SETTING", "METRIC", "RATIO", "95 %", "NOISE", "VERDICT").Right(2).Copied(1)
		for _, c := range s.Cells {
			of := slices.DeleteFunc(slices.Clone(c.Verdicts), func(v results.Verdict) bool { return v.Plane != p.plane || v.Baseline != p.baseline })
			if len(of) == 0 {
				continue // of a cell whose system calls alone were counted no metric is compared
			}
			label := labelOf(c.Name, columns)
			for i, v := range of {
				shares = shares || results.ByDifference(v.Metric)
				verdictRow(grid, label.row(i), v, len(of), columns)
			}
			label.rest(grid, len(of))
		}
		if columns > 0 {
			grid.Fit(columns, []int{1}, []int{4, 3})
		}
		if _, err := fmt.Fprintf(to, "\n%s against %s\n", p.plane, p.baseline); err != nil {
			return err
		}
		if err := grid.Print(to, ""); err != nil {
			return err
		}
	}
	if !shares {
		return nil
	}
	_, err := fmt.Fprintf(to, "RATIO of %s: the difference of the two shares\n", labreport.ShortName(results.FailedShare))
	return err
}

// verdictRow adds a verdict that is one of so many of its planes and cell. A terminal has no room for reasons.
func verdictRow(grid *printer.Grid, cell string, v results.Verdict, metrics, columns int) {
	text := v.SaysWhy()
	if columns > 0 {
		text = v.Says()
	}
	ratio, interval, noise := "-", "-", ""
	if v.Pairs > 0 {
		ratio = fmt.Sprintf("%.3f", v.Ratio)
	}
	if v.Pairs >= stats.MinPairs(metrics) {
		interval = fmt.Sprintf("%.3f-%.3f", v.Low, v.High)
	}
	if v.Floor > 0 {
		noise = fmt.Sprintf("%.3f", v.Floor)
	}
	grid.Row(cell, labreport.ShortName(v.Metric), ratio, interval, noise, text)
}

// facts are numbers that belong to no block, by setting where they have one.
func facts(to io.Writer, s results.Outcome, columns int) error {
	groups, rows := results.FactTable(s.Facts)
	if len(rows) == 0 {
		return nil
	}
	heading := append(append([]string{"WHAT"}, groups...), "AT MOST", "UNIT")
	grid := printer.NewGrid(heading...)
	for i := range groups {
		grid.Right(i + 1)
	}
	grid.Right(len(groups) + 1)
	for _, r := range rows {
		cells := []string{r.Name}
		for _, g := range groups {
			v, ok := r.Values[g]
			text := strconv.FormatFloat(v, 'g', 4, 64)
			switch {
			case !ok:
				text = "-"
			case r.Missed[g]:
				text += "!"
			}
			cells = append(cells, text)
		}
		limit := ""
		if r.Target > 0 {
			limit = strconv.FormatFloat(r.Target, 'g', 4, 64)
		}
		grid.Row(append(cells, limit, r.Unit)...)
	}
	if columns > 0 {
		grid.Fit(columns, []int{0}, nil)
	}
	return grid.Print(to, "")
}

// allRejected says why a plane has no block that counts, empty if it has one.
func allRejected(blocks []results.Block, plane string) string {
	n, why := 0, ""
	for _, b := range blocks {
		if b.Plane != plane {
			continue
		}
		if b.Counted() {
			return ""
		}
		n, why = n+1, strings.Join(b.Rejected, "; ")
	}
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("none of %s counts; of the last: %s", plural(n, "block"), why)
}

// counts is how many blocks of a plane count, of how many.
func counts(blocks []results.Block, plane string) string {
	all, good := 0, 0
	for _, b := range blocks {
		if b.Plane == plane {
			all++
			if b.Counted() {
				good++
			}
		}
	}
	return fmt.Sprintf("%d/%d", good, all)
}

func failedShare(blocks []results.Block, plane string) string {
	share, _ := stats.FailedShare(blocks, plane)
	if share == 0 {
		return "-"
	}
	return strconv.FormatFloat(100*share, 'g', 3, 64) + " %"
}

func number(blocks []results.Block, plane, metric string, decimals int) string {
	v, ok := median(blocks, plane, metric)
	if !ok {
		return "-"
	}
	return strconv.FormatFloat(v, 'f', decimals, 64)
}

// Rejected says how many blocks there are in a document, and how many were rejected.
func Rejected(r *results.Results) (blocks, rejected int) {
	for _, s := range r.Scenarios {
		for _, c := range s.Cells {
			blocks += len(c.Blocks)
			rejected += len(slices.DeleteFunc(slices.Clone(c.Blocks), func(b results.Block) bool { return b.Counted() }))
		}
	}
	return blocks, rejected
}
