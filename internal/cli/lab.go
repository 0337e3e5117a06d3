package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
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
	"lateen.dev/lateen/internal/cli/term"
	"lateen.dev/lateen/internal/engine/api"
	"lateen.dev/lateen/internal/lab/dataplanes"
	"lateen.dev/lateen/internal/lab/procstat"
	"lateen.dev/lateen/internal/lab/report"
	"lateen.dev/lateen/internal/lab/results"
	"lateen.dev/lateen/internal/lab/run"
	"lateen.dev/lateen/internal/lab/scenario"
)

func (cmds labCommands) labCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "lab",
		Short: "measure what a mesh costs, and peers beside it, in experiments that can be repeated",
		Example: `  lateen lab list
  lateen lab run details-nagle
  lateen lab run twopods-qps --peer ztunnel=/usr/local/bin/ztunnel`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(cmds.labListCommand(), cmds.labRunCommand(), cmds.labReportCommand(), cmds.labCompareCommand(), cmds.labIsotopeCommand(), cmds.labScorecardCommand(), cmds.labServiceCommand(), cmds.labServeCommand())
	return cmd
}

func (cmds labCommands) labListCommand() *cobra.Command {
	var long bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "the scenarios, and what each is for",
		Example: `  lateen lab list

  # What each does, which published tables it stands beside, and what of it does not hold on one machine.
  lateen lab list --long`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error { return cmds.labList(long) },
	}
	cmd.Flags().BoolVar(&long, "long", false, "all that the scenarios say of themselves")
	return cmd
}

func (cmds labCommands) labList(long bool) error {
	all, err := scenario.All()
	if err != nil {
		return err
	}
	if !long {
		grid := printer.NewGrid("NAME", "CELLS", "ROUNDS", "BLOCK", "WHAT").Right(1, 2, 3)
		for _, s := range all {
			cells := len(s.Cells)
			if s.Control != nil {
				cells = len(s.Control.Rates)
			}
			grid.Row(s.Name, strconv.Itoa(cells), strconv.Itoa(s.Rounds), fmt.Sprintf("%gs", s.Seconds), s.Title)
		}
		if columns := term.Columns(cmds.app.Stdout); columns > 0 {
			grid.Fit(columns, []int{4, 0}, []int{3, 2})
		}
		return grid.Print(cmds.app.Stdout, "")
	}
	for i, s := range all {
		lead := "\n"
		if i == 0 {
			lead = ""
		}
		text := fmt.Sprintf("%s%s: %s\n  %s\n", lead, cmds.app.Out.Bold(s.Name), s.Title, strings.TrimSpace(s.Does))
		if len(s.Answers) > 0 {
			text += "  beside the published tables: " + strings.Join(s.Answers, ", ") + "\n"
		}
		for _, n := range s.NotValid {
			text += "  does not hold on one machine: " + n + "\n"
		}
		if err := cmds.app.printf("%s", term.Paragraph(cmds.app.Stdout, cmds.app.Out, 0, text)); err != nil {
			return err
		}
	}
	return nil
}

// labFlags are the flags of lab run as they are written.
type labFlags struct {
	planes        []string
	peers         []string
	proxyEnv      []string
	cells         []string
	targets       []string
	gates         []string
	rounds        int
	block, warmup time.Duration
	latency       time.Duration
	order         string
	seed          uint64
	out, samples  string
	overwrite     bool
	scale         scaleFlags
}

func (cmds labCommands) labRunCommand() *cobra.Command {
	var f labFlags
	cmd := &cobra.Command{
		Use:   "run NAME...",
		Short: "carry scenarios out, on no mesh, lateen and peers in turn",
		Example: `  # An application's 40 ms stall, with and without the mesh.
  lateen lab run details-nagle

  # With a peer beside, and as short as verdicts about its six metrics allow.
  lateen lab run twopods-qps --peer ztunnel=/usr/local/bin/ztunnel --rounds 8 --block 5s

  # Services that are there already, with a mesh and without, from this machine.
  lateen lab run twopods-qps --target without=http://10.0.0.5 --target with=http://10.0.0.6

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
			o, err := f.options(cmd, cmds.app.Now(), args)
			if err != nil {
				return err
			}
			return cmds.labRun(cmd.Context(), o)
		},
	}
	cmd.Flags().StringSliceVar(&f.planes, "planes", []string{results.KindNone, results.KindLateen}, "planes that take part, of none, lateen and waypoint; the others are compared with the first, and a scenario may bring further ones")
	cmd.Flags().StringArrayVar(&f.peers, "peer", nil, "KIND=PATH: another data plane's executable: ztunnel, ztunnel-one (with one worker), envoy, envoy-http1, envoy-balanced, envoy-waypoint or envoy-one-listener, such as ztunnel=/usr/local/bin/ztunnel; KIND:NAME=PATH names the plane, and lateen:NAME=PATH or waypoint:NAME=PATH is another build of lateen-proxy (repeatable)")
	cmd.Flags().StringArrayVar(&f.proxyEnv, "proxy-env", nil, "PLANE:NAME=VALUE: an environment variable of a plane's node proxies, and of its waypoint (repeatable)")
	cmd.Flags().StringArrayVar(&f.cells, "cell", nil, "TEXT: measure only the cells whose names contain it (repeatable)")
	cmd.Flags().StringArrayVar(&f.targets, "target", nil, "NAME=URL: in place of planes, services that are there already: the scenario's load goes to the URL (repeatable; the others are compared with the first)")
	cmd.Flags().IntVar(&f.rounds, "rounds", 0, "rounds, each with a block of every plane (left out: the scenario's)")
	cmd.Flags().DurationVar(&f.block, "block", 0, "time measured in a block (left out: the scenario's)")
	cmd.Flags().DurationVar(&f.warmup, "warmup", 0, "time before that which does not count (left out: the scenario's)")
	cmd.Flags().DurationVar(&f.latency, "latency", 0, "added to every round trip between nodes, in user space, up to "+maxLatency.String()+"; the report labels it")
	cmd.Flags().StringArrayVar(&f.gates, "gate", nil, "NAME=LIMIT: beyond it a block is rejected for its environment: other_cpu, steal and achieved are shares, lateness is milliseconds (repeatable)")
	cmd.Flags().StringVar(&f.order, "order", "random", "order of the planes in each round: random or abba")
	f.scale.register(cmd)
	cmd.Flags().Uint64Var(&f.seed, "seed", 1, "what the random order begins with")
	cmd.Flags().StringVar(&f.out, "out", "", "directory for results.json (default: lab-results/NAME-TIME)")
	cmd.Flags().BoolVar(&f.overwrite, "overwrite", false, "replace the run that the directory of --out has")
	cmd.Flags().StringVar(&f.samples, "samples", "", "directory with bookinfo (default: samples beside the program's directory)")
	register(cmd, "order", cobra.FixedCompletions([]string{"random", "abba"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// options reads the flags. Everything that can be said before anything is started is said here.
func (f labFlags) options(cmd *cobra.Command, now time.Time, names []string) (run.Options, error) {
	o := run.Options{Rounds: -1, Seconds: -1, Warmup: -1, Gates: results.DefaultGates, ABBA: f.order == "abba", Seed: f.seed, Samples: f.samples, Command: append([]string{"lateen"}, os.Args[min(1, len(os.Args)):]...)}
	var err error
	if o.Scenarios, err = scenario.Find(names); err != nil {
		return o, usageError{inSamples(err, f.samples)}
	}
	if err := f.scale.apply(o.Scenarios); err != nil {
		return o, usageError{err}
	}
	if f.order != "abba" && f.order != "random" {
		return o, usagef("--order %q: use random or abba", f.order)
	}
	if f.rounds < 0 || f.block < 0 || f.warmup < 0 {
		return o, usagef("--rounds, --block and --warmup are not negative")
	}
	if f.latency < 0 || f.latency > maxLatency {
		return o, usagef("--latency %s: use 0s to %s", f.latency, maxLatency)
	}
	o.Latency = f.latency
	if cmd.Flags().Changed("rounds") {
		o.Rounds = f.rounds
	}
	if cmd.Flags().Changed("block") {
		o.Seconds = f.block.Seconds()
	}
	if cmd.Flags().Changed("warmup") {
		o.Warmup = f.warmup.Seconds()
	}
	if len(f.targets) > 0 {
		if cmd.Flags().Changed("planes") || len(f.peers) > 0 {
			return o, usagef("--target takes the place of --planes and --peer: use one or the other")
		}
		f.planes = nil
	}
	for _, text := range f.targets {
		name, address, _ := strings.Cut(text, "=")
		spec, err := dataplanes.ParseTarget(name, address)
		if err != nil {
			return o, usageError{err}
		}
		o.Planes = append(o.Planes, spec)
	}
	for _, text := range slices.Concat(f.planes, f.peers) {
		spec, err := dataplanes.ParseSpec(text)
		if err != nil {
			return o, usageError{err}
		}
		o.Planes = append(o.Planes, spec)
	}
	for _, text := range f.proxyEnv {
		if err := setProxyEnv(o.Planes, text); err != nil {
			return o, err
		}
	}
	if err := scenario.Keep(o.Scenarios, f.cells); err != nil {
		return o, usageError{err}
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
	o.File = filepath.Join(f.out, "results.json")
	if hasResults(o.File) && !f.overwrite {
		return o, usageError{&api.Error{Message: fmt.Sprintf("--out %s: it has the results.json of an earlier run", f.out), Fix: "name another directory, or add --overwrite to lose that run"}}
	}
	if err := os.MkdirAll(f.out, 0o755); err != nil {
		return o, fmt.Errorf("--out: %w", err)
	}
	if o.Samples == "" {
		// Without samples the scenarios that need none still run.
		if o.Samples, err = samplesDir(); err != nil {
			o.Samples = "samples"
		}
	}
	return o, nil
}

// hasResults says whether a document has something that was measured, or cannot be read. A run that ended before its first block
// leaves a document without any.
func hasResults(file string) bool {
	text, err := os.ReadFile(file)
	if err != nil {
		return !errors.Is(err, fs.ErrNotExist)
	}
	var r results.Results
	if json.Unmarshal(text, &r) != nil {
		return true
	}
	return slices.ContainsFunc(r.Scenarios, func(o results.Outcome) bool {
		return len(o.Facts) > 0 || slices.ContainsFunc(o.Cells, func(c results.Cell) bool { return len(c.Blocks) > 0 })
	})
}

// inSamples adds to the error of a scenario that does not exist the file of that name among the samples.
func inSamples(err error, samples string) error {
	var unknown *scenario.UnknownError
	if !errors.As(err, &unknown) {
		return err
	}
	if samples == "" {
		if dir, err := samplesDir(); err == nil {
			samples = dir
		}
	}
	what, fix := unknown.Parts()
	if file := filepath.Join(samples, "lab", filepath.Base(unknown.Name)+".yaml"); exists(file) {
		if dir, err := os.Getwd(); err == nil {
			if near, err := filepath.Rel(dir, file); err == nil && !strings.HasPrefix(near, "..") {
				file = near
			}
		}
		fix = "name the file: lateen lab run " + file
	}
	return &api.Error{Message: what, Fix: fix}
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

// setProxyEnv gives the proxies of a plane a variable.
func setProxyEnv(planes []dataplanes.Spec, text string) error {
	name, setting, _ := strings.Cut(text, ":")
	variable, _, ok := strings.Cut(setting, "=")
	if !ok || variable == "" {
		return usagef("--proxy-env %q: write PLANE:NAME=VALUE", text)
	}
	i := slices.IndexFunc(planes, func(p dataplanes.Spec) bool { return p.Name == name })
	if i < 0 {
		return usagef("--proxy-env %q: no plane %q takes part", text, name)
	}
	if k := planes[i].Kind; k != results.KindLateen && k != results.KindWaypoint && k != results.KindEnvoyWaypoint && k != results.KindZtunnel {
		return usagef("--proxy-env %q: plane %s has no node proxy", text, name)
	}
	// Another build of lateen-proxy may read other variables. The path of a plane of Envoy is that of the Envoy.
	if planes[i].Path == "" || planes[i].Kind == results.KindEnvoyWaypoint {
		if err := checkVariableName(variable); err != nil {
			return err
		}
	}
	planes[i].ProxyEnv = append(planes[i].ProxyEnv, setting)
	return nil
}

func setGate(gates *results.Gates, text string) error {
	name, value, _ := strings.Cut(text, "=")
	to, known := map[string]*float64{"other_cpu": &gates.OtherCPU, "steal": &gates.Steal, "lateness": &gates.Lateness, "achieved": &gates.Achieved}[name]
	if !known {
		return usagef("--gate %q: there is no such gate: use other_cpu, steal, lateness or achieved", text)
	}
	limit, err := strconv.ParseFloat(value, 64)
	if err != nil || !(limit >= 0 && limit <= 1e6) {
		return usagef("--gate %q: write a number, such as %s=0.3", text, name)
	}
	*to = limit
	return nil
}

// labEngine is the engine as the lab's planes use it.
type labEngine struct{ a *app }

func (e labEngine) Start(ctx context.Context, o dataplanes.EngineOptions, progress func(api.Event)) error {
	return e.a.Engine.Start(ctx, StartOptions{Mesh: o.Mesh, Nodes: o.Nodes, NodeProxy: o.NodeProxy, ProxyEnv: o.ProxyEnv, Latency: o.Latency, Attached: true}, progress)
}

func (e labEngine) Stop(ctx context.Context, mesh string, progress func(api.Event)) error {
	return e.a.Engine.Stop(ctx, mesh, progress)
}

func (e labEngine) Client(mesh string) *api.Client { return e.a.Connect(mesh) }

// generator finds the load generator.
func generator() (string, error) { return ourProgram("lateen-load") }

// ourProgram finds a program: beside this one, or else where programs are.
func ourProgram(name string) (string, error) {
	exe, err := os.Executable()
	if err == nil {
		if exe, err = filepath.EvalSymlinks(exe); err == nil {
			if path, err := exec.LookPath(filepath.Join(filepath.Dir(exe), name)); err == nil {
				return path, nil
			}
		}
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("find %s: %w; run `make build`, which puts all programs into one directory", name, err)
	}
	return path, nil
}

func (cmds labCommands) labRun(ctx context.Context, o run.Options) error {
	maker := dataplanes.Maker{Engine: labEngine{cmds.app}, Prefix: labPrefix + strconv.Itoa(os.Getpid()), Generator: generator}
	plan := run.PlanOf(o, exec.LookPath)
	for _, s := range plan.Short {
		cmds.app.warn("%s: too few rounds for a verdict (%d); --rounds %d is enough and takes about %s", s.Scenario, s.Rounds, s.Needed, run.Rough(s.Takes))
	}
	_, _ = fmt.Fprintf(cmds.app.Stderr, "This run takes about %s for %d blocks.\n", run.Rough(plan.Takes), plan.Blocks)
	doc, err := run.Run(ctx, run.Stage{
		Make: maker.Plane, Account: procstat.Host(), Progress: cmds.app.progress(), LookPath: exec.LookPath, Control: func() (string, error) { return ourProgram("lateen-control") }, Version: Version(), Cores: runtime.NumCPU(), Now: cmds.app.Now,
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
	// The reports come first: after a hang-up nothing can be printed any more.
	reports, failed := labReports(o.File, doc)
	written := strings.Join(append([]string{o.File}, reports...), ", ")
	facts := slices.ContainsFunc(doc.Scenarios, func(o results.Outcome) bool { return len(o.Facts) > 0 })
	if blocks, rejected := run.Rejected(doc); blocks > 0 || facts {
		failed = errors.Join(failed, run.Summary(cmds.app.Stdout, doc, term.Columns(cmds.app.Stdout)), cmds.labVerdicts(doc))
		if rejected > 0 {
			cmds.app.warn("rejected for what their environment did: %d of %d blocks; the reasons are in the document", rejected, blocks)
		}
	}
	if errors.Is(err, context.Canceled) {
		cmds.app.warn("interrupted: what was measured until then is in %s", written)
		return errors.Join(err, failed)
	}
	if err := errors.Join(err, failed, cmds.app.printf("\nwritten:\n  %s\n", strings.Join(append([]string{o.File}, reports...), "\n  "))); err != nil {
		return err
	}
	return labStatus(doc)
}

// labVerdicts says the verdicts in the words of the reports.
func (cmds labCommands) labVerdicts(doc *results.Results) error {
	sentences := report.Verdicts(doc)
	if len(sentences) == 0 {
		return nil
	}
	for i, s := range sentences {
		sentences[i] = term.Paragraph(cmds.app.Stdout, cmds.app.Out, 0, s)
	}
	return cmds.app.printf("\n%s\n", strings.Join(sentences, "\n"))
}

// labStatus is the exit status that a run's results ask for: findings where a scenario ended early, or a plane failed at something.
func labStatus(doc *results.Results) error {
	for _, s := range doc.Scenarios {
		if s.Failed != "" || len(s.Failures) > 0 {
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
