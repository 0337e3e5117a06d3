package archtest

import (
	"encoding/json"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// ownModule is the path of the module in go.mod.
const ownModule = "lateen.dev/lateen"

// TestGoModMarksImportedModulesAsDirect holds go.mod to what `go mod tidy` writes of direct requirements: a module that a package or test of
// this repository imports is direct, under any build tag, and every other one is marked indirect.
func TestGoModMarksImportedModulesAsDirect(t *testing.T) {
	var required []string
	indirect := map[string]bool{}
	for _, r := range requirements(t) {
		required = append(required, r.Path)
		indirect[r.Path] = r.Indirect
	}
	imported := map[string]string{} // module → a file that imports it
	for _, file := range ownGoFiles(t) {
		parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root(t), file), nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, spec := range parsed.Imports {
			name, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			if first, _, _ := strings.Cut(name, "/"); !strings.Contains(first, ".") || below(name, ownModule) {
				continue
			}
			module := ""
			for _, path := range required {
				if below(name, path) && len(path) > len(module) {
					module = path
				}
			}
			if module == "" {
				t.Errorf("%s imports %s, which no module of go.mod holds: run go mod tidy", file, name)
			} else {
				imported[module] = file
			}
		}
	}
	for _, module := range required {
		file, direct := imported[module]
		switch {
		case direct && indirect[module]:
			t.Errorf("go.mod calls %s indirect, but %s imports it: run go mod tidy", module, file)
		case !direct && !indirect[module]:
			t.Errorf("go.mod requires %s directly, but nothing imports it: run go mod tidy", module)
		}
	}
}

// TestGoModIsTidy runs `go mod tidy -diff` without a network. It needs the modules that tests of dependencies import; on a machine that lacks
// them in its module cache it only logs what is missing.
func TestGoModIsTidy(t *testing.T) {
	cmd := exec.Command("go", "mod", "tidy", "-diff")
	cmd.Dir = root(t)
	cmd.Env = append(os.Environ(), "GOPROXY=off", "GOWORK=off")
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	switch {
	case stdout.Len() > 0:
		t.Errorf("run go mod tidy; it would change:\n%s", stdout.String())
	case err != nil:
		t.Logf("go mod tidy cannot tell without a network: %v: %s", err, stderr.String())
	}
}

// requirement is a requirement of go.mod.
type requirement struct {
	Path     string
	Indirect bool
}

func requirements(t *testing.T) []requirement {
	t.Helper()
	cmd := exec.Command("go", "mod", "edit", "-json")
	cmd.Dir = root(t)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go mod edit -json: %v", err)
	}
	var file struct{ Require []requirement }
	if err := json.Unmarshal(out, &file); err != nil {
		t.Fatal(err)
	}
	if len(file.Require) == 0 {
		t.Fatal("go.mod requires nothing")
	}
	return file.Require
}

// ownGoFiles lists the committed Go files of the module, under any build tag, without those of test data and of modules below it.
func ownGoFiles(t *testing.T) []string {
	t.Helper()
	var others []string
	for _, name := range committedIn(t, root(t), "*/go.mod") {
		others = append(others, filepath.Dir(name))
	}
	return slices.DeleteFunc(committedIn(t, root(t), "*.go"), func(name string) bool {
		for _, part := range strings.Split(filepath.Dir(name), "/") {
			if part == "testdata" || strings.HasPrefix(part, "_") || strings.HasPrefix(part, ".") && part != "." {
				return true
			}
		}
		return slices.ContainsFunc(others, func(dir string) bool { return below(name, dir) })
	})
}

// below says whether a slash-separated path is another one or lies below it.
func below(path, dir string) bool { return path == dir || strings.HasPrefix(path, dir+"/") }
