package cli

import (
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"lateen.dev/lateen/internal/engine/api"
)

// logsOptions are the flags of logs that a request does not carry as they are.
type logsOptions struct {
	request   api.LogsRequest
	selector  string
	prefix    bool
	since     time.Duration
	sinceTime string
}

// tailOfMany is how many lines of each pod are shown when a selector chooses pods and nobody says, as kubectl has it.
const tailOfMany = 10

func (cmds podCommands) logsCommand() *cobra.Command {
	var o logsOptions
	cmd := &cobra.Command{
		Use:   "logs (TARGET | -l SELECTOR)",
		Short: "show what pods, a node proxy, an agent or the control plane wrote",
		Example: `  lateen logs deploy/productpage-v1 -f
  lateen logs details-v1-6c8f --tail 20
  lateen logs -l app=reviews --since 10m

  # The run of a container before its last restart.
  lateen logs details-v1-6c8f --previous

  # The mesh's own parts: the access log of a node proxy names both identities of each connection.
  lateen logs proxy/n1 -f
  lateen logs agent/n2
  lateen logs control`,
		Args: func(cmd *cobra.Command, args []string) error {
			if o.selector != "" && len(args) > 0 {
				return usagef("-l chooses the pods: leave out %q", args[0])
			}
			if o.selector != "" {
				return nil
			}
			return exactly(1, "TARGET, such as deploy/productpage-v1, a pod's name, proxy/n1, agent/n1 or control; or -l SELECTOR")(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.read(cmd, cmds.app.Now()); err != nil {
				return err
			}
			o.request.Namespace = cmds.app.namespace
			sources := []logSource{}
			if o.selector == "" {
				sources = append(sources, cmds.logSourceOf(args[0], o))
			} else {
				var err error
				if sources, err = cmds.selectedLogs(cmd.Context(), o); err != nil {
					return err
				}
				if len(sources) == 0 {
					cmds.app.warn("no pods found in namespace %s with the labels %s", cmds.app.namespace, o.selector)
					return nil
				}
			}
			ctx, stop := cmd.Context(), func() {}
			if o.request.Follow {
				ctx, stop = cmds.app.untilUnread(ctx)
			}
			defer stop()
			return o.ofAll(cmds.showLogs(ctx, sources, o.request.Follow), sources)
		},
		ValidArgsFunction: cmds.app.completeTarget,
	}
	flags := cmd.Flags()
	flags.BoolVarP(&o.request.Follow, "follow", "f", false, "go on with what comes")
	flags.IntVar(&o.request.Tail, "tail", 0, fmt.Sprintf("only the last lines (0: all; with -l %d of each pod unless you say)", tailOfMany))
	flags.StringVarP(&o.request.Container, "container", "c", "", "container of the pod (default: the first one)")
	flags.StringVarP(&o.selector, "selector", "l", "", "all pods with these labels, such as app=reviews, each line after its pod's name")
	flags.BoolVar(&o.prefix, "prefix", false, "begin each line with its source")
	flags.DurationVar(&o.since, "since", 0, "only lines that are not older than this, such as 10m")
	flags.StringVar(&o.sinceTime, "since-time", "", "only lines from this time on, as in RFC 3339, such as 2026-11-20T22:00:00Z")
	flags.BoolVarP(&o.request.Previous, "previous", "p", false, "the last run of the container before the present one")
	flags.BoolVar(&o.request.Timestamps, "timestamps", false, "begin each line with the time when it was written")
	cmds.app.namespaceFlag(cmd)
	return cmd
}

// read checks the flags and completes the request.
func (o *logsOptions) read(cmd *cobra.Command, now time.Time) error {
	changed := cmd.Flags().Changed
	switch {
	case o.request.Tail < 0:
		return usagef("--tail %d: use a number from 0", o.request.Tail)
	case changed("since") && o.since <= 0:
		return usagef("--since %s: use a time above zero, such as 10m", o.since)
	case changed("since") && changed("since-time"):
		return usagef("--since and --since-time: use one of them")
	case o.request.Previous && o.request.Follow:
		return usagef("--previous and --follow: nothing is added to a run that has ended")
	}
	if changed("since") {
		o.request.Since = now.Add(-o.since)
	}
	if changed("since-time") {
		at, err := time.Parse(time.RFC3339, o.sinceTime)
		if err != nil {
			return usagef("--since-time %s: write it as in RFC 3339, such as 2026-11-20T22:00:00Z", o.sinceTime)
		}
		o.request.Since = at
	}
	if o.selector != "" && !changed("tail") {
		o.request.Tail = tailOfMany
	}
	return nil
}

// plainSelector matches selectors that a shell takes as one word.
var plainSelector = regexp.MustCompile(`^[A-Za-z0-9=,./_-]+$`)

// ofAll is the error of logs by a selector. An engine that shows no logs names a command of kubectl for the pod that it was asked about; the
// error names one for all pods of the selector.
func (o *logsOptions) ofAll(err error, sources []logSource) error {
	var refusal *api.Error
	if o.selector == "" || !errors.As(err, &refusal) || refusal.Code != http.StatusNotImplemented {
		return err
	}
	selector := o.selector
	if !plainSelector.MatchString(selector) {
		selector = "'" + selector + "'"
	}
	for _, s := range sources {
		if before, after, found := strings.Cut(refusal.Fix, "kubectl logs "+s.request.Target+" "); found {
			all := *refusal
			all.Fix = before + "kubectl logs -l " + selector + " --prefix " + after
			return &all
		}
	}
	return err
}

// logSourceOf is the log that a target means.
func (cmds podCommands) logSourceOf(target string, o logsOptions) logSource {
	s := logSource{name: target, request: o.request}
	s.request.Target = target
	part, node, _ := strings.Cut(target, "/")
	switch {
	case (part == api.PartProxy || part == api.PartAgent) && node != "":
		s.part, s.node = part, node
	case target == api.PartControl:
		s.part = part
	}
	if o.prefix {
		label := target
		if s.part == "" && node == "" {
			label = "pod/" + target
		}
		if s.part == "" && o.request.Container != "" {
			label += "/" + o.request.Container
		}
		s.prefix = "[" + label + "] "
	}
	return s
}

func (cmds podCommands) execCommand() *cobra.Command {
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
			request.Namespace, request.Target, request.Command = cmds.app.namespace, args[0], args[1:]
			return cmds.exec(cmd.Context(), request, interactive, tty)
		},
		ValidArgsFunction: cmds.app.completeTarget,
	}
	cmd.Flags().BoolVarP(&interactive, "stdin", "i", false, "pass standard input on")
	cmd.Flags().BoolVarP(&tty, "tty", "t", false, "give the command a terminal")
	cmd.Flags().StringVarP(&request.Container, "container", "c", "", "container of the pod (default: the first one)")
	cmds.app.namespaceFlag(cmd)
	return cmd
}

// errNoTerminal is what a user gets who asks for a terminal and has none to give.
var errNoTerminal = errors.New("-t needs a terminal on standard input; leave it out in scripts")
