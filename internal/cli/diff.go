package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/pmezard/go-difflib/difflib"
	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"lateen.dev/lateen/internal/engine/api"
)

// The exit codes of diff, as those of kubectl and of the program diff.
const (
	exitDiffers   = 1
	exitNoCompare = 2
)

// contextLines is how many equal lines stand around a difference.
const contextLines = 3

func (cmds readCommands) diffCommand() *cobra.Command {
	var names []string
	cmd := &cobra.Command{
		Use:   "diff -f FILE",
		Short: "show what apply would change",
		Example: `  lateen diff -f samples/bookinfo/policy

  # In a script: 0 is no difference, 1 is some, anything above is a failure.
  lateen diff -f policy.yaml > /dev/null; echo $?`,
		Long: "Compares each object as the mesh has it with what apply would make of it, as YAML. Fields that the mesh itself sets are left out, and\n" +
			"so are the values of Secrets. The exit code is 0 without a difference, 1 with some, and above 1 if the files could not be compared.",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if len(names) == 0 {
				return usagef("missing flag: -f FILE")
			}
			differs, err := cmds.diff(cmd.Context(), names)
			var usage usageError
			switch {
			case err != nil && (errors.As(err, &usage) || errors.Is(err, context.Canceled)):
				return err
			case err != nil:
				return cmds.notCompared(err)
			case differs:
				return exitStatus(exitDiffers)
			}
			return nil
		},
	}
	fileFlag(cmd, &names)
	cmds.app.namespaceFlag(cmd)
	return cmd
}

// notCompared reports a failure. Its exit code must not be that of a difference.
func (cmds readCommands) notCompared(err error) error {
	var status exitStatus
	if !errors.As(err, &status) {
		what, fix := explain(err)
		cmds.app.tellError(what, fix)
	}
	return exitStatus(exitNoCompare)
}

// diff prints the differences and says whether there are any. Objects that are refused cost none of the others.
func (cmds readCommands) diff(ctx context.Context, names []string) (differs bool, err error) {
	documents, err := (changeCommands{cmds.app}).documents(names)
	if err != nil {
		return false, err
	}
	result, err := cmds.app.client().Apply(ctx, api.ApplyRequest{Documents: documents, Namespace: cmds.app.namespace, DryRun: true, Diff: true})
	if err != nil {
		return false, err
	}
	if len(result.Results) == 0 && len(result.Problems) == 0 {
		return false, noObjects(names)
	}
	for _, r := range result.Results {
		text, err := difference(r)
		if err != nil {
			return differs, err
		}
		if text == "" {
			continue
		}
		differs = true
		if err := cmds.printDifference(text); err != nil {
			return differs, err
		}
	}
	return differs, (changeCommands{cmds.app}).report(api.ApplyResult{Problems: result.Problems}, "")
}

// difference is a unified diff between an object as it is and as it would be; empty if there is none.
func difference(r api.ObjectResult) (string, error) {
	before, after, err := comparable(r)
	if err != nil || before == after {
		return "", err
	}
	return difflib.GetUnifiedDiffString(difflib.UnifiedDiff{
		A: splitLines(before), B: splitLines(after), Context: contextLines,
		FromFile: "live/" + r.Key.String(), ToFile: "merged/" + r.Key.String(),
	})
}

// splitLines cuts a text, which is empty or ends with a line end, and keeps the line ends.
func splitLines(text string) []string {
	lines := strings.SplitAfter(text, "\n")
	return lines[:len(lines)-1]
}

// comparable are both versions as YAML without what the mesh sets itself. Nothing stands for an object that is not there.
func comparable(r api.ObjectResult) (before, after string, err error) {
	var versions [2]map[string]any
	for i, raw := range []json.RawMessage{r.Before, r.After} {
		if len(raw) == 0 {
			continue
		}
		if err := json.Unmarshal(raw, &versions[i]); err != nil {
			return "", "", fmt.Errorf("read %s: %w", r.Key, err)
		}
		tidy(versions[i])
	}
	if r.Key.Kind == "Secret" {
		hideSecrets(versions[0], versions[1])
	}
	var texts [2]string
	for i, version := range versions {
		if version == nil {
			continue
		}
		text, err := yaml.Marshal(version)
		if err != nil {
			return "", "", fmt.Errorf("write %s: %w", r.Key, err)
		}
		texts[i] = string(text)
	}
	return texts[0], texts[1], nil
}

// ownFields are fields of metadata that the mesh sets itself.
var ownFields = []string{"uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "selfLink"}

// tidy drops what no author writes.
func tidy(object map[string]any) {
	delete(object, "status")
	if meta, ok := object["metadata"].(map[string]any); ok {
		for _, field := range ownFields {
			delete(meta, field)
		}
	}
}

// hideSecrets replaces the values of a Secret, so that they are in no terminal or log. Those that differ still show as different.
// Annotations are hidden too: kubectl apply leaves the whole manifest in one, with the values.
func hideSecrets(before, after map[string]any) {
	oldMeta, _ := before["metadata"].(map[string]any)
	nowMeta, _ := after["metadata"].(map[string]any)
	for _, pair := range [][2]any{{before["data"], after["data"]}, {before["stringData"], after["stringData"]}, {oldMeta["annotations"], nowMeta["annotations"]}} {
		old, _ := pair[0].(map[string]any)
		now, _ := pair[1].(map[string]any)
		for key, value := range old {
			if other, both := now[key]; both && other == value {
				old[key], now[key] = "***", "***"
			} else if both {
				old[key], now[key] = "*** (before)", "*** (after)"
			} else {
				old[key] = "***"
			}
		}
		for key := range now {
			if _, both := old[key]; !both {
				now[key] = "***"
			}
		}
	}
}

// printDifference writes a diff, in a terminal with colours.
func (cmds readCommands) printDifference(text string) error {
	if !cmds.app.Out.Colour {
		_, err := io.WriteString(cmds.app.Stdout, text)
		return err
	}
	for line := range strings.Lines(text) {
		bare := strings.TrimSuffix(line, "\n")
		switch {
		case strings.HasPrefix(line, "+++"), strings.HasPrefix(line, "---"):
			bare = cmds.app.Out.Bold(bare)
		case strings.HasPrefix(line, "@@"):
			bare = cmds.app.Out.Faint(bare)
		case strings.HasPrefix(line, "+"):
			bare = cmds.app.Out.Good(bare)
		case strings.HasPrefix(line, "-"):
			bare = cmds.app.Out.Bad(bare)
		}
		if err := cmds.app.printf("%s\n", bare); err != nil {
			return err
		}
	}
	return nil
}
