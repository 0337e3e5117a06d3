package main

import "testing"

// The page is made of the rules that the dry run of a take-over goes by.
func TestTheTakeOverPageIsWhatIsCompared(t *testing.T) {
	if text(t, "docs/reference/takeover.md") != takeOverPage() {
		t.Error("docs/reference/takeover.md differs from the rules of internal/meaning: run make reference")
	}
}
