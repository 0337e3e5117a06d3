package demo

import (
	"fmt"
	"io"
	"math"

	"lateen.dev/lateen/internal/cli/printer"
)

// Mark stands beside every number that the demonstration measures.
const Mark = "indicative, not a claim"

// WriteTable writes the rounds of one target and their medians, with the difference that the mesh makes.
func WriteTable(w io.Writer, title string, blocks []Block, c Comparison) error {
	if _, err := fmt.Fprintf(w, "%s, milliseconds (%s)\n", title, Mark); err != nil {
		return err
	}
	grid := printer.NewGrid("ROUND", "MESH", "AVG", "P50", "P75", "P90", "P99", "PROXY CPU µs/REQUEST").Right(2, 3, 4, 5, 6, 7)
	rounds := 0
	for _, b := range blocks {
		if b.Target == c.Target {
			rounds = max(rounds, b.Round)
		}
	}
	for round := 1; round <= rounds; round++ {
		none, mesh := find(blocks, c.Target, round, false), find(blocks, c.Target, round, true)
		blockRow(grid, fmt.Sprint(round), "no", none)
		blockRow(grid, "", "yes", mesh)
		if none != nil && mesh != nil {
			differenceRow(grid, none.Load.ResponseTime, mesh.Load.ResponseTime)
		}
	}
	if c.Pairs > 1 {
		grid.Row(append([]string{"median", "no"}, latencyCells(c.None)...)...)
		row := append([]string{" ", "yes"}, latencyCells(c.Mesh)...)
		if c.ProxyCPUMicros != nil {
			row = append(row, fmt.Sprintf("%.0f", *c.ProxyCPUMicros))
		}
		grid.Row(row...)
		differenceRow(grid, c.None, c.Mesh)
	}
	if err := grid.Print(w, "  "); err != nil {
		return err
	}
	if beyond := c.None.Count / uint64(max(1, c.Pairs)) / 100; c.Pairs > 0 && beyond < fewBeyond {
		if _, err := fmt.Fprintf(w, "  P99 rests on the %d slowest requests of each round\n", beyond); err != nil {
			return err
		}
	}
	for _, b := range blocks {
		if b.Target == c.Target && b.Fault != "" {
			side := "without"
			if b.Mesh {
				side = "with"
			}
			if _, err := fmt.Fprintf(w, "  * round %d %s the mesh does not count: %s\n", b.Round, side, b.Fault); err != nil {
				return err
			}
		}
	}
	return nil
}

// fewBeyond is the number of slower requests from which a percentile needs no warning.
const fewBeyond = 100

func find(blocks []Block, target string, round int, mesh bool) *Block {
	for i := range blocks {
		if b := &blocks[i]; b.Target == target && b.Round == round && b.Mesh == mesh {
			return b
		}
	}
	return nil
}

func blockRow(grid *printer.Grid, round, side string, b *Block) {
	if b == nil {
		return
	}
	if round == "" {
		round = " "
	}
	if b.Fault != "" {
		side += " *"
	}
	row := append([]string{round, side}, latencyCells(b.Load.ResponseTime)...)
	if b.Mesh && b.ProxyCPUMicros != nil {
		row = append(row, fmt.Sprintf("%.0f", *b.ProxyCPUMicros))
	}
	grid.Row(row...)
}

func latencyCells(l Latency) []string {
	cells := make([]string, 0, len(measures))
	for _, m := range measures {
		cells = append(cells, milliseconds(m.Of(l)))
	}
	return cells
}

func differenceRow(grid *printer.Grid, none, mesh Latency) {
	row := []string{" ", "diff"}
	for _, m := range measures {
		row = append(row, percentText(m.Of(none), m.Of(mesh)))
	}
	grid.Row(append(row, " ")...)
}

func percentText(before, after float64) string {
	p, ok := percent(before, after)
	if !ok {
		return ""
	}
	if math.Round(p) == 0 {
		return "0 %"
	}
	if p >= 1000 {
		return fmt.Sprintf("x%.0f", after/before)
	}
	return fmt.Sprintf("%+.0f %%", p)
}

// milliseconds keeps two digits after the point, and three below a tenth, where two would hide the difference.
func milliseconds(v float64) string {
	if v < 0.0995 {
		return fmt.Sprintf("%.3f", v)
	}
	return fmt.Sprintf("%.2f", v)
}
