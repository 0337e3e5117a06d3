package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/validation"

	"lateen.dev/lateen/charts"
	"lateen.dev/lateen/internal/cli/printer"
	"lateen.dev/lateen/internal/install"
	"lateen.dev/lateen/internal/install/render"
)

// installFlags are what install, upgrade and uninstall have in common.
type installFlags struct {
	namespace   string
	values      []string
	files       []string
	takeOver    string
	ignored     []string
	accepted    []string
	without     []string
	dryRun      bool
	wait        bool
	timeout     time.Duration
	resetValues bool
	downgrade   bool
	crds        bool
}

var installFormats = []printer.Format{printer.Table, printer.JSON, printer.YAML}

func (cmds installCommands) installFlags(cmd *cobra.Command, f *installFlags, timeout time.Duration) {
	cmd.Flags().StringVarP(&f.namespace, "namespace", "n", install.DefaultNamespace, "namespace of the mesh's parts")
	cmd.Flags().BoolVar(&f.dryRun, "dry-run", false, "show what would be created, changed, deleted and left alone, and do nothing")
	cmd.Flags().DurationVar(&f.timeout, "timeout", timeout, "give up after this time; the command can be repeated and goes on where it ended")
	cmds.app.outputFlag(cmd, installFormats...)
}

// valueFlags are those by which values of the chart are given.
func valueFlags(cmd *cobra.Command, f *installFlags) {
	cmd.Flags().StringArrayVar(&f.values, "set", nil, "KEY=VALUE: a value of the chart, such as control.replicas=3 (repeatable)")
	cmd.Flags().StringArrayVarP(&f.files, "values", "f", nil, "YAML file with values of the chart (repeatable; --set goes over it)")
}

// changeFlags are those of what makes or changes an installation.
func changeFlags(cmd *cobra.Command, f *installFlags) {
	valueFlags(cmd, f)
	cmd.Flags().BoolVar(&f.wait, "wait", true, "return only when all parts are ready")
	cmd.Flags().BoolVar(&f.downgrade, "allow-downgrade", false, "let this program's version take the place of a newer one; definitions (CRDs and their admission policies) of the newer one stay, since older ones would drop fields")
	cmd.Flags().StringSliceVar(&f.ignored, "ignore-conflict", nil, "NAMESPACE/NAME, or NAME of what is in no namespace: what looks like a part of another mesh and is none (repeatable)")
	cmd.Flags().StringSliceVar(&f.accepted, "accept-difference", nil, "FIELD, as the dry run of a take-over names it: take over although this setting of Istio's decides access and is not kept (repeatable)")
}

func (cmds installCommands) installCommand() *cobra.Command {
	var f installFlags
	cmd := &cobra.Command{
		Use:   "install",
		Short: "put a mesh onto a Kubernetes cluster",
		Example: `  # The mesh, ready when the command returns. See first whether the cluster can have one.
  lateen check --pre
  lateen install

  # What would be done, and how it would be with other values.
  lateen install --dry-run
  lateen install --set control.replicas=3 -f values.yaml

  # In the place of a running Istio in ambient mode, while its connections go on.
  lateen install --take-over=istio --dry-run
  lateen install --take-over=istio`,
		Long: `Applies the charts lateen-crds and lateen that are in this program; charts/lateen/values.yaml lists all values. It refuses where another
control plane manages the same labels. A command that was interrupted can be repeated. The dry run of a take-over names each object and setting
that would mean something else than in Istio, with the lines that keep today's meaning; a setting that decides access and is not kept refuses it.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return cmds.carryOut(cmd.Context(), "install", f, (*install.Cluster).Prepare)
		},
	}
	cmds.installFlags(cmd, &f, 5*time.Minute)
	changeFlags(cmd, &f)
	cmd.Flags().StringVar(&f.takeOver, "take-over", "", "istio: take the place of a running Istio in ambient mode, with its CA, objects and labels")
	return cmd
}

func (cmds installCommands) upgradeCommand() *cobra.Command {
	var f installFlags
	cmd := &cobra.Command{
		Use:   "upgrade",
		Short: "bring the mesh of a Kubernetes cluster to this program's version, or to other values",
		Example: `  # What this version would change, then the change: control plane, agents, and proxies node by node.
  lateen upgrade --dry-run
  lateen upgrade

  # Other values; those of the installation stay.
  lateen upgrade --set log.level=debug`,
		Long: `One part after the other, each waited for; no connection is refused. The values of the installation stay unless --reset-values is given.
A mesh of a newer version is not brought back to this program's unless --allow-downgrade is given; definitions of the newer one stay even then, and the
plan names them. One command at a time changes an installation: it
holds Lease lateen-install in the mesh's namespace. A removal that was begun and not ended is taken back.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return cmds.carryOut(cmd.Context(), "upgrade", f, (*install.Cluster).PrepareUpgrade)
		},
	}
	cmds.installFlags(cmd, &f, 30*time.Minute)
	changeFlags(cmd, &f)
	cmd.Flags().BoolVar(&f.resetValues, "reset-values", false, "forget the values of the installation and begin with the chart's")
	return cmd
}

func (cmds installCommands) uninstallCommand() *cobra.Command {
	var f installFlags
	cmd := &cobra.Command{
		Use:   "uninstall",
		Short: "release all pods and remove the mesh from a Kubernetes cluster",
		Example: `  # Pods go on without the mesh; the kinds, and your objects of them, stay.
  lateen uninstall

  # The kinds as well, and all objects of them.
  lateen uninstall --crds`,
		Long: `First the agents release every pod and restore their nodes, which is waited for; only then are the parts removed. Nothing is restarted.
While a node is down nobody can take the mesh off it, and the command refuses; --without-nodes goes on all the same, and names what to run when it is back.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmds.uninstall(cmd.Context(), f) },
	}
	cmds.installFlags(cmd, &f, 5*time.Minute)
	cmd.Flags().StringSliceVar(&f.without, "without-nodes", nil, "names of nodes that are down, or have no agent, and are left as they are (with commas)")
	cmd.Flags().BoolVar(&f.crds, "crds", false, "remove the kinds that the installation defined as well, with all objects of them")
	return cmd
}

// prepared is an installation's options and the cluster that it is for.
func (cmds installCommands) prepared(f installFlags) (*install.Cluster, install.Options, error) {
	o := install.Options{Charts: charts.FS, Namespace: f.namespace, TakeOver: f.takeOver, Wait: f.wait, Timeout: f.timeout, ResetValues: f.resetValues,
		AllowDowngrade: f.downgrade, DryRun: f.dryRun, IgnoreConflicts: f.ignored, AcceptDifferences: f.accepted, WithoutNodes: f.without}
	if cmds.app.root.PersistentFlags().Changed("name") {
		return nil, o, usagef("--name %s names a mesh of this machine, and this command is about the mesh of a cluster; leave it out", cmds.app.mesh)
	}
	if why := validation.IsDNS1123Label(f.namespace); len(why) > 0 {
		return nil, o, usagef("--namespace=%s is no name of a namespace: %s", f.namespace, strings.Join(why, "; "))
	}
	if f.timeout <= 0 {
		return nil, o, usagef("--timeout=%s leaves no time; give a duration such as 5m", f.timeout)
	}
	if f.takeOver != "" && f.takeOver != "istio" {
		return nil, o, usagef("--take-over=%s: only istio can be taken over", f.takeOver)
	}
	if f.takeOver != "" && !f.wait {
		return nil, o, usagef("--take-over=%s goes with --wait alone: what is there stays until this mesh's parts are ready in its place", f.takeOver)
	}
	var err error
	if o.Values, err = render.UserValues(f.files, f.values); err != nil {
		return nil, o, usageError{err}
	}
	cluster, err := cmds.app.Cluster(cmds.app.kubeconfig, cmds.app.kubeContext)
	return cluster, o, err
}

// outcome is what install, upgrade and uninstall say to programs. Fields are added, never renamed.
type outcome struct {
	Verb   string `json:"verb"`
	DryRun bool   `json:"dryRun"`
	install.Plan
	Captured int      `json:"captured,omitempty"`
	Next     []string `json:"next,omitempty"`
}

// carryOut shows what installing or upgrading would do, or does it.
func (cmds installCommands) carryOut(ctx context.Context, verb string, f installFlags, prepare func(*install.Cluster, context.Context, install.Options) (*install.Installation, error)) error {
	format, err := cmds.app.format(installFormats...)
	if err != nil {
		return err
	}
	cluster, o, err := cmds.prepared(f)
	if err != nil {
		return err
	}
	progress := cmds.app.progress()
	o.Progress = events(progress)
	var i *install.Installation
	err = install.Within(ctx, f.timeout, func(ctx context.Context) (err error) {
		i, err = prepare(cluster, ctx, o)
		return err
	})
	if render.IsValueError(err) {
		return usageError{err}
	} else if err != nil {
		return err
	}
	for _, w := range i.Plan.Warnings {
		cmds.app.warn("%s", w)
	}
	cmds.app.addressAll(&i.Plan)
	next := []string{"lateen check" + cmds.clusterFlags(), "kubectl label namespace default istio.io/dataplane-mode=ambient", "lateen status" + cmds.clusterFlags()}
	if verb == "upgrade" {
		next = []string{"lateen check" + cmds.clusterFlags()}
	}
	if f.dryRun {
		next = []string{"the same command without --dry-run"}
	} else {
		err := i.Run(ctx)
		progress.Abandon()
		if err != nil {
			return err
		}
	}
	if i.Refusal() != nil {
		next = nil
	}
	if format.Structured() {
		if err := printer.Write(cmds.app.Stdout, format, outcome{Verb: verb, DryRun: f.dryRun, Plan: i.Plan, Next: next}); err != nil {
			return err
		}
		return i.Refusal()
	}
	if f.dryRun {
		if err := cmds.showPlan(i.Plan); err != nil {
			return err
		}
		if err := i.Refusal(); err != nil {
			return err
		}
	} else if err := cmds.app.printf("Lateen %s is installed in namespace %s%s: %s\n", i.Plan.Version, i.Plan.Namespace, inPlaceOf(i.Plan), printer.PlanCounts(i.Plan)); err != nil {
		return err
	}
	cmds.app.next(next...)
	return nil
}

// showPlan writes a plan and, where another mesh's place would be taken, what would mean something else.
func (cmds installCommands) showPlan(p install.Plan) error {
	if err := printer.Plan(cmds.app.Stdout, p); err != nil || p.Meaning == nil {
		return err
	}
	columns := cmds.app.width()
	if err := cmds.app.printf("\n"); err != nil {
		return err
	}
	return printer.Meaning(cmds.app.Stdout, *p.Meaning, printer.MeaningWidth(columns))
}

func (cmds installCommands) uninstall(ctx context.Context, f installFlags) error {
	format, err := cmds.app.format(installFormats...)
	if err != nil {
		return err
	}
	cluster, o, err := cmds.prepared(f)
	if err != nil {
		return err
	}
	progress := cmds.app.progress()
	o.Progress = events(progress)
	var r *install.Removal
	err = install.Within(ctx, f.timeout, func(ctx context.Context) (err error) {
		r, err = cluster.PrepareRemoval(ctx, o, f.crds)
		return err
	})
	if err != nil {
		return err
	}
	next := []string{"lateen install" + cmds.clusterFlags()}
	if f.dryRun {
		next = []string{"the same command without --dry-run"}
	} else {
		err := r.Run(ctx)
		progress.Abandon()
		if err != nil {
			return err
		}
		next = append(r.ByHand(), next...)
	}
	if format.Structured() {
		return printer.Write(cmds.app.Stdout, format, outcome{Verb: "uninstall", DryRun: f.dryRun, Plan: r.Plan, Captured: r.Captured, Next: next})
	}
	if f.dryRun {
		if err := cmds.app.printf("%s would be released first, without a restart.\n", captured(r.Captured)); err != nil {
			return err
		}
		if err := printer.Plan(cmds.app.Stdout, r.Plan); err != nil {
			return err
		}
	} else if err := cmds.app.printf("Lateen %s is removed: %s\n", r.Plan.Version, printer.PlanCounts(r.Plan)); err != nil {
		return err
	}
	cmds.app.next(next...)
	return nil
}

// inPlaceOf says what was there before, and what of it stays newer.
func inPlaceOf(p install.Plan) string {
	s := ""
	if p.From != "" {
		s = ", in the place of " + p.From
	}
	switch n := len(p.NewerDefinitions); n {
	case 0:
	case 1:
		s += ", with a newer definition of " + p.NewerDefinitions[0]
	default:
		s += fmt.Sprintf(", with %d definitions of a newer version", n)
	}
	return s
}

func captured(pods int) string {
	if pods == 1 {
		return "1 captured pod"
	}
	return fmt.Sprintf("%d captured pods", pods)
}

// clusterFlags are the --kubeconfig and --context that a suggested command needs, with a space before each.
func (cmds installCommands) clusterFlags() string {
	s := ""
	if cmds.app.kubeconfig != "" {
		s += " --kubeconfig " + cmds.app.kubeconfig
	}
	if cmds.app.kubeContext != "" {
		s += " --context " + cmds.app.kubeContext
	}
	return s
}
