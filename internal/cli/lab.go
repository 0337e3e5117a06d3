package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"lateen.dev/lateen/internal/cli/printer"
	"lateen.dev/lateen/internal/engine/api"
	"lateen.dev/lateen/internal/lab/account"
	"lateen.dev/lateen/internal/lab/bench"
	"lateen.dev/lateen/internal/lab/report"
	"lateen.dev/lateen/internal/lab/results"
	"lateen.dev/lateen/internal/lab/run"
	"lateen.dev/lateen/internal/lab/scenario"
)

func (a *app) labCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "lab",
		Short: "measure what a mesh costs, and peers beside it, in experiments that can be repeated",
		Example: `  lateen lab list
  lateen lab run details-nagle
  lateen lab run twopods-qps --peer ztunnel=/usr/local/bin/ztunnel`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.labListCommand(), a.labRunCommand(), a.labReportCommand(), a.labCompareCommand())
	return cmd
}

func (a *app) labListCommand() *cobra.Command {
	var long bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "the scenarios, and what each is for",
		Example: `  lateen lab list

  # What each does, which published tables it stands beside, and what of it does not hold on one machine.
  lateen lab list --long`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error { return a.labList(long) },
	}
	cmd.Flags().BoolVar(&long, "long", false, "all that the scenarios say of themselves")
	return cmd
}

func (a *app) labList(long bool) error {
	all, err := scenario.All()
	if err != nil {
		return err
	}
	if !long {
		grid := printer.NewGrid("NAME", "CELLS", "ROUNDS", "BLOCK", "WHAT").Right(1, 2, 3)
		for _, s := range all {
			grid.Row(s.Name, strconv.Itoa(len(s.Cells)), strconv.Itoa(s.Rounds), fmt.Sprintf("%gs", s.Seconds), s.Title)
		}
		return grid.Print(a.Stdout, "")
	}
	for i, s := range all {
		lead := "\n"
		if i == 0 {
			lead = ""
		}
		text := fmt.Sprintf("%s%s: %s\n  %s\n", lead, a.Out.Bold(s.Name), s.Title, strings.TrimSpace(s.Does))
		if len(s.Answers) > 0 {
			text += "  beside the published tables: " + strings.Join(s.Answers, ", ") + "\n"
		}
		for _, n := range s.NotValid {
			text += "  does not hold on one machine: " + n + "\n"
		}
		if err := a.printf("%s", text); err != nil {
			return err
		}
	}
	return nil
}

// labFlags are the flags of lab run as they are written.
type labFlags struct {
	planes        []string
	peers         []string
	gates         []string
	rounds        int
	block, warmup time.Duration
	order         string
	seed          uint64
	out, samples  string
}

func (a *app) labRunCommand() *cobra.Command {
	var f labFlags
	cmd := &cobra.Command{
		Use:   "run NAME...",
		Short: "carry scenarios out, on no mesh, lateen and peers in turn",
		Example: `  # An application's 40 ms stall, with and without the mesh.
  lateen lab run details-nagle

  # With a peer beside, and shorter than it should be.
  lateen lab run twopods-qps --peer ztunnel=/usr/local/bin/ztunnel --rounds 6 --block 5s

  # Everything, on a machine that has something else to do as well.
  lateen lab run all --gate other_cpu=0.3`,
		Args: atLeast(1, "the names of scenarios, or all; `lateen lab list` shows them"),
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			all, _ := scenario.All()
			names := []string{"all"}
			for _, s := range all {
				names = append(names, s.Name)
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			o, err := f.options(cmd, a.Now(), args)
			if err != nil {
				return err
			}
			return a.labRun(cmd.Context(), o)
		},
	}
	cmd.Flags().StringSliceVar(&f.planes, "planes", []string{results.KindNone, results.KindLateen}, "planes that take part; the others are compared with the first")
	cmd.Flags().StringArrayVar(&f.peers, "peer", nil, "KIND=PATH: another data plane's executable, such as ztunnel=/usr/local/bin/ztunnel (repeatable)")
	cmd.Flags().IntVar(&f.rounds, "rounds", 0, "rounds, each with a block of every plane (left out: the scenario's)")
	cmd.Flags().DurationVar(&f.block, "block", 0, "time measured in a block (left out: the scenario's)")
	cmd.Flags().DurationVar(&f.warmup, "warmup", 0, "time before that which does not count (left out: the scenario's)")
	cmd.Flags().StringArrayVar(&f.gates, "gate", nil, "NAME=SHARE: a limit beyond which a block is rejected for its environment: other_cpu, steal, lateness, achieved (repeatable)")
	cmd.Flags().StringVar(&f.order, "order", "random", "order of the planes in each round: random or abba")
	cmd.Flags().Uint64Var(&f.seed, "seed", 1, "what the random order begins with")
	cmd.Flags().StringVar(&f.out, "out", "", "directory for results.json (default: lab-results/NAME-TIME)")
	cmd.Flags().StringVar(&f.samples, "samples", "", "directory with bookinfo (default: samples beside the program's directory)")
	register(cmd, "order", cobra.FixedCompletions([]string{"random", "abba"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// options reads the flags. Everything that can be said before anything is started is said here.
func (f labFlags) options(cmd *cobra.Command, now time.Time, names []string) (run.Options, error) {
	o := run.Options{Rounds: -1, Seconds: -1, Warmup: -1, Gates: results.DefaultGates, ABBA: f.order == "abba", Seed: f.seed, Samples: f.samples, Command: append([]string{"lateen"}, os.Args[min(1, len(os.Args)):]...)}
	var err error
	if o.Scenarios, err = scenario.Find(names); err != nil {
		return o, usageError{err}
	}
	if f.order != "abba" && f.order != "random" {
		return o, usagef("--order %q: use random or abba", f.order)
	}
	if f.rounds < 0 || f.block < 0 || f.warmup < 0 {
		return o, usagef("--rounds, --block and --warmup are not negative")
	}
	if cmd.Flags().Changed("rounds") {
		o.Rounds = f.rounds
	}
	if cmd.Flags().Changed("block") {
		o.Seconds = f.block.Seconds()
	}
	if cmd.Flags().Changed("warmup") {
		o.Warmup = f.warmup.Seconds()
	}
	for _, text := range slices.Concat(f.planes, f.peers) {
		spec, err := bench.ParseSpec(text)
		if err != nil {
			return o, usageError{err}
		}
		o.Planes = append(o.Planes, spec)
	}
	for _, text := range f.gates {
		if err := setGate(&o.Gates, text); err != nil {
			return o, err
		}
	}
	if err := o.Validate(); err != nil {
		return o, usageError{err}
	}
	if f.out == "" {
		f.out = filepath.Join("lab-results", names[0]+"-"+now.UTC().Format("20060102-150405"))
	}
	if err := os.MkdirAll(f.out, 0o755); err != nil {
		return o, fmt.Errorf("--out: %w", err)
	}
	o.File = filepath.Join(f.out, "results.json")
	if o.Samples == "" {
		// Without samples the scenarios that need none still run.
		if o.Samples, err = samplesDir(); err != nil {
			o.Samples = "samples"
		}
	}
	return o, nil
}

func setGate(gates *results.Gates, text string) error {
	name, value, _ := strings.Cut(text, "=")
	to, known := map[string]*float64{"other_cpu": &gates.OtherCPU, "steal": &gates.Steal, "lateness": &gates.Lateness, "achieved": &gates.Achieved}[name]
	if !known {
		return usagef("--gate %q: there is no such gate: use other_cpu, steal, lateness or achieved", text)
	}
	share, err := strconv.ParseFloat(value, 64)
	if err != nil || !(share >= 0 && share <= 1e6) {
		return usagef("--gate %q: write a share, such as %s=0.3", text, name)
	}
	*to = share
	return nil
}

// labEngine is the engine as the lab's planes use it.
type labEngine struct{ a *app }

func (e labEngine) Start(ctx context.Context, o bench.EngineOptions, progress func(api.Event)) error {
	return e.a.Engine.Start(ctx, StartOptions{Mesh: o.Mesh, Nodes: o.Nodes, NodeProxy: o.NodeProxy, ProxyEnv: o.ProxyEnv}, progress)
}

func (e labEngine) Stop(ctx context.Context, mesh string, progress func(api.Event)) error {
	return e.a.Engine.Stop(ctx, mesh, progress)
}

func (e labEngine) Client(mesh string) *api.Client { return e.a.Connect(mesh) }

func (a *app) labRun(ctx context.Context, o run.Options) error {
	maker := bench.Maker{Engine: labEngine{a}, Prefix: "lab-" + strconv.Itoa(os.Getpid())}
	doc, err := run.Run(ctx, run.Stage{
		Make: maker.Plane, Account: account.Host(), Progress: a.progress(), LookPath: exec.LookPath, Version: Version(), Cores: runtime.NumCPU(), Now: a.Now,
		Sleep: func(ctx context.Context, d time.Duration) {
			select {
			case <-ctx.Done():
			case <-time.After(d):
			}
		},
	}, o)
	if doc == nil {
		return err
	}
	if blocks, rejected := run.Rejected(doc); blocks > 0 {
		if err := run.Summary(a.Stdout, doc); err != nil {
			return err
		}
		if rejected > 0 {
			a.warn("%d of %d blocks were rejected for what their environment did; the reasons are in the document", rejected, blocks)
		}
	}
	if errors.Is(err, context.Canceled) {
		a.warn("interrupted: %s has the rounds until then", o.File)
		return err
	}
	reports, failed := labReports(o.File, doc)
	if err := errors.Join(err, failed, a.printf("\nwritten: %s\n", strings.Join(append([]string{o.File}, reports...), ", "))); err != nil {
		return err
	}
	for _, s := range doc.Scenarios {
		if s.Failed != "" {
			return exitStatus(ExitFindings)
		}
	}
	return nil
}

// labReports writes a run for people, beside its document.
func labReports(file string, doc *results.Results) (written []string, err error) {
	for name, write := range map[string]func(io.Writer, *results.Results) error{"report.md": report.Markdown, "report.html": report.HTML} {
		path := filepath.Join(filepath.Dir(file), name)
		var text bytes.Buffer
		if failed := write(&text, doc); failed != nil {
			err = errors.Join(err, fmt.Errorf("write %s: %w", path, failed))
			continue
		}
		if failed := os.WriteFile(path, text.Bytes(), 0o644); failed != nil {
			err = errors.Join(err, fmt.Errorf("write %s: %w", path, failed))
			continue
		}
		written = append(written, path)
	}
	slices.Sort(written)
	return written, err
}
