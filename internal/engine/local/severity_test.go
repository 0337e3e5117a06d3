package local

import (
	"encoding/json"
	"testing"

	"lateen.dev/lateen/internal/engine/api"
	"lateen.dev/lateen/internal/source/files"
)

// TestSeverityIsTheSameWordOnBothSides holds the control plane's spelling of a severity against the reader's.
func TestSeverityIsTheSameWordOnBothSides(t *testing.T) {
	for severity, refused := range map[files.Severity]bool{files.Refused: true, files.Warning: false} {
		written := files.Problem{Severity: severity, Message: "m"}
		page, err := json.Marshal(written)
		if err != nil {
			t.Fatal(err)
		}
		var read api.Problem
		if err := json.Unmarshal(page, &read); err != nil {
			t.Fatal(err)
		}
		if read.Refused() != refused || problemOf(written).Refused() != refused {
			t.Errorf("%s is read as refused: %t, from a document: %t", severity, read.Refused(), problemOf(written).Refused())
		}
	}
}
