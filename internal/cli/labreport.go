package cli

import (
	"bytes"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"lateen.dev/lateen/internal/cli/term"
	"lateen.dev/lateen/internal/lab/report"
	"lateen.dev/lateen/internal/lab/results"
)

func (cmds labCommands) labReportCommand() *cobra.Command {
	var html, markdown, explain, waypoints bool
	var output string
	cmd := &cobra.Command{
		Use:   "report RESULTS",
		Short: "write a run of the lab as tables, as a page or in words",
		Long: "RESULTS is the directory of a run or its results.json. The report is Markdown unless asked otherwise; the page of --html is one file\n" +
			"that needs nothing beside it; --explain says in words what was counted. Verdicts are computed again from the blocks.",
		Example: `  lateen lab report lab-results/twopods-qps-20261121-031500
  lateen lab report lab-results/twopods-qps-20261121-031500 --html --output report.html

  # Why: reads and writes, delayed acknowledgements, sleeps, CPU time.
  lateen lab report lab-results/details-nagle-20261121-031500 --explain

  # Lateen's waypoint beside Envoys in its place, as one page.
  lateen lab report lab-results/waypoint-20261121-031500 --waypoints --output waypoint-and-envoy.md`,
		Args: exactly(1, "the directory of a run, or its results.json"),
		RunE: func(_ *cobra.Command, args []string) error {
			write := report.Markdown
			switch {
			case html:
				write = report.HTML
			case explain:
				write = report.Explain
			case waypoints:
				write = report.WaypointPage
			}
			r, err := results.Read(args[0])
			if err != nil {
				return err
			}
			report.Rejudge(r)
			return cmds.labWrite(output, func(w io.Writer) error { return write(w, r) })
		},
	}
	cmd.Flags().BoolVar(&html, "html", false, "one HTML page")
	cmd.Flags().BoolVar(&markdown, "markdown", false, "Markdown (the default)")
	cmd.Flags().BoolVar(&explain, "explain", false, "only what was counted that tells why, in words")
	cmd.Flags().BoolVar(&waypoints, "waypoints", false, "a reference page of what Lateen's waypoint costs beside an Envoy in its place")
	cmd.Flags().StringVar(&output, "output", "-", "file to write; - is standard output")
	cmd.MarkFlagsMutuallyExclusive("html", "markdown", "explain", "waypoints")
	return cmd
}

func (cmds labCommands) labCompareCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "compare A B",
		Short: "set two runs of the lab side by side",
		Long: "A and B are directories of runs or their results.json. Whatever differs in machine, added latency, gates, planes and loads is said first; ratios\n" +
			"are those of planes to the baseline of their own run.",
		Example: `  lateen lab compare lab-results/before lab-results/after`,
		Args:    exactly(2, "the directories of two runs, or their results.json"),
		RunE: func(_ *cobra.Command, args []string) error {
			first, err := results.Read(args[0])
			if err != nil {
				return err
			}
			second, err := results.Read(args[1])
			if err != nil {
				return err
			}
			report.Rejudge(first)
			report.Rejudge(second)
			return cmds.labWrite(output, func(w io.Writer) error { return report.Compare(w, first, second) })
		},
	}
	cmd.Flags().StringVar(&output, "output", "-", "file to write; - is standard output")
	return cmd
}

// labWrite writes to a file or to standard output, all of it or nothing.
func (cmds labCommands) labWrite(output string, write func(io.Writer) error) error {
	var text bytes.Buffer
	if err := write(&text); err != nil {
		return err
	}
	if output != "-" {
		if err := os.WriteFile(output, text.Bytes(), 0o644); err != nil {
			return fmt.Errorf("--output: %w", err)
		}
		_, _ = fmt.Fprintf(cmds.app.Stderr, "wrote %s\n", term.Escape(output))
		return nil
	}
	_, err := text.WriteTo(cmds.app.Stdout)
	return err
}
