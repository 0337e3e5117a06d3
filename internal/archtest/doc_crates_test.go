package archtest

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// ARCHITECTURE.md says what each crate owns. A crate that was added or renamed needs its row.
func TestTheTableOfCratesNamesEveryCrateOnce(t *testing.T) {
	crates := map[string]int{}
	for _, name := range committedFiles(t, "crates/*/Cargo.toml") {
		crates[strings.Split(name, "/")[1]] = 0
	}
	if len(crates) < 20 {
		t.Fatalf("found %d crates", len(crates))
	}
	named := namedCrates(read(t, "ARCHITECTURE.md"))
	if len(named) == 0 {
		t.Fatal("ARCHITECTURE.md has no table of crates under the heading Rust")
	}
	for _, name := range named {
		if _, known := crates[name]; !known {
			t.Errorf("ARCHITECTURE.md names the crate %s, which is not in crates/: correct the row", name)
			continue
		}
		crates[name]++
	}
	for _, name := range slices.Sorted(maps.Keys(crates)) {
		if crates[name] != 1 {
			t.Errorf("ARCHITECTURE.md names the crate %s in %d rows: name it in one", name, crates[name])
		}
	}
}

var codeWord = regexp.MustCompile("`([a-z0-9-]+)`")

// namedCrates lists the names in the first column of the table under the heading Rust.
func namedCrates(page string) []string {
	_, rest, _ := strings.Cut(page, "\n### Rust\n")
	table, _, _ := strings.Cut(rest, "\n###")
	var names []string
	for line := range strings.Lines(table) {
		if cells := strings.Split(line, "|"); len(cells) > 2 {
			for _, m := range codeWord.FindAllStringSubmatch(cells[1], -1) {
				names = append(names, m[1])
			}
		}
	}
	return names
}
