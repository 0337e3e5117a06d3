package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"lateen.dev/lateen/internal/engine/api"
)

func (a *app) logsCommand() *cobra.Command {
	var request api.LogsRequest
	cmd := &cobra.Command{
		Use:   "logs TARGET",
		Short: "show what a pod, a node proxy, an agent or the control plane wrote",
		Example: `  lateen logs deploy/productpage-v1 -f
  lateen logs details-v1-6c8f --tail 20

  # The mesh's own parts: the access log of a node proxy names both identities of each connection.
  lateen logs proxy/n1 -f
  lateen logs agent/n2
  lateen logs control`,
		Args: exactly(1, "TARGET, such as deploy/productpage-v1, a pod's name, proxy/n1, agent/n1 or control"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if request.Tail < 0 {
				return usagef("--tail %d: use a number from 0", request.Tail)
			}
			request.Namespace, request.Target = a.namespace, args[0]
			ctx, stop := cmd.Context(), func() {}
			if request.Follow {
				ctx, stop = a.untilUnread(ctx)
			}
			defer stop()
			stream, err := a.openLog(ctx, request)
			if err != nil {
				return err
			}
			defer func() { _ = stream.Close() }()
			if _, err := io.Copy(a.Stdout, stream); err != nil && ctx.Err() == nil {
				return fmt.Errorf("read the log of %s: %w", args[0], err)
			}
			return nil
		},
		ValidArgsFunction: a.completeTarget,
	}
	cmd.Flags().BoolVarP(&request.Follow, "follow", "f", false, "go on with what comes")
	cmd.Flags().IntVar(&request.Tail, "tail", 0, "only the last lines (0: all)")
	cmd.Flags().StringVarP(&request.Container, "container", "c", "", "container of the pod (default: the first one)")
	a.namespaceFlag(cmd)
	return cmd
}

func (a *app) openLog(ctx context.Context, r api.LogsRequest) (io.ReadCloser, error) {
	client := a.client()
	part, node, _ := strings.Cut(r.Target, "/")
	switch {
	case part == "proxy" && node != "":
		return client.ProxyLog(ctx, node, r.Follow, r.Tail)
	case part == "agent" && node != "":
		return client.AgentLog(ctx, node, r.Follow, r.Tail)
	case r.Target == "control":
		return client.ControlLog(ctx, r.Follow, r.Tail)
	}
	return client.Logs(ctx, r)
}

func (a *app) execCommand() *cobra.Command {
	var request api.ExecRequest
	var interactive, tty bool
	cmd := &cobra.Command{
		Use:   "exec TARGET -- COMMAND [ARGUMENT...]",
		Short: "run a command in a pod",
		Example: `  # In the pod's network, with its user and without privileges; its exit code is this command's.
  lateen exec deploy/client -- curl -s http://details:9080/details/0

  # A shell.
  lateen exec -it deploy/client -- sh`,
		Args: func(cmd *cobra.Command, args []string) error {
			// The dashes keep the command's own flags apart from these.
			if cmd.ArgsLenAtDash() != 1 || len(args) < 2 {
				return usagef("write one TARGET, then -- and the command, as in: lateen exec deploy/client -- curl http://details:9080/")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			request.Namespace, request.Target, request.Command = a.namespace, args[0], args[1:]
			return a.exec(cmd.Context(), request, interactive, tty)
		},
		ValidArgsFunction: a.completeTarget,
	}
	cmd.Flags().BoolVarP(&interactive, "stdin", "i", false, "pass standard input on")
	cmd.Flags().BoolVarP(&tty, "tty", "t", false, "give the command a terminal")
	cmd.Flags().StringVarP(&request.Container, "container", "c", "", "container of the pod (default: the first one)")
	a.namespaceFlag(cmd)
	return cmd
}

// errNoTerminal is what a user gets who asks for a terminal and has none to give.
var errNoTerminal = errors.New("-t needs a terminal on standard input; leave it out in scripts")
