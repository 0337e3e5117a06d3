package archtest

import (
	"path"
	"strings"
	"testing"
)

// A page that its folder's README does not list is found by those alone who know its name.
func TestIndexesListEveryPage(t *testing.T) {
	for _, folder := range []string{"docs/design", "docs/experiments"} {
		index := read(t, folder+"/README.md")
		pages := committedFiles(t, folder+"/*.md")
		if len(pages) < 10 {
			t.Errorf("%s has %d pages: the rule looks for a folder that is gone", folder, len(pages))
		}
		for _, page := range pages {
			name := path.Base(page)
			if name != "README.md" && !strings.Contains(index, "]("+name+")") {
				t.Errorf("%s/README.md does not list %s: add a row with the question that the page answers", folder, name)
			}
		}
	}
}
