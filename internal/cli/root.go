package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/spf13/cobra"

	"lateen.dev/lateen/internal/cli/printer"
	"lateen.dev/lateen/internal/cli/term"
	"lateen.dev/lateen/internal/engine/api"
)

// Main runs the command line of this process and returns its exit code.
func Main(args []string, engine Engine) int {
	env := processEnv(engine)
	ctx, interrupts := interruptible(os.Stdout, os.Stderr, env.Err)
	env.interrupts = interrupts
	return interrupts.stop(Run(ctx, env, args))
}

// Run executes one command line in the given environment and returns its exit code.
func Run(ctx context.Context, env Env, args []string) int {
	env.input = cancellable{ctx, env.Stdin}
	a := newApp(env)
	root := a.root
	root.SetArgs(args)
	root.SetIn(env.Stdin)
	root.SetOut(env.Stdout)
	root.SetErr(env.Stderr)
	addHelpCommand(root)
	if env.interrupts != nil {
		name, _, _ := strings.Cut(strings.TrimSpace(commandOf(root, args)), " ")
		env.interrupts.cleansUp.Store(slices.Contains(cleaning, name))
	}
	err := oneDash(root, args)
	if err == nil {
		err = misspeltCommand(root, args)
	}
	if err == nil {
		err = ended(ctx, env, root.ExecuteContext(ctx))
	}
	code := exitCode(err)
	var status exitStatus
	if err != nil && !errors.As(err, &status) {
		what, fix := explain(err)
		a.tellError(what, fix)
		if code == ExitUsage {
			_, _ = fmt.Fprintln(env.Stderr, "  see: lateen "+strings.TrimSpace(commandOf(root, args)+" --help"))
		}
	}
	return code
}

// commandOf is the path of the command that args name, without the root, as far as it exists.
func commandOf(root *cobra.Command, args []string) string {
	found, rest, err := root.Find(args)
	if err == nil && found.Name() == helpName {
		found, _, err = root.Find(rest)
	}
	if err != nil {
		return ""
	}
	return strings.TrimSpace(strings.TrimPrefix(found.CommandPath(), root.Name()))
}

// app is what every command shares: the environment and the flags of the root.
type app struct {
	Env
	root *cobra.Command
	// mesh is the mesh of this machine that is meant, once choose has run; before that it is the value of --name.
	mesh   string
	chosen meshChoice
	// reachedCluster reports that the mesh of a cluster answered.
	reachedCluster atomic.Bool

	namespace string
	output    string
	// kubeconfig and kubeContext say which cluster is meant; empty are those that kubectl would take.
	kubeconfig, kubeContext string
}

// Reference is the command with all its commands, to be looked at rather than run.
func Reference() *cobra.Command { return newRoot(Env{}) }

func newRoot(env Env) *cobra.Command { return newApp(env).root }

// newApp builds the command with all commands below it.
func newApp(env Env) *app {
	a := &app{Env: env}
	root := &cobra.Command{
		Use:   "lateen COMMAND",
		Short: "run a service mesh on this machine or on Kubernetes, look into it and measure it",
		Example: `  # Can this machine run a mesh? Start one with two nodes and bring it some pods.
  lateen check
  lateen up
  lateen apply -f samples/bookinfo/bookinfo.yaml

  # Put a namespace into the mesh, without restarting anything, and look at it.
  lateen label namespace default istio.io/dataplane-mode=ambient
  lateen wait
  lateen status

  # Or have one on the Kubernetes cluster that kubectl speaks to.
  lateen check --pre
  lateen install

  # See all of it at once, with and without the mesh, measured; it cleans up after itself.
  lateen demo`,
		DisableFlagsInUseLine: true,
		Long:                  exitCodes,

		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return cmd.Help()
		},
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return usageError{wrongFlag(cmd, err)} })
	a.root = root
	a.nameFlag(root)
	root.PersistentFlags().StringVar(&a.kubeconfig, "kubeconfig", "", "file that says how to reach the cluster (default: $KUBECONFIG, then ~/.kube/config)")
	root.PersistentFlags().StringVar(&a.kubeContext, "context", "", "which of the kubeconfig's clusters is meant (default: its current one)")
	lifecycle, status, kubernetes := lifecycleCommands{a}, statusCommands{a}, installCommands{a}
	read, change, pods, proxies, lab := readCommands{a}, changeCommands{a}, podCommands{a}, proxyCommands{a}, labCommands{a}
	root.AddCommand(
		lifecycle.upCommand(), lifecycle.downCommand(), status.listCommand(), kubernetes.installCommand(), kubernetes.upgradeCommand(), kubernetes.uninstallCommand(),
		change.applyCommand(), change.deleteCommand(), read.getCommand(), change.labelCommand(), change.scaleCommand(), read.waitCommand(),
		read.describeCommand(), read.diffCommand(), change.editCommand(), change.annotateCommand(), change.rolloutCommand(), read.apiResourcesCommand(),
		pods.logsCommand(), pods.tapCommand(), status.topCommand(), pods.execCommand(), pods.portForwardCommand(), proxies.proxyCommand(), proxies.caCommand(),
		waypointCommands{a}.command(),
		status.statusCommand(), status.checkCommand(), lifecycle.demoCommand(), lab.labCommand(), lifecycle.versionCommand(), lifecycle.completionCommand(),
	)
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetHelpTemplate(helpTemplate(term.Columns(env.Stdout)))
	return a
}

func (a *app) printf(format string, args ...any) error {
	_, err := fmt.Fprintf(a.Stdout, format, args...)
	return err
}

// next suggests what to do now. It goes to standard error, so that it never ends up in a pipe.
func (a *app) next(commands ...string) {
	for i, command := range commands {
		lead := "Next: "
		if i > 0 {
			lead = "      "
		}
		_, _ = fmt.Fprintf(a.Stderr, "%s%s\n", a.Err.Faint(lead), strings.Trim(a.addressed("`"+command+"`"), "`"))
	}
}

// tellError writes an error to standard error, with its remedy on a line of its own. An empty fix writes no such line.
func (a *app) tellError(what, fix string) {
	_, _ = fmt.Fprintf(a.Stderr, "%s %s\n", a.Err.Bad("error:"), term.Paragraph(a.Stderr, a.Err, len("error: "), term.Escape(a.addressed(what))))
	if fix != "" {
		_, _ = fmt.Fprintf(a.Stderr, "  fix: %s\n", term.Paragraph(a.Stderr, a.Err, len("  fix: "), term.Escape(a.addressed(fix))))
	}
}

func (a *app) warn(format string, args ...any) {
	_, _ = fmt.Fprintf(a.Stderr, "%s %s\n", a.Err.Warn("warning:"), term.Paragraph(a.Stderr, a.Err, len("warning: "), a.addressed(term.Escape(fmt.Sprintf(format, args...)))))
}

func (a *app) progress() *term.Progress { return term.NewProgress(a.Stderr, a.Err) }

func (a *app) namespaceFlag(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&a.namespace, "namespace", "n", "default", "namespace of the objects")
	register(cmd, "namespace", func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		return a.names(cmd.Context(), api.GetRequest{Kind: "Namespace"}), cobra.ShellCompDirectiveNoFileComp
	})
}

// outputFlag adds -o with the formats that the command offers; the first one is the default.
func (a *app) outputFlag(cmd *cobra.Command, formats ...printer.Format) {
	names := make([]string, len(formats))
	for i, f := range formats {
		names[i] = string(f)
	}
	cmd.Flags().StringVarP(&a.output, "output", "o", names[0], "output format: "+strings.Join(names, ", "))
	register(cmd, "output", cobra.FixedCompletions(names, cobra.ShellCompDirectiveNoFileComp))
}

func (a *app) format(formats ...printer.Format) (printer.Format, error) {
	f, err := printer.ParseFormat(a.output, formats...)
	if err != nil {
		return "", usageError{err}
	}
	return f, nil
}

// register attaches a completion to a flag that the same function has just defined; cobra fails only if it is missing.
func register(cmd *cobra.Command, flag string, complete cobra.CompletionFunc) {
	if err := cmd.RegisterFlagCompletionFunc(flag, complete); err != nil {
		panic(fmt.Sprintf("completion of --%s: %v", flag, err))
	}
}

// The argument rules below are cobra's with this program's exit code.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		if cmd.HasSubCommands() {
			return unknownCommand(cmd, args[0], args[1:]...)
		}
		return usagef("unexpected argument %q", args[0])
	}
	return nil
}

func atLeast(n int, what string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) < n {
			return usagef("missing argument: %s", what)
		}
		return nil
	}
}

func exactly(n int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) > n {
			return usagef("unexpected argument %q", args[n])
		}
		return atLeast(n, what)(cmd, args)
	}
}
