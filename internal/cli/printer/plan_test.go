package printer

import (
	"bytes"
	"strings"
	"testing"

	"lateen.dev/lateen/internal/install"
)

// What stays as it is against what was asked for is in the table; what just stays is not.
func TestAPlanSaysWhyAnObjectStays(t *testing.T) {
	var out bytes.Buffer
	err := Plan(&out, install.Plan{Steps: []install.Step{
		{Action: install.Unchanged, Kind: "Deployment", Name: "scaled", Why: "horizontalpodautoscaler/scaler decides"}, {Action: install.Unchanged, Kind: "Deployment", Name: "quiet"}}})
	if text := out.String(); err != nil || !strings.Contains(text, "horizontalpodautoscaler/scaler decides") || strings.Contains(text, "quiet") {
		t.Errorf("%v: %s", err, text)
	}
}
