package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
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
		Use:   "annotate (KIND NAME | KIND -l SELECTOR | KIND --all) KEY=VALUE... KEY-...",
		Short: "set or remove annotations of objects",
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

// chosenMetadata is what the flags of such a command say.
type chosenMetadata struct {
	selector  string
	all       bool
	overwrite bool
	mode      dryRun
}

// chosen says whether -l or --all stand in place of a name.
func (o chosenMetadata) chosen() bool { return o.all || o.selector != "" }

// metadataCommand completes a command that changes one of the maps.
func (cmds changeCommands) metadataCommand(m metadata, cmd *cobra.Command) *cobra.Command {
	var o chosenMetadata
	cmd.Args = atLeast(2, "KIND NAME and at least one KEY=VALUE or KEY-")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		objects, changes, err := cmds.metadataArguments(cmd.Context(), m, args, o)
		if err != nil {
			return err
		}
		if len(objects) == 0 {
			where := "in namespace " + cmds.app.namespace
			if kind, err := lookupKind(args[0]); err == nil && !kind.Namespaced {
				where = "in mesh " + cmds.app.mesh
			}
			cmds.app.warn("no %s found %s", pluralOf(args[0]), where)
			return nil
		}
		return cmds.changeMetadata(cmd.Context(), m, objects, changes, o)
	}
	cmd.ValidArgsFunction = cmds.app.completeKindAndName
	cmd.Flags().StringVarP(&o.selector, "selector", "l", "", "label selector, such as app=reviews, in place of a name")
	cmd.Flags().BoolVar(&o.all, "all", false, "all objects of the kinds in the namespace, in place of a name")
	cmd.Flags().BoolVar(&o.overwrite, "overwrite", false, "change "+m.field+" that have another value")
	dryRunFlag(cmd, &o.mode)
	refuseValueApart(cmd)
	cmds.app.namespaceFlag(cmd)
	return cmd
}

// metadataArguments reads "KIND NAME", "KIND/NAME" or, with -l or --all, "KIND", and then the changes. It finds the objects that -l and --all mean.
func (cmds changeCommands) metadataArguments(ctx context.Context, m metadata, args []string, o chosenMetadata) ([]api.Key, map[string]*string, error) {
	chosen := o.chosen()
	objects := 2
	if chosen || strings.Contains(args[0], "/") {
		objects = 1
	}
	switch {
	case o.all && o.selector != "":
		return nil, nil, usagef("--all and -l: use one of them")
	case chosen && o.mode.client():
		return nil, nil, usageError{&api.Error{Message: "--dry-run=client asks no mesh, and --all and -l do", Fix: "write --dry-run=server"}}
	case chosen && !strings.Contains(args[1], "=") && !strings.HasSuffix(args[1], "-"):
		return nil, nil, usagef("--all and -l choose objects by kind: leave out the name %q", args[1])
	case len(args) == objects:
		return nil, nil, usagef("missing argument: KEY=VALUE or KEY-")
	}
	if i := slices.IndexFunc(args[objects:], func(arg string) bool { return slices.Contains(dryRuns, arg) }); i >= 0 && o.mode != dryRunNone {
		return nil, nil, usageError{&api.Error{Message: fmt.Sprintf("unexpected argument %q", args[objects+i]), Fix: "write --dry-run=" + args[objects+i]}}
	}
	if !chosen {
		found, err := keys(args[:objects], cmds.app.namespace)
		if err != nil {
			return nil, nil, err
		}
		changes, err := m.changes(args[objects:])
		return found, changes, err
	}
	changes, err := m.changes(args[objects:])
	if err != nil {
		return nil, nil, err
	}
	requests, err := cmds.chosenRequests(args[:1], o.selector)
	if err != nil {
		return nil, nil, err
	}
	found, err := cmds.chosenKeys(ctx, requests)
	return found, changes, err
}

// changes reads KEY=VALUE and KEY-; a nil value removes a key.
func (m metadata) changes(args []string) (map[string]*string, error) {
	changes := map[string]*string{}
	for _, arg := range args {
		name, value, set := strings.Cut(arg, "=")
		if !set {
			var remove bool
			if name, remove = strings.CutSuffix(arg, "-"); !remove {
				return nil, usagef("%q is neither KEY=VALUE nor KEY-", arg)
			}
		}
		if problems := validation.IsQualifiedName(name); len(problems) > 0 {
			return nil, usagef("%s %q: %s", m.one, name, problems[0])
		}
		if problems := m.checkValue(value); len(problems) > 0 {
			return nil, usagef("value %q of %s %s: %s", value, m.one, name, problems[0])
		}
		if _, twice := changes[name]; twice {
			return nil, usagef("%s %s is given twice", m.one, name)
		}
		changes[name] = nil
		if set {
			changes[name] = &value
		}
	}
	return changes, nil
}

// changeMetadata carries the changes out. Without overwrite a key that has another value is an error, and no object is changed then.
// Objects that -l or --all found may have gone since.
func (cmds changeCommands) changeMetadata(ctx context.Context, m metadata, objects []api.Key, changes map[string]*string, o chosenMetadata) error {
	if !o.overwrite && !o.mode.client() {
		for _, key := range objects {
			if err := cmds.mayChange(ctx, m, key, changes); err != nil && !(isNotFound(err) && o.chosen()) {
				return err
			}
		}
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{m.field: changes}})
	if err != nil {
		return err
	}
	var effective []api.ObjectResult
	for _, key := range objects {
		result, err := cmds.patch(ctx, api.PatchRequest{Key: key, Patch: patch}, o.mode)
		if isNotFound(err) && o.chosen() {
			continue // it has gone since it was found
		}
		if err != nil {
			return err
		}
		verb := m.set
		if result.Action == api.Unchanged {
			verb = "unchanged"
		} else if !slices.ContainsFunc(values(changes), func(v *string) bool { return v != nil }) {
			verb = m.unset
		}
		if err := cmds.app.printf("%s %s%s\n", key, verb, o.mode.suffix()); err != nil {
			return err
		}
		for _, warning := range result.Warnings {
			cmds.app.warn("%s: %s", key, warning)
		}
		if key.Kind != "Namespace" || doubtful(changes) {
			effective = append(effective, result)
		}
	}
	if o.mode != dryRunNone {
		return nil
	}
	if len(effective) > 0 {
		(effects{cmds.app}).warnPartial(ctx, api.ApplyResult{Results: effective})
	}
	if _, enrolment := changes[wellknown.DataplaneMode]; enrolment {
		// New connections follow the label once every proxy knows of it.
		cmds.app.next("lateen wait"+cmds.app.meshFlag(), "lateen status"+cmds.app.meshFlag())
	}
	return nil
}

// mayChange fails if a key of the object's map has a value other than the one that it would get.
func (cmds changeCommands) mayChange(ctx context.Context, m metadata, key api.Key, changes map[string]*string) error {
	current, err := m.of(ctx, cmds.app.client(), key)
	if err != nil {
		return err
	}
	for name, value := range changes {
		if had, ok := current[name]; ok && value != nil && had != *value {
			return fmt.Errorf("%s %s of %s is already %q; add --overwrite to change it to %q", m.one, name, key, had, *value)
		}
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

// isNotFound says whether the engine answered that there is no such object or kind.
func isNotFound(err error) bool {
	var refusal *api.Error
	return errors.As(err, &refusal) && refusal.Code == http.StatusNotFound
}
