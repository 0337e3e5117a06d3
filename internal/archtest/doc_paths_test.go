package archtest

import (
	"regexp"
	"strings"
	"testing"
)

// A page that names a file which has moved sends its reader nowhere. Pages of docs/experiments tell what was on their day.
func TestPagesNameFilesThatExist(t *testing.T) {
	var files []string
	for _, name := range committedFiles(t) {
		files = append(files, "/"+name)
	}
	pages, named := 0, 0
	for _, page := range committedFiles(t, "*.md") {
		if strings.HasPrefix(page, "docs/experiments/") || strings.Contains(page, "/testdata/") {
			continue
		}
		pages++
		for _, path := range sourceFiles(read(t, page)) {
			named++
			if !endsWithPath(files, path) {
				t.Errorf("%s names %s, which is not there: name the file as it is today", page, path)
			}
		}
	}
	if pages < 20 || named < 100 {
		t.Errorf("%d pages name %d files: the rule looks for names that are gone", pages, named)
	}
}

func TestPathsOfSourceFilesAreFound(t *testing.T) {
	got := sourceFiles("`a/b.rs` b.rs `run.sh x` `https://x/y.go` `c.go`, [`d.py`](../d.py)")
	want := []string{"a/b.rs", "c.go", "d.py"}
	if strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("got %q, want %q", got, want)
	}
	if endsWithPath([]string{"/crates/h2/src/flags.rs"}, "lags.rs") || !endsWithPath([]string{"/crates/h2/src/flags.rs"}, "src/flags.rs") {
		t.Error("a path ends at a separator")
	}
}

var sourceFile = regexp.MustCompile("`([a-zA-Z0-9_./-]+\\.(?:rs|go|sh|py))`")

// sourceFiles lists the source files that a page names as code.
func sourceFiles(page string) []string {
	var out []string
	for _, m := range sourceFile.FindAllStringSubmatch(page, -1) {
		out = append(out, m[1])
	}
	return out
}

// endsWithPath reports whether one of the files has this path at its end.
func endsWithPath(files []string, path string) bool {
	path = "/" + strings.TrimPrefix(strings.TrimPrefix(path, "../"), "../")
	for _, name := range files {
		if strings.HasSuffix(name, path) {
			return true
		}
	}
	return false
}
