package cli

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/validation"

	"lateen.dev/lateen/internal/engine/api"
)

func (cmds changeCommands) labelCommand() *cobra.Command {
	return cmds.metadataCommand(metadata{
		field: "labels", one: "label", set: "labeled", unset: "unlabeled",
		checkValue: func(value string) []string { return validation.IsValidLabelValue(value) },
	}, &cobra.Command{
		Use:   "label (KIND NAME | KIND -l SELECTOR | KIND --all) KEY=VALUE... KEY-...",
		Short: "set or remove labels of objects",
		Example: `  # Put a namespace into the mesh, and take it out again. Nothing restarts.
  lateen label namespace default istio.io/dataplane-mode=ambient
  lateen label namespace default istio.io/dataplane-mode-

  # All pods with a label.
  lateen label pods -l app=reviews team=shop`,
	})
}

func (cmds changeCommands) scaleCommand() *cobra.Command {
	var replicas string
	var mode dryRun
	cmd := &cobra.Command{
		Use:     "scale DEPLOYMENT... --replicas=N",
		Short:   "set the number of pods of a deployment",
		Example: `  lateen scale deployment/reviews-v1 --replicas=3`,
		Args:    atLeast(1, "the name of a deployment"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !cmd.Flags().Changed("replicas") {
				return usagef("missing flag: --replicas=N")
			}
			n, err := strconv.Atoi(replicas)
			if err != nil || n < 0 {
				return usagef("--replicas=%s: use a number, 0 or more", replicas)
			}
			names, err := deployments(args, cmds.app.namespace)
			if err != nil {
				return err
			}
			for _, name := range names {
				request := api.PatchRequest{Key: api.Key{Kind: "Deployment", Namespace: cmds.app.namespace, Name: name}, Patch: fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, n)}
				result, err := cmds.patch(cmd.Context(), request, mode)
				if err != nil {
					return err
				}
				verb := "scaled"
				if result.Action == api.Unchanged {
					verb = "unchanged"
				}
				if err := cmds.app.printf("%s %s%s\n", result.Key, verb, mode.suffix()); err != nil {
					return err
				}
			}
			if mode != dryRunNone {
				return nil
			}
			cmds.app.next("lateen wait " + "deploy/" + names[0] + cmds.app.namespaceOption() + cmds.app.meshFlag())
			return nil
		},
		ValidArgsFunction: func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
			return cmds.app.names(cmd.Context(), api.GetRequest{Kind: "Deployment", Namespace: cmds.app.namespace}), cobra.ShellCompDirectiveNoFileComp
		},
	}
	cmd.Flags().StringVar(&replicas, "replicas", "", "number of pods")
	dryRunFlag(cmd, &mode)
	cmds.app.namespaceFlag(cmd)
	return cmd
}

// deployments reads names with or without a kind: "reviews-v1", "deploy/reviews-v1" or "deploy reviews-v1".
func deployments(args []string, namespace string) ([]string, error) {
	if kind, ok := api.LookupKind(args[0]); ok && kind.Name == "Deployment" && len(args) > 1 {
		args = args[1:]
	}
	var names []string
	for _, arg := range args {
		if strings.Contains(arg, "/") {
			found, err := keys([]string{arg}, namespace)
			if err != nil {
				return nil, err
			}
			if found[0].Kind != "Deployment" {
				return nil, usagef("%q is not a deployment", arg)
			}
			arg = found[0].Name
		}
		names = append(names, arg)
	}
	return names, nil
}
