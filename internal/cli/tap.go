package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"lateen.dev/lateen/internal/cli/printer"
	"lateen.dev/lateen/internal/cli/term"
	"lateen.dev/lateen/internal/engine/api"
)

const (
	// A connection that lives longer is shown as open before it ends; a short one takes one line.
	longLived = time.Second
	// Between two attempts to hear a proxy that has ended: its successor needs a moment.
	hearAgain = 500 * time.Millisecond
)

func (cmds podCommands) tapCommand() *cobra.Command {
	var filter api.ConnectionFilter
	var all, denied, failed bool
	var limit time.Duration
	formats := []printer.Format{printer.Table, printer.Wide, printer.JSON}
	cmd := &cobra.Command{
		Use:   "tap [POD]",
		Short: "show connections as they open and close: who, to whom, how it was decided, and why",
		Example: `  # Everything in the namespace default; in all of them.
  lateen tap
  lateen tap -A

  # What policies refuse, and one deployment's connections.
  lateen tap -A --denied
  lateen tap deploy/client

  # Ten seconds of it for a program, one JSON object a line.
  lateen tap -A --for 10s -o json`,
		Long: `A connection between two pods of the mesh is seen twice: on its way out of one
and on its way into the other, where policies decide; at the end it counts as
one. A line stands for one that has ended, or has lasted for a second. TO-SERVER
and TO-CLIENT are bytes from the client to the server and back. A reader that is
too slow misses events and is told how many; the connections themselves never
wait. A narrow terminal leaves out the namespace that all share and the hashes
of pods, then columns; -o wide shows all of them.

Verdicts:
  ok, open        it ended well; it lasts
  failed          it ended otherwise
  retried         an attempt failed, and its connection went to another endpoint
  denied          a policy refused or ended it, which the reason names
  denied by peer  the same, seen at the client's end
  would deny      a policy annotated with istio.io/dry-run: "true" would refuse it`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usagef("unexpected argument %q", args[1])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			format, err := cmds.app.format(formats...)
			if err != nil {
				return err
			}
			switch {
			case denied && failed:
				return usagef("--denied and --failed: use one of them; what was denied has failed, too")
			case denied:
				filter.Only = "denied"
			case failed:
				filter.Only = "failed"
			}
			if filter.Direction != "" && filter.Direction != "inbound" && filter.Direction != "outbound" {
				return usagef("--direction %s: use inbound or outbound", filter.Direction)
			}
			if limit < 0 {
				return usagef("--for %s: use a time above zero, such as 10s", limit)
			}
			if !all {
				filter.Namespace = cmds.app.namespace
				if cmd.Flags().Changed("namespace") {
					cmds.app.warnAbsentNamespace(cmd.Context(), cmds.app.namespace)
				}
			}
			if len(args) == 1 {
				if filter.Pod, err = cmds.podPattern(cmd.Context(), args[0]); err != nil {
					return err
				}
				filter.Namespace = cmds.app.namespace
			}
			ctx, stop := cmds.app.untilUnread(cmd.Context())
			defer stop()
			if limit > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, limit)
				defer cancel()
			}
			return cmds.tap(ctx, filter, format)
		},
		ValidArgsFunction: cmds.app.completeTarget,
	}
	flags := cmd.Flags()
	flags.BoolVarP(&all, "all-namespaces", "A", false, "connections of every namespace")
	flags.BoolVar(&denied, "denied", false, "only those that a policy refused or ended, at either end")
	flags.BoolVar(&failed, "failed", false, "only those that did not end well")
	flags.StringVar(&filter.Service, "service", "", "only those to this service, such as echo or echo.default")
	flags.StringVar(&filter.Peer, "peer", "", "only those with this pod or identity at either end")
	flags.StringVar(&filter.Direction, "direction", "", "only inbound or outbound ones")
	flags.DurationVar(&limit, "for", 0, "end after this time (0: when you interrupt it)")
	register(cmd, "direction", cobra.FixedCompletions([]string{"inbound", "outbound"}, cobra.ShellCompDirectiveNoFileComp))
	cmds.app.namespaceFlag(cmd)
	cmds.app.outputFlag(cmd, formats...)
	return cmd
}

// warnAbsentNamespace warns if a namespace does not exist. A command that lists what it has would otherwise show the same as for an empty one.
func (a *app) warnAbsentNamespace(ctx context.Context, name string) {
	_, err := a.client().Get(ctx, api.GetRequest{Kind: "Namespace", Name: name})
	if isNotFound(err) {
		a.warn("there is no namespace %s; lateen get namespaces lists them", name)
	}
}

// podPattern is the pattern of pods' names that a target stands for. A target that is not there would be watched in vain.
func (cmds podCommands) podPattern(ctx context.Context, target string) (string, error) {
	kind, name, found := strings.Cut(target, "/")
	if !found {
		kind, name = "pod", target
	}
	var pattern string
	switch kind {
	case "deploy", "deployment", "deployments":
		pattern = name + "-*"
	case "pod", "pods", "po":
		pattern = name
	default:
		return "", usagef("%s: use a pod's name or deploy/NAME; for a service there is --service %s", target, name)
	}
	_, err := cmds.app.client().Get(ctx, api.GetRequest{Kind: kind, Namespace: cmds.app.namespace, Name: name})
	return pattern, err
}

// tapped prints what it is told of.
type tapped struct {
	app *app
	// mu is never held while the engine is asked: the connections of all nodes wait for it.
	mu     sync.Mutex
	stream *printer.Stream
	json   *json.Encoder
	// open holds the connections that have opened and not ended, by node and id: when each is to be shown, or zero if it was.
	open    map[string]pending
	seen    *tally
	reasons *reasons
}

type pending struct {
	connection api.Connection
	at         time.Time
}

// tapLine is one line of JSON: what a proxy tells, and what the table makes of it.
type tapLine struct {
	Time time.Time `json:"time"`
	api.Connection
	Verdict  api.Verdict `json:"verdict,omitempty"`
	Reason   string      `json:"reason,omitempty"`
	Policies []api.Key   `json:"policies,omitempty"` // the objects that refuse it, or would
}

func (cmds podCommands) tap(ctx context.Context, filter api.ConnectionFilter, format printer.Format) error {
	version, err := cmds.app.client().Version(ctx)
	if err != nil {
		return err
	}
	t := &tapped{app: cmds.app, open: map[string]pending{}, seen: newTally(), reasons: &reasons{app: cmds.app, ctx: ctx}}
	if format == printer.JSON {
		t.json = json.NewEncoder(cmds.app.Stdout)
	} else {
		home, expected := (effects{cmds.app}).expected(ctx, filter.Namespace, version.Nodes)
		t.stream = printer.NewStream(cmds.app.Stdout, cmds.app.Out, home, expected).Within(func() int {
			if size, ok := cmds.app.terminalSize(); ok && format != printer.Wide {
				return int(size.Col)
			}
			return 0
		})
	}
	(lifecycleCommands{cmds.app}).warnDraining(ctx, "")
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	mute := 0
	var mu sync.Mutex
	for _, node := range version.Nodes {
		wg.Go(func() {
			err := t.hear(ctx, node, filter)
			var refusal *api.Error
			switch {
			case ctx.Err() != nil || err == nil:
			case errors.As(err, &refusal) && refusal.Code == http.StatusNotImplemented:
				mu.Lock()
				mute++
				if silent := mute; silent == len(version.Nodes) {
					cancel(err)
				}
				mu.Unlock()
				cmds.app.warn("%v", err)
			default:
				cancel(err)
			}
		})
	}
	wg.Go(func() { t.showLongLived(ctx) })
	<-ctx.Done()
	wg.Wait()
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) && !errors.Is(cause, context.DeadlineExceeded) {
		return cause
	}
	if t.stream != nil {
		t.summary(filter)
	}
	return nil
}

// hear passes on what one node's proxy tells, and that of its successors.
func (t *tapped) hear(ctx context.Context, node string, filter api.ConnectionFilter) error {
	heard := false
	for again := false; ; again = true {
		err := t.app.client().FollowConnections(ctx, node, filter, func(c api.Connection) error {
			heard = true
			if c.Event == "watching" {
				if again {
					(lifecycleCommands{t.app}).warnDraining(ctx, node)
				}
				return errors.Join(t.watching(c), t.before(ctx, node, filter))
			}
			return t.tell(c)
		})
		if ctx.Err() != nil {
			return nil
		}
		var refusal *api.Error
		// A proxy that ends or is being replaced is asked again; one that has never answered is an error.
		if err != nil && (!heard || !errors.As(err, &refusal)) {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(hearAgain):
		}
	}
}

// watching tells programs that they miss nothing from now on.
func (t *tapped) watching(c api.Connection) error {
	if t.json == nil {
		return nil
	}
	return t.tell(c)
}

// before tells of the connections that were open when the watch began.
func (t *tapped) before(ctx context.Context, node string, filter api.ConnectionFilter) error {
	if filter.Only != "" {
		return nil
	}
	list, err := t.app.client().Connections(ctx, node, filter)
	if err != nil {
		return err
	}
	for _, c := range list {
		if c.Seconds < longLived.Seconds() {
			continue // it has lasted when it opens the next line, or ends
		}
		c.Event = "open"
		if err := t.tell(c); err != nil {
			return err
		}
	}
	return nil
}

func (t *tapped) tell(c api.Connection) error {
	now, why := t.app.Now(), explained{}
	if c.Event == "open" || c.Event == "closed" || c.Event == "opened" && t.json != nil {
		why = t.reasons.of(c)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.json != nil {
		line := tapLine{Time: now, Connection: c}
		if c.Event == "opened" || c.Event == "open" || c.Event == "closed" {
			line.Verdict, line.Reason, line.Policies = c.Verdict(), why.Text(), why.objects
		}
		return t.json.Encode(line)
	}
	key := c.Node + "/" + c.ID
	switch c.Event {
	case "missed":
		return t.stream.Missed(c.Node, c.Count)
	case "opened":
		t.open[key] = pending{c, now.Add(longLived)}
		return nil
	case "open":
		if _, known := t.open[key]; known {
			return nil
		}
		t.open[key] = pending{}
	default:
		delete(t.open, key)
		t.seen.add(c, why, now)
	}
	return t.stream.Write(c, why.Reason, now)
}

func (t *tapped) showLongLived(ctx context.Context) {
	if t.json != nil {
		return
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(longLived / 4):
		}
		t.mu.Lock()
		now := t.app.Now()
		due := map[string]pending{}
		for key, p := range t.open {
			if !p.at.IsZero() && !now.Before(p.at) {
				due[key] = p
			}
		}
		t.mu.Unlock()
		for key, p := range due {
			t.showLasting(key, p, now)
		}
	}
}

// showLasting writes the line of a connection that lasts, unless it has ended meanwhile.
func (t *tapped) showLasting(key string, p pending, now time.Time) {
	why := t.reasons.of(p.connection)
	t.mu.Lock()
	defer t.mu.Unlock()
	if present, open := t.open[key]; !open || present.at.IsZero() {
		return
	}
	t.open[key] = pending{}
	p.connection.Seconds = now.Sub(p.at).Seconds() + longLived.Seconds()
	// An end of output that fails is seen by the next line that a proxy tells.
	_ = t.stream.Write(p.connection, why.Reason, now)
}

func (t *tapped) summary(filter api.ConnectionFilter) {
	for i, line := range t.seen.lines() {
		if i > 0 {
			line = "  " + line
		}
		_, _ = fmt.Fprintln(t.app.Stderr, strings.Join(term.Fold(term.Escape(line), term.Columns(t.app.Stderr), 2), "\n"))
	}
	t.app.next(t.suggestions(filter)...)
}

// suggestions are the commands to run next. The command that has just ended is none of them.
func (t *tapped) suggestions(filter api.ConnectionFilter) []string {
	commands, mesh := t.seen.commands(t.app.meshFlag()), t.app.meshFlag()
	everywhere := api.ConnectionFilter{}
	policies := api.ConnectionFilter{Only: "denied", Direction: "inbound"}
	switch {
	case len(commands) > 0:
		return commands
	case t.seen.denied() > 0 && filter != policies:
		return []string{"lateen tap -A --denied --direction inbound" + mesh + "   # names the policies"}
	case t.seen.ended == 0 && filter.Only == "":
		commands = []string{"lateen status" + mesh + "   # which pods are in the mesh"}
		if filter != everywhere {
			commands = append(commands, "lateen tap -A"+mesh)
		}
		return commands
	}
	return []string{"lateen top" + mesh}
}
