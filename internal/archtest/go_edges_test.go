package archtest

import (
	"encoding/json"
	"errors"
	"go/build"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "lateen.dev/lateen/"

type goPackage struct {
	ImportPath   string
	Doc          string
	Imports      []string
	TestImports  []string
	XTestImports []string
	Module       *struct{ Path, Version, Dir string }
	Standard     bool
}

// ownPackages are the folders of this module's packages, by the files that git knows: with ./... the go command would walk the tree,
// and fail when a folder goes meanwhile that a program which is under way has made there.
func ownPackages(t *testing.T) []string { return packagesIn(t, root(t)) }

func packagesIn(t *testing.T, root string) []string {
	t.Helper()
	others := map[string]bool{} // modules of their own
	for _, name := range committedIn(t, root, "*/go.mod") {
		others[path.Dir(name)] = true
	}
	foreign := func(dir string) bool {
		for ; dir != "."; dir = path.Dir(dir) {
			if base := path.Base(dir); others[dir] || base == "testdata" || strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_") {
				return true
			}
		}
		return false
	}
	var dirs []string
	for _, name := range committedIn(t, root, "*.go") {
		dir, base := path.Split(name)
		matches, err := build.Default.MatchFile(filepath.Join(root, dir), base)
		if err != nil {
			t.Fatal(err)
		}
		if dir = "./" + path.Clean(dir); matches && !foreign(path.Clean(dir)) && !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

func TestOwnPackagesAreThoseThatGitKnows(t *testing.T) {
	// What git tells a hook would make the commands below write to the index of the repository that is being committed to.
	for _, name := range []string{"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_OBJECT_DIRECTORY", "GIT_PREFIX"} {
		if value, ok := os.LookupEnv(name); ok {
			t.Setenv(name, value) // puts it back
			_ = os.Unsetenv(name)
		}
	}
	dir := t.TempDir()
	put := func(name, text string) {
		if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	git := func(args ...string) {
		cmd := exec.Command("git", args...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v: %s", args, err, out)
		}
	}
	git("init", "-q")
	put("go.mod", "module m\n")
	for _, name := range []string{"own/one.go", "own/two.go", "own/below/one.go", "own/testdata/one.go", "_not/one.go", "another/below/one.go"} {
		put(name, "package p\n")
	}
	put("tagged/one.go", "//go:build kube\n\npackage p\n")
	put("another/go.mod", "module another\n")
	git("add", "-A")
	put("stray/one.go", "package p\n")
	if got, want := packagesIn(t, dir), []string{"./own", "./own/below"}; !slices.Equal(slices.Sorted(slices.Values(got)), want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func goPackages(t *testing.T, args ...string) []goPackage {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list", "-json=ImportPath,Doc,Imports,TestImports,XTestImports,Module,Standard"}, args...)...)
	cmd.Dir = root(t)
	out, err := cmd.Output()
	if failed := (*exec.ExitError)(nil); errors.As(err, &failed) {
		t.Fatalf("go list: %v: %s", err, failed.Stderr)
	}
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var packages []goPackage
	for d := json.NewDecoder(strings.NewReader(string(out))); d.More(); {
		var p goPackage
		if err := d.Decode(&p); err != nil {
			t.Fatal(err)
		}
		packages = append(packages, p)
	}
	if len(packages) == 0 {
		t.Fatal("go list found no package")
	}
	return packages
}

// denied[a] lists what packages below a may not import, with the reason.
var denied = map[string]map[string]string{
	"internal/model": {
		"internal/": "the model is the bottom of the control plane; only generated types may stand below it",
	},
	"internal/translate": {
		"internal/source":      "translation is a function of the model; where objects come from must not matter",
		"internal/xds":         "translation does not know who receives its resources",
		"internal/resourcelog": "translation does not know where its resources are kept",
		"internal/ca":          "identity documents are not configuration",
		"internal/engine":      "the control plane is the same on both engines",
	},
	"internal/meaning": {
		"internal/source":  "the comparison is a function of typed objects; where they come from must not matter",
		"internal/install": "a take-over uses the comparison, not the reverse",
		"internal/engine":  "the comparison is the same whoever asks",
		"internal/compile": "one object is compared with its other meaning; nothing is compiled",
	},
	"internal/analyse": {
		"internal/source":  "the analysis is a function of typed objects; where they come from must not matter",
		"internal/engine":  "the analysis is the same whoever asks",
		"internal/cli":     "the command line shows findings, and makes none",
		"internal/xds":     "no client is looked at",
		"internal/compile": "objects are translated one by one; nothing is compiled",
	},
	"internal/source": {
		"internal/xds":         "sources produce, xds distributes, and neither knows the other",
		"internal/translate":   "sources produce typed objects, nothing derived",
		"internal/resourcelog": "sources produce typed objects, nothing derived",
		"internal/engine":      "the control plane is the same on both engines",
	},
	"internal/resourcekind": {
		"internal/": "a kind is declared by its messages and the log's registry; how it is compiled or sent must not matter",
	},
	"internal/xds": {
		"internal/resourcekind": "xds reads the log's registry and knows no kind",
		"internal/source":       "sources produce, xds distributes, and neither knows the other",
		"internal/model":        "xds distributes encoded resources and does not look into objects",
		"internal/engine":       "the control plane is the same on both engines",
	},
	"internal/kube": {
		"internal/": "how an API server is reached is the same whatever is asked of it",
	},
	"internal/resourcelog": {
		"internal/": "the log keeps bytes by name and generation; it knows no type",
	},
	"internal/agent": {
		"internal/engine/local": "the agent speaks to an engine over its socket only",
		"internal/translate":    "the agent captures pods; it does not compute configuration",
		"internal/xds":          "the agent captures pods; it does not distribute configuration",
		"internal/ca":           "the agent never handles keys",
	},
	"internal/engine": {
		"internal/agent":     "the engine starts the agent as a process and speaks to its socket",
		"internal/translate": "the engine starts the control plane as a process",
		"internal/xds":       "the engine starts the control plane as a process",
		"internal/cli":       "the command line uses the engine, not the reverse",
	},
}

// allowed are the exceptions to denied, each narrower than the rule.
var allowed = map[string][]string{
	"internal/model":        {"internal/gen/", "internal/model"},
	"internal/kube":         {"internal/kube"},
	"internal/resourcelog":  {"internal/resourcelog"},
	"internal/resourcekind": {"internal/gen/", "internal/resourcelog", "internal/resourcekind"},
	"internal/agent":        {},
	"internal/engine":       {},
}

func TestGoDependenciesPointTheRightWay(t *testing.T) {
	seen := map[string]bool{}
	for _, p := range goPackages(t, ownPackages(t)...) {
		path := strings.TrimPrefix(p.ImportPath, module)
		for area, rules := range denied {
			if path != area && !strings.HasPrefix(path, area+"/") {
				continue
			}
			seen[area] = true
			for _, imported := range p.Imports {
				target, ours := strings.CutPrefix(imported, module)
				if !ours || excepted(area, target) {
					continue
				}
				for prefix, why := range rules {
					if strings.HasPrefix(target, prefix) {
						t.Errorf("%s imports %s: %s", path, target, why)
					}
				}
			}
		}
	}
	for area := range denied {
		if !seen[area] {
			t.Errorf("the rule for %s covers no package: the folder moved, move the rule", area)
		}
	}
}

func excepted(area, target string) bool {
	for _, a := range allowed[area] {
		if strings.HasPrefix(target, a) {
			return true
		}
	}
	return false
}

func TestEveryGoPackageSaysWhatItOwns(t *testing.T) {
	for _, p := range goPackages(t, ownPackages(t)...) {
		if p.Doc == "" && !strings.Contains(p.ImportPath, "/internal/gen/") && !strings.Contains(p.ImportPath, "/tests/") {
			t.Errorf("%s has no package comment: say in two sentences what it owns and what not", p.ImportPath)
		}
	}
}

// small are the programs of which there is one on each node, or for each pod that is born, and the packages that would make them large.
var small = map[string]map[string]string{
	"cmd/lateen-agent": {
		"k8s.io/client-go/kubernetes": "it registers every kind of every API group; internal/agent/apiserver asks for what the agent needs",
		"k8s.io/client-go/testing":    "it brings schemas and merges that no program needs; client-go/gentype imports it",
	},
	"cmd/lateen-cni": {"k8s.io/": "the plugin is started for each pod that is born"},
}

func TestWhatRunsOnEveryNodeStaysSmall(t *testing.T) {
	for program, rules := range small {
		for _, p := range goPackages(t, "-deps", "./"+program) {
			for prefix, why := range rules {
				if strings.HasPrefix(p.ImportPath, prefix) {
					t.Errorf("%s contains %s: %s", program, p.ImportPath, why)
				}
			}
		}
	}
}
