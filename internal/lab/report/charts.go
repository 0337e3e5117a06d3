package report

import (
	"html/template"
	"strings"

	"lateen.dev/lateen/internal/lab/results"
)

// chart is a drawing with a sentence that says what it shows; its numbers stand in tables beside it.
type chart struct {
	title, description string
	svg                template.HTML
}

// judgementClass is how the page marks a verdict.
func judgementClass(text string) string {
	for prefix, class := range map[string]string{results.Faster: "faster", results.Slower: "slower", results.Indistinguishable: "alike", results.Invalid: "invalid"} {
		if strings.HasPrefix(text, prefix) {
			return class
		}
	}
	return ""
}
