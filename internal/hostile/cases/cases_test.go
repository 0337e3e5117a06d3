package cases

import (
	"bytes"
	"slices"
	"strings"
	"testing"
)

func TestASeedMakesTheSameCases(t *testing.T) {
	one, other := Generate(7, 400), Generate(7, 400)
	differs := false
	for i, c := range Generate(8, 400) {
		if !bytes.Equal(one[i].Bytes, other[i].Bytes) {
			t.Fatalf("case %d differs", i)
		}
		differs = differs || !bytes.Equal(one[i].Bytes, c.Bytes)
	}
	if !differs {
		t.Error("another seed makes the same cases")
	}
}

func TestAllRulesAreUsedAlone(t *testing.T) {
	used := map[string]int{}
	for _, c := range Generate(1, 3000) {
		if len(c.Rules) == 1 {
			used[c.Rules[0]]++
		}
	}
	for _, name := range Rules() {
		if used[name] < 4 {
			t.Errorf("%s: used %d times", name, used[name])
		}
	}
}

func TestNamesOfRulesAreUniqueAndFitATable(t *testing.T) {
	var seen []string
	for _, name := range Rules() {
		if slices.Contains(seen, name) || strings.ContainsAny(name, "|\n") || strings.TrimSpace(name) != name {
			t.Errorf("%q", name)
		}
		seen = append(seen, name)
	}
}

func TestFieldsOfAHopAreNotCompared(t *testing.T) {
	got := compared([]string{"X-One", "Host", "Content-Length", ":path", "x-one", "Cookie", ""})
	if !slices.Equal(got, []string{"cookie", "x-one"}) {
		t.Error(got)
	}
}
