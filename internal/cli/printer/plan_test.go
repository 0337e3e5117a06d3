package printer

import (
	"bytes"
	"strings"
	"testing"

	"lateen.dev/lateen/internal/install"
)

// The table names an object that stays against the wish of the user, and no other that stays.
func TestAPlanSaysWhyAnObjectStays(t *testing.T) {
	var out bytes.Buffer
	err := Plan(&out, install.Plan{Steps: []install.Step{
		{Action: install.Unchanged, Kind: "Deployment", Name: "scaled", Why: "horizontalpodautoscaler/scaler decides"}, {Action: install.Unchanged, Kind: "Deployment", Name: "quiet"}}})
	if text := out.String(); err != nil || !strings.Contains(text, "horizontalpodautoscaler/scaler decides") || strings.Contains(text, "quiet") {
		t.Errorf("%v: %s", err, text)
	}
}
