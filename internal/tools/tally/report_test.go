package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestReportKeepsTheResult(t *testing.T) {
	steps, err := tierOf(t, `good | script | echo "--- FOUND: an input"; echo "3 passed, 0 failed, 0 skipped"
bad | script | echo "not ok - a wish"; echo "1 passed, 1 failed"; exit 1
`)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	tier := &tier{w: &out}
	passed := tier.run(steps)
	file := filepath.Join(t.TempDir(), "page.md")
	r := newReport("tests/tiers/test-long", time.Date(2026, 11, 22, 10, 0, 0, 0, time.UTC))
	r.commit = "0123456789ab"
	if err := r.write(file, tier, passed, 90*time.Second); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	const want = "# Last run of `make test-long`\n\nThe run of 2026-11-22 at commit `0123456789ab` failed: 4 checks passed, 1 failed, 0 were skipped, in 1m30s.\n" +
		"`make test-long` writes this page.\n\n| step | passed | failed | skipped | seconds |\n|---|---|---|---|---|\n" +
		"| good | 3 | 0 | 0 | 0 |\n| bad | 1 | 1 | 0 | 0 |\n\n- Failed: bad: a wish\n- Found, and not deciding: good: an input\n"
	if string(text) != want {
		t.Errorf("got\n%s\nwant\n%s", text, want)
	}
}
