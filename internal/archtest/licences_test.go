package archtest

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/licensecheck"
)

// allowedLicences is the list of deny.toml, so that Rust and Go keep one.
func allowedLicences(t *testing.T) []string {
	t.Helper()
	_, rest, found := strings.Cut(read(t, "deny.toml"), "allow = [")
	list, _, closed := strings.Cut(rest, "]")
	if !found || !closed {
		t.Fatal("deny.toml has no list `allow = [ ... ]`")
	}
	var licences []string
	for _, m := range regexp.MustCompile(`"([^"]+)"`).FindAllStringSubmatch(list, -1) {
		licences = append(licences, m[1])
	}
	return licences
}

// The rule is for what the product is made of. tests/kube/cluster and tests/suites, modules of their own, build a Kubernetes to test on and
// suites of others; neither is shipped, and this list is not asked of them.
func TestGoModulesHaveAllowedLicences(t *testing.T) {
	allowed := allowedLicences(t)
	checked := map[string]bool{}
	for _, p := range goPackages(t, append([]string{"-deps"}, ownPackages(t)...)...) {
		if p.Standard || p.Module == nil || p.Module.Version == "" || checked[p.Module.Path] {
			continue
		}
		checked[p.Module.Path] = true
		if got := licencesIn(t, p.Module.Dir); !anyIn(got, allowed) {
			t.Errorf("%s %s: licences %v, none of which deny.toml allows", p.Module.Path, p.Module.Version, got)
		}
	}
	if len(checked) == 0 {
		t.Error("no module was checked")
	}
}

func licencesIn(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, e := range entries {
		name := strings.ToUpper(e.Name())
		if e.IsDir() || !(strings.HasPrefix(name, "LICEN") || strings.HasPrefix(name, "COPYING")) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range licensecheck.Scan(text).Match {
			ids = append(ids, m.ID)
		}
	}
	return ids
}

func anyIn(got, allowed []string) bool {
	return slices.ContainsFunc(got, func(id string) bool { return slices.Contains(allowed, id) })
}

// A crate's SPDX expression passes if some alternative of it consists of allowed licences only. A crate that names a file instead passes by
// the text of its licence.
func TestCratesHaveAllowedLicences(t *testing.T) {
	allowed := allowedLicences(t)
	checked := 0
	for _, p := range cargo(t).Packages {
		if p.Source == nil {
			continue
		}
		checked++
		if p.License == "" && p.LicenseFile != "" {
			if got := licencesIn(t, filepath.Dir(p.ManifestPath)); !anyIn(got, allowed) {
				t.Errorf("%s %s: licences %v, none of which deny.toml allows", p.Name, p.Version, got)
			}
			continue
		}
		if !spdxAllowed(p.License, allowed) {
			t.Errorf("%s %s: licence %q is not allowed by deny.toml", p.Name, p.Version, p.License)
		}
	}
	if checked == 0 {
		t.Error("no crate was checked")
	}
}

var spdxToken = regexp.MustCompile(`\(|\)|/|[^\s()/]+`)

// spdxAllowed evaluates a licence expression: an identifier is true if it is allowed; AND binds tighter than OR (SPDX
// specification, annex D); `/` is the old way of crates to write OR.
func spdxAllowed(expression string, allowed []string) bool {
	tokens := spdxToken.FindAllString(expression, -1)
	result, rest := spdxOr(tokens, allowed)
	return result && len(rest) == 0
}

func spdxOr(tokens, allowed []string) (bool, []string) {
	result, tokens := spdxAnd(tokens, allowed)
	for len(tokens) > 0 && (tokens[0] == "OR" || tokens[0] == "/") {
		var next bool
		next, tokens = spdxAnd(tokens[1:], allowed)
		result = result || next
	}
	return result, tokens
}

func spdxAnd(tokens, allowed []string) (bool, []string) {
	result, tokens := spdxTerm(tokens, allowed)
	for len(tokens) > 0 && tokens[0] == "AND" {
		var next bool
		next, tokens = spdxTerm(tokens[1:], allowed)
		result = result && next
	}
	return result, tokens
}

func spdxTerm(tokens, allowed []string) (bool, []string) {
	if len(tokens) == 0 {
		return false, nil
	}
	if tokens[0] == "(" {
		result, rest := spdxOr(tokens[1:], allowed)
		if len(rest) == 0 || rest[0] != ")" {
			return false, nil
		}
		return result, rest[1:]
	}
	id, rest := tokens[0], tokens[1:]
	if len(rest) > 1 && rest[0] == "WITH" {
		id, rest = id+" WITH "+rest[1], rest[2:]
	}
	return slices.Contains(allowed, id), rest
}

func TestSPDXExpressions(t *testing.T) {
	allowed := []string{"MIT", "Apache-2.0", "ISC", "Unicode-3.0", "Apache-2.0 WITH LLVM-exception"}
	for expression, want := range map[string]bool{
		"MIT":                                 true,
		"GPL-3.0":                             false,
		"MIT OR GPL-3.0":                      true,
		"MIT/Apache-2.0":                      true,
		"MIT AND GPL-3.0":                     false,
		"ISC AND MIT":                         true,
		"ISC AND (Apache-2.0 OR GPL-2.0)":     true,
		"(MIT OR Apache-2.0) AND Unicode-3.0": true,
		"(MIT OR Apache-2.0) AND GPL-3.0":     false,
		"Apache-2.0 WITH LLVM-exception OR Apache-2.0 OR MIT": true,
		"ISC AND (MIT OR ISC) AND MIT AND (GPL-2.0 OR ISC)":   true,
		"ISC AND (MIT": false,
		"":             false,
	} {
		if got := spdxAllowed(expression, allowed); got != want {
			t.Errorf("%q: got %v, want %v", expression, got, want)
		}
	}
}
