package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"lateen.dev/lateen/internal/cli/printer"
	"lateen.dev/lateen/internal/engine/api"
	"lateen.dev/lateen/internal/spelling"
)

// configPart is a part of a node proxy's configuration that is shown as a table.
type configPart struct {
	name string // as a user writes it, in the plural
	// list takes the part of a namespace, or of all, out of a dump, and counts it.
	list func(d *proxyDump, namespace string) (list any, n int)
	// table writes it for people.
	table func(v printer.View, w io.Writer, list any) error
}

// part ties the functions of one type together.
func part[T any](name string, list func(*proxyDump, string) []T, table func(printer.View, io.Writer, []T) error) configPart {
	return configPart{name: name,
		list: func(d *proxyDump, namespace string) (any, int) {
			found := list(d, namespace)
			return found, len(found)
		},
		table: func(v printer.View, w io.Writer, found any) error { return table(v, w, found.([]T)) },
	}
}

var configParts = []configPart{
	part("workloads", (*proxyDump).workloads, printer.View.Workloads),
	part("services", (*proxyDump).services, printer.View.Services),
	part("policies", (*proxyDump).policies, printer.View.Policies),
	part("certificates", (*proxyDump).certificates, printer.View.Certificates),
	part("connections", (*proxyDump).connections, printer.View.Connections),
}

func partNames() []string {
	names := make([]string, len(configParts))
	for i, p := range configParts {
		names[i] = p.name
	}
	return names
}

// lookupPart finds a part by its name in the plural or the singular.
func lookupPart(word string) (configPart, error) {
	word = strings.ToLower(word)
	i := slices.IndexFunc(configParts, func(p configPart) bool {
		return word == p.name || word == strings.TrimSuffix(p.name, "s") || word+"s" == strings.Replace(p.name, "ies", "ys", 1)
	})
	if i >= 0 {
		return configParts[i], nil
	}
	fix := "use one of " + strings.Join(partNames(), ", ") + ", or NODE alone for everything as JSON"
	if near := didYouMean("", spelling.Nearest(word, partNames())); near != "" {
		fix = near
	}
	return configPart{}, usageError{&api.Error{Message: fmt.Sprintf("%q is no part of a proxy's configuration", word), Fix: fix}}
}

func (cmds proxyCommands) proxyConfigCommand() *cobra.Command {
	formats := []printer.Format{printer.Table, printer.Wide, printer.JSON, printer.YAML}
	namespace := ""
	cmd := &cobra.Command{
		Use:   "config [PART] NODE",
		Short: "show what a node's proxy knows: a part of it as a table, or all of it as JSON",
		Example: `  # The policies that n1's node proxy decides by, with their rules in words.
  lateen proxy config policies n1 -o wide

  # The certificates of a namespace's pods on n1: identity, state, expiry, serial number and root. Keys are never shown.
  lateen proxy config certificates n1 -n shop

  # The connections of a waypoint's clients, with the requests that are under way on them.
  lateen proxy config connections waypoint-6d9f7c8b54-x2vqk -n shop

  # Everything, as the proxy writes it.
  lateen proxy config n1 | jq '.workloads[].name'`,
		Long: "PART is one of " + strings.Join(partNames(), ", ") + `.
With connections a waypoint's pod may be named in the place of NODE, as POD or pod/POD; -n is its namespace then.
Without PART the command writes the whole configuration as JSON (-o yaml: YAML), in the keys of
ztunnel's /config_dump.

acknowledgedGeneration is the control plane's generation that the proxy has acknowledged: GENERATION
in "lateen status". appliedUpdates is the proxy's own counter of updates. It begins again with each
process and is no generation.`,
		Args: func(_ *cobra.Command, args []string) error {
			switch len(args) {
			case 0:
				return usagef("missing argument: NODE")
			case 1:
				if _, err := lookupPart(args[0]); err == nil {
					return usagef("missing argument: the NODE whose %s are meant", args[0])
				}
				return nil
			case 2:
				_, err := lookupPart(args[0])
				return err
			}
			return usagef("unexpected argument %q", args[2])
		},
		ValidArgsFunction: func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 1 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			nodes, directive := cmds.app.completeNode(cmd, nil, word)
			if len(args) == 0 {
				return append(partNames(), nodes...), directive
			}
			return nodes, directive
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			format, err := cmds.app.format(formats...)
			if err != nil {
				return err
			}
			if len(args) == 1 {
				if namespace != "" {
					return usagef("--namespace goes with a part, such as workloads; everything is written whole")
				}
				return cmds.dumpProxy(cmd.Context(), args[0], format)
			}
			part, err := lookupPart(args[0])
			if err != nil {
				return err
			}
			if part.name == "connections" {
				return cmds.showConnections(cmd.Context(), part, args[1], namespace, format)
			}
			return cmds.showPart(cmd.Context(), part, args[1], namespace, format)
		},
	}
	cmd.Flags().StringVarP(&namespace, "namespace", "n", "", "only what belongs to this namespace (default: all); of a POD its namespace (default: default)")
	register(cmd, "namespace", func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		return cmds.app.names(cmd.Context(), api.GetRequest{Kind: "Namespace"}), cobra.ShellCompDirectiveNoFileComp
	})
	cmds.app.outputFlag(cmd, formats...)
	return cmd
}

// generations are the control plane's generation and the one that a node's proxy has acknowledged.
type generations struct {
	Acknowledged uint64 `json:"acknowledgedGeneration"`
	Control      uint64 `json:"controlGeneration"`
}

// generationsOf asks the mesh; nil if it does not know them now.
func (cmds proxyCommands) generationsOf(ctx context.Context, node string) *generations {
	status, err := cmds.app.client().Status(ctx)
	if err != nil || !status.Control.Ready || len(status.Unknown) > 0 {
		return nil
	}
	i := slices.IndexFunc(status.Nodes, func(n api.NodeState) bool { return n.Name == node })
	if i < 0 {
		return nil
	}
	return &generations{status.Nodes[i].Proxy.AckedGeneration, status.Control.Generation}
}

// dumpProxy writes the whole configuration of a node's proxy. The proxy's own counter of updates is written under another name than the
// control plane's generation, which stands beside it.
func (cmds proxyCommands) dumpProxy(ctx context.Context, node string, format printer.Format) error {
	page, err := cmds.app.client().ProxyConfigDump(ctx, node)
	if err != nil {
		return err
	}
	var dump map[string]json.RawMessage
	if err := json.Unmarshal(page, &dump); err != nil {
		return fmt.Errorf("read the configuration of the proxy of node %s: %w", node, err)
	}
	if applied, ok := dump["generation"]; ok { // a proxy of version 0.1.0 or older
		dump["appliedUpdates"] = applied
		delete(dump, "generation")
	}
	if g := cmds.generationsOf(ctx, node); g != nil {
		dump["acknowledgedGeneration"] = fmt.Appendf(nil, "%d", g.Acknowledged)
	}
	if format == printer.YAML {
		return printer.Write(cmds.app.Stdout, format, dump)
	}
	var text bytes.Buffer
	out := json.NewEncoder(&text)
	out.SetEscapeHTML(false)
	out.SetIndent("", "  ")
	if err := out.Encode(dump); err != nil {
		return fmt.Errorf("write the configuration of the proxy of node %s: %w", node, err)
	}
	_, err = cmds.app.Stdout.Write(text.Bytes())
	return err
}

func (cmds proxyCommands) showPart(ctx context.Context, part configPart, node, namespace string, format printer.Format) error {
	page, err := cmds.app.client().ProxyConfigDump(ctx, node)
	if err != nil {
		return err
	}
	dump, err := readDump(page)
	if err != nil {
		return err
	}
	list, n := part.list(dump, namespace)
	g := cmds.generationsOf(ctx, node)
	if format.Structured() {
		answer := map[string]any{"node": node, part.name: list}
		if g != nil {
			answer["acknowledgedGeneration"], answer["controlGeneration"] = g.Acknowledged, g.Control
		}
		return printer.Write(cmds.app.Stdout, format, answer)
	}
	if n == 0 {
		where := ""
		if namespace != "" {
			where = " of namespace " + namespace
		}
		cmds.app.warn("the proxy of node %s has no %s%s", node, part.name, where)
		return nil
	}
	view := printer.View{Wide: format == printer.Wide, Now: cmds.app.Now(), Columns: cmds.app.width()}
	if err := part.table(view, cmds.app.Stdout, list); err != nil {
		return err
	}
	if g != nil && g.Acknowledged < g.Control {
		cmds.app.warn("the proxy of node %s has acknowledged generation %d of %d: the table may lack the latest changes", node, g.Acknowledged, g.Control)
	}
	return nil
}
