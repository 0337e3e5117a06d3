package report

import (
	"bytes"
	"strings"
	"testing"

	"lateen.dev/lateen/internal/lab/results"
)

func TestTheCostOfAWaypointIsToldApartAndDivided(t *testing.T) {
	r := sample(t)
	var report bytes.Buffer
	if err := Markdown(&report, r); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(report.String(), "the waypoint alone") {
		t.Error("a run without a waypoint has columns of one")
	}
	r.Machine.ExactSplit = true
	for i := range r.Scenarios[0].Cells {
		for j := range r.Scenarios[0].Cells[i].Blocks {
			b := &r.Scenarios[0].Cells[i].Blocks[j]
			if b.Plane != "lateen" {
				continue
			}
			b.Metrics[cpuTotal(results.RoleWaypoint)], b.Metrics[results.PSS(results.RoleWaypoint)] = 40, 7
			b.Metrics[results.CPUPerRequest(results.RoleWaypoint, "user")], b.Metrics[results.CPUPerRequest(results.RoleWaypoint, "system")] = 10, 30
		}
	}
	report.Reset()
	if err := Markdown(&report, r); err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(report.String(), "Cost by role")
	table, _, _ = strings.Cut(table, "\n\n\n")
	for _, title := range []string{"CPU the waypoint alone, µs/request", "the waypoint alone in user space, µs/request", "the waypoint alone in the kernel, µs/request", "memory the waypoint alone, MiB (PSS)"} {
		if !strings.Contains(table, title) {
			t.Errorf("there is no column %q", title)
		}
	}
	for _, cell := range []string{" 10.0 (", " 30.0 ("} {
		if !strings.Contains(table, cell) {
			t.Errorf("no cell has %q", cell)
		}
	}
}
