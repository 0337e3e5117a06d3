package report

import (
	"bytes"
	"strings"
	"testing"

	"lateen.dev/lateen/internal/lab/results"
)

// On a kernel that counts by ticks, blocks of one load range from all user to all system: then nothing is told, and why is said once.
func TestASplitThatTicksDoNotTellIsWithheld(t *testing.T) {
	r := sample(t)
	for i := range r.Scenarios[0].Cells {
		for j := range r.Scenarios[0].Cells[i].Blocks {
			b := &r.Scenarios[0].Cells[i].Blocks[j]
			if own, ok := b.Metrics[cpuTotal(results.RoleProxies)]; ok && b.Plane == "lateen" {
				share := []float64{0.03, 0.9, 0.05, 0.1, 0.62, 0.03, 0.6, 0.07}[b.Round-1]
				b.Metrics[results.CPUPerRequest(results.RoleProxies, "user")] = own * share
				b.Metrics[results.CPUPerRequest(results.RoleProxies, "system")] = own * (1 - share)
			}
		}
	}
	var report, words bytes.Buffer
	if err := Markdown(&report, r); err != nil {
		t.Fatal(err)
	}
	if err := Explain(&words, r); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(report.String(), "do not tell the share to a tenth"); n != 1 {
		t.Errorf("the reason is said %d times", n)
	}
	for line := range strings.Lines(words.String()) {
		if strings.Contains(line, "proxies of lateen use") && strings.Contains(line, "in the kernel") {
			t.Errorf("told: %s", line)
		}
	}
	if !strings.Contains(words.String(), "80 % of it in the kernel") {
		t.Error("ztunnel's, which the blocks do tell, is withheld as well")
	}
	r.Machine.ExactSplit = true
	words.Reset()
	if err := Explain(&words, r); err != nil {
		t.Fatal(err)
	}
	if strings.Count(words.String(), "of it in the kernel (") != 4 {
		t.Errorf("where it is measured it is not told, with its interval:\n%s", words.String())
	}
}
