package cli

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"lateen.dev/lateen/internal/engine/api"
)

func (cmds proxyCommands) proxyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "proxy",
		Short: "act on the node proxies",
		Example: `  # Another process in the place of n1's node proxy; no connection is refused.
  lateen proxy replace n1

  # The policies that n1's node proxy decides by, and all that it knows as JSON.
  lateen proxy config policies n1
  lateen proxy config n1`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(cmds.proxyReplaceCommand(), cmds.proxyConfigCommand(), cmds.proxyLogLevelCommand())
	return cmd
}

// maxDrain is how long connections may outlive their proxy's replacement at most.
const maxDrain = 24 * time.Hour

func (cmds proxyCommands) proxyReplaceCommand() *cobra.Command {
	var binary, ztunnel string
	var drain time.Duration
	var wait bool
	cmd := &cobra.Command{
		Use:   "replace NODE",
		Short: "put a new process in the place of a node's proxy without refusing a connection",
		Example: `  # Another binary on node n1; connections may stay with the old process for ten minutes.
  lateen proxy replace n1 --binary ./bin/lateen-proxy

  # Long-lived connections get two hours; return when the last of them has ended.
  lateen proxy replace n1 --drain 2h --wait

  # An unmodified ztunnel in its place, and Lateen's own again.
  lateen proxy replace n1 --ztunnel /usr/local/bin/ztunnel
  lateen proxy replace n1 --binary ./bin/lateen-proxy`,
		Long: `The new process starts beside the old one, takes over the sockets that it listens on and its pods' certificates, and
serves when it has all of them. Only then does the old one stop accepting; its connections go on until they end or their
time is over. If the new process never becomes ready, the old one goes on as if nothing had been.

With an unmodified ztunnel on either side the new process runs in another network beside the node's, both serve for a moment, and
certificates are asked for anew. A ztunnel that is replaced drains for as long as it was told when it started: the --drain of the
command that started it, or CONNECTION_TERMINATION_DEADLINE; --drain can only end it earlier.`,
		Args:              exactly(1, "NODE"),
		ValidArgsFunction: cmds.app.completeNode,
		RunE: func(cmd *cobra.Command, args []string) error {
			if drain < 0 || drain > maxDrain {
				return usagef("--drain %s: use a time from 0s to %s", drain, maxDrain)
			}
			if binary != "" && ztunnel != "" {
				return usagef("--binary and --ztunnel both name the new process: give one of them")
			}
			return cmds.replaceProxy(cmd.Context(), args[0], api.ReplaceRequest{
				Binary: cmp.Or(binary, ztunnel), Ztunnel: ztunnel != "", DrainSeconds: drain.Seconds(), Wait: wait,
			})
		},
	}
	cmd.Flags().StringVar(&binary, "binary", "", "executable of the new process (default: that of the old one)")
	cmd.Flags().StringVar(&ztunnel, "ztunnel", "", "executable of the new process if that is an unmodified ztunnel")
	cmd.Flags().DurationVar(&drain, "drain", 10*time.Minute, "how long connections may go on in the old process")
	cmd.Flags().BoolVar(&wait, "wait", false, "return when the old process has ended")
	return cmd
}

func (cmds proxyCommands) replaceProxy(ctx context.Context, node string, in api.ReplaceRequest) error {
	if in.Binary != "" {
		absolute, err := filepath.Abs(in.Binary)
		if err != nil {
			return err
		}
		in.Binary = absolute
	}
	progress := cmds.app.progress()
	err := cmds.app.client().ReplaceProxy(ctx, node, in, events(progress))
	progress.Abandon()
	if err != nil {
		return err
	}
	return cmds.app.printf("node proxy of %s replaced\n", node)
}

func (a *app) completeNode(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return a.names(cmd.Context(), api.GetRequest{Kind: "Node"}), cobra.ShellCompDirectiveNoFileComp
}

func (cmds proxyCommands) proxyLogLevelCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "log-level NODE [LEVEL]",
		Short: "show or change what a node's proxy logs, until it is started anew",
		Example: `  # Everything about policy on node n1, the rest as usual.
  lateen proxy log-level n1 info,policy=trace`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) < 1 || len(args) > 2 {
				return usagef("lateen %s takes NODE and at most one LEVEL, such as debug", cmd.Name())
			}
			return nil
		},
		ValidArgsFunction: cmds.app.completeNode,
		RunE: func(cmd *cobra.Command, args []string) error {
			level := ""
			if len(args) == 2 {
				level = args[1]
			}
			if err := checkLevels(level); err != nil {
				return usageError{err}
			}
			said, err := cmds.app.client().ProxyLogLevel(cmd.Context(), args[0], level)
			if err != nil {
				return err
			}
			return cmds.app.printf("%s", said)
		},
	}
}

var logLevels = []string{"off", "error", "warn", "info", "debug", "trace"}

// logScope is what a part of the proxy may be called.
var logScope = regexp.MustCompile(`^[a-z][a-z0-9_:]*$`)

// checkLevels refuses what the proxy would not understand, in the words of this command. No levels at all are fine.
func checkLevels(levels string) error {
	if levels == "" {
		return nil
	}
	for part := range strings.SplitSeq(levels, ",") {
		scope, level, scoped := strings.Cut(part, "=")
		if !scoped {
			level = part
		}
		if !slices.Contains(logLevels, level) {
			return fmt.Errorf("%q is not a log level; use one of %s, alone or for a part of the proxy as in policy=debug", part, strings.Join(logLevels, ", "))
		}
		if scoped && !logScope.MatchString(scope) {
			return fmt.Errorf("%q is not a part of the proxy; parts are named as in the log, such as policy or xds::client", scope)
		}
	}
	return nil
}
