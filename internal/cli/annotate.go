package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/validation"

	"lateen.dev/lateen/internal/engine/api"
	"lateen.dev/lateen/internal/model/wellknown"
)

func (cmds changeCommands) annotateCommand() *cobra.Command {
	return cmds.metadataCommand(metadata{
		field: "annotations", one: "annotation", set: "annotated", unset: "annotated",
		checkValue: func(string) []string { return nil },
	}, &cobra.Command{
		Use:   "annotate KIND NAME KEY=VALUE... KEY-...",
		Short: "set or remove annotations of an object",
		Example: `  # Let a policy report what it would refuse, without refusing anything; then put it in force.
  lateen annotate authorizationpolicy deny-client istio.io/dry-run=true
  lateen annotate authorizationpolicy deny-client istio.io/dry-run-`,
	})
}

// metadata is a map in an object's metadata that a command changes.
type metadata struct {
	field, one string // "labels", "label"
	set, unset string // what is printed of an object with a change, and of one that only lost keys
	checkValue func(string) []string
}

// metadataCommand completes a command that changes one of the maps.
func (cmds changeCommands) metadataCommand(m metadata, cmd *cobra.Command) *cobra.Command {
	var overwrite bool
	var mode dryRun
	cmd.Args = atLeast(2, "KIND NAME and at least one KEY=VALUE or KEY-")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		key, changes, err := m.arguments(args, cmds.app.namespace)
		if err != nil {
			return err
		}
		return cmds.changeMetadata(cmd.Context(), m, key, changes, overwrite, mode)
	}
	cmd.ValidArgsFunction = cmds.app.completeKindAndName
	cmd.Flags().BoolVar(&overwrite, "overwrite", false, "change "+m.field+" that have another value")
	dryRunFlag(cmd, &mode)
	cmds.app.namespaceFlag(cmd)
	return cmd
}

// arguments reads "KIND NAME" or "KIND/NAME" and then the changes; a nil value removes a key.
func (m metadata) arguments(args []string, namespace string) (api.Key, map[string]*string, error) {
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
			return api.Key{}, nil, usagef("%s %q: %s", m.one, name, problems[0])
		}
		if problems := m.checkValue(value); len(problems) > 0 {
			return api.Key{}, nil, usagef("value %q of %s %s: %s", value, m.one, name, problems[0])
		}
		if _, twice := changes[name]; twice {
			return api.Key{}, nil, usagef("%s %s is given twice", m.one, name)
		}
		changes[name] = nil
		if set {
			changes[name] = &value
		}
	}
	return found[0], changes, nil
}

// changeMetadata carries the changes out. Without overwrite a key that has another value is an error.
func (cmds changeCommands) changeMetadata(ctx context.Context, m metadata, key api.Key, changes map[string]*string, overwrite bool, mode dryRun) error {
	if !overwrite && !mode.client() {
		current, err := m.of(ctx, cmds.app.client(), key)
		if err != nil {
			return err
		}
		for name, value := range changes {
			if had, ok := current[name]; ok && value != nil && had != *value {
				return fmt.Errorf("%s %s of %s is already %q; add --overwrite to change it to %q", m.one, name, key, had, *value)
			}
		}
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{m.field: changes}})
	if err != nil {
		return err
	}
	result, err := cmds.patch(ctx, api.PatchRequest{Key: key, Patch: patch}, mode)
	if err != nil {
		return err
	}
	verb := m.set
	if result.Action == api.Unchanged {
		verb = "unchanged"
	} else if !slices.ContainsFunc(values(changes), func(v *string) bool { return v != nil }) {
		verb = m.unset
	}
	if err := cmds.app.printf("%s %s%s\n", key, verb, mode.suffix()); err != nil {
		return err
	}
	for _, warning := range result.Warnings {
		cmds.app.warn("%s: %s", key, warning)
	}
	if mode == dryRunNone && (key.Kind != "Namespace" || doubtful(changes)) {
		(effects{cmds.app}).warnPartial(ctx, api.ApplyResult{Results: []api.ObjectResult{result}})
	}
	if _, enrolment := changes[wellknown.DataplaneMode]; enrolment && mode == dryRunNone {
		// New connections follow the label once every proxy knows of it.
		cmds.app.next("lateen wait"+cmds.app.meshFlag(), "lateen status"+cmds.app.meshFlag())
	}
	return nil
}

// patch changes an object, or says what that would do. A client's dry run asks nobody.
func (cmds changeCommands) patch(ctx context.Context, request api.PatchRequest, mode dryRun) (api.ObjectResult, error) {
	if mode.client() {
		return api.ObjectResult{Key: request.Key, Action: api.Configured}, nil
	}
	request.DryRun = mode.server()
	return cmds.app.client().Patch(ctx, request)
}

// of reads the map of an object.
func (m metadata) of(ctx context.Context, client *api.Client, key api.Key) (map[string]string, error) {
	list, err := client.Get(ctx, api.GetRequest{Kind: key.Kind, Group: key.Group, Namespace: key.Namespace, Name: key.Name})
	if err != nil {
		return nil, err
	}
	if len(list.Items) == 0 {
		return nil, fmt.Errorf("%s not found", key)
	}
	var object struct {
		Metadata map[string]json.RawMessage `json:"metadata"`
	}
	values := map[string]string{}
	if err := json.Unmarshal(list.Items[0].Raw, &object); err != nil {
		return nil, fmt.Errorf("read %s: %w", key, err)
	}
	if raw := object.Metadata[m.field]; raw != nil {
		if err := json.Unmarshal(raw, &values); err != nil {
			return nil, fmt.Errorf("read the %s of %s: %w", m.field, key, err)
		}
	}
	return values, nil
}

func values(m map[string]*string) []*string {
	var list []*string
	for _, v := range m {
		list = append(list, v)
	}
	return list
}
