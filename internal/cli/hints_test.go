package cli

import (
	"go/ast"
	"go/parser"
	"go/token"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"lateen.dev/lateen/internal/engine/api"
)

func TestSuggestedCommandsReachTheSameMesh(t *testing.T) {
	f := newFake(t)
	f.meshes, f.silent = []string{"ux"}, nil
	a := newApp(f.env(nil, nil, nil))
	for text, want := range map[string]string{
		"see `lateen status`":                           "see `lateen status --name ux`",
		"lateen logs proxy/n1 says more":                "lateen logs proxy/n1 --name ux says more",
		"`lateen get pods -n default` lists them":       "`lateen get pods -n default --name ux` lists them",
		"lateen get pods -n default lists them":         "lateen get pods -n default --name ux lists them",
		"lateen get namespaces lists them":              "lateen get namespaces --name ux lists them",
		"`lateen exec p -- lateen` runs it":             "`lateen exec p --name ux -- lateen` runs it",
		"`lateen tap -A   # all`":                       "`lateen tap -A --name ux   # all`",
		"see `lateen status` or `lateen logs p -n q`":   "see `lateen status --name ux` or `lateen logs p -n q --name ux`",
		"see lateen logs control.":                      "see lateen logs --name ux control.",
		"lateen ca status, or lateen ca rotate --wait":  "lateen ca status --name ux, or lateen ca rotate --name ux --wait",
		"bin/lateen up":                                 "bin/lateen up --name ux",
		"lateen down --name other":                      "lateen down --name other",
		"lateen get pods --name=other; lateen status":   "lateen get pods --name=other; lateen status --name ux",
		"lateen wait and `lateen tap --name o`":         "lateen wait --name ux and `lateen tap --name o`",
		"lateen --name other status":                    "lateen --name other status",
		"lateen list, lateen lab list, lateen version":  "lateen list, lateen lab list, lateen version",
		"lateen demo, lateen install, lateen upgrade":   "lateen demo, lateen install, lateen upgrade",
		"use the lateen of 1.2, or lateen statuses":     "use the lateen of 1.2, or lateen statuses",
		"kubectl logs -n lateen-system lateen-control":  "kubectl logs -n lateen-system lateen-control",
		"lateen status\nlateen wait --timeout 3s":       "lateen status --name ux\nlateen wait --name ux --timeout 3s",
		"helm upgrade lateen charts/lateen --namespace": "helm upgrade lateen charts/lateen --namespace",
	} {
		if got := a.addressed(text); got != want {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
	}
	a = newApp(f.env(nil, nil, nil))
	a.kubeContext = "east"
	for text, want := range map[string]string{"lateen status": "lateen status --context east", "lateen upgrade --dry-run": "lateen upgrade --context east --dry-run"} {
		if got := a.addressed(text); got != want {
			t.Errorf("of a cluster, %q became %q, want %q", text, got, want)
		}
	}
}

// bare finds a suggested command of a mesh that has no name behind it.
func bare(a *app, text string) string {
	for _, line := range strings.Split(text, "\n") {
		if strings.Contains(line, " --help") {
			continue // help is the same for every mesh
		}
		if fixed := a.addressed(line); fixed != line {
			return line
		}
	}
	return ""
}

// Every command is run against a mesh whose parts give advice without its name in each text that they can send.
func TestNoAdviceLeavesOutTheNameOfTheMesh(t *testing.T) {
	const advice = "see `lateen status` and lateen logs control"
	for _, args := range [][]string{
		{"status"}, {"status", "-o", "json"}, {"status", "-o", "wide"}, {"get", "pod", "none"}, {"get", "ap", "-o", "wide"}, {"get", "ap", "-o", "json"}, {"apply", "-f", "-"},
		{"delete", "pod", "none"}, {"label", "ns", "default", "istio.io/dataplane-mode-"}, {"scale", "deploy/details-v1", "--replicas=2"},
		{"wait", "--timeout", "300ms"}, {"wait", "pod/none"}, {"ca", "status"}, {"ca", "rotate"}, {"up"}, {"down"}, {"check"}, {"check", "-o", "json"},
		{"logs", "none"}, {"exec", "none", "--", "x"}, {"port-forward", "svc/none", "1:1"}, {"proxy", "config", "n9"}, {"proxy", "replace", "n9"}, {"tap", "--for", "1s"}, {"top", "--once"},
	} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			f := newFake(t)
			f.meshes, f.silent = []string{"ux"}, nil
			f.objects, f.status, f.ca = sampleObjects(), sampleStatus(), sampleCA()[1:]
			f.problems = []api.Problem{{Message: advice, Fix: advice}}
			f.results = []api.ObjectResult{{Key: api.Key{Kind: "Pod", Name: "x"}, Warnings: []string{advice}}}
			f.fail = &api.Error{Message: advice, Fix: advice}
			fill(reflect.ValueOf(&f.status).Elem(), advice)
			f.status.Control.Ready = false
			for i := range f.objects {
				for j := range f.objects[i].Conditions {
					f.objects[i].Conditions[j].Message = advice
				}
			}
			f.missing = &api.Error{Message: advice, Fix: advice}
			r := f.run("kind: x", args...)
			a := newApp(f.env(nil, nil, nil))
			if line := bare(a, r.stdout+"\n"+r.stderr); line != "" {
				t.Errorf("no name of the mesh in %q", line)
			}
			if !strings.Contains(r.stdout+r.stderr, "--name ux") && !slices.Contains([]string{"delete", "tap", "top", "check", "port-forward", "ca", "up"}, args[0]) {
				t.Errorf("the advice is missing: the test shows nothing: %+v", r)
			}
		})
	}
}

// fill puts a text into every field for people of a value.
func fill(v reflect.Value, text string) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			field := v.Type().Field(i)
			if v.Field(i).Kind() == reflect.String && slices.Contains([]string{"Message", "Fix", "Error", "Reason", "MeshReason", "LastExit", "Trouble"}, field.Name) {
				v.Field(i).SetString(text)
			} else if field.IsExported() {
				fill(v.Field(i), text)
			}
		}
	case reflect.Pointer:
		if !v.IsNil() {
			fill(v.Elem(), text)
		}
	case reflect.Slice:
		for i := range v.Len() {
			fill(v.Index(i), text)
		}
	}
}

// The texts for people pass through one place: a function that writes to standard error itself would give advice without the name.
func TestMessagesAreWrittenInOnePlace(t *testing.T) {
	allowed := map[string]string{
		"next": "it addresses", "warn": "it addresses", "report": "it addresses", "Run": "it addresses", "tellLine": "it addresses", "summary": "its lines have no advice",
		"edit": "it says that nothing changed",
	}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	writes := regexp.MustCompile(`^(Fprint|Fprintf|Fprintln|WriteString)$`)
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, declaration := range file.Decls {
			function, ok := declaration.(*ast.FuncDecl)
			if !ok || allowed[function.Name.Name] != "" {
				continue
			}
			ast.Inspect(function, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok || len(call.Args) == 0 {
					return true
				}
				if by, ok := call.Fun.(*ast.SelectorExpr); ok && by.Sel.Name == "printf" && !suggestsNothing(call.Args[0]) {
					t.Errorf("%s: %s suggests a command on standard output: use next", set.Position(n.Pos()), function.Name.Name)
				}
				to, isField := call.Args[0].(*ast.SelectorExpr)
				by, isSelector := call.Fun.(*ast.SelectorExpr)
				if isField && isSelector && len(call.Args) > 1 && to.Sel.Name == "Stderr" && writes.MatchString(by.Sel.Name) && !suggestsNothing(call.Args[1]) {
					t.Errorf("%s: %s writes to standard error itself: use warn or next", set.Position(n.Pos()), function.Name.Name)
				}
				return true
			})
		}
	}
}

// suggestsNothing reports whether a format is a literal that names no command of this program.
func suggestsNothing(format ast.Expr) bool {
	literal, ok := format.(*ast.BasicLit)
	return ok && !strings.Contains(literal.Value, "lateen ")
}

// A socket that nobody listens on is what a killed mesh leaves.
func TestASocketWithoutAnEngineIsNoRunningMesh(t *testing.T) {
	f := newFake(t)
	f.meshes, f.silent = []string{"ux", "killed"}, []string{"killed"}
	l, err := net.Listen("unix", f.socket+".none")
	if err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(f.socket + ".none"); err != nil {
		t.Fatal(err)
	}
	if running := newApp(f.env(nil, nil, nil)).running(); !slices.Equal(running, []string{"ux"}) {
		t.Errorf("running: %q", running)
	}
}

func TestScaleSuggestsTheNamespace(t *testing.T) {
	f := newFake(t)
	if r := f.run("", "scale", "deploy/web", "--replicas=2", "-n", "shop"); r.code != ExitOK || !strings.Contains(r.stderr, "Next: lateen wait deploy/web -n shop\n") {
		t.Errorf("%+v", r)
	}
}
