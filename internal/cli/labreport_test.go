package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lateen.dev/lateen/internal/lab/results"
)

func labDocument(t *testing.T, kernel string) string {
	t.Helper()
	r := &results.Results{
		Format: results.Format, Name: "little", Machine: results.Machine{Kernel: kernel}, Planes: []results.Plane{{Name: "none", Kind: results.KindNone}},
		Scenarios: []results.Outcome{{Scenario: "little", Cells: []results.Cell{{Name: "one", Blocks: []results.Block{{
			Plane: "none", Round: 1, Metrics: map[string]float64{results.ServiceP50: 42, results.DelayedACKsPerRequest(results.RoleGenerator): 1},
		}}}}}},
	}
	dir := t.TempDir()
	if err := r.Write(filepath.Join(dir, "results.json")); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestLabReport(t *testing.T) {
	dir := labDocument(t, "6.18")
	for form, want := range map[string]string{
		"":           "# Lab report: little",
		"--markdown": "# Lab report: little",
		"--html":     "<title>Lab report: little</title>",
		"--explain":  "the plane none waits for delayed acknowledgements",
	} {
		args := []string{"lab", "report", dir}
		if form != "" {
			args = append(args, form)
		}
		if r := newFake(t).run("", args...); r.code != 0 || !strings.Contains(r.stdout, want) {
			t.Errorf("%s: exit code %d, %s%s", form, r.code, r.stdout, r.stderr)
		}
	}
	page := filepath.Join(dir, "page.html")
	if r := newFake(t).run("", "lab", "report", filepath.Join(dir, "results.json"), "--html", "--output", page); r.code != 0 || r.stdout != "" {
		t.Errorf("exit code %d, %s%s", r.code, r.stdout, r.stderr)
	}
	if text, err := os.ReadFile(page); err != nil || !strings.Contains(string(text), "</html>") {
		t.Errorf("%v: %s", err, text)
	}
	if r := newFake(t).run("", "lab", "report", filepath.Join(dir, "no")); r.code == 0 || !strings.Contains(r.stderr, "no such file") {
		t.Errorf("without a document: exit code %d, %s", r.code, r.stderr)
	}
	if r := newFake(t).run("", "lab", "report", dir, "--html", "--explain"); r.code == 0 {
		t.Error("two forms at once")
	}
}

func TestLabCompare(t *testing.T) {
	a, b := labDocument(t, "6.18"), labDocument(t, "6.1")
	if r := newFake(t).run("", "lab", "compare", a, b); r.code != 0 || !strings.Contains(r.stdout, "- kernel: 6.18 in A, 6.1 in B") {
		t.Errorf("exit code %d, %s%s", r.code, r.stdout, r.stderr)
	}
	if r := newFake(t).run("", "lab", "compare", a); r.code == 0 || !strings.Contains(r.stderr, "missing argument") {
		t.Errorf("one run: exit code %d, %s", r.code, r.stderr)
	}
}

func TestWhatPlanesFailAtIsInTheExitStatus(t *testing.T) {
	for _, tt := range []struct {
		outcome results.Outcome
		want    int
	}{
		{results.Outcome{Notes: []string{"a note"}}, ExitOK},
		{results.Outcome{Failed: "three blocks without an answer"}, ExitFindings},
		{results.Outcome{Failures: []string{"a, lateen: 5 % of the requests failed"}}, ExitFindings},
	} {
		err := labStatus(&results.Results{Scenarios: []results.Outcome{{}, tt.outcome}})
		if got := exitCode(err); got != tt.want {
			t.Errorf("%+v: exit code %d, want %d", tt.outcome, got, tt.want)
		}
	}
}
