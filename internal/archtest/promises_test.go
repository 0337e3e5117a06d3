package archtest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// promiseID is the name of a promise or limit in SECURITY.md: P for a promise, A for a row of the threat model, L for a limit.
var promiseID = regexp.MustCompile(`\*\*([PAL][0-9]+)\*\*`)

// heldBy reads a row of docs/reference/security-tests.md: the promise, a file with a test, and words that stand in that file.
var heldBy = regexp.MustCompile("^\\| ([PAL][0-9]+) \\| `([^`]+)` \\| `([^`]+)` \\|$")

// Every statement of SECURITY.md is held by a test, and every test that the page names is there.
func TestEverySecurityPromiseHasATest(t *testing.T) {
	root := filepath.Join("..", "..")
	read := func(path string) string {
		data, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	promised := map[string]bool{}
	for line := range strings.Lines(read("SECURITY.md")) {
		ids := promiseID.FindAllStringSubmatch(line, -1)
		for _, m := range ids {
			if promised[m[1]] {
				t.Errorf("SECURITY.md: %s stands twice; give one of them another number", m[1])
			}
			promised[m[1]] = true
		}
		if statement := regexp.MustCompile(`^([0-9]+\.|-) `).MatchString(line); statement && len(ids) == 0 {
			t.Errorf("SECURITY.md: a statement without a name; begin it with **P1**, **A1** or **L1**: %s", line)
		}
	}
	if len(promised) < 10 {
		t.Fatalf("SECURITY.md: %d statements were found", len(promised))
	}
	held := map[string]bool{}
	for line := range strings.Lines(read("docs/reference/security-tests.md")) {
		m := heldBy.FindStringSubmatch(strings.TrimRight(line, "\n"))
		if m == nil {
			if strings.HasPrefix(line, "| P") || strings.HasPrefix(line, "| A") || strings.HasPrefix(line, "| L") {
				t.Errorf("security-tests.md: write the row as | P1 | `file` | `words of the test` |: %s", line)
			}
			continue
		}
		id, file, words := m[1], m[2], m[3]
		held[id] = true
		if !promised[id] {
			t.Errorf("security-tests.md: SECURITY.md has no %s", id)
		}
		if !strings.Contains(filepath.Base(file), "test") && !strings.HasPrefix(file, "tests/") && !strings.Contains(read(file), "#[test]") && !strings.Contains(read(file), "#[tokio::test") {
			t.Errorf("security-tests.md: %s: %s is no file of tests", id, file)
		}
		if !strings.Contains(read(file), words) {
			t.Errorf("security-tests.md: %s: %s has no %q", id, file, words)
		}
	}
	for id := range promised {
		if !held[id] {
			t.Errorf("SECURITY.md: no row of docs/reference/security-tests.md names a test of %s", id)
		}
	}
}
