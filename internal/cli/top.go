package cli

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"lateen.dev/lateen/internal/cli/printer"
	"lateen.dev/lateen/internal/engine/api"
)

// podRate is what one pod's connections did between two looks.
type podRate struct {
	Node           string  `json:"node"`
	Namespace      string  `json:"namespace"`
	Pod            string  `json:"pod"`
	Open           uint64  `json:"open"`
	OpenedPerSec   float64 `json:"openedPerSecond"`
	DeniedPerSec   float64 `json:"deniedPerSecond"`        // by policies, at either end
	FailedPerSec   float64 `json:"failedPerSecond"`        // for other reasons
	SentPerSec     float64 `json:"sentBytesPerSecond"`     // by the pod
	ReceivedPerSec float64 `json:"receivedBytesPerSecond"` // by the pod
	CPU            float64 `json:"cpu"`                    // cores of its node proxy's workers
}

// connectionRate is one connection that was there at both looks, or only at the second.
type connectionRate struct {
	api.Connection
	PerSec bytesRate `json:"bytesPerSecond"`
}

// bytesRate is api.Bytes in a second.
type bytesRate struct {
	ClientToServer float64 `json:"clientToServer"`
	ServerToClient float64 `json:"serverToClient"`
}

func (cmds statusCommands) topCommand() *cobra.Command {
	var once bool
	var interval time.Duration
	formats := []printer.Format{printer.Table, printer.JSON}
	cmd := &cobra.Command{
		Use:   "top [pods|connections]",
		Short: "show which pods and connections are busy, and what they cost",
		Example: `  lateen top
  lateen top connections

  # One look, for a program.
  lateen top --once -o json | jq '.[] | select(.failedPerSecond > 0)'`,
		Long: `Rates are those of the time between two looks. SENT and RECEIVED of pods are what
the pod itself sent and received, as a client or as a server; TO-SERVER and
TO-CLIENT of connections are from the client to the server and back. DENIED are
connections that a policy refused or ended, which the pods of both ends count,
and FAILED those that failed otherwise. CPU is the time that the node proxy's
workers spent on a pod's connections, as a share of one core. The busiest stands
first.`,
		ValidArgs: []string{"pods", "connections"},
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usagef("unexpected argument %q", args[1])
			}
			if len(args) == 1 && args[0] != "pods" && args[0] != "connections" {
				return usagef("%s: use pods or connections", args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			format, err := cmds.app.format(formats...)
			if err != nil {
				return err
			}
			if interval < 100*time.Millisecond {
				return usagef("--interval %s: use a time from 100ms", interval)
			}
			connections := len(args) == 1 && args[0] == "connections"
			ctx, stop := cmds.app.untilUnread(cmd.Context())
			defer stop()
			return cmds.top(ctx, connections, once || format == printer.JSON, interval, format)
		},
	}
	cmd.Flags().BoolVar(&once, "once", false, "one table instead of one after the other")
	cmd.Flags().DurationVar(&interval, "interval", time.Second, "time between two looks")
	cmds.app.outputFlag(cmd, formats...)
	return cmd
}

// look is what all proxies say at one moment.
type look struct {
	at          time.Time
	pods        []api.PodUse
	connections []api.Connection
	mute        []string // nodes whose proxy does not tell
}

func (cmds statusCommands) top(ctx context.Context, connections, once bool, interval time.Duration, format printer.Format) error {
	version, err := cmds.app.client().Version(ctx)
	if err != nil {
		return err
	}
	(lifecycleCommands{cmds.app}).warnDraining(ctx, "")
	before, err := cmds.look(ctx, version.Nodes, connections)
	if err != nil {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(interval):
		}
		now, err := cmds.look(ctx, version.Nodes, connections)
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		if err := cmds.showTop(version, before, now, connections, once, format); err != nil || once {
			if err == nil && format == printer.Table {
				cmds.app.next("lateen tap -A" + cmds.app.meshFlag())
			}
			return err
		}
		before = now
	}
}

func (cmds statusCommands) look(ctx context.Context, nodes []string, connections bool) (look, error) {
	l := look{at: cmds.app.Now()}
	var mu sync.Mutex
	var wg sync.WaitGroup
	var errs []error
	for _, node := range nodes {
		wg.Go(func() {
			var pods []api.PodUse
			var list []api.Connection
			var err error
			if connections {
				list, err = cmds.app.client().Connections(ctx, node, api.ConnectionFilter{})
			} else {
				pods, err = cmds.app.client().PodUses(ctx, node)
			}
			mu.Lock()
			defer mu.Unlock()
			var refusal *api.Error
			switch {
			case errors.As(err, &refusal) && (refusal.Code == http.StatusNotImplemented || refusal.Code == http.StatusBadGateway):
				l.mute = append(l.mute, node)
			case err != nil:
				errs = append(errs, err)
			}
			l.pods, l.connections = append(l.pods, pods...), append(l.connections, list...)
		})
	}
	wg.Wait()
	slices.Sort(l.mute)
	return l, errors.Join(errs...)
}

func (cmds statusCommands) showTop(v api.Version, before, now look, connections, once bool, format printer.Format) error {
	seconds := now.at.Sub(before.at).Seconds()
	pods, list := podRates(before.pods, now.pods, seconds), connectionRates(before.connections, now.connections, seconds)
	if format == printer.JSON {
		if connections {
			return printer.Write(cmds.app.Stdout, format, list)
		}
		return printer.Write(cmds.app.Stdout, format, pods)
	}
	width := 0
	if size, ok := cmds.app.terminalSize(); ok {
		width = int(size.Col)
	}
	grid := podGrid(pods, width)
	if connections {
		grid = connectionGrid(list, width)
	}
	var page bytes.Buffer
	if !once {
		_, _ = fmt.Fprintf(&page, "%s\n\n", cmds.app.Out.Bold(fmt.Sprintf("Mesh %s at %s, the last %.1f s; end it with Ctrl-C", v.Mesh, now.at.Format(time.TimeOnly), seconds)))
	}
	if grid.Len() == 0 {
		page.WriteString(map[bool]string{true: "no connection is open\n", false: "no pod is in the mesh; label a namespace istio.io/dataplane-mode=ambient\n"}[connections])
	} else if err := grid.Print(&page, ""); err != nil {
		return err
	}
	if len(now.mute) > 0 {
		_, _ = fmt.Fprintf(&page, "%s not seen: the connections of %s, whose node proxy does not tell of them\n", cmds.app.Out.Warn("!"), strings.Join(now.mute, ", "))
	}
	if once || !cmds.app.Out.Terminal {
		if !once {
			page.WriteByte('\n')
		}
		_, err := cmds.app.Stdout.Write(page.Bytes())
		return err
	}
	return cmds.repaint(page.String())
}

// repaint puts a page in the place of the one before, as much of it as the terminal has room for.
func (cmds statusCommands) repaint(page string) error {
	const home, clearRest, clearLine = "\x1b[H", "\x1b[J", "\x1b[K" // ECMA-48 CUP, ED, EL
	lines := strings.Split(strings.TrimRight(page, "\n"), "\n")
	if size, ok := cmds.app.terminalSize(); ok && size.Row > 2 {
		lines = lines[:min(len(lines), int(size.Row)-1)]
		for i, line := range lines {
			// A line that wraps would push the others away. Lines with colours are short.
			if runes := []rune(line); len(runes) > int(size.Col) && !strings.Contains(line, "\x1b") {
				lines[i] = string(runes[:size.Col])
			}
		}
	}
	return cmds.app.printf("%s%s%s\n%s", home, strings.Join(lines, clearLine+"\n"), clearLine, clearRest)
}

// terminalSize is how large the terminal is, if the output goes to one.
func (a *app) terminalSize() (*unix.Winsize, bool) {
	file, ok := a.Stdout.(*os.File)
	if !ok {
		return nil, false
	}
	size, err := unix.IoctlGetWinsize(int(file.Fd()), unix.TIOCGWINSZ)
	return size, err == nil && size.Col > 0
}

// perSecond is the rate of a counter. One that went back belongs to a proxy that has just started.
func perSecond(before, now uint64, seconds float64) float64 {
	if now < before || seconds <= 0 {
		return 0
	}
	return float64(now-before) / seconds
}

func podRates(before, now []api.PodUse, seconds float64) []podRate {
	type key struct{ node, namespace, pod string }
	old := map[key]api.PodUse{}
	for _, p := range before {
		old[key{p.Node, p.Namespace, p.Pod}] = p
	}
	rates := []podRate{}
	for _, p := range now {
		was, known := old[key{p.Node, p.Namespace, p.Pod}]
		if !known || p.Opened < was.Opened {
			was = p
		}
		rates = append(rates, podRate{
			Node: p.Node, Namespace: p.Namespace, Pod: p.Pod, Open: p.Open,
			OpenedPerSec: perSecond(was.Opened, p.Opened, seconds), FailedPerSec: perSecond(was.Failed, p.Failed, seconds),
			DeniedPerSec: perSecond(was.Denied, p.Denied, seconds),
			SentPerSec:   perSecond(was.SentBytes, p.SentBytes, seconds), ReceivedPerSec: perSecond(was.ReceivedBytes, p.ReceivedBytes, seconds),
			CPU: max(0, (p.CPUSeconds-was.CPUSeconds)/max(seconds, 1e-9)),
		})
	}
	slices.SortFunc(rates, func(x, y podRate) int {
		return cmp.Or(cmp.Compare(y.CPU, x.CPU), cmp.Compare(y.Open, x.Open), cmp.Compare(x.Namespace+"/"+x.Pod, y.Namespace+"/"+y.Pod))
	})
	return rates
}

func connectionRates(before, now []api.Connection, seconds float64) []connectionRate {
	old := map[string]api.Connection{}
	for _, c := range before {
		old[c.Node+"/"+c.ID] = c
	}
	rates := []connectionRate{}
	for _, c := range now {
		// One that was not there yet began with nothing.
		was := old[c.Node+"/"+c.ID]
		rates = append(rates, connectionRate{c, bytesRate{
			perSecond(was.Bytes.ClientToServer, c.Bytes.ClientToServer, seconds), perSecond(was.Bytes.ServerToClient, c.Bytes.ServerToClient, seconds)}})
	}
	slices.SortFunc(rates, func(x, y connectionRate) int {
		return cmp.Or(cmp.Compare(y.PerSec.ClientToServer+y.PerSec.ServerToClient, x.PerSec.ClientToServer+x.PerSec.ServerToClient), cmp.Compare(y.Seconds, x.Seconds), cmp.Compare(x.ID, y.ID))
	})
	return rates
}

// podGrid is the table of pods for a terminal of this width; 0 has no bounds.
func podGrid(rates []podRate, width int) *printer.Grid {
	grid := printer.NewGrid("NAMESPACE", "POD", "NODE", "OPEN", "NEW/s", "DENIED/s", "FAILED/s", "SENT/s", "RECEIVED/s", "CPU").Right(3, 4, 5, 6, 7, 8, 9)
	namespaces := map[string]bool{}
	for _, r := range rates {
		namespaces[r.Namespace] = true
		grid.Row(r.Namespace, r.Pod, r.Node, fmt.Sprint(r.Open), rate(r.OpenedPerSec), rate(r.DeniedPerSec), rate(r.FailedPerSec),
			printer.Bytes(uint64(r.SentPerSec)), printer.Bytes(uint64(r.ReceivedPerSec)), fmt.Sprintf("%.1f%%", r.CPU*100))
	}
	if width == 0 || grid.Width() <= width {
		return grid
	}
	if len(namespaces) == 1 {
		grid.Drop(0) // a namespace that all share says nothing, so it goes before a name is cut
		grid.Fit(width, []int{0}, []int{1, 3, 5, 4})
		return grid
	}
	grid.Fit(width, []int{1, 0}, []int{2, 4, 6, 5})
	return grid
}

// connectionGrid is the table of connections for a terminal of this width; 0 has no bounds.
func connectionGrid(rates []connectionRate, width int) *printer.Grid {
	return printer.Narrowed(width, sharedNamespace(rates), func(names printer.Names) *printer.Grid {
		grid := printer.NewGrid("NODE", "DIRECTION", "SOURCE", "DESTINATION", "PEER", "DURATION", "TO-SERVER/s", "TO-CLIENT/s", "TO-SERVER", "TO-CLIENT").Right(5, 6, 7, 8, 9)
		for _, r := range rates {
			grid.Row(r.Node, r.Direction, names.Source(r.Connection), names.Destination(r.Connection), names.Peer(r.Connection), printer.Duration(r.Seconds),
				printer.Bytes(uint64(r.PerSec.ClientToServer)), printer.Bytes(uint64(r.PerSec.ServerToClient)),
				printer.Bytes(r.Bytes.ClientToServer), printer.Bytes(r.Bytes.ServerToClient))
		}
		return grid
	}, []int{2, 3, 4}, []int{4, 8, 9, 0, 5, 1})
}

// sharedNamespace is the one that all ends share of which one is known; empty if they are of several.
func sharedNamespace(rates []connectionRate) string {
	shared := ""
	for _, r := range rates {
		for _, end := range []api.ConnectionEnd{r.Source, r.Destination} {
			switch {
			case end.Namespace == "" || end.Namespace == shared:
			case shared == "":
				shared = end.Namespace
			default:
				return ""
			}
		}
	}
	return shared
}

func rate(perSecond float64) string {
	if perSecond == 0 {
		return "0"
	}
	return fmt.Sprintf("%.1f", perSecond)
}
