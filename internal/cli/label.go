package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/validation"

	"lateen.dev/lateen/internal/engine/api"
	"lateen.dev/lateen/internal/model/wellknown"
)

func (a *app) labelCommand() *cobra.Command {
	var overwrite bool
	cmd := &cobra.Command{
		Use:   "label KIND NAME KEY=VALUE... KEY-...",
		Short: "set or remove labels of an object",
		Example: `  # Put a namespace into the mesh, and take it out again. Nothing restarts.
  lateen label namespace default istio.io/dataplane-mode=ambient
  lateen label namespace default istio.io/dataplane-mode-`,
		Args: atLeast(2, "KIND NAME and at least one KEY=VALUE or KEY-"),
		RunE: func(cmd *cobra.Command, args []string) error {
			key, changes, err := labelArguments(args, a.namespace)
			if err != nil {
				return err
			}
			return a.label(cmd.Context(), key, changes, overwrite)
		},
		ValidArgsFunction: a.completeKindAndName,
	}
	cmd.Flags().BoolVar(&overwrite, "overwrite", false, "change labels that have another value")
	a.namespaceFlag(cmd)
	return cmd
}

// labelArguments reads "KIND NAME" or "KIND/NAME" and then the labels; a nil value removes one.
func labelArguments(args []string, namespace string) (api.Key, map[string]*string, error) {
	objects := 2
	if strings.Contains(args[0], "/") {
		objects = 1
	}
	found, err := keys(args[:objects], namespace)
	if err != nil {
		return api.Key{}, nil, err
	}
	if len(args) == objects {
		return api.Key{}, nil, usagef("missing argument: KEY=VALUE or KEY-")
	}
	changes := map[string]*string{}
	for _, arg := range args[objects:] {
		name, value, set := strings.Cut(arg, "=")
		if !set {
			var remove bool
			if name, remove = strings.CutSuffix(arg, "-"); !remove {
				return api.Key{}, nil, usagef("%q is neither KEY=VALUE nor KEY-", arg)
			}
		}
		if problems := validation.IsQualifiedName(name); len(problems) > 0 {
			return api.Key{}, nil, usagef("label %q: %s", name, problems[0])
		}
		if problems := validation.IsValidLabelValue(value); len(problems) > 0 {
			return api.Key{}, nil, usagef("value %q of label %s: %s", value, name, problems[0])
		}
		if _, twice := changes[name]; twice {
			return api.Key{}, nil, usagef("label %s is given twice", name)
		}
		changes[name] = nil
		if set {
			changes[name] = &value
		}
	}
	return found[0], changes, nil
}

func (a *app) label(ctx context.Context, key api.Key, changes map[string]*string, overwrite bool) error {
	client := a.client()
	if !overwrite {
		current, err := labelsOf(ctx, client, key)
		if err != nil {
			return err
		}
		for name, value := range changes {
			if had, ok := current[name]; ok && value != nil && had != *value {
				return fmt.Errorf("label %s of %s is already %q; add --overwrite to change it to %q", name, key, had, *value)
			}
		}
	}
	result, err := client.Label(ctx, key, changes)
	if err != nil {
		return err
	}
	verb := "labeled"
	if result.Action == api.Unchanged {
		verb = "unchanged"
	} else if !slices.ContainsFunc(values(changes), func(v *string) bool { return v != nil }) {
		verb = "unlabeled"
	}
	if err := a.printf("%s %s\n", key, verb); err != nil {
		return err
	}
	for _, warning := range result.Warnings {
		a.warn("%s: %s", key, warning)
	}
	if _, enrolment := changes[wellknown.DataplaneMode]; enrolment {
		// New connections follow the label once every proxy knows of it.
		a.next("lateen wait"+a.meshFlag(), "lateen status"+a.meshFlag())
	}
	return nil
}

func values(m map[string]*string) []*string {
	var list []*string
	for _, v := range m {
		list = append(list, v)
	}
	return list
}

func labelsOf(ctx context.Context, client *api.Client, key api.Key) (map[string]string, error) {
	list, err := client.Get(ctx, api.GetRequest{Kind: key.Kind, Namespace: key.Namespace, Name: key.Name})
	if err != nil {
		return nil, err
	}
	if len(list.Items) == 0 {
		return nil, fmt.Errorf("%s not found", key)
	}
	var object struct {
		Metadata struct {
			Labels map[string]string `json:"labels"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(list.Items[0].Raw, &object); err != nil {
		return nil, fmt.Errorf("read %s: %w", key, err)
	}
	return object.Metadata.Labels, nil
}

func (a *app) scaleCommand() *cobra.Command {
	var replicas string
	cmd := &cobra.Command{
		Use:     "scale DEPLOYMENT... --replicas=N",
		Short:   "set the number of pods of a deployment",
		Example: `  lateen scale deployment/reviews-v1 --replicas=3`,
		Args:    atLeast(1, "the name of a deployment"),
		RunE: func(cmd *cobra.Command, args []string) error {
			n, err := strconv.Atoi(replicas)
			if err != nil || n < 0 {
				return usagef("--replicas=%s: use a number from 0", replicas)
			}
			names, err := deployments(args, a.namespace)
			if err != nil {
				return err
			}
			for _, name := range names {
				result, err := a.client().Scale(cmd.Context(), a.namespace, name, n)
				if err != nil {
					return err
				}
				verb := "scaled"
				if result.Action == api.Unchanged {
					verb = "unchanged"
				}
				if err := a.printf("%s %s\n", result.Key, verb); err != nil {
					return err
				}
			}
			a.next("lateen wait " + "deploy/" + names[0] + a.meshFlag())
			return nil
		},
		ValidArgsFunction: func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
			return a.names(cmd.Context(), api.GetRequest{Kind: "Deployment", Namespace: a.namespace}), cobra.ShellCompDirectiveNoFileComp
		},
	}
	cmd.Flags().StringVar(&replicas, "replicas", "", "number of pods")
	a.namespaceFlag(cmd)
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
