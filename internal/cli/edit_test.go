package cli

import (
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"lateen.dev/lateen/internal/cli/term"
	"lateen.dev/lateen/internal/engine/api"
)

// editMesh is a mesh with one object and an editor that runs a script over the file, whose name is $1.
func editMesh(t *testing.T, script string) *fakeEngine {
	t.Helper()
	f := newFake(t)
	f.objects = []api.Object{object("cm", "x", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x","namespace":"default","uid":"7","generation":3},"data":{"colour":"red","shape":"round"},"status":{"a":"b"}}`)}
	editor := filepath.Join(t.TempDir(), "editor")
	if err := os.WriteFile(editor, []byte("#!/bin/sh\nset -e\ncp \"$1\" \"$0.round$(ls \"$0\".round* 2>/dev/null | wc -l)\"\n"+script+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	f.variable = map[string]string{"EDITOR": editor}
	t.Setenv("TMPDIR", t.TempDir())
	return f
}

// left are the files that an edit has left behind.
func left(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(os.Getenv("TMPDIR"), "*"))
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// round is what the editor found in one of its rounds.
func round(t *testing.T, f *fakeEngine, n string) string {
	t.Helper()
	b, err := os.ReadFile(f.variable["EDITOR"] + ".round" + n)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestEditSendsTheDifference(t *testing.T) {
	f := editMesh(t, `sed -i 's/red/green/; /shape/d' "$1"`)
	r := f.run("", "edit", "cm", "x")
	want := `POST /v1/patch {"key":{"kind":"ConfigMap","namespace":"default","name":"x"},"patch":{"data":{"colour":"green","shape":null}},"uid":"7","generation":3}`
	if r.code != ExitOK || r.stdout != "default/configmap/x edited\n" || !f.askedFor(want) {
		t.Errorf("%+v, asked %v", r, f.asked)
	}
	text := round(t, f, "0")
	if !strings.HasPrefix(text, "# ") || strings.Contains(text, "uid") || strings.Contains(text, "status") || !strings.Contains(text, "colour: red") {
		t.Errorf("the editor got %s", text)
	}
	if files := left(t); len(files) > 0 {
		t.Errorf("left %v", files)
	}
	f = editMesh(t, `sed -i s/red/blue/ "$1"`)
	f.variable["KUBE_EDITOR"], f.variable["EDITOR"] = "sh "+f.variable["EDITOR"], "false"
	if r := f.run("", "edit", "cm/x"); r.code != ExitOK || !f.askedFor(`POST /v1/patch {"key":{"kind":"ConfigMap","namespace":"default","name":"x"},"patch":{"data":{"colour":"blue"}},"uid":"7","generation":3}`) {
		t.Errorf("KUBE_EDITOR with an option: %+v", r)
	}
}

func TestEditChangesNothingUnlessSomethingWasChanged(t *testing.T) {
	for script, want := range map[string]string{
		"true":                           "edit cancelled, no changes made",
		`echo '# a remark' >> "$1"`:      "edit cancelled, no changes made",
		`: > "$1"`:                       "edit cancelled, the saved file is empty",
		`sed -i '/^[^#]/d' "$1"`:         "edit cancelled, the saved file is empty",
		`sed -i "s/red/\"red\"/" "$1"`:   "edit cancelled, no changes made",
		`sed -i '1i # more on top' "$1"`: "edit cancelled, no changes made",
	} {
		f := editMesh(t, script)
		if r := f.run("", "edit", "cm", "x"); r.code != ExitOK || r.stdout != "" || r.stderr != want+"\n" || f.askedFor(`POST /v1/patch {"key":{"kind":"ConfigMap","namespace":"default","name":"x"},"patch":{"data"`) {
			t.Errorf("%s: %+v", script, r)
		}
	}
}

func TestARefusedEditOpensAgain(t *testing.T) {
	refuse := func(r api.PatchRequest) *api.Error {
		if strings.Contains(string(r.Patch), "pink") {
			return &api.Error{Code: http.StatusBadRequest, Message: "data.colour: pink is no colour", Fix: "use red"}
		}
		return nil
	}
	f := editMesh(t, `if grep -q 'pink is no colour; use red' "$1"; then sed -i s/pink/blue/ "$1"; else sed -i s/red/pink/ "$1"; fi`)
	f.patched = refuse
	if r := f.run("", "edit", "cm", "x"); r.code != ExitOK || r.stdout != "default/configmap/x edited\n" {
		t.Errorf("%+v", r)
	}
	if text := round(t, f, "1"); !strings.Contains(text, "# The changes were not taken:\n# data.colour: pink is no colour; use red\n") || !strings.Contains(text, "colour: pink") {
		t.Errorf("the second time the editor got %s", text)
	}
	for script, why := range map[string]string{
		`sed -i 's/red/pink/' "$1"`:                        "pink is no colour",
		`sed -i 's/name: x/name: y/' "$1"`:                 "metadata.name and metadata.namespace cannot change",
		`grep -q '{red' "$1" || sed -i 's/red/{red/' "$1"`: "read the file",
		`sed -i 's/shape: /colour: /' "$1"`:                `key "colour" already set`,
	} {
		f := editMesh(t, script)
		f.patched = refuse
		r := f.run("", "edit", "cm", "x")
		if files := left(t); r.code != ExitFailure || !strings.Contains(r.stderr, "no valid changes were saved") || !strings.Contains(r.stderr, why) || len(files) != 1 || !strings.Contains(r.stderr, files[0]) {
			t.Errorf("%s: %+v, left %v", script, r, files)
		}
	}
}

// Ctrl-C reaches the editor and the command alike. An editor may go on after it, or end.
func TestAnInterruptedEditTellsWhereTheChangesAre(t *testing.T) {
	pid := strconv.Itoa(os.Getpid())
	for name, tt := range map[string]struct {
		script string
		code   int
		text   string
	}{
		"the editor goes on": {`sed -i s/red/green/ "$1"; kill -INT ` + pid + `; sleep 0.4; kill -INT ` + pid + `; sleep 0.2`, 130, "interrupted"},
		"the editor ends":    {`sed -i s/red/green/ "$1"; kill -INT $$`, ExitFailure, "failed: "},
		"both end":           {`sed -i s/red/green/ "$1"; kill -INT ` + pid + `; sleep 0.2; kill -INT $$`, ExitFailure, "failed: "},
	} {
		t.Run(name, func(t *testing.T) {
			f := editMesh(t, tt.script)
			var stdout, stderr heard
			ctx, i := interruptible(&stdout, &stderr, term.Style{})
			i.exit = func(code int) {
				t.Errorf("a second signal ended the command with code %d while the editor was open", code)
			}
			env := f.env(strings.NewReader(""), &stdout, &stderr)
			env.interrupts = i
			code := i.stop(Run(ctx, env, []string{"edit", "cm", "x"}))
			files := left(t)
			if len(files) != 1 || code != tt.code || !strings.Contains(stderr.String(), tt.text) || !strings.Contains(stderr.String(), "a copy of the changes is in "+files[0]) {
				t.Fatalf("exit code %d, left %v: %s", code, files, stderr.String())
			}
			if saved, err := os.ReadFile(files[0]); err != nil || !strings.Contains(string(saved), "colour: green") {
				t.Errorf("the copy is %s: %v", saved, err)
			}
		})
	}
}

func TestEditFailsBeforeAnEditorOpensWhereNothingCanBeChanged(t *testing.T) {
	f := editMesh(t, "true")
	f.patched = func(api.PatchRequest) *api.Error {
		return &api.Error{Code: http.StatusNotImplemented, Message: "objects of a cluster are changed by kubectl", Fix: "kubectl edit configmap/x"}
	}
	if r := f.run("", "edit", "cm", "x"); r.code != ExitFailure || !strings.Contains(r.stderr, "fix: kubectl edit configmap/x") {
		t.Errorf("%+v", r)
	}
	f = editMesh(t, "exit 3")
	if r := f.run("", "edit", "cm", "x"); r.code != ExitFailure || !strings.Contains(r.stderr, "failed: exit status 3") || len(left(t)) > 0 {
		t.Errorf("%+v", r)
	}
	for _, args := range [][]string{{"edit"}, {"edit", "cm"}, {"edit", "cm/x", "cm/y"}, {"edit", "cm", "x", "y"}} {
		if r := f.run("", args...); r.code != ExitUsage {
			t.Errorf("%v: %+v", args, r)
		}
	}
}

func TestAnEditKeepsAConcurrentChange(t *testing.T) {
	f := editMesh(t, `grep -q 'was changed' "$1" || sed -i s/red/green/ "$1"`)
	changed := object("cm", "x", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x","namespace":"default","uid":"7","generation":4},"data":{"colour":"red","shape":"square"}}`)
	f.patched = func(r api.PatchRequest) *api.Error {
		if r.DryRun || r.Generation == 4 && r.UID == "7" {
			return nil
		}
		f.objects = []api.Object{changed} // another command was faster
		return &api.Error{Code: http.StatusConflict, Message: "the object was changed by another command", Fix: "repeat the change"}
	}
	r := f.run("", "edit", "cm", "x")
	want := `POST /v1/patch {"key":{"kind":"ConfigMap","namespace":"default","name":"x"},"patch":{"data":{"colour":"green"}},"uid":"7","generation":4}`
	if r.code != ExitOK || r.stdout != "default/configmap/x edited\n" || !f.askedFor(want) {
		t.Fatalf("%+v, asked %q", r, f.asked)
	}
	if text := round(t, f, "1"); !strings.Contains(text, "was changed by another command") || !strings.Contains(text, "colour: green") || !strings.Contains(text, "shape: square") {
		t.Errorf("the second time the editor got %s", text)
	}
}

func TestEditAndAnnotateTellWhatTheAnalysisFinds(t *testing.T) {
	f := editMesh(t, `sed -i 's/DENY/ALLOW/' "$1"`)
	policy := object("ap", "x", `{"apiVersion":"security.istio.io/v1","kind":"AuthorizationPolicy","metadata":{"name":"x","namespace":"default"},"spec":{"action":"DENY"}}`)
	policy.Conditions = []api.Condition{{Type: "Accepted", Status: "True", Reason: "Accepted"}}
	policy.Findings = []api.Finding{{Code: "refuses-all", Severity: api.FindingWarning, Message: "it refuses every connection", Fix: "add a rule"}}
	f.objects = []api.Object{policy}
	for _, args := range [][]string{{"edit", "ap", "x"}, {"annotate", "ap", "x", "istio.io/dry-run=true"}, {"label", "ap", "x", "a=b"}} {
		if r := f.run("", args...); r.code != ExitOK || !strings.Contains(r.stderr, "it refuses every connection\n  fix: add a rule\n") {
			t.Errorf("%v: %+v", args, r)
		}
	}
}
