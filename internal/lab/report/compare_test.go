package report

import (
	"bytes"
	"strings"
	"testing"

	"lateen.dev/lateen/internal/lab/results"
)

func compared(t *testing.T, a, b *results.Results) string {
	t.Helper()
	var out bytes.Buffer
	if err := Compare(&out, a, b); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestCompare(t *testing.T) {
	a, b := sample(t), sample(t)
	b.Name, b.Machine.Lateen = "later", "0.4.0"
	cell := &b.Scenarios[0].Cells[0]
	for i := range cell.Blocks {
		if cell.Blocks[i].Plane == "lateen" {
			cell.Blocks[i].Metrics[results.ResponseP50] *= 0.8
		}
	}
	judge(cell, []string{results.ResponseP50})
	b.Scenarios[0].Cells = b.Scenarios[0].Cells[:2]
	text := compared(t, a, b)
	golden(t, "compare.md", []byte(text))
	if strings.Contains(text, "Warning") {
		t.Error("a warning about runs of one machine and one load")
	}
	if strings.Count(text, "yes, for the better") != 2 || strings.Contains(text, "for the worse") {
		t.Error("of the ratios two have moved: lateen to no mesh and to ztunnel")
	}
	if back := compared(t, b, a); strings.Count(back, "yes, for the worse") != 2 || strings.Contains(back, "for the better") {
		t.Error("the other way round they have moved for the worse")
	}
	for _, want := range []string{"twopods-conn, 16 connections is in A only", "version of lateen: 0.3.0 in A, 0.4.0 in B"} {
		if !strings.Contains(text, want) {
			t.Errorf("missing: %s", want)
		}
	}
}

func TestCompareWarnsOfOtherMachinesAndLoads(t *testing.T) {
	for want, change := range map[string]func(*results.Results){
		"kernel: 6.18.44 in A, 6.1 in B":                          func(r *results.Results) { r.Machine.Kernel = "6.1" },
		"cores: 2 in A, 64 in B":                                  func(r *results.Results) { r.Machine.Cores = 64 },
		"ms added to round trips between nodes: 0 in A, 2.5 in B": func(r *results.Results) { r.AddedLatencyMS = 2.5 },
		"gate on steal: 0.01 in A, 0.5 in B":                      func(r *results.Results) { r.Gates.Steal = 0.5 },
		"2 connections: requests/s: 1000 in A, 10 in B":           func(r *results.Results) { r.Scenarios[0].Cells[0].Load.QPS = 10 },
		"2 connections: keep-alive: true in A, false in B":        func(r *results.Results) { r.Scenarios[0].Cells[0].Load.Keepalive = false },
	} {
		b := sample(t)
		change(b)
		text := compared(t, sample(t), b)
		if !strings.Contains(text, "**Warning") || !strings.Contains(text, "- "+want+"\n") {
			t.Errorf("no warning %q", want)
		}
	}
	b := sample(t)
	b.Planes[2].Settings = map[string]string{"workers": "2"}
	if text := compared(t, sample(t), b); !strings.Contains(text, "setting workers of lateen: 1 in A, 2 in B") {
		t.Error("another setting of a plane is not named")
	}
	b.Machine.Kernel = "6.1"
	if text := compared(t, sample(t), b); strings.Contains(text, "B to A") {
		t.Error("times of two machines were set in relation")
	}
}
