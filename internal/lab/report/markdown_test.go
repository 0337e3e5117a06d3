package report

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lateen.dev/lateen/internal/lab/results"
)

var update = flag.Bool("update", false, "write the golden files anew")

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs; look at the difference, then run the test with -update:\n%s", path, got)
	}
}

func TestMarkdown(t *testing.T) {
	var out bytes.Buffer
	if err := Markdown(&out, sample(t)); err != nil {
		t.Fatal(err)
	}
	golden(t, "report.md", out.Bytes())
	if strings.Contains(out.String(), "999") {
		t.Error("a time that was taken under strace is in the report")
	}
}

func TestExplain(t *testing.T) {
	var out bytes.Buffer
	if err := Explain(&out, sample(t)); err != nil {
		t.Fatal(err)
	}
	golden(t, "explain.md", out.Bytes())
	for _, want := range []string{
		"the plane none waits for delayed acknowledgements: the kernels counted 0.99 for each request",
		"with lateen the kernels counted 0 delayed acknowledgements for each request instead of 0.99",
		"with lateen the client reads 1.00 times for each answer instead of 2.00",
		"80 % of it in the kernel, and go to sleep and are woken 3.25 times; client",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("missing: %s", want)
		}
	}
}

func TestNothingIsExplainedThatWasNotCounted(t *testing.T) {
	r := sample(t)
	for i := range r.Scenarios {
		for j := range r.Scenarios[i].Cells {
			for k := range r.Scenarios[i].Cells[j].Blocks {
				b := &r.Scenarios[i].Cells[j].Blocks[k]
				b.Histogram = ""
				b.Metrics = map[string]float64{results.ResponseP50: b.Metrics[results.ResponseP50]}
			}
		}
	}
	var out bytes.Buffer
	if err := Explain(&out, r); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(out.String(), "Nothing was counted that would explain"); n != 2 || strings.Contains(out.String(), "\n- ") {
		t.Errorf("got:\n%s", out.String())
	}
}
