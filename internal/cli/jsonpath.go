package cli

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/util/jsonpath"

	"lateen.dev/lateen/internal/cli/printer"
	"lateen.dev/lateen/internal/engine/api"
)

// jsonPathFormat is the beginning of -o jsonpath=TEMPLATE.
const jsonPathFormat = "jsonpath="

// objectFormatFlag adds -o with the formats of a table and, as kubectl has it, jsonpath=TEMPLATE.
func (a *app) objectFormatFlag(cmd *cobra.Command, formats ...printer.Format) {
	names := make([]string, 0, len(formats)+1)
	for _, f := range formats {
		names = append(names, string(f))
	}
	cmd.Flags().StringVarP(&a.output, "output", "o", names[0], "output format: "+strings.Join(names, ", ")+", jsonpath=TEMPLATE")
	names = append(names, jsonPathFormat)
	register(cmd, "output", func(_ *cobra.Command, _ []string, word string) ([]string, cobra.ShellCompDirective) {
		directive := cobra.ShellCompDirectiveNoFileComp
		if len(word) > 1 && strings.HasPrefix(jsonPathFormat, word) {
			directive |= cobra.ShellCompDirectiveNoSpace // the template follows
		}
		return names, directive
	})
}

// objectFormat reads the value of that flag. The template is nil unless it is one; the format is then JSON.
func (a *app) objectFormat(formats ...printer.Format) (printer.Format, *jsonpath.JSONPath, error) {
	text, isPath := strings.CutPrefix(a.output, jsonPathFormat)
	if !isPath {
		if a.output == "jsonpath" {
			return "", nil, usagef("-o jsonpath needs a template, as in -o jsonpath='{.metadata.name}'")
		}
		format, err := a.format(formats...)
		if err != nil {
			err = fmt.Errorf("%w, jsonpath=TEMPLATE", err)
		}
		return format, nil, err
	}
	if !strings.Contains(text, "{") {
		return "", nil, usagef("the jsonpath template %q has no expression in braces, such as {.metadata.name} or {.items[*].metadata.name}", text)
	}
	template := jsonpath.New("output").AllowMissingKeys(true)
	if err := template.Parse(text); err != nil {
		return "", nil, usagef("the jsonpath template %q: %w", text, err)
	}
	return printer.JSON, template, nil
}

// printPath writes what a template finds in objects: in the object itself if one was asked for by name, else in the list.
func (a *app) printPath(template *jsonpath.JSONPath, objects []api.Object, o printer.Options) error {
	var text bytes.Buffer
	o.Format = printer.JSON
	if err := printer.Objects(&text, objects, o); err != nil {
		return err
	}
	var value any
	if err := json.Unmarshal(text.Bytes(), &value); err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	if err := template.Execute(a.Stdout, value); err != nil {
		return &api.Error{Message: "evaluate the jsonpath template: " + err.Error(), Fix: "see the fields with -o json"}
	}
	return nil
}
