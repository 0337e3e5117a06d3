package main

import (
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"lateen.dev/lateen/internal/meshconfig"
	"lateen.dev/lateen/internal/model/wellknown"
)

const root = "../.."

// tracked lists the repository's files below the given folders that end in ext, without tests, generated code and this folder.
func tracked(t *testing.T, ext string, folders ...string) []string {
	t.Helper()
	cmd := exec.Command("git", append([]string{"ls-files", "-co", "--exclude-standard", "--"}, folders...)...)
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("git ls-files: %v", err)
	}
	var names []string
	for _, name := range strings.Fields(string(out)) {
		if _, err := os.Stat(filepath.Join(root, name)); err != nil || !strings.HasSuffix(name, ext) || strings.HasPrefix(name, "internal/reference/") ||
			strings.HasSuffix(name, "_test.go") || strings.Contains(name, "/gen/") || strings.Contains(name, "/tests") || strings.Contains(name, "test/") {
			continue
		}
		names = append(names, name)
	}
	if len(names) < 20 {
		t.Fatalf("%d files end in %s below %v: the folders moved, move the rule", len(names), ext, folders)
	}
	return names
}

func text(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// rustTests is where a file's tests begin, which stand at its end; helpers for tests may stand before.
var rustTests = regexp.MustCompile(`(?m)^#\[cfg\(test\)\]\s+mod \w+ \{`)

// rust returns a source without the tests at its end.
func rust(t *testing.T, name string) string {
	code := text(t, name)
	if at := rustTests.FindStringIndex(code); at != nil {
		return code[:at[0]]
	}
	return code
}

// goFiles parses the Go code of the programs.
func goFiles(t *testing.T) (map[string]*ast.File, *token.FileSet) {
	t.Helper()
	set, files := token.NewFileSet(), map[string]*ast.File{}
	for _, name := range tracked(t, ".go", "cmd", "internal") {
		f, err := parser.ParseFile(set, filepath.Join(root, name), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files[name] = f
	}
	return files, set
}

// literal is the text of a string that is written in the source.
func literal(e ast.Expr) (string, bool) {
	l, ok := e.(*ast.BasicLit)
	if !ok || l.Kind != token.STRING {
		return "", false
	}
	return constant.StringVal(constant.MakeFromLiteral(l.Value, token.STRING, 0)), true
}

func TestPagesAreUpToDate(t *testing.T) {
	pages, err := render(root)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range pages {
		if got := text(t, name); got != want {
			t.Errorf("%s is out of date: run `make reference` and commit what it writes", name)
		}
	}
}

// Only the settings read the environment, through the table that checks each name.
func TestNodeProxyReadsItsEnvironmentInOnePlace(t *testing.T) {
	read := regexp.MustCompile(`\benv::(var|vars|var_os|vars_os)\b`)
	found := 0
	for _, name := range tracked(t, ".rs", "crates") {
		if name == "crates/proxy/src/settings.rs" || strings.HasPrefix(name, "crates/proxy/src/settings/") {
			found += len(read.FindAllString(rust(t, name), -1))
			continue
		}
		if strings.HasPrefix(name, "crates/load/") || strings.Contains(name, "/examples/") || strings.HasSuffix(name, "build.rs") {
			continue
		}
		if m := read.FindString(rust(t, name)); m != "" {
			t.Errorf("%s reads the environment (%s): let a module of crates/proxy/src/settings read it, and declare the name in settings/reference.rs", name, m)
		}
	}
	if found == 0 {
		t.Error("crates/proxy/src/settings reads no environment: the rule looks for a name that is gone")
	}
}

func TestDeclaredVariablesAreRead(t *testing.T) {
	const declared = "crates/proxy/src/settings/reference.rs"
	n := node{}
	for _, m := range regexp.MustCompile(`(?m)^        "([A-Z0-9_]+\*?)" (?:Ztunnel|Lateen|Convention)`).FindAllStringSubmatch(text(t, declared), -1) {
		n.Variables = append(n.Variables, variable{Name: m[1]})
	}
	if len(n.Variables) < 40 {
		t.Fatalf("%s declares %d variables: its form has changed, change the rule", declared, len(n.Variables))
	}
	var code strings.Builder
	for _, name := range tracked(t, ".rs", "crates/proxy/src", "crates/telemetry/src") {
		if name != declared {
			code.WriteString(rust(t, name))
		}
	}
	for _, v := range n.Variables {
		if !strings.Contains(code.String(), strconv.Quote(strings.TrimSuffix(v.Name, "*"))) {
			t.Errorf("nothing reads %s: drop it from %s", v.Name, declared)
		}
	}
}

// A metric with labels is not rendered before it has a series, so it could be missing from the list without anybody noticing.
func TestNodeProxysMetricsHaveASeries(t *testing.T) {
	n, err := nodeProxy(root)
	if err != nil {
		t.Fatal(err)
	}
	registered := regexp.MustCompile(`(?:register(?:_with_unit)?|encode_descriptor)\(\s*"([a-z0-9_]+)"`)
	found := 0
	for _, name := range tracked(t, ".rs", "crates") {
		for _, m := range registered.FindAllStringSubmatch(rust(t, name), -1) {
			found++
			// A registry adds the prefix of its part and the suffix of type and unit.
			shown := regexp.MustCompile(`^(istio_|workload_manager_)?` + m[1] + `(_bytes|_seconds)?(_total)?$`)
			if !slices.ContainsFunc(n.Metrics, func(had metric) bool { return shown.MatchString(had.Name) }) {
				t.Errorf("%s registers %s, which the reference does not show: give it a series in crates/telemetry/src/reference.rs", name, m[1])
			}
		}
	}
	if found < 20 {
		t.Errorf("%d metrics are registered: the rule looks for calls that are gone", found)
	}
}

// The registries for the reference are made by the programs' own constructors, but not by all of their code.
func TestGoMetricsAreGathered(t *testing.T) {
	all, err := allMetrics(node{})
	if err != nil {
		t.Fatal(err)
	}
	metricName := regexp.MustCompile(`^(lateen|pilot|citadel|istio)(_[a-z0-9]+)+$`)
	found := 0
	files, set := goFiles(t)
	for name, f := range files {
		if !strings.Contains(text(t, name), "client_golang") {
			continue // others read metrics
		}
		ast.Inspect(f, func(n ast.Node) bool {
			e, ok := n.(ast.Expr)
			if !ok {
				return true
			}
			if s, ok := literal(e); ok && metricName.MatchString(s) {
				found++
				if !slices.ContainsFunc(all, func(m metric) bool { return m.Name == s }) {
					t.Errorf("%s: %s is in no registry of the reference: register it in Reference of its program's package", set.Position(n.Pos()), s)
				}
			}
			return true
		})
	}
	if found < 20 {
		t.Errorf("%d metrics are named: the rule looks for calls that are gone", found)
	}
}

func TestGoVariablesAreDeclared(t *testing.T) {
	declared := map[string]bool{}
	for _, v := range goVariables {
		declared[v.Name] = false
	}
	// getenv is what functions call that are given os.Getenv.
	calls := map[string]bool{"Getenv": true, "LookupEnv": true, "getenv": true}
	files, set := goFiles(t)
	for name, f := range files {
		if strings.HasPrefix(name, "internal/tools/") {
			continue // they build the project, and are not part of it
		}
		ast.Inspect(f, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			called := ""
			switch fun := call.Fun.(type) {
			case *ast.SelectorExpr:
				called = fun.Sel.Name
			case *ast.Ident:
				called = fun.Name
			}
			if !calls[called] || len(call.Args) != 1 {
				return true
			}
			variable, ok := literal(call.Args[0])
			if !ok {
				t.Errorf("%s: %s with a name that is not written here: nobody can look it up", set.Position(n.Pos()), called)
				return true
			}
			if _, ok := declared[variable]; !ok {
				t.Errorf("%s reads %s, which is not declared: add it to goVariables in internal/reference/variables.go and run `make reference`", set.Position(n.Pos()), variable)
				return true
			}
			declared[variable] = true
			return true
		})
	}
	for variable, read := range declared {
		if !read {
			t.Errorf("nothing reads %s: drop it from internal/reference/variables.go", variable)
		}
	}
}

// keyLike is what a label, an annotation, a condition or a controller of the mesh looks like; API versions look alike.
var (
	keyLike    = regexp.MustCompile(`^(([a-z0-9-]+\.)*istio\.io|topology\.kubernetes\.io|app\.kubernetes\.io|gateway\.networking\.k8s\.io|lateen\.(dev|io))/[A-Za-z0-9._-]*$|^kubernetes\.io/config\.mirror$|^WaypointAccepted$`)
	apiVersion = regexp.MustCompile(`/v[0-9]+([a-z]+[0-9]+)?$`)
)

func TestKeysAreDeclaredInOnePackage(t *testing.T) {
	const declaring = "internal/model/wellknown/"
	found := 0
	files, set := goFiles(t)
	for name, f := range files {
		imports := map[ast.Node]bool{}
		for _, i := range f.Imports {
			imports[i.Path] = true
		}
		ast.Inspect(f, func(n ast.Node) bool {
			e, ok := n.(ast.Expr)
			if !ok || imports[n] {
				return true
			}
			s, ok := literal(e)
			if !ok || !keyLike.MatchString(s) || apiVersion.MatchString(s) {
				return true
			}
			if strings.HasPrefix(name, declaring) {
				found++
			} else {
				t.Errorf("%s spells out %s: declare it in %skeys.go, with its meaning, and run `make reference`", set.Position(n.Pos()), s, declaring)
			}
			return true
		})
	}
	if found != len(wellknown.Keys) {
		t.Errorf("%s declares %d names and describes %d: each constant needs an entry of Keys", declaring, found, len(wellknown.Keys))
	}
}

func TestKeysAreDescribedOnce(t *testing.T) {
	seen := map[string]bool{}
	for _, k := range wellknown.Keys {
		if seen[k.Name] || k.Name == "" || k.Group == "" || k.On == "" || k.Who == "" || k.Meaning == "" || strings.HasSuffix(k.Meaning, ".") {
			t.Errorf("%+v is described twice, or not in full", k)
		}
		seen[k.Name] = true
	}
}

// Labels and annotations are for the Go side; the wire has fields of its own.
func TestNodeProxyKnowsNoKeys(t *testing.T) {
	key := regexp.MustCompile(`"(([a-z0-9-]+\.)*istio\.io|topology\.kubernetes\.io|lateen\.dev)/[A-Za-z]`)
	for _, name := range tracked(t, ".rs", "crates") {
		if m := key.FindString(rust(t, name)); m != "" {
			t.Errorf("%s spells out %s…: what objects say reaches the proxy as fields of WDS", name, m)
		}
	}
}

func TestLogFieldsAreDeclared(t *testing.T) {
	declared := map[string]bool{}
	for _, f := range logFields {
		declared[f.Name] = false
	}
	use := func(where, name string) {
		if _, ok := declared[name]; !ok {
			declared[name] = true // once is enough
			t.Errorf("%s logs %s, which is not declared: add it to logFields in internal/reference/logfields.go and run `make reference`, or use a name that is there", where, name)
			return
		}
		declared[name] = true
	}
	for _, name := range tracked(t, ".rs", "crates") {
		if strings.HasPrefix(name, "crates/load/") {
			continue
		}
		for _, f := range tracingFields(rust(t, name)) {
			use(name, f)
		}
	}
	levels := map[string]bool{"Debug": true, "Info": true, "Warn": true, "Error": true, "With": true}
	files, set := goFiles(t)
	for _, f := range files {
		ast.Inspect(f, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) < 2 {
				return true
			}
			fun, ok := call.Fun.(*ast.SelectorExpr)
			if !ok || !levels[fun.Sel.Name] {
				return true
			}
			first := 1
			if fun.Sel.Name == "With" {
				first = 0
			} else if _, message := literal(call.Args[0]); !message {
				return true // http.Error and the like
			}
			for i := first; i < len(call.Args); i += 2 {
				if key, ok := literal(call.Args[i]); ok && i+1 < len(call.Args) {
					use(set.Position(n.Pos()).String(), key)
				}
			}
			return true
		})
	}
	for name, used := range declared {
		if !used {
			t.Errorf("nothing logs %s: drop it from internal/reference/logfields.go", name)
		}
	}
}

// The access log's own fields are checked when a line is written; this finds them where they leave in another way.
func TestAccessLogFieldsAreDeclared(t *testing.T) {
	const declaring = "crates/telemetry/src/fields.rs"
	field := regexp.MustCompile(`"((?:src|dst|policy)\.[a-z_.]+|bytes_(?:sent|recv))"`)
	declared, used := map[string]bool{}, map[string]bool{}
	for _, m := range field.FindAllStringSubmatch(text(t, declaring), -1) {
		declared[m[1]] = true
	}
	for _, name := range tracked(t, ".rs", "crates") {
		if !strings.HasPrefix(name, "crates/telemetry/src/") && name != "crates/proxy/src/waypoint/record.rs" || name == declaring {
			continue
		}
		for _, m := range field.FindAllStringSubmatch(rust(t, name), -1) {
			used[m[1]] = true
			if !declared[m[1]] {
				t.Errorf("%s writes %s, which is not declared: add it to FIELDS in %s and run `make reference`", name, m[1], declaring)
			}
		}
	}
	for name := range declared {
		if !used[name] {
			t.Errorf("nothing writes %s: drop it from %s", name, declaring)
		}
	}
	if len(declared) < 10 {
		t.Errorf("%s declares %d fields: its form has changed, change the rule", declaring, len(declared))
	}
}

// The control plane names operators of accessLogFormat that waypoints have no value for.
func TestOperatorsOfTheAccessLogAreThoseOfProxies(t *testing.T) {
	known := slices.Concat(meshconfig.Operators, meshconfig.Addresses, meshconfig.AddressParts)
	forms := []string{"CAMEL_STRING", "SNAKE_STRING", "NUMBER"}
	used := map[string]bool{}
	for _, m := range regexp.MustCompile(`"([A-Z_]+)"`).FindAllStringSubmatch(rust(t, "crates/proxy/src/waypoint/access_log/operator.rs"), -1) {
		used[m[1]] = true
		if !slices.Contains(known, m[1]) && !slices.Contains(forms, m[1]) {
			t.Errorf("proxies know the operator %s: add it to internal/meshconfig/accesslog.go", m[1])
		}
	}
	for _, name := range known {
		if !used[name] {
			t.Errorf("proxies do not know %s: drop it from internal/meshconfig/accesslog.go", name)
		}
	}
}

// The control plane names conditions of retries that waypoints do not follow.
func TestConditionsOfRetriesAreThoseOfProxies(t *testing.T) {
	code := rust(t, "crates/proxy/src/waypoint/retry.rs")
	_, code, _ = strings.Cut(code, "match &**condition")
	code, _, found := strings.Cut(code, "\"5xx\"")
	var used []string
	for _, m := range regexp.MustCompile(`"([a-z-]+)"`).FindAllStringSubmatch(code, -1) {
		used = append(used, m[1])
	}
	if slices.Sort(used); !found || !slices.Equal(used, meshconfig.Repeated) {
		t.Errorf("proxies follow %v, and internal/meshconfig names %v", used, meshconfig.Repeated)
	}
}

var (
	tracingCall  = regexp.MustCompile(`\btracing::(?:error|warn|info|debug|trace|event)!\(`)
	tracingField = regexp.MustCompile(`^[%?]?([A-Za-z_][A-Za-z0-9_.]*)\s*(?:=[^=]|$)`)
)

// tracingFields finds the fields before the message of each call of tracing's macros.
func tracingFields(source string) []string {
	var fields []string
	for _, at := range tracingCall.FindAllStringIndex(source, -1) {
		depth, start := 0, at[1]
		for i := at[1]; i < len(source) && depth >= 0; i++ {
			switch c := source[i]; {
			case strings.ContainsRune("([{", rune(c)):
				depth++
			case strings.ContainsRune(")]}", rune(c)):
				depth--
			case c == '"' || c == ',' && depth == 0:
				arg := strings.TrimSpace(source[start:i])
				start = i + 1
				if m := tracingField.FindStringSubmatch(arg + " "); m != nil && arg != "" && c == ',' {
					fields = append(fields, m[1])
				}
				if c == '"' && depth == 0 {
					depth = -1 // the message
				}
			}
		}
	}
	return fields
}

func TestTracingFieldsAreFound(t *testing.T) {
	got := tracingFields(`tracing::warn!(%error, pod = %pod.uid, wait = ?f(a, b), peer.name = x, "no {extra}, here = 1", late = 2); tracing::info!("{x}")`)
	if want := []string{"error", "pod", "wait", "peer.name"}; !slices.Equal(got, want) {
		t.Errorf("found %v, want %v", got, want)
	}
}
