package cli

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"lateen.dev/lateen/internal/engine/api"
)

// deletion is what the flags of delete ask for.
type deletion struct {
	files    []string
	selector string
	all      bool
	ignore   bool
	wait     bool
	now      bool
	grace    int64 // seconds; below 0 is the pods' own
	mode     dryRun
}

func (cmds changeCommands) deleteCommand() *cobra.Command {
	var o deletion
	cmd := &cobra.Command{
		Use:   "delete (-f FILE | KIND NAME... | KIND -l SELECTOR | KIND --all)",
		Short: "remove objects",
		Example: `  lateen delete -f samples/bookinfo/policy/deny.yaml
  lateen delete deployment ratings-v1
  lateen delete pod/details-v1-6c8f --now

  # All that match a label, first without doing it; all of a kind in a namespace.
  lateen delete pods,services -l app=reviews --dry-run
  lateen delete authorizationpolicies --all -n shop`,
		RunE: func(cmd *cobra.Command, args []string) error {
			request, err := cmds.deleteRequest(cmd, args, o)
			if err != nil {
				return err
			}
			return cmds.delete(cmd.Context(), request, args, o)
		},
		ValidArgsFunction: cmds.app.completeKindAndName,
	}
	fileFlag(cmd, &o.files)
	flags := cmd.Flags()
	flags.StringVarP(&o.selector, "selector", "l", "", "label selector, such as app=reviews, in place of names")
	flags.BoolVar(&o.all, "all", false, "all objects of the kinds in the namespace, in place of names")
	flags.BoolVar(&o.ignore, "ignore-not-found", false, "succeed if an object does not exist")
	flags.BoolVar(&o.wait, "wait", true, "return only when the pods that go with the objects are gone")
	flags.Int64Var(&o.grace, "grace-period", -1, "seconds that pods get to end; -1: what each asks for")
	flags.BoolVar(&o.now, "now", false, "the same as --grace-period=1")
	dryRunFlag(cmd, &o.mode)
	refuseValueApart(cmd)
	cmds.app.namespaceFlag(cmd)
	return cmd
}

// deleteRequest reads the arguments and flags; it does not look for the objects that -l or --all mean.
func (cmds changeCommands) deleteRequest(cmd *cobra.Command, args []string, o deletion) (api.DeleteRequest, error) {
	request := api.DeleteRequest{Namespace: cmds.app.namespace, IgnoreNotFound: o.ignore, Wait: o.wait, DryRun: o.mode.server()}
	chosen := o.all || o.selector != ""
	switch {
	case o.now && cmd.Flags().Changed("grace-period"):
		return request, usagef("--now and --grace-period: use one of them")
	case cmd.Flags().Changed("grace-period") && o.grace < -1:
		return request, usagef("--grace-period=%d: use a number of seconds from 0, or -1", o.grace)
	case o.all && o.selector != "":
		return request, usagef("--all and -l: use one of them")
	case len(o.files) > 0 && chosen:
		return request, usagef("-f names the objects: leave out --all and -l")
	case len(o.files) > 0 && len(args) > 0:
		return request, usagef("name the objects either by -f or by arguments, not both")
	case chosen && len(args) == 0:
		return request, usagef("missing argument: KIND, such as pods")
	case len(o.files) == 0 && len(args) == 0:
		return request, usagef("missing argument: -f FILE or KIND NAME")
	}
	if grace := o.grace; o.now || grace >= 0 {
		if o.now {
			grace = 1
		}
		request.GraceSeconds = &grace
	}
	var err error
	switch {
	case len(o.files) > 0:
		request.Documents, err = cmds.documents(o.files)
	case !chosen:
		request.Keys, err = keys(args, cmds.app.namespace)
	}
	return request, err
}

// delete carries a request out, or says what it would do.
func (cmds changeCommands) delete(ctx context.Context, request api.DeleteRequest, args []string, o deletion) error {
	if o.all || o.selector != "" {
		found, err := cmds.chosenToDelete(ctx, args, o)
		if err != nil {
			return err
		}
		if len(found) == 0 {
			cmds.app.warn("no %s found in namespace %s", pluralOf(args[0]), cmds.app.namespace)
			return nil
		}
		// Pods that went with their Deployment are gone as they should be.
		request.Keys, request.IgnoreNotFound = found, true
	}
	if o.mode.client() {
		result := checkedForDelete(request.Documents, cmds.app.namespace)
		for _, k := range request.Keys {
			result.Results = append(result.Results, api.ObjectResult{Key: k, Action: valid})
		}
		return cmds.report(result, o.mode.suffix())
	}
	result, err := cmds.app.client().Delete(ctx, request)
	if err != nil {
		return err
	}
	return cmds.report(result, o.mode.suffix())
}

// chosenToDelete are the objects that -l or --all mean.
func (cmds changeCommands) chosenToDelete(ctx context.Context, args []string, o deletion) ([]api.Key, error) {
	requests, err := cmds.chosenRequests(args, o.selector)
	if err != nil {
		return nil, err
	}
	if slices.ContainsFunc(requests, func(r api.GetRequest) bool { return r.Kind == "Namespace" }) {
		what := "--all would remove every namespace with everything in it"
		if !o.all {
			what = "-l would remove every namespace that has the labels, with everything in it"
		}
		return nil, usageError{&api.Error{Message: what, Fix: "name the namespaces: lateen delete namespace NAME..."}}
	}
	return cmds.chosenKeys(ctx, requests)
}

// chosenRequests ask for the objects that -l or --all mean. args must be kinds alone.
func (cmds changeCommands) chosenRequests(args []string, selector string) ([]api.GetRequest, error) {
	if len(args) > 1 {
		return nil, usagef("--all and -l choose objects by kind: leave out the name %q", args[1])
	}
	requests, err := getRequests(args, cmds.app.namespace, getOptions{selector: selector})
	if err != nil {
		return nil, err
	}
	if i := slices.IndexFunc(requests, func(r api.GetRequest) bool { return r.Name != "" }); i >= 0 {
		return nil, usagef("--all and -l choose objects by kind: write %s instead of %s", requests[i].Kind, args[0])
	}
	return requests, nil
}

// chosenKeys are the objects that the requests find.
func (cmds changeCommands) chosenKeys(ctx context.Context, requests []api.GetRequest) ([]api.Key, error) {
	var found []api.Key
	for _, request := range requests {
		list, err := cmds.app.client().Get(ctx, request)
		if err != nil {
			return nil, fmt.Errorf("find the objects that are meant: %w", err)
		}
		for _, object := range list.Items {
			found = append(found, object.Key)
		}
	}
	return found, nil
}
