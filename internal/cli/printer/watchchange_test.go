package printer

import (
	"io"
	"testing"

	"lateen.dev/lateen/internal/engine/api"
)

func TestAChangeOfWhatTheAnalysisSaysIsWorthALineForPrograms(t *testing.T) {
	plain := api.Object{Key: api.Key{Kind: "Service", Namespace: "default", Name: "x"}, Raw: []byte(`{"metadata":{"name":"x"}}`)}
	found, ignored := plain, plain
	found.Findings = []api.Finding{{Code: "no-endpoints", Message: "no pod is behind it"}}
	ignored.Ignored = "nothing reads it"
	for _, format := range []Format{JSON, YAML} {
		w := NewWatch(io.Discard, Options{Format: format}, false, func() int { return 0 })
		before, err := w.Signature(plain)
		if err != nil {
			t.Fatal(err)
		}
		for name, object := range map[string]api.Object{"a finding": found, "nothing acts on it": ignored} {
			if after, err := w.Signature(object); err != nil || after == before {
				t.Errorf("%s: %s: %v, no change", format, name, err)
			}
		}
	}
}
