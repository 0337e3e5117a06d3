package report

import (
	"bytes"
	"os"
	"strings"
	"testing"
)

// REPORT_PAGE names a file that the page is also written to, to look at it.
func TestThePageNeedsNothingBesideIt(t *testing.T) {
	var out bytes.Buffer
	if err := HTML(&out, sample(t)); err != nil {
		t.Fatal(err)
	}
	if path := os.Getenv("REPORT_PAGE"); path != "" {
		if err := os.WriteFile(path, out.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text := out.String()
	for _, no := range []string{"<script", "<link", "src=", "@import", "url(", "<iframe", "NaN", "Inf", "%!"} {
		if strings.Contains(text, no) {
			t.Errorf("the page contains %q", no)
		}
	}
	for _, want := range []string{"prefers-color-scheme: dark", "width=device-width", `lang="en"`, "Published by others", "needs a cluster and a kernel with WireGuard", `class="slower"`, `class="faster"`} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	drawings := strings.Count(text, "<svg ")
	if drawings < 8 || drawings != strings.Count(text, `role="img" aria-label="`) {
		t.Errorf("%d drawings, %d text alternatives", drawings, strings.Count(text, `role="img" aria-label="`))
	}
	for _, title := range []string{"Ratio to none: P50", "Response time P50, ms, by connections", "CPU time per request by role", "Response time by percentile"} {
		if !strings.Contains(text, title) {
			t.Errorf("no drawing is called %q", title)
		}
	}
}
