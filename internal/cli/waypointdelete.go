package cli

import (
	"context"
	"slices"

	"github.com/spf13/cobra"

	"lateen.dev/lateen/internal/engine/api"
	"lateen.dev/lateen/internal/model/wellknown"
)

func (cmds waypointCommands) deleteCommand() *cobra.Command {
	var name string
	var all bool
	cmd := &cobra.Command{
		Use:   "delete [NAME...]",
		Short: "remove waypoints, with their pods",
		Example: `  lateen waypoint delete waypoint -n shop

  # All of a namespace.
  lateen waypoint delete --all -n shop`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if name != "" {
				args = append(args, name)
			}
			switch {
			case all && len(args) > 0:
				return usagef("--all and names: use one of them")
			case !all && len(args) == 0:
				return usagef("missing argument: the name of a waypoint, or --all")
			}
			return cmds.delete(cmd.Context(), args)
		},
		ValidArgsFunction: func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
			return cmds.names(cmd.Context()), cobra.ShellCompDirectiveNoFileComp
		},
	}
	cmds.flags(cmd, &name, "", "name of the waypoint, in place of the argument")
	cmd.Flags().BoolVar(&all, "all", false, "all waypoints of the namespace")
	return cmd
}

// delete removes the named waypoints, or all if none is named. It warns of what they leave behind.
func (cmds waypointCommands) delete(ctx context.Context, names []string) error {
	list, err := cmds.find(ctx, false, "")
	if err != nil {
		return err
	}
	request := api.DeleteRequest{Namespace: cmds.app.namespace, Wait: true}
	var bound []api.Key
	for _, name := range names {
		if !slices.ContainsFunc(list, func(s api.WaypointState) bool { return s.Name == name }) {
			return cmds.noWaypoint(name)
		}
	}
	for _, s := range list {
		if len(names) == 0 || slices.Contains(names, s.Name) {
			request.Keys = append(request.Keys, cmds.gatewayKey(s.Name))
			bound = append(bound, s.Bound...)
		}
	}
	if len(request.Keys) == 0 {
		cmds.app.warn("no waypoints found in namespace %s", cmds.app.namespace)
		return nil
	}
	result, err := cmds.app.client().Delete(ctx, request)
	if err != nil {
		return err
	}
	if err := (changeCommands{cmds.app}).report(result, ""); err != nil {
		return err
	}
	if len(bound) > 0 {
		cmds.app.warn("%s still has the label %s for a waypoint that is gone; take the label away, or make the waypoint again", someKeys(bound), wellknown.UseWaypoint)
		first := bound[0]
		where := ""
		if first.Namespace != "" && first.Namespace != "default" {
			where = " -n " + first.Namespace
		}
		cmds.app.next("lateen label " + first.Word() + " " + first.Name + " " + wellknown.UseWaypoint + "-" + where)
	}
	return nil
}

// someKeys names up to maxNamedMeshes objects.
func someKeys(keys []api.Key) string {
	names := make([]string, len(keys))
	for i, k := range keys {
		names[i] = k.String()
	}
	return someMeshes(names)
}
