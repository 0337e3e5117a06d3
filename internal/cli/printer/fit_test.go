package printer

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestFit(t *testing.T) {
	const whole = "NODE   SOURCE                               RATE   PEER\nn1     default/client-fwxdwmcsb9-qgwkn   1.0 KiB   default/echo\n"
	for _, width := range []int{200, 60, 50, 40} {
		g := NewGrid("NODE", "SOURCE", "RATE", "PEER").Right(2)
		g.Row("n1", "default/client-fwxdwmcsb9-qgwkn", "1.0 KiB", "default/echo")
		g.Fit(width, []int{1}, []int{3})
		var b strings.Builder
		if err := g.Print(&b, ""); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(b.String()) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > width {
				t.Errorf("at %d: %d wide: %s", width, n, line)
			}
		}
		if !strings.Contains(b.String(), "1.0 KiB") || width == 200 && b.String() != whole {
			t.Errorf("at %d:\n%s", width, b.String())
		}
		if hasPeer := strings.Contains(b.String(), "PEER"); hasPeer != (width >= 50) {
			t.Errorf("at %d: PEER is there: %v", width, hasPeer)
		}
		if width < 200 && !strings.Contains(b.String(), "gwkn") {
			t.Errorf("at %d the name lost its end:\n%s", width, b.String())
		}
	}
}
