package cli

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/quick"

	"lateen.dev/lateen/internal/engine/api"
	"lateen.dev/lateen/internal/engine/local/merge"
)

func versionOf(kind, metadata, data string) json.RawMessage {
	return json.RawMessage(fmt.Sprintf(`{"apiVersion":"v1","kind":%q,"metadata":{"name":"x",%s},"data":%s,"status":{"seen":1}}`, kind, metadata, data))
}

func TestDiffShowsWhatApplyWouldChange(t *testing.T) {
	key := func(kind string) api.Key { return api.Key{Kind: kind, Namespace: "default", Name: "x"} }
	for name, tc := range map[string]struct {
		result api.ObjectResult
		code   int
		want   string
	}{
		"nothing but the mesh's own fields": {api.ObjectResult{Key: key("ConfigMap"), Before: versionOf("ConfigMap", `"uid":"1","generation":1`, `{"a":"1"}`), After: versionOf("ConfigMap", `"uid":"1","generation":2`, `{"a":"1"}`)}, 0, ""},
		"a change": {api.ObjectResult{Key: key("ConfigMap"), Before: versionOf("ConfigMap", `"uid":"1"`, `{"a":"1","b":"2"}`), After: versionOf("ConfigMap", `"uid":"1"`, `{"a":"1","b":"3"}`)}, 1,
			"--- live/default/configmap/x\n+++ merged/default/configmap/x\n@@ -1,7 +1,7 @@\n apiVersion: v1\n data:\n   a: \"1\"\n-  b: \"2\"\n+  b: \"3\"\n kind: ConfigMap\n metadata:\n   name: x\n"},
		"a new object": {api.ObjectResult{Key: key("ConfigMap"), After: versionOf("ConfigMap", `"labels":{}`, `{"a":"1"}`)}, 1,
			"--- live/default/configmap/x\n+++ merged/default/configmap/x\n@@ -0,0 +1,7 @@\n+apiVersion: v1\n+data:\n+  a: \"1\"\n+kind: ConfigMap\n+metadata:\n+  labels: {}\n+  name: x\n"},
		"a secret": {api.ObjectResult{Key: key("Secret"), Before: versionOf("Secret", `"uid":"1"`, `{"a":"old","b":"same","c":"gone"}`), After: versionOf("Secret", `"uid":"1"`, `{"a":"new","b":"same"}`)}, 1,
			"--- live/default/secret/x\n+++ merged/default/secret/x\n@@ -1,8 +1,7 @@\n apiVersion: v1\n data:\n-  a: '*** (before)'\n+  a: '*** (after)'\n   b: '***'\n-  c: '***'\n kind: Secret\n metadata:\n   name: x\n"},
	} {
		f := newFake(t)
		f.applied = func(r api.ApplyRequest) api.ApplyResult {
			if !r.DryRun || !r.Diff || r.Namespace != "shop" {
				t.Errorf("%s: asked %+v", name, r)
			}
			return api.ApplyResult{Results: []api.ObjectResult{tc.result}}
		}
		if r := f.run("x", "diff", "-f", "-", "-n", "shop"); r.code != tc.code || r.stdout != tc.want {
			t.Errorf("%s: exit code %d\n%s%s", name, r.code, r.stdout, r.stderr)
		}
	}
}

func TestDiffFailsAboveOne(t *testing.T) {
	f := newFake(t)
	f.applied = func(api.ApplyRequest) api.ApplyResult {
		return api.ApplyResult{Problems: []api.Problem{{File: "x.yaml", Line: 3, Message: "bad", Fix: "better"}},
			Results: []api.ObjectResult{{Key: api.Key{Kind: "ConfigMap", Name: "x"}, After: versionOf("ConfigMap", `"a":"b"`, `{}`)}}}
	}
	if r := f.run("x", "diff", "-f", "-"); r.code != 2 || !strings.Contains(r.stdout, "+kind: ConfigMap") || !strings.Contains(r.stderr, "x.yaml:3: bad\n  fix: better") {
		t.Errorf("a refused object beside another: %+v", r)
	}
	if r := f.run("x", "diff", "-f", "/no/such/file"); r.code != 2 || !strings.Contains(r.stderr, "error: read /no/such/file") {
		t.Errorf("no file: %+v", r)
	}
	f.socket = "no-such.sock"
	if r := f.run("x", "diff", "-f", "-"); r.code != 2 || !strings.Contains(r.stderr, "not running") {
		t.Errorf("no mesh: %+v", r)
	}
	if r := f.run("x", "diff"); r.code != ExitUsage {
		t.Errorf("no flag: %+v", r)
	}
}

// patch(1) makes the new version of the old one and a diff.
func TestADiffIsAPatch(t *testing.T) {
	tool, err := exec.LookPath("patch")
	if err != nil {
		t.Fatalf("patch is needed for this test: %v", err)
	}
	holds := func(before, after map[string]uint8) bool {
		raw := func(values map[string]uint8) json.RawMessage {
			data := map[string]string{}
			for k, v := range values {
				data[fmt.Sprintf("k%x", len(k)%16)] = strings.Repeat("line\n", int(v%4)) + "end"
			}
			b, _ := json.Marshal(map[string]any{"kind": "ConfigMap", "data": data})
			return b
		}
		r := api.ObjectResult{Key: api.Key{Kind: "ConfigMap", Name: "x"}, Before: raw(before), After: raw(after)}
		text, err := difference(r)
		old, now, err2 := comparable(r)
		if err != nil || err2 != nil || (text == "") != (old == now) {
			return false
		}
		if text == "" {
			return true
		}
		file := filepath.Join(t.TempDir(), "x")
		if os.WriteFile(file, []byte(old), 0o600) != nil {
			return false
		}
		command := exec.Command(tool, "--silent", file)
		command.Stdin = strings.NewReader(text)
		if out, err := command.CombinedOutput(); err != nil {
			t.Logf("%v: %s\n%s", err, out, text)
			return false
		}
		made, err := os.ReadFile(file)
		return err == nil && string(made) == now
	}
	if err := quick.Check(holds, &quick.Config{MaxCount: 60}); err != nil {
		t.Error(err)
	}
}

// tree is an object of some depth from random numbers.
func tree(numbers []uint8, depth int) map[string]any {
	out := map[string]any{}
	for i, n := range numbers {
		key := string(rune('a' + n%5))
		switch {
		case n%3 == 0 && depth > 0:
			out[key] = tree(numbers[i+1:], depth-1)
		case n%3 == 1:
			out[key] = []any{float64(n), "x"}
		default:
			out[key] = float64(n)
		}
	}
	return out
}

func TestAMergePatchMakesTheSecondObjectOfTheFirst(t *testing.T) {
	holds := func(a, b []uint8) bool {
		a, b = a[:min(len(a), 8)], b[:min(len(b), 8)]
		from, to := tree(a, 3), tree(b, 3)
		kept := maps.Clone(from)
		patch := mergePatch(from, to)
		return reflect.DeepEqual(merge.Patch(from, patch), to) && reflect.DeepEqual(from, kept) && (len(patch) == 0) == reflect.DeepEqual(from, to)
	}
	if err := quick.Check(holds, &quick.Config{MaxCount: 2000}); err != nil {
		t.Error(err)
	}
}
