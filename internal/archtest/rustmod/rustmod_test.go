package rustmod

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// crate writes sources, each file headed by a line "-- NAME", and reads them.
func crate(t *testing.T, sources string) *Crate {
	t.Helper()
	dir := t.TempDir()
	for _, part := range strings.Split(sources, "-- ")[1:] {
		name, text, _ := strings.Cut(part, "\n")
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	c, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestCyclesAreFound(t *testing.T) {
	for name, test := range map[string]struct {
		sources string
		want    [][]string
	}{
		"two modules that import each other": {"-- lib.rs\nmod a; mod b;\n-- a.rs\nuse crate::b::B;\n-- b.rs\nuse super::a::{self, A};\n", [][]string{{"a", "b"}}},
		"paths without an import":            {"-- lib.rs\nmod a; mod b;\n-- a.rs\nfn f() { crate::b::g() }\n-- b.rs\nfn g() -> super::a::A { loop {} }\n", [][]string{{"a", "b"}}},
		"a parent and its child":             {"-- lib.rs\nmod a;\n-- a.rs\nmod c; use c::C; struct A;\n-- a/c.rs\nuse super::A;\n", [][]string{{"a", "a::c"}}},
		"a parent that calls its child":      {"-- lib.rs\nmod a;\n-- a.rs\nmod c; fn f() { c::g() }\n-- a/c.rs\nfn g() { super::f() }\n", [][]string{{"a", "a::c"}}},
		"siblings through their children":    {"-- lib.rs\nmod a; mod b;\n-- a.rs\nmod x; mod y;\n-- a/x.rs\nuse crate::b::B;\n-- a/y.rs\n-- b.rs\nuse crate::a::y::Y;\n", [][]string{{"a", "b"}}},
		"a re-export is followed":            {"-- lib.rs\nmod a; mod b; mod c; pub use c::C;\n-- a.rs\nuse crate::C;\n-- b.rs\n-- c.rs\nuse crate::a::A;\n", [][]string{{"a", "c"}}},
		"a re-export is no use":              {"-- lib.rs\nmod a; pub use a::A; struct Root;\n-- a.rs\nuse crate::Root;\n", nil},
		"tests do not count":                 {"-- lib.rs\nmod a; mod b;\n-- a.rs\nuse crate::b::B;\n-- b.rs\n#[cfg(test)]\nmod tests { use crate::a::A; }\n#[cfg(all(test, unix))]\nuse crate::a::B;\nstruct S { #[cfg(test)] pub(crate) x: crate::a::A, y: u8 }\n", nil},
		"what only tests lack counts":        {"-- lib.rs\nmod a; mod b;\n-- a.rs\nuse crate::b::B;\n-- b.rs\n#[cfg(not(test))]\nuse crate::a::A;\n", [][]string{{"a", "b"}}},
		"comments and strings do not count":  {"-- lib.rs\nmod a; mod b;\n-- a.rs\nuse crate::b::B;\n-- b.rs\n// use crate::a::A;\n/* /* crate::a::A */ crate::a::A */\nconst T: &str = \"crate::a::A \\\" crate::a::A\"; const R: &str = r#\"crate::a::A\"#; const C: char = '\"'; fn f<'a>(x: &'a str) {}\n", nil},
		"a part of a condition is no test":   {"-- lib.rs\nmod a; mod b;\n-- a.rs\nuse crate::b::B;\n-- b.rs\n#[cfg(any(test, unix))]\nuse crate::a::A;\n", [][]string{{"a", "b"}}},
		"a facade is followed":               {"-- lib.rs\nmod a; mod b; mod c;\n-- a.rs\nuse crate::c;\nfn f() { c::g() }\n-- b.rs\nuse crate::a::A;\n-- c.rs\npub use crate::b::g;\n", [][]string{{"a", "b"}}},
		"the root by another name":           {"-- lib.rs\nmod a; mod b;\n-- a.rs\nuse crate as root;\nfn f() { root::b::g() }\n-- b.rs\nuse crate::a::A;\n", [][]string{{"a", "b"}}},
		"a re-export that is used":           {"-- lib.rs\nmod a; mod b;\n-- a.rs\npub(crate) use crate::b::B;\nfn f(b: B) {}\n-- b.rs\nuse crate::a::A;\n", [][]string{{"a", "b"}}},
		"all names of the root":              {"-- lib.rs\nmod a; mod b; pub use b::B;\n-- a.rs\nuse crate::*;\nfn f(b: B) {}\n-- b.rs\nuse crate::a::A;\n", [][]string{{"a", "b"}}},
		"a module inside a file":             {"-- lib.rs\nmod a; mod b;\n-- a.rs\nmod inner { use super::super::b::B; use super::A; }\n-- b.rs\nuse crate::a::A;\n", [][]string{{"a", "b"}}},
		"the siblings of an inner module":    {"-- lib.rs\nmod a; mod b;\n-- a.rs\nmod inner { use super::b; }\nfn b() {}\n-- b.rs\nuse crate::a::A;\n", nil},
		"other crates do not count":          {"-- lib.rs\nmod a; mod b;\n-- a.rs\nuse crate::b::B;\n-- b.rs\nuse other::a::A; use ::a::A;\n", nil},
		"a module in a folder":               {"-- main.rs\nmod a; mod b;\n-- a/mod.rs\nuse crate::b::B;\n-- b.rs\nuse crate::a::A as Other;\n", [][]string{{"a", "b"}}},
	} {
		if got := crate(t, test.sources).Cycles(); !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s: got %v, want %v", name, got, test.want)
		}
	}
}

func TestADeclaredFileThatIsMissingIsAnError(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "lib.rs"), []byte("mod gone;"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(dir); err == nil {
		t.Error("no error")
	}
}
