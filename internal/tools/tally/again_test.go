package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// runner writes a program that stands for a runner of scripts or for cargo: its first run fails, and a later one does what
// the case says. It returns the command.
func runner(t *testing.T, first, later string) string {
	t.Helper()
	dir := t.TempDir()
	text := `cd "` + dir + `"
if [ ! -e ran ]; then touch ran; echo "$@" >args-first; ` + first + `; fi
echo "$@" >>args
` + later + "\n"
	if err := os.WriteFile(filepath.Join(dir, "run"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return "bash " + dir + "/run"
}

func runTier(t *testing.T, failOnSkip bool, text string) (bool, string) {
	t.Helper()
	steps, err := tierOf(t, text)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	passed := (&tier{w: &out, failOnSkip: failOnSkip}).run(steps)
	return passed, out.String()
}

const (
	firstScripts = `echo "--- FAIL: 03-x.sh: served"; echo "9 passed, 1 failed, 0 skipped"; exit 1`
	firstCargo   = `echo "test a::c ... FAILED"; echo "test result: FAILED. 4 passed; 1 failed; 0 ignored"; exit 1`
)

func TestAFailureThatPassesAloneIsFlakyAndDoesNotDecide(t *testing.T) {
	for _, tc := range []struct{ name, kind, first, later, unit, counts string }{
		{"scripts", "scripts", firstScripts, `[ "$1" = 03-x.sh ] && echo "5 passed, 0 failed, 0 skipped"`, "03-x.sh", "10 passed, 0 failed, 0 skipped"},
		{"cargo", "cargo", firstCargo, `[ "$*" = "-- --exact a::c" ] && echo "test result: ok. 1 passed; 0 failed; 0 ignored"`, "a::c", "5 passed, 0 failed, 0 skipped"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			passed, text := runTier(t, true, "s | "+tc.kind+" | "+runner(t, tc.first, tc.later))
			if !passed || !strings.Contains(text, "--- FLAKY: s: "+tc.unit+" ") || !strings.HasSuffix(text, tc.counts+"\n") || strings.Contains(text, "FAILED: s") {
				t.Errorf("passed: %v, output:\n%s", passed, text)
			}
		})
	}
}

func TestAFailureDecides(t *testing.T) {
	for _, tc := range []struct{ name, kind, first, later string }{
		{"that fails alone as well", "scripts", firstScripts, `echo "0 passed, 1 failed, 0 skipped"; exit 1`},
		{"whose second run tests nothing", "cargo", firstCargo, `echo "test result: ok. 0 passed; 0 failed; 0 ignored"`},
		{"that belongs to no script", "scripts", `echo "--- FAIL: run.sh: the cluster starts"; echo "0 passed, 1 failed, 0 skipped"; exit 1`, `echo "1 passed, 0 failed, 0 skipped"`},
		{"beside one that belongs to no script", "scripts", `echo "--- FAIL: run.sh: the cluster ends"; ` + firstScripts, `echo "1 passed, 0 failed, 0 skipped"`},
		{"of a step that depends on the tree alone", "script", firstScripts, `echo "1 passed, 0 failed, 0 skipped"`},
		{"beside a skipped test", "scripts", `echo "--- FAIL: 03-x.sh: served"; echo "9 passed, 1 failed, 1 skipped"; exit 1`, `echo "1 passed, 0 failed, 0 skipped"`},
		{"with too many others", "scripts", `for i in 1 2 3 4; do echo "--- FAIL: 0$i-x.sh: served"; done; echo "0 passed, 4 failed, 0 skipped"; exit 1`, `echo "1 passed, 0 failed, 0 skipped"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if passed, text := runTier(t, true, "s | "+tc.kind+" | "+runner(t, tc.first, tc.later)); passed || !strings.Contains(text, "FAILED: s\n") {
				t.Errorf("passed: %v, output:\n%s", passed, text)
			}
		})
	}
}

func TestMoreFlakyTestsThanToleratedFailTheRun(t *testing.T) {
	two := `echo "--- FAIL: 01-x.sh: served"; echo "--- FAIL: 02-x.sh: served"; echo "0 passed, 2 failed, 0 skipped"; exit 1`
	later := `echo "1 passed, 0 failed, 0 skipped"`
	passed, text := runTier(t, false, "a | scripts | "+runner(t, two, later)+"\nb | scripts | "+runner(t, two, later))
	if passed || !strings.Contains(text, "FAILED: 4 flaky tests") {
		t.Errorf("passed: %v, output:\n%s", passed, text)
	}
}

func TestGoTestsAreRunAgainByPackageAndTopLevelName(t *testing.T) {
	out := `go: downloading example.org/x v1.0.0
{"Action":"fail","Package":"p/q","Test":"TestA/sub case"}
{"Action":"fail","Package":"p/q","Test":"TestA"}
{"Action":"fail","Package":"p/q"}
{"Action":"pass","Package":"p/q","Test":"TestB"}`
	s := step{name: "s", kind: kindGo}
	got := units(s, []byte(out))
	want := []unit{{"p/q TestA", "go test -json -count=1 -run '^TestA$' 'p/q'"}}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if !covers(got, s, failedNames(s, []byte(out))) {
		t.Error("the failures of the test and its package are not the unit's")
	}
	broken := out + "\n" + `{"Action":"fail","Package":"p/broken"}`
	if covers(got, s, failedNames(s, []byte(broken))) {
		t.Error("a package that does not build passes for a flaky test")
	}
}

func TestWhatIsFoundIsToldAndDoesNotDecide(t *testing.T) {
	passed, text := runTier(t, true, `s | script | echo "--- FOUND: wds: an input"; echo "3 passed, 0 failed, 0 skipped"`)
	if !passed || !strings.Contains(text, "--- FOUND: s: wds: an input") {
		t.Errorf("passed: %v, output:\n%s", passed, text)
	}
}

func TestAStepSaysWhereItIs(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	steps, err := tierOf(t, "a | plain | true\n& b | plain | true\nwait\nc | plain | true\n")
	if err != nil {
		t.Fatal(err)
	}
	d := readDurations("tests/tiers/x")
	d.took(steps[1], 12e9)
	d.write()
	d = readDurations("tests/tiers/x")
	for at, want := range map[int]string{0: "(1 of 3; left: b, c)", 1: "(2 of 3; 12 s the last time; left: c)", 3: "(3 of 3)"} {
		if got := d.place(steps, at); got != want {
			t.Errorf("step %d: got %q, want %q", at, got, want)
		}
	}
}
