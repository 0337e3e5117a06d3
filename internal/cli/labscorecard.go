package cli

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"runtime"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"lateen.dev/lateen/internal/cli/printer"
	"lateen.dev/lateen/internal/engine/api"
	"lateen.dev/lateen/internal/lab/procstat"
	"lateen.dev/lateen/internal/lab/scenario"
	"lateen.dev/lateen/internal/lab/scorecard"
)

// formatMarkdown is one that only reports have.
const formatMarkdown printer.Format = "markdown"

func (cmds labCommands) labScorecardCommand() *cobra.Command {
	formats := []printer.Format{printer.Table, printer.JSON, formatMarkdown}
	load := 8 * time.Second
	var output string
	cmd := &cobra.Command{
		Use:   "scorecard",
		Short: "measure what it takes to run the mesh: steps, seconds, restarts, failed requests",
		Long: `A mesh of two nodes is started, an application joins it, its node proxies are upgraded, parts of it are killed, the application
leaves, and in another mesh certificates are renewed and the root is replaced: each time with requests under way, on connections that
stay open and on new ones. Both meshes are taken down at the end.`,
		Example: `  lateen lab scorecard

  # As a page, beside what others wrote about other meshes.
  lateen lab scorecard -o markdown --output-file scorecard.md`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			format, err := cmds.app.format(formats...)
			if err != nil {
				return err
			}
			if load < scorecard.LeastLoad || load > scorecard.MostLoad {
				return usagef("--load %s: use %s to %s", load, scorecard.LeastLoad, scorecard.MostLoad)
			}
			return cmds.labScorecard(cmd.Context(), format, load, output)
		},
	}
	cmds.app.outputFlag(cmd, formats...)
	cmd.Flags().DurationVar(&load, "load", load, "how long requests are made around each event")
	cmd.Flags().StringVar(&output, "output-file", "-", "file to write; - is standard output")
	return cmd
}

func (cmds labCommands) labScorecard(ctx context.Context, format printer.Format, load time.Duration, output string) error {
	dir, err := cmds.app.Getwd()
	if err != nil {
		return err
	}
	var application []api.Document
	for _, part := range []string{"client", "echo"} {
		documents, err := scenario.Documents(part, "")
		if err != nil {
			return err
		}
		for _, d := range documents {
			d.Dir = dir // no program of theirs is in it, but pods begin there
			application = append(application, d)
		}
	}
	silent := func(api.Event) {}
	card := &scorecard.Card{Version: Version(), Kernel: procstat.Host().Facts().Kernel, Cores: runtime.NumCPU(), Started: cmds.app.Now()}
	failed := scorecard.Run(ctx, scorecard.Stage{
		Up: func(ctx context.Context, mesh string, certTTL time.Duration) error {
			return cmds.app.Engine.Start(ctx, StartOptions{Mesh: mesh, Nodes: 2, NodeProxy: map[string]string{}, CertTTL: certTTL, Attached: true}, silent)
		},
		Down:   func(ctx context.Context, mesh string) error { return cmds.app.Engine.Stop(ctx, mesh, silent) },
		Client: cmds.app.Connect, Mesh: cardPrefix + strconv.Itoa(os.Getpid()), Application: application, Progress: cmds.app.progress(), Load: load,
	}, card)
	write := card.Text
	switch format {
	case printer.JSON:
		write = func(w io.Writer) error {
			e := json.NewEncoder(w)
			e.SetIndent("", "  ")
			return e.Encode(card)
		}
	case formatMarkdown:
		write = card.Markdown
	}
	return errors.Join(failed, cmds.labWrite(output, write))
}
