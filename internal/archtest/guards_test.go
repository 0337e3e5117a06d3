package archtest

import (
	"cmp"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const (
	guardRows = "tests/guards/guards.txt"
	guardPage = "docs/reference/attack-classes.md"
)

// guardOnPage reads a row of the page: its name, the attack, the file and the function of the test, and those of the guard.
var guardOnPage = regexp.MustCompile("^\\| `([a-z0-9-]+)` \\| (.+) \\| `([^` ]+)` `([^` ]+)` \\| `([^` ]+)` `([^` ]+)` \\|$")

// published is the number of an advisory.
var published = regexp.MustCompile(`CVE-[0-9]{4}-[0-9]{4,}|GHSA-[0-9a-z-]{14}`)

// guardRow is a row of guards.txt, by key.
type guardRow struct {
	name string
	text map[string]string
}

// readGuards reads rows as tests/guards/run.sh does: a name in brackets, and lines of a key, a space and a text.
func readGuards(t *testing.T, text string) []guardRow {
	t.Helper()
	var rows []guardRow
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		name, isName := strings.CutPrefix(line, "[")
		switch {
		case line == "" || line[0] == '#':
		case isName:
			rows = append(rows, guardRow{strings.TrimSuffix(name, "]"), map[string]string{}})
		case len(rows) == 0:
			t.Fatalf("%s: a line before the first row: %s", guardRows, line)
		default:
			key, value, _ := strings.Cut(line, " ")
			row := rows[len(rows)-1]
			if _, twice := row.text[key]; twice || !slices.Contains([]string{"crate", "target", "test", "says", "file", "old", "new"}, key) {
				t.Errorf("%s: %s: the key %q is unknown or comes twice", guardRows, row.name, key)
			}
			row.text[key] = value
		}
	}
	return rows
}

// declares says whether a source file of Rust declares a function, and where.
func declares(source, function string) (int, bool) {
	at := regexp.MustCompile(`\bfn ` + regexp.QuoteMeta(function) + `[(<]`).FindStringIndex(source)
	if at == nil {
		return 0, false
	}
	return at[0], true
}

// Each row of the page about attacks has an edit that removes its guard, and each edit has a row of the page. The test and the guard that
// a row names are there. tests/guards/run.sh shows that the test fails without the guard, which takes longer.
func TestEveryAttackClassHasATestAndAnEditOfItsGuard(t *testing.T) {
	page := map[string][]string{}
	for line := range strings.Lines(read(t, guardPage)) {
		line = strings.TrimSuffix(line, "\n")
		m := guardOnPage.FindStringSubmatch(line)
		if m == nil {
			if strings.HasPrefix(line, "| `") {
				t.Errorf("%s: write the row as | `row` | attack | `file` `test` | `file` `guard` |: %s", guardPage, line)
			}
			continue
		}
		if page[m[1]] != nil {
			t.Errorf("%s: %s stands twice", guardPage, m[1])
		}
		page[m[1]] = m[2:]
		if !published.MatchString(m[2]) {
			t.Errorf("%s: %s: the attack has no number of an advisory", guardPage, m[1])
		}
	}
	rows := readGuards(t, read(t, guardRows))
	if len(rows) < 30 {
		t.Fatalf("%s: %d rows were found", guardRows, len(rows))
	}
	edited := map[string]bool{}
	for _, row := range rows {
		if edited[row.name] {
			t.Errorf("%s: %s stands twice", guardRows, row.name)
		}
		edited[row.name] = true
		for _, key := range []string{"crate", "target", "test", "file", "old"} {
			if row.text[key] == "" {
				t.Errorf("%s: %s has no %s", guardRows, row.name, key)
			}
		}
		cells := page[row.name]
		if cells == nil {
			t.Errorf("%s has no row %s", guardPage, row.name)
			continue
		}
		testFile, test, guardFile, guard := cells[1], cells[2], cells[3], cells[4]
		if file := row.text["file"]; guardFile != file {
			t.Errorf("%s: the guard is in %s on the page, and the edit is one of %s", row.name, guardFile, file)
			continue
		}
		if named := row.text["test"]; test != named[strings.LastIndex(named, ":")+1:] {
			t.Errorf("%s: the test is %s on the page, and %s in %s", row.name, test, named, guardRows)
		}
		if crate := "crates/" + strings.TrimPrefix(row.text["crate"], "lateen-") + "/"; !strings.HasPrefix(testFile, crate) {
			t.Errorf("%s: the test is in %s, and %s runs those of %s", row.name, testFile, guardRows, crate)
		}
		if target, is := strings.CutPrefix(row.text["target"], "--test "); is {
			file := strings.TrimSuffix(testFile, ".rs")
			if path.Base(file) != target && path.Base(path.Dir(file)) != target {
				t.Errorf("%s: %s is no file of the tests %s", row.name, testFile, target)
			}
		}
		if _, is := declares(read(t, testFile), test); !is {
			t.Errorf("%s: %s declares no test %s", row.name, testFile, test)
		}
		source := read(t, guardFile)
		declared, is := declares(source, guard)
		switch {
		case !is:
			t.Errorf("%s: %s declares no function %s", row.name, guardFile, guard)
		case strings.Count(source, row.text["old"]) != 1:
			t.Errorf("%s: %s has this text %d times, want once: %s", row.name, guardFile, strings.Count(source, row.text["old"]), row.text["old"])
		case strings.Index(source, row.text["old"]) < declared:
			t.Errorf("%s: the edit is before %s of %s", row.name, guard, guardFile)
		case row.text["old"] == row.text["new"]:
			t.Errorf("%s: the edit changes nothing", row.name)
		}
	}
	for name := range page {
		if !edited[name] {
			t.Errorf("%s has no row %s, which %s has", guardRows, name, guardPage)
		}
	}
	if !slices.IsSortedFunc(rows, func(a, b guardRow) int {
		return cmp.Compare(firstOf(rows, a.text["crate"]), firstOf(rows, b.text["crate"]))
	}) {
		t.Errorf("%s: the rows of a crate stand together, or it is built several times", guardRows)
	}
}

// firstOf is the place of the first row of a crate.
func firstOf(rows []guardRow, crate string) int {
	return slices.IndexFunc(rows, func(row guardRow) bool { return row.text["crate"] == crate })
}
