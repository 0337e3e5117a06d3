package archtest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const (
	// mostMethods bounds a type's own methods, its promoted methods, and its package's functions whose first parameter is the type. A
	// context before it does not count as a parameter.
	mostMethods = 40
	// mostFields bounds the fields of a struct, with those that its embedded structs of this module promote.
	mostFields = 25
)

// promotedFields are the types that have more than mostFields fields because of embedded structs, with their number of fields. A number
// may fall and never rise; a type is taken out when it keeps the limit.
var promotedFields = map[string]int{
	"internal/agent.pod":             58, // the source's object, and the progress that a worker changes
	"internal/cli.tapLine":           27, // a line of the API with the cells of the table
	"internal/lab/rest.Request":      35, // the parameters of Fortio's REST interface
	"internal/lab/rest.httpDocument": 57, // Fortio's result document of an HTTP run
	"internal/lab/rest.tcpDocument":  28, // Fortio's result document of a TCP run
}

func TestNoGoTypeIsTooLarge(t *testing.T) {
	var ours []string
	for _, dir := range ownPackages(t) {
		if strings.HasPrefix(dir, "./internal/") || strings.HasPrefix(dir, "./cmd/") {
			ours = append(ours, dir)
		}
	}
	loaded := typedPackages(t, ours...)
	if len(loaded) < 50 {
		t.Fatalf("only %d packages were loaded", len(loaded))
	}
	large := map[string]string{}
	for _, p := range loaded {
		for name, why := range tooLarge(p) {
			large[strings.TrimPrefix(p.types.Path(), module)+"."+name] = why
		}
	}
	for _, name := range slices.Sorted(maps.Keys(large)) {
		t.Errorf("%s %s: give a part of it a type of its own, with the fields that the part needs", name, large[name])
	}
}

// typedPackage is a package with its types. Tests are not part of it.
type typedPackage struct {
	fset  *token.FileSet
	files []*ast.File
	types *types.Package
	info  *types.Info
}

// typedPackages checks the types of packages from source, those of their imports from what the compiler exported.
func typedPackages(t *testing.T, dirs ...string) []typedPackage {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list", "-export", "-deps", "-json=ImportPath,Dir,GoFiles,CgoFiles,Export,DepOnly"}, dirs...)...)
	cmd.Dir = root(t)
	out, err := cmd.Output()
	if failed := (*exec.ExitError)(nil); errors.As(err, &failed) {
		t.Fatalf("go list: %v: %s", err, failed.Stderr)
	}
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	type listed struct {
		ImportPath, Dir, Export string
		GoFiles, CgoFiles       []string
		DepOnly                 bool
	}
	exported := map[string]string{}
	var ours []listed
	for d := json.NewDecoder(bytes.NewReader(out)); d.More(); {
		var p listed
		if err := d.Decode(&p); err != nil {
			t.Fatal(err)
		}
		exported[p.ImportPath] = p.Export
		if !p.DepOnly {
			ours = append(ours, p)
		}
	}
	fset := token.NewFileSet()
	imports := importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exported[path]) })
	var loaded []typedPackage
	for _, p := range ours {
		if len(p.CgoFiles) > 0 {
			t.Fatalf("%s uses cgo, which this test does not read", p.ImportPath)
		}
		var files []*ast.File
		for _, name := range p.GoFiles {
			file, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.ParseComments|parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, file)
		}
		loaded = append(loaded, checked(t, fset, imports, p.ImportPath, files))
	}
	return loaded
}

func checked(t *testing.T, fset *token.FileSet, imports types.Importer, path string, files []*ast.File) typedPackage {
	t.Helper()
	info := &types.Info{Defs: map[*ast.Ident]types.Object{}}
	pkg, err := (&types.Config{Importer: imports}).Check(path, fset, files, info)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return typedPackage{fset: fset, files: files, types: pkg, info: info}
}

// tooLarge returns the types of a package that break a limit, with the counts. Generated files are left out.
func tooLarge(p typedPackage) map[string]string {
	firsts := functionsByFirst(p.types)
	large := map[string]string{}
	for _, file := range p.files {
		if ast.IsGenerated(file) {
			continue
		}
		named := map[*ast.StructType]bool{}
		ast.Inspect(file, func(node ast.Node) bool {
			switch node := node.(type) {
			case *ast.TypeSpec:
				if structure, ok := node.Type.(*ast.StructType); ok {
					named[structure] = true
				}
				declared, ok := p.info.Defs[node.Name].(*types.TypeName)
				if !ok || declared.IsAlias() {
					return true
				}
				if why := overLimits(p.types, declared.Type(), firsts[declared]); why != "" {
					large[node.Name.Name] = why
				}
			case *ast.StructType:
				if fields := node.Fields.NumFields(); !named[node] && fields > mostFields {
					at := p.fset.Position(node.Pos())
					large[fmt.Sprintf("struct@%d", at.Line)] = fmt.Sprintf("in %s has %d fields", at.Filename, fields)
				}
			}
			return true
		})
	}
	return large
}

// functionsByFirst returns the functions of a package by the named type of their first parameter, or by the type it points to.
func functionsByFirst(pkg *types.Package) map[*types.TypeName][]string {
	firsts := map[*types.TypeName][]string{}
	for _, name := range pkg.Scope().Names() {
		function, ok := pkg.Scope().Lookup(name).(*types.Func)
		if !ok {
			continue
		}
		params, at := function.Signature().Params(), 0
		if params.Len() > 0 && params.At(0).Type().String() == "context.Context" {
			at = 1
		}
		if params.Len() <= at {
			continue
		}
		first := types.Unalias(params.At(at).Type())
		if pointer, ok := first.(*types.Pointer); ok {
			first = types.Unalias(pointer.Elem())
		}
		if named, ok := first.(*types.Named); ok {
			firsts[named.Obj()] = append(firsts[named.Obj()], name)
		}
	}
	return firsts
}

// fieldsOf returns the names of the fields that code of pkg can select on a struct: its own, and those that its embedded structs promote.
// Structs of other modules do not count, because their fields are not this module's choice.
// A name that two embedded structs have at one depth is counted, although it cannot be selected without the name of one of them.
func fieldsOf(pkg *types.Package, declared types.Type) (own, promoted []string) {
	structOf := func(t types.Type) *types.Struct {
		if pointer, ok := types.Unalias(t).(*types.Pointer); ok {
			t = pointer.Elem()
		}
		structure, _ := t.Underlying().(*types.Struct)
		return structure
	}
	seen := map[string]bool{}
	visited := map[*types.Struct]bool{}
	level := []*types.Struct{structOf(declared)}
	for depth := 0; len(level) > 0; depth++ {
		var below []*types.Struct
		for _, structure := range level {
			if structure == nil || visited[structure] {
				continue
			}
			visited[structure] = true
			for field := range structure.Fields() {
				if field.Embedded() && isOurs(field.Type()) {
					below = append(below, structOf(field.Type()))
				}
				name := field.Name()
				switch {
				case field.Pkg() != pkg && !field.Exported():
					// Code of this package cannot select it.
				case depth == 0:
					own = append(own, name)
				case !seen[name]:
					promoted = append(promoted, name)
				}
				seen[name] = true
			}
		}
		level = below
	}
	return own, promoted
}

// isOurs says whether a type, or the type that it points to, is declared in this module or in a package of a test.
func isOurs(t types.Type) bool {
	if pointer, ok := types.Unalias(t).(*types.Pointer); ok {
		t = pointer.Elem()
	}
	named, ok := types.Unalias(t).(*types.Named)
	return ok && named.Obj().Pkg() != nil && (strings.HasPrefix(named.Obj().Pkg().Path(), module) || !strings.Contains(named.Obj().Pkg().Path(), "/"))
}

func overLimits(pkg *types.Package, declared types.Type, functions []string) string {
	receiver := declared
	if !types.IsInterface(declared) {
		receiver = types.NewPointer(declared)
	}
	var own, promoted []string
	set := types.NewMethodSet(receiver)
	for i := range set.Len() {
		method := set.At(i)
		switch {
		case method.Obj().Pkg() != pkg && !method.Obj().Exported():
			// Code of this package cannot call it.
		case len(method.Index()) > 1:
			promoted = append(promoted, method.Obj().Name())
		default:
			own = append(own, method.Obj().Name())
		}
	}
	var broken []string
	if count := len(own) + len(promoted) + len(functions); count > mostMethods {
		broken = append(broken, fmt.Sprintf("has %d methods and functions, %d at most (own %v, promoted %v, functions that take it first %v)",
			count, mostMethods, own, promoted, functions))
	}
	fields, further := fieldsOf(pkg, declared)
	most, listed := mostFields, 0
	if named, ok := declared.(*types.Named); ok {
		if listed = promotedFields[strings.TrimPrefix(pkg.Path(), module)+"."+named.Obj().Name()]; listed > 0 && len(fields) <= mostFields {
			most = listed
		}
	}
	switch count := len(fields) + len(further); {
	case count > most:
		broken = append(broken, fmt.Sprintf("has %d fields, %d at most (promoted %v)", count, most, further))
	case listed > count:
		broken = append(broken, fmt.Sprintf("has %d fields, and promotedFields says %d", count, listed))
	}
	return strings.Join(broken, "; ")
}

func TestLargeTypesAreFound(t *testing.T) {
	lines := func(format string, from, to int) string {
		var b strings.Builder
		for i := from; i < to; i++ {
			fmt.Fprintf(&b, format+"\n", i)
		}
		return b.String()
	}
	fset := token.NewFileSet()
	parse := func(name, source string) *ast.File {
		file, err := parser.ParseFile(fset, name, source, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatalf("%s: %v", source, err)
		}
		return file
	}
	other := checked(t, fset, nil, "other", []*ast.File{parse("other.go",
		"package other\ntype T struct{}\n"+lines("func (T) M%d() {}", 0, 41)+"type Hidden struct{}\n"+lines("func (Hidden) m%d() {}", 0, 41)+
			"type Fields struct {\n"+lines("F%d int", 0, 25)+"}\ntype HiddenFields struct {\n"+lines("f%d int", 0, 41)+"}\n")})
	context := checked(t, fset, nil, "context", []*ast.File{parse("context.go", "package context\ntype Context interface{}\n")})
	imports := importerOf{"other": other.types, "context": context.types}
	for _, c := range []struct {
		name, source string
		want         string // a part of the reason, "" for none
	}{
		{"40 methods", "type T struct{}\n" + lines("func (T) M%d() {}", 0, 40), ""},
		{"41 methods", "type T struct{}\n" + lines("func (T) M%d() {}", 0, 41), "has 41 methods"},
		{"methods of the pointer", "type T struct{}\n" + lines("func (*T) m%d() {}", 0, 41), "has 41 methods"},
		{"functions first", "type T struct{}\n" + lines("func (T) M%d() {}", 0, 20) + lines("func f%d(*T) {}", 0, 21), "f20"},
		{"functions second", "type T struct{}\n" + lines("func f%d(int, T) {}", 0, 41), ""},
		{"functions behind a context", "import \"context\"\ntype T struct{}\n" + lines("func f%d(context.Context, *T) {}", 0, 41), "has 41 methods"},
		{"functions by an alias", "type T struct{}\ntype A = *T\n" + lines("func f%d(A) {}", 0, 41), "has 41 methods"},
		{"functions of a generic type", "type T[E any] struct{}\n" + lines("func f%d(T[int]) {}", 0, 41), "has 41 methods"},
		{"promoted", "type U struct{}\ntype T struct{ *U }\n" + lines("func (U) M%d() {}", 0, 39) + "func (T) A() {}\nfunc (T) B() {}", "promoted [M0 "},
		{"promoted twice", "type V struct{}\ntype U struct{ V }\ntype T struct{ U }\n" + lines("func (*V) m%d() {}", 0, 40) + "func (T) A() {}", "own [A]"},
		{"promoted of another package", "import \"other\"\ntype T struct{ *other.T }", "promoted [M0 "},
		{"hidden methods of another package", "import \"other\"\ntype T struct{ other.Hidden }", ""},
		{"promoted of an interface", "type I interface {\n" + lines("M%d()", 0, 41) + "}\ntype T struct{ I }", "has 41 methods"},
		{"hidden methods count once", "type U struct{}\ntype T struct{ U }\n" + lines("func (U) M%d() {}", 0, 40) + lines("func (T) M%d() {}", 0, 40), ""},
		{"25 fields", "type T struct {\n" + lines("F%d int", 0, 25) + "}", ""},
		{"26 fields", "type T struct {\n" + lines("F%d, G%[1]d int", 0, 13) + "}", "has 26 fields"},
		{"26 fields, one embedded", "type T struct {\nerror\n" + lines("F%d int", 0, 25) + "}", "has 26 fields"},
		{"26 fields, one promoted", "type U struct{ A int }\ntype T struct {\n*U\n" + lines("F%d int", 0, 24) + "}", "has 26 fields, 25 at most (promoted [A])"},
		{"25 fields, one promoted", "type U struct{ A int }\ntype T struct {\n*U\n" + lines("F%d int", 0, 23) + "}", ""},
		{"fields promoted twice", "type V struct {\n" + lines("F%d int", 0, 24) + "}\ntype U struct{ V }\ntype T struct{ U }", "has 26 fields"},
		{"hidden fields count once", "type U struct { F0 int }\ntype T struct {\nU\n" + lines("F%d int", 0, 24) + "}", ""},
		{"fields of another package", "import \"other\"\ntype T struct{ other.Fields }", "has 26 fields"},
		{"hidden fields of another package", "import \"other\"\ntype T struct{ other.HiddenFields }", ""},
		{"a struct that embeds its own pointer", "type T struct{ *T }", ""},
		{"26 fields of a local type", "func f() {\ntype T struct {\n" + lines("F%d int", 0, 26) + "}\n_ = T{}\n}", "has 26 fields"},
		{"generated", "// Code generated by a test. DO NOT EDIT.\ntype T struct {\n" + lines("F%d int", 0, 26) + "}", ""},
	} {
		source := "package p\n" + c.source
		if generated, rest, ok := strings.Cut(c.source, "DO NOT EDIT.\n"); ok {
			source = generated + "DO NOT EDIT.\npackage p\n" + rest
		}
		p := checked(t, fset, imports, "p", []*ast.File{parse("p.go", source)})
		if why := tooLarge(p)["T"]; (why == "") != (c.want == "") || !strings.Contains(why, c.want) {
			t.Errorf("%s: got %q, want %q", c.name, why, c.want)
		}
	}
}

// importerOf has the packages that a test made.
type importerOf map[string]*types.Package

func (i importerOf) Import(path string) (*types.Package, error) { return i[path], nil }
