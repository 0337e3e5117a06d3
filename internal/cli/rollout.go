package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"lateen.dev/lateen/internal/engine/api"
)

func (cmds changeCommands) rolloutCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rollout",
		Short: "follow or repeat the replacement of a deployment's pods",
		Example: `  lateen rollout restart deploy/reviews-v1
  lateen rollout status deploy/reviews-v1`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(cmds.rolloutStatusCommand(), cmds.rolloutRestartCommand())
	return cmd
}

func (cmds changeCommands) rolloutStatusCommand() *cobra.Command {
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "status DEPLOYMENT...",
		Short: "wait until all pods of a deployment are of its present version, ready and in place in the mesh",
		Example: `  lateen rollout status deploy/reviews-v1
  lateen rollout status deployment reviews-v1 --timeout 30s`,
		Args: atLeast(1, "the name of a deployment"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if timeout <= 0 {
				return usagef("--timeout %s: use a time above zero, such as 30s", timeout)
			}
			names, err := deployments(args, cmds.app.namespace)
			if err != nil {
				return err
			}
			var requests []api.GetRequest
			for _, name := range names {
				requests = append(requests, api.GetRequest{Kind: "Deployment", Namespace: cmds.app.namespace, Name: name})
			}
			return (readCommands{cmds.app}).wait(cmd.Context(), requests, timeout)
		},
		ValidArgsFunction: cmds.app.completeDeployment,
	}
	cmd.Flags().DurationVar(&timeout, "timeout", 2*time.Minute, "give up after this time")
	cmds.app.namespaceFlag(cmd)
	return cmd
}

func (cmds changeCommands) rolloutRestartCommand() *cobra.Command {
	var mode dryRun
	cmd := &cobra.Command{
		Use:     "restart DEPLOYMENT...",
		Short:   "replace all pods of a deployment, a few at a time",
		Example: `  lateen rollout restart deploy/reviews-v1 deploy/reviews-v2`,
		Args:    atLeast(1, "the name of a deployment"),
		RunE: func(cmd *cobra.Command, args []string) error {
			names, err := deployments(args, cmds.app.namespace)
			if err != nil {
				return err
			}
			for _, name := range names {
				if err := cmds.restart(cmd.Context(), name, mode); err != nil {
					return err
				}
			}
			if mode == dryRunNone {
				cmds.app.next("lateen rollout status deploy/" + names[0] + cmds.app.namespaceOption() + cmds.app.meshFlag())
			}
			return nil
		},
		ValidArgsFunction: cmds.app.completeDeployment,
	}
	dryRunFlag(cmd, &mode)
	cmds.app.namespaceFlag(cmd)
	return cmd
}

// restart changes an annotation of the pods' template, as kubectl does: pods of an older template are replaced.
func (cmds changeCommands) restart(ctx context.Context, name string, mode dryRun) error {
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"template": map[string]any{"metadata": map[string]any{
		"annotations": map[string]string{api.RestartedAt: cmds.app.Now().UTC().Format(time.RFC3339Nano)},
	}}}})
	if err != nil {
		return fmt.Errorf("encode the change: %w", err)
	}
	result, err := cmds.patch(ctx, api.PatchRequest{Key: api.Key{Kind: "Deployment", Namespace: cmds.app.namespace, Name: name}, Patch: patch}, mode)
	if err != nil {
		return err
	}
	return cmds.app.printf("%s restarted%s\n", result.Key, mode.suffix())
}

func (a *app) completeDeployment(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	names := a.names(cmd.Context(), api.GetRequest{Kind: "Deployment", Namespace: a.namespace})
	for i := range names {
		names[i] = "deploy/" + names[i]
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// namespaceOption is the -n that a suggested command needs, with a space before it; empty for the default namespace.
func (a *app) namespaceOption() string {
	if a.namespace == "" || a.namespace == "default" {
		return ""
	}
	return " -n " + a.namespace
}
