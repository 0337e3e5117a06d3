package cli

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/client-go/util/jsonpath"

	"lateen.dev/lateen/internal/cli/printer"
	"lateen.dev/lateen/internal/engine/api"
)

// everyday is what `get all` shows, as kubectl does: what runs, not how it is configured.
var everyday = []string{"Pod", "Service", "Deployment"}

type getOptions struct {
	selector   string
	all        bool
	watch      bool
	events     bool
	showLabels bool
	columns    []string // labels that have a column each
}

func (cmds readCommands) getCommand() *cobra.Command {
	var o getOptions
	formats := printer.Formats()
	cmd := &cobra.Command{
		Use:   "get KIND [NAME...]",
		Short: "show objects and their state",
		Example: `  lateen get pods -o wide
  lateen get pods,services -l app=reviews
  lateen get authorizationpolicies -o yaml
  lateen get deploy/productpage-v1 -o json
  lateen get pods -o jsonpath='{range .items[*]}{.status.podIP}{"\n"}{end}'

  # What is there, and each change of it.
  lateen get pods --watch`,
		Args: atLeast(1, "KIND, such as pods, services, deployments, authorizationpolicies or all"),
		RunE: func(cmd *cobra.Command, args []string) error {
			format, template, err := cmds.app.objectFormat(formats...)
			if err != nil {
				return err
			}
			if o.events && !o.watch {
				return usagef("--output-watch-events needs --watch")
			}
			return cmds.get(cmd.Context(), args, o, format, template)
		},
		ValidArgsFunction: cmds.app.completeKindAndName,
	}
	cmd.Flags().StringVarP(&o.selector, "selector", "l", "", "label selector, such as app=reviews")
	cmd.Flags().BoolVarP(&o.all, "all-namespaces", "A", false, "objects of all namespaces")
	cmd.Flags().BoolVarP(&o.watch, "watch", "w", false, "go on with each change, until you interrupt it")
	cmd.Flags().BoolVar(&o.events, "output-watch-events", false, "with --watch: say whether an object was ADDED, MODIFIED or DELETED")
	cmd.Flags().BoolVar(&o.showLabels, "show-labels", false, "add a column with all labels")
	cmd.Flags().StringSliceVarP(&o.columns, "label-columns", "L", nil, "labels that get a column each, such as app,version")
	cmds.app.namespaceFlag(cmd)
	cmds.app.objectFormatFlag(cmd, formats...)
	return cmd
}

func (cmds readCommands) get(ctx context.Context, args []string, o getOptions, format printer.Format, template *jsonpath.JSONPath) error {
	requests, err := getRequests(args, cmds.app.namespace, o)
	if err != nil {
		return err
	}
	kinds := map[string]bool{}
	for _, request := range requests {
		kinds[request.Kind] = true
	}
	options := printer.Options{
		Format: format, Namespaces: o.all, Prefix: len(kinds) > 1 || o.watch && slices.ContainsFunc(requests, ofSeveralGroups), Single: len(requests) == 1 && requests[0].Name != "", Now: cmds.app.Now(),
		ShowLabels: o.showLabels, LabelColumns: o.columns, Width: cmds.app.width(),
	}
	if o.watch {
		return cmds.watch(ctx, requests, options, o.events, template)
	}
	objects, err := list(ctx, cmds.app.client(), requests, false)
	if err != nil {
		return err
	}
	if len(objects) == 0 && !format.Structured() {
		where := "in namespace " + cmds.app.namespace
		if o.all || !slices.ContainsFunc(requests, func(r api.GetRequest) bool { return namespaced(r.Kind) }) {
			where = "in mesh " + cmds.app.mesh
		}
		cmds.app.warn("no %s found %s", pluralOf(args[0]), where)
		return nil
	}
	cmds.app.addressAll(&objects)
	if template != nil {
		return cmds.app.printPath(template, objects, options)
	}
	return printer.Objects(cmds.app.Stdout, objects, options)
}

// ofSeveralGroups reports whether the answer to a request may hold objects of several API groups, which may have the same name. A table of
// all of them tells by itself whether it needs the groups; a watch learns of one object after the other.
func ofSeveralGroups(r api.GetRequest) bool {
	return r.Group == "" && r.Name == "" && len(api.SharedKind(r.Kind)) > 0
}

func namespaced(kind string) bool {
	k, ok := api.LookupKind(kind)
	return !ok || k.Namespaced
}

// getRequests reads "KIND[,KIND] [NAME...]", "KIND/NAME..." or "all".
func getRequests(args []string, namespace string, o getOptions) ([]api.GetRequest, error) {
	var requests []api.GetRequest
	add := func(kind, group, name string) {
		requests = append(requests, api.GetRequest{
			Kind: kind, Group: group, Namespace: namespace, Name: name, AllNamespaces: o.all, Selector: o.selector,
		})
	}
	if strings.Contains(args[0], "/") {
		if o.selector != "" || o.all {
			return nil, usagef("objects named as KIND/NAME cannot be selected by -l or -A too")
		}
		found, err := keys(args, namespace)
		if err != nil {
			return nil, err
		}
		for _, k := range found {
			add(k.Kind, k.Group, k.Name)
		}
		return requests, nil
	}
	names := args[1:]
	if len(names) > 0 && (o.selector != "" || o.all) {
		return nil, usagef("a named object cannot be selected by -l or -A too")
	}
	words := everyday
	if args[0] != "all" {
		words = strings.Split(args[0], ",")
	}
	for _, word := range words {
		kind, err := lookupKind(word)
		if err != nil {
			return nil, err
		}
		if len(names) == 0 {
			add(kind.Name, api.NamedGroup(word), "")
		}
		for _, name := range names {
			add(kind.Name, api.NamedGroup(word), name)
		}
	}
	return requests, nil
}
