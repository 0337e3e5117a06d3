package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// tierOf reads steps as a tier's file has them.
func tierOf(t *testing.T, text string) ([]step, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tier")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return readSteps(path)
}

func TestStepsRunBesideEachOtherUntilTheyAreWaitedFor(t *testing.T) {
	dir := t.TempDir()
	// The first two need each other; the last needs what the first leaves behind when it ends.
	steps, err := tierOf(t, `# a tier
& long | script | cd `+dir+`; mkfifo door; echo begun; read -r _ <door; sleep 0.3; echo done >left; echo "3 passed, 0 failed, 1 skipped"
& bad | script | echo "not ok - a wish"; echo "0 passed, 1 failed"; exit 1
short | plain | cd `+dir+`; until [ -p door ]; do sleep 0.01; done; echo >door
wait
last | plain | grep -q done `+dir+`/left
`)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	ended := make(chan bool, 1)
	go func() { ended <- (&tier{w: &out, failOnSkip: false, verbose: false}).run(steps) }()
	select {
	case ok := <-ended:
		if ok {
			t.Error("a step failed and the tier did not")
		}
	case <-time.After(30 * time.Second):
		t.Fatal("the steps do not run beside each other")
	}
	text := out.String()
	at := -1
	for _, want := range []string{
		"--- long begins", "--- bad begins", "--- short (3 of 4; left: last)\n    1 passed", "--- long\n    3 passed, 0 failed, 1 skipped",
		"--- bad\nnot ok - a wish\n0 passed, 1 failed\n    0 passed, 1 failed", "--- last (4 of 4)\n    1 passed", "FAILED: bad\n--- FAIL: bad: a wish\n", "5 passed, 1 failed, 1 skipped\n",
	} {
		next := strings.Index(text, want)
		if next <= at {
			t.Fatalf("%q is missing or in another place in:\n%s", want, text)
		}
		at = next
	}
}

func TestAWaitWithNamesWaitsForTheseStepsAlone(t *testing.T) {
	dir := t.TempDir()
	// The first ends when the last step of all has begun; the second is over by then.
	steps, err := tierOf(t, `& long | plain | until [ -e `+dir+`/begun ]; do sleep 0.01; done
& short | plain | sleep 0.2; touch `+dir+`/over
wait short
last | plain | [ -e `+dir+`/over ] && touch `+dir+`/begun
`)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if !(&tier{w: &out}).run(steps) {
		t.Fatal(out.String())
	}
	text := out.String()
	if short, last, long := strings.Index(text, "--- short\n"), strings.Index(text, "--- last"), strings.Index(text, "--- long\n"); short > last || last > long {
		t.Error(text)
	}
}

func TestASkippedTestOfAStepBesideOthersFailsWhereItShould(t *testing.T) {
	steps, err := tierOf(t, "& one | script | echo '1 passed, 0 failed, 1 skipped'\n")
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if (&tier{w: &out, failOnSkip: true, verbose: false}).run(steps) {
		t.Errorf("it passed:\n%s", out.String())
	}
	if !(&tier{w: &out, failOnSkip: false, verbose: false}).run(steps) {
		t.Errorf("it failed:\n%s", out.String())
	}
}

func TestATierWithoutStepsIsRefused(t *testing.T) {
	for _, text := range []string{"", "wait\n", "& a | b\n", "a | odd | true\n", "a | plain | true\nwait a\n", "& a | plain | true\nwait a, b\n"} {
		if _, err := tierOf(t, text); err == nil {
			t.Errorf("%q was taken", text)
		}
	}
}

// The tiers of this repository can be read, and nothing is left to wait for a step that measures.
func TestTheTiersAreRead(t *testing.T) {
	files, err := filepath.Glob("../../../tests/tiers/*")
	if err != nil || len(files) < 3 {
		t.Fatalf("%v, %v", files, err)
	}
	for _, f := range files {
		steps, err := readSteps(f)
		if err != nil {
			t.Error(err)
		}
		var running []string
		for _, s := range steps {
			switch {
			case s.wait && s.awaited == nil:
				running = nil
			case s.wait:
				running = slices.DeleteFunc(running, func(name string) bool { return slices.Contains(s.awaited, name) })
			case s.beside:
				running = append(running, s.name)
			case strings.HasPrefix(s.name, "alone") && running != nil:
				t.Errorf("%s: %s begins while %s run: put a wait before it", f, s.name, running)
			}
		}
	}
}

func TestAStepSaysHowLongItKeptProcessorsBusy(t *testing.T) {
	waits := runStep(step{name: "waits", kind: kindPlain, command: "sleep 0.2"}, nil)
	works := runStep(step{name: "works", kind: kindPlain, command: "bash -c 'for ((n = 0; n < 100000; n++)); do :; done'"}, nil)
	if waits.busy <= 0 || works.busy <= waits.busy {
		t.Errorf("a loop in a child took %s of processor time, and a sleep %s", works.busy, waits.busy)
	}
}
