package cli

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"lateen.dev/lateen/internal/cli/printer"
	"lateen.dev/lateen/internal/engine/api"
)

// everyday is what `get all` shows, as kubectl does: what runs, not how it is configured.
var everyday = []string{"Pod", "Service", "Deployment"}

type getOptions struct {
	selector string
	all      bool
}

func (a *app) getCommand() *cobra.Command {
	var o getOptions
	formats := printer.Formats()
	cmd := &cobra.Command{
		Use:   "get KIND [NAME...]",
		Short: "show objects and their state",
		Example: `  lateen get pods -o wide
  lateen get pods,services -l app=reviews
  lateen get authorizationpolicies -o yaml
  lateen get deploy/productpage-v1 -o json`,
		Args: atLeast(1, "KIND, such as pods, services, deployments, authorizationpolicies or all"),
		RunE: func(cmd *cobra.Command, args []string) error {
			format, err := a.format(formats...)
			if err != nil {
				return err
			}
			return a.get(cmd.Context(), args, o, format)
		},
		ValidArgsFunction: a.completeKindAndName,
	}
	cmd.Flags().StringVarP(&o.selector, "selector", "l", "", "label selector, such as app=reviews")
	cmd.Flags().BoolVarP(&o.all, "all-namespaces", "A", false, "objects of all namespaces")
	a.namespaceFlag(cmd)
	a.outputFlag(cmd, formats...)
	return cmd
}

func (a *app) get(ctx context.Context, args []string, o getOptions, format printer.Format) error {
	requests, err := getRequests(args, a.namespace, o)
	if err != nil {
		return err
	}
	client := a.client()
	objects := []api.Object{}
	kinds := map[string]bool{}
	for _, request := range requests {
		list, err := client.Get(ctx, request)
		if err != nil {
			return err
		}
		kinds[request.Kind] = true
		objects = append(objects, list.Items...)
	}
	if len(objects) == 0 && !format.Structured() {
		where := "in namespace " + a.namespace
		if o.all || !slices.ContainsFunc(requests, func(r api.GetRequest) bool { return namespaced(r.Kind) }) {
			where = "in mesh " + a.mesh
		}
		a.warn("no %s found %s", args[0], where)
		return nil
	}
	a.addressAll(&objects)
	single := len(requests) == 1 && requests[0].Name != ""
	return printer.Objects(a.Stdout, objects, printer.Options{
		Format: format, Namespaces: o.all, Prefix: len(kinds) > 1, Single: single, Now: a.Now(),
	})
}

func namespaced(kind string) bool {
	k, ok := api.LookupKind(kind)
	return !ok || k.Namespaced
}

// getRequests reads "KIND[,KIND] [NAME...]", "KIND/NAME..." or "all".
func getRequests(args []string, namespace string, o getOptions) ([]api.GetRequest, error) {
	var requests []api.GetRequest
	add := func(kind, name string) {
		requests = append(requests, api.GetRequest{
			Kind: kind, Namespace: namespace, Name: name, AllNamespaces: o.all, Selector: o.selector,
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
			add(k.Kind, k.Name)
		}
		return requests, nil
	}
	names := args[1:]
	if len(names) > 0 && (o.selector != "" || o.all) {
		return nil, usagef("a named object cannot be selected by -l or -A too")
	}
	kinds := everyday
	if args[0] != "all" {
		kinds = nil
		for word := range strings.SplitSeq(args[0], ",") {
			kind, err := lookupKind(word)
			if err != nil {
				return nil, err
			}
			kinds = append(kinds, kind.Name)
		}
	}
	for _, kind := range kinds {
		if len(names) == 0 {
			add(kind, "")
		}
		for _, name := range names {
			add(kind, name)
		}
	}
	return requests, nil
}
