package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"lateen.dev/lateen/charts"
	"lateen.dev/lateen/internal/check"
	"lateen.dev/lateen/internal/check/cluster"
	"lateen.dev/lateen/internal/cli/printer"
	"lateen.dev/lateen/internal/install"
	"lateen.dev/lateen/internal/install/render"
	"lateen.dev/lateen/internal/kube"
)

var checkFormats = []printer.Format{printer.Table, printer.JSON, printer.YAML}

func (cmds statusCommands) checkCommand() *cobra.Command {
	purpose := string(check.Up)
	before := false
	o := install.Options{Charts: charts.FS}
	var f installFlags
	var proxyEnv []string
	cmd := &cobra.Command{
		Use:   "check",
		Short: "say what this machine, or a Kubernetes cluster, lacks to run a mesh",
		Example: `  # This machine, for a mesh of local nodes, the demo or a build.
  lateen check
  lateen check --for demo
  lateen check --for build -o json
  lateen check --proxy-env LATEEN_ACCELERATOR=splice

  # A cluster, before Lateen is installed on it, and the mesh that it has.
  lateen check --pre
  lateen check --context my-cluster`,
		Long: fmt.Sprintf("Of the machine, kernel features are tried for real in a network namespace that is thrown away; nothing changes, there or in a cluster.\n"+
			"Without --pre and --for it is about the cluster if no local mesh runs and the kubeconfig's cluster has Lateen on it (LATEEN_ENGINE\n"+
			"says otherwise), else about the machine. The exit code is %d if something is missing.", ExitFindings),
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			format, err := cmds.app.format(checkFormats...)
			if err != nil {
				return err
			}
			wanted, err := check.ParsePurpose(purpose)
			if err != nil {
				return usageError{err}
			}
			forMachine := cmd.Flags().Changed("for")
			if before && forMachine {
				return usagef("--pre is about a cluster, --for about this machine; give one of them")
			}
			if o.Values, err = render.UserValues(f.files, f.values); err != nil {
				return usageError{err}
			}
			if len(f.files)+len(f.values) > 0 && !before {
				return usagef("--set and --values go with --pre; of a mesh that is there its own values count")
			}
			if len(proxyEnv) > 0 && (before || wanted != check.Up) {
				return usagef("--proxy-env is about a mesh of local nodes on this machine; it goes with neither --pre nor --for %s nor --for %s", check.Demo, check.Build)
			}
			if err := checkVariables(proxyEnv, false); err != nil {
				return err
			}
			return cmds.check(cmd.Context(), format, wanted, before, forMachine || len(proxyEnv) > 0, o, proxyEnv)
		},
	}
	cmd.Flags().StringVar(&purpose, "for", purpose, "what the machine is wanted for: up, demo, build")
	cmd.Flags().BoolVar(&before, "pre", false, "whether the cluster that the kubeconfig names can have a mesh")
	cmd.Flags().StringArrayVar(&proxyEnv, "proxy-env", nil, "NAME=VALUE: an environment variable that every node proxy of this machine's mesh is to have, as with up (repeatable)")
	cmd.Flags().StringVarP(&o.Namespace, "namespace", "n", install.DefaultNamespace, "with --pre: namespace that the mesh's parts are to have")
	valueFlags(cmd, &f)
	register(cmd, "for", cobra.FixedCompletions([]string{"up", "demo", "build"}, cobra.ShellCompDirectiveNoFileComp))
	cmds.app.outputFlag(cmd, checkFormats...)
	return cmd
}

func (cmds statusCommands) check(ctx context.Context, format printer.Format, wanted check.Purpose, before, forMachine bool, o install.Options, proxyEnv []string) error {
	var report check.Report
	var next string
	target, err := cmds.checked(ctx, before, forMachine, o)
	switch {
	case err != nil:
		return err
	case target == nil:
		report = check.Run(ctx, cmds.app.System, wanted, proxyEnv...)
		next = cmds.afterCheck(wanted)
	case before:
		report, next = cluster.Run(ctx, target, cluster.Before), "lateen install"+(installCommands{cmds.app}).clusterFlags()
	default:
		report, next = cluster.Run(ctx, target, cluster.Installed), "lateen status"+(installCommands{cmds.app}).clusterFlags()
	}
	cmds.app.addressAll(&report)
	if format.Structured() {
		err = printer.Write(cmds.app.Stdout, format, report)
	} else {
		err = printer.Check(cmds.app.Stdout, report, cmds.app.width(), cmds.app.Out)
	}
	if err != nil {
		return err
	}
	if report.Failed() {
		return exitStatus(ExitFindings)
	}
	cmds.app.next(next)
	return nil
}

// afterCheck is the command that a machine is ready for. One whose mesh runs already is not to start it again.
func (cmds statusCommands) afterCheck(wanted check.Purpose) string {
	switch wanted {
	case check.Demo:
		return "lateen demo"
	case check.Build:
		return "make build"
	}
	switch running := cmds.app.running(); {
	case len(running) == 0:
		return "lateen up"
	case cmds.app.choose() != nil:
		return "lateen list"
	case !slices.Contains(running, cmds.app.mesh):
		return "lateen up"
	}
	return "lateen status"
}

// checked is the cluster that is meant; nil if this machine is.
func (cmds statusCommands) checked(ctx context.Context, before, forMachine bool, o install.Options) (*cluster.Target, error) {
	choice, err := cmds.app.choice()
	if err != nil || forMachine || choice == engineLocal && !before {
		return nil, err
	}
	try := choice == engineAuto && !before
	if try {
		// A mesh of this machine that is named, or that runs, is the one that is meant.
		if err := cmds.app.choose(); err != nil || cmds.app.chosen.named || len(cmds.app.running()) > 0 || cmds.app.Cluster == nil {
			return nil, nil
		}
	}
	c, err := cmds.app.Cluster(cmds.app.kubeconfig, cmds.app.kubeContext)
	if err != nil {
		if try && errors.Is(err, kube.ErrNoCluster) {
			return nil, nil
		}
		return nil, err
	}
	t := &cluster.Target{Cluster: c, Options: o, Now: cmds.app.Now}
	if t.Version, err = install.Version(o); err != nil {
		return nil, err
	}
	if before {
		return t, nil
	}
	finding, cancel := ctx, context.CancelFunc(func() {})
	if try {
		finding, cancel = context.WithTimeout(ctx, findPatience)
	}
	defer cancel()
	t.Record, err = c.Find(finding)
	if try && errors.Is(err, context.DeadlineExceeded) {
		err = silent(c)
	}
	switch {
	case err != nil:
		t.Unfound = err // LAT100 or LAT120 says so
		if try {
			cmds.app.warn("no mesh runs on this machine, so this is about the cluster that the kubeconfig names; `lateen check --for up` is about this machine alone")
		}
		return t, nil
	case try && t.Record == nil:
		return nil, nil
	case t.Record == nil:
		return t, nil // LAT120 says so
	}
	t.Options.Namespace, t.Options.Values = t.Record.Namespace, t.Record.Values
	t.Pages = engineOf(c, t.Record)
	return t, nil
}
