package main

import "testing"

func TestThePageOfFindingsIsWhatIsFound(t *testing.T) {
	if text(t, "docs/reference/analysis.md") != analysisPage() {
		t.Error("docs/reference/analysis.md differs from the codes of internal/analyse: run make reference")
	}
}
