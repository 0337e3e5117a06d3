package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"reflect"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"lateen.dev/lateen/internal/engine/api"
)

func (cmds changeCommands) editCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "edit KIND NAME",
		Short: "change an object in an editor",
		Example: `  lateen edit authorizationpolicy deny-client
  KUBE_EDITOR="code --wait" lateen edit deploy/reviews-v1`,
		Long: "Opens the object as YAML in $KUBE_EDITOR, else $EDITOR, else vi, and takes the changes when the editor ends. If they are refused the\n" +
			"editor opens again with the reason on top. A file that was not changed, or is empty, changes nothing.",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 || len(args) == 1 && !strings.Contains(args[0], "/") {
				return usagef("missing argument: KIND NAME")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			found, err := keys(args, cmds.app.namespace)
			if err != nil {
				return err
			}
			if len(found) > 1 {
				return usagef("edit one object at a time")
			}
			return cmds.edit(cmd.Context(), found[0])
		},
		ValidArgsFunction: cmds.app.completeKindAndName,
	}
	cmds.app.namespaceFlag(cmd)
	return cmd
}

// editing is an object in an editor.
type editing struct {
	key      api.Key
	original map[string]any // without what authors do not write
	text     string         // the same as YAML
	file     string         // what the editor opens
	// The version of the object that original is.
	uid        string
	generation int64
}

// The outcomes of a round in the editor that end the editing without a change.
var (
	errUnchanged = errors.New("edit cancelled, no changes made")
	errEmptied   = errors.New("edit cancelled, the saved file is empty")
)

// rejected is why an edited object was not taken; the editor opens again.
type rejected struct {
	error
	conflict bool // another command changed the object meanwhile
}

func (cmds changeCommands) edit(ctx context.Context, key api.Key) error {
	client := cmds.app.client()
	e, err := startEditing(ctx, client, key)
	if err != nil {
		return err
	}
	defer func() { e.close() }()
	body, why := e.text, ""
	merged := false // the body is the user's changes on a newer version: it may be saved as it is
	for {
		given := heading(why) + body
		edited, err := cmds.inEditor(e.file, given)
		if err != nil {
			if e.saved(given) {
				return e.keep(err)
			}
			return err
		}
		if why != "" && edited == body && !merged {
			return e.keep(fmt.Errorf("edit cancelled, no valid changes were saved: %s", why))
		}
		body = edited
		result, err := e.submit(ctx, client, edited)
		var refused rejected
		switch {
		case errors.Is(err, errUnchanged), errors.Is(err, errEmptied):
			_, _ = fmt.Fprintln(cmds.app.Stderr, err)
			return nil
		case errors.As(err, &refused) && ctx.Err() == nil:
			why = refused.Error()
			if merged = refused.conflict; !merged {
				continue
			}
			if body, err = e.rebase(ctx, client, edited); err != nil {
				return e.keep(err)
			}
			continue
		case err != nil:
			return e.keep(err)
		}
		for _, warning := range result.Warnings {
			cmds.app.warn("%s: %s", key, warning)
		}
		if err := cmds.app.printf("%s edited\n", key); err != nil {
			return err
		}
		(effects{cmds.app}).warnPartial(ctx, api.ApplyResult{Results: []api.ObjectResult{result}})
		return nil
	}
}

// startEditing reads the object and makes the file for the editor.
func startEditing(ctx context.Context, client *api.Client, key api.Key) (*editing, error) {
	// An engine that takes no changes says so before an editor opens.
	if _, err := client.Patch(ctx, api.PatchRequest{Key: key, Patch: json.RawMessage(`{"metadata":{}}`), DryRun: true}); err != nil {
		return nil, err
	}
	e := &editing{key: key}
	if err := e.read(ctx, client); err != nil {
		return nil, err
	}
	file, err := os.CreateTemp("", "lateen-edit-*.yaml")
	if err != nil {
		return nil, fmt.Errorf("make a file for the editor: %w", err)
	}
	e.file = file.Name()
	return e, file.Close()
}

// read takes the object as the mesh has it now.
func (e *editing) read(ctx context.Context, client *api.Client) error {
	list, err := client.Get(ctx, api.GetRequest{Kind: e.key.Kind, Group: e.key.Group, Namespace: e.key.Namespace, Name: e.key.Name})
	if err != nil {
		return err
	}
	if len(list.Items) == 0 {
		return fmt.Errorf("%s not found", e.key)
	}
	var version struct {
		Metadata struct {
			UID        string `json:"uid"`
			Generation int64  `json:"generation"`
		} `json:"metadata"`
	}
	var object map[string]any
	if err := errors.Join(json.Unmarshal(list.Items[0].Raw, &version), json.Unmarshal(list.Items[0].Raw, &object)); err != nil {
		return fmt.Errorf("read %s: %w", e.key, err)
	}
	tidy(object)
	text, err := yaml.Marshal(object)
	if err != nil {
		return fmt.Errorf("write %s as YAML: %w", e.key, err)
	}
	e.original, e.text, e.uid, e.generation = object, string(text), version.Metadata.UID, version.Metadata.Generation
	return nil
}

// rebase reads the object again and returns it as YAML with the changes of the edited text, which was made of an earlier version.
func (e *editing) rebase(ctx context.Context, client *api.Client, edited string) (string, error) {
	var wanted map[string]any
	if err := yaml.UnmarshalStrict([]byte(edited), &wanted); err != nil {
		return "", fmt.Errorf("read the file: %w", err)
	}
	patch := mergePatch(e.original, wanted)
	if err := e.read(ctx, client); err != nil {
		return "", err
	}
	text, err := yaml.Marshal(patched(e.original, patch))
	if err != nil {
		return "", fmt.Errorf("write %s as YAML: %w", e.key, err)
	}
	return string(text), nil
}

// patched is an object with a JSON merge patch (RFC 7386). It leaves the object itself as it is.
func patched(object, patch map[string]any) map[string]any {
	result := maps.Clone(object)
	if result == nil {
		result = map[string]any{}
	}
	for key, value := range patch {
		inner, isObject := value.(map[string]any)
		switch {
		case value == nil:
			delete(result, key)
		case isObject:
			old, _ := result[key].(map[string]any)
			result[key] = patched(old, inner)
		default:
			result[key] = value
		}
	}
	return result
}

func (e *editing) close() {
	if e.file != "" {
		_ = os.Remove(e.file) // nothing is in it that is not in the mesh
	}
}

// saved reports whether the file holds changes: it is another text than the one that the editor opened, or the user's of an earlier round.
func (e *editing) saved(given string) bool {
	text, err := os.ReadFile(e.file)
	return err == nil && (string(text) != given || !strings.HasSuffix(given, e.text))
}

// keep leaves the file, so that work in it is not lost.
func (e *editing) keep(err error) error {
	err = kept{err, e.file}
	e.file = ""
	return err
}

// kept is an error of an editing whose changes are left in a file.
type kept struct {
	error
	file string
}

func (k kept) Error() string { return k.error.Error() + "; " + k.copy().Error() }

// Unwrap tells of the copy apart from the error, so that it is told of an interrupted editing too.
func (k kept) Unwrap() []error { return []error{k.error, k.copy()} }

func (k kept) copy() error { return errors.New("a copy of the changes is in " + k.file) }

// submit sends what is different in the edited text.
func (e *editing) submit(ctx context.Context, client *api.Client, text string) (api.ObjectResult, error) {
	var none api.ObjectResult
	if text == e.text {
		return none, errUnchanged
	}
	var edited map[string]any
	if err := yaml.UnmarshalStrict([]byte(text), &edited); err != nil {
		return none, rejected{error: fmt.Errorf("read the file: %w", err)}
	}
	if edited == nil {
		return none, errEmptied
	}
	patch := mergePatch(e.original, edited)
	if len(patch) == 0 {
		return none, errUnchanged
	}
	if renamed(e.original, edited) {
		return none, rejected{error: errors.New("apiVersion, kind, metadata.name and metadata.namespace cannot change; apply the new object and delete this one")}
	}
	raw, err := json.Marshal(patch)
	if err != nil {
		return none, rejected{error: err}
	}
	result, err := client.Patch(ctx, api.PatchRequest{Key: e.key, Patch: raw, UID: e.uid, Generation: e.generation})
	var refusal *api.Error
	if errors.As(err, &refusal) && refusal.Code < http.StatusInternalServerError && refusal.Code != http.StatusNotFound {
		return none, rejected{refusal, refusal.Code == http.StatusConflict}
	}
	return result, err
}

// renamed says whether the edited object is another one.
func renamed(original, edited map[string]any) bool {
	old, _ := original["metadata"].(map[string]any)
	now, _ := edited["metadata"].(map[string]any)
	return original["apiVersion"] != edited["apiVersion"] || original["kind"] != edited["kind"] || old["name"] != now["name"] || old["namespace"] != now["namespace"]
}

// mergePatch is the JSON merge patch (RFC 7386) that makes one object of another; empty if they are equal. Nulls in the second object
// are fields that it does not have.
func mergePatch(from, to map[string]any) map[string]any {
	patch := map[string]any{}
	for key, value := range from {
		if value != nil && to[key] == nil {
			patch[key] = nil
		}
	}
	for key, value := range to {
		if value == nil {
			continue
		}
		old, had := from[key]
		before, wasObject := old.(map[string]any)
		after, isObject := value.(map[string]any)
		switch {
		case wasObject && isObject:
			if inner := mergePatch(before, after); len(inner) > 0 {
				patch[key] = inner
			}
		case !had || !reflect.DeepEqual(old, value):
			patch[key] = value
		}
	}
	return patch
}

// heading stands on top of the file. It ends where the first line is that is no comment.
func heading(why string) string {
	lines := []string{"Edit the object below and save it. Lines on top that begin with # do not count.", "A file that is empty or was not changed changes nothing."}
	if why != "" {
		lines = append(lines, "", "The changes were not taken:")
		lines = append(lines, strings.Split(why, "\n")...)
	}
	var b strings.Builder
	for _, line := range lines {
		b.WriteString(strings.TrimRight("# "+line, " ") + "\n")
	}
	return b.String()
}

// inEditor has the user edit a file with the given text and returns what was saved, without the comment on top.
func (cmds changeCommands) inEditor(file, text string) (string, error) {
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return "", fmt.Errorf("write the file for the editor: %w", err)
	}
	editor := "vi"
	if cmds.app.Getenv != nil {
		editor = cmp.Or(cmds.app.Getenv("KUBE_EDITOR"), cmds.app.Getenv("EDITOR"), editor)
	}
	// By a shell, since the variable may hold options. The file is an argument, so that its name needs no quotes.
	command := exec.Command("sh", "-c", editor+` "$1"`, "sh", file)
	command.Stdin, command.Stdout, command.Stderr = cmds.app.Stdin, cmds.app.Stdout, cmds.app.Stderr
	if cmds.app.interrupts != nil {
		cmds.app.interrupts.editing.Store(true)
		defer cmds.app.interrupts.editing.Store(false)
	}
	if err := command.Run(); err != nil {
		return "", &api.Error{Message: fmt.Sprintf("the editor %q failed: %v", editor, err), Fix: "name one that works in KUBE_EDITOR or EDITOR"}
	}
	saved, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("read what the editor saved: %w", err)
	}
	for bytes.HasPrefix(saved, []byte("#")) {
		_, saved, _ = bytes.Cut(saved, []byte("\n"))
	}
	return string(saved), nil
}
