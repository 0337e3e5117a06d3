package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"lateen.dev/lateen/internal/tools/tally/longrun"
)

const longPage = "docs/page.md"

// repository is a committed tree with a tier, in which long runs are tested.
type repository struct {
	t   *testing.T
	dir string
	now time.Time
	// tick is how far the clock goes on whenever it is read.
	tick time.Duration
}

func newRepository(t *testing.T, tier string) *repository {
	t.Helper()
	// What git tells a hook would lead the commands below to another repository.
	for _, entry := range os.Environ() {
		if name, value, _ := strings.Cut(entry, "="); strings.HasPrefix(name, "GIT_") {
			t.Setenv(name, value) // puts it back
			_ = os.Unsetenv(name)
		}
	}
	r := &repository{t: t, dir: t.TempDir(), now: time.Date(2026, 11, 27, 8, 0, 0, 0, time.UTC)}
	r.git("init", "-q")
	r.put("tier", tier)
	r.put("src/a", "1")
	r.put("src/b", "1")
	r.put(longPage, "")
	r.commit()
	return r
}

func (r *repository) git(args ...string) {
	r.t.Helper()
	cmd := exec.Command("git", append([]string{"-c", "user.name=n", "-c", "user.email=e@example.org"}, args...)...)
	cmd.Dir = r.dir
	if out, err := cmd.CombinedOutput(); err != nil {
		r.t.Fatalf("git %v: %v: %s", args, err, out)
	}
}

func (r *repository) put(name, text string) {
	r.t.Helper()
	file := filepath.Join(r.dir, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		r.t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		r.t.Fatal(err)
	}
}

func (r *repository) commit() {
	r.t.Helper()
	r.git("add", "-A")
	r.git("commit", "-q", "-m", "c")
}

// run runs the tier an hour after the last run, and returns the output and the book that the page has then.
func (r *repository) run(ctx context.Context, budget time.Duration) (bool, string, longrun.Book) {
	r.t.Helper()
	passed, out, err := r.try(ctx, budget)
	if err != nil {
		r.t.Fatalf("%v\n%s", err, out)
	}
	return passed, out, r.book()
}

func (r *repository) try(ctx context.Context, budget time.Duration, only ...string) (bool, string, error) {
	r.t.Helper()
	steps, err := readSteps(filepath.Join(r.dir, "tier"))
	if err != nil {
		r.t.Fatal(err)
	}
	r.now = r.now.Add(time.Hour)
	var out strings.Builder
	l := &long{ctx: ctx, w: &out, tree: tree{dir: r.dir, page: longPage}, only: only, now: func() time.Time { r.now = r.now.Add(r.tick); return r.now }}
	passed, err := l.run(steps, budget)
	return passed, out.String(), err
}

func (r *repository) book() longrun.Book {
	r.t.Helper()
	page, err := os.ReadFile(filepath.Join(r.dir, longPage))
	if err != nil {
		r.t.Fatal(err)
	}
	book, err := longrun.Read(string(page))
	if err != nil {
		r.t.Fatalf("%v in\n%s", err, page)
	}
	return book
}

// names are those of the parts that have a record.
func names(b longrun.Book) string { return strings.Join(slices.Sorted(maps.Keys(b)), " ") }

// fuzzer is a step with the targets t1 to t4, of which "body" does what NAME is to do.
func fuzzer(seconds int, body string) string {
	return fmt.Sprintf(`fuzz | targets 1m | run() { for NAME in "$@"; do if [ "$NAME" = --list ]; then for n in 1 2 3 4; do echo "t$n %d t$n src/a"; done; else %s; fi; done; }; run`, seconds, body)
}

const fuzzed = `echo "ok - $NAME: the corpus"; echo "ok - $NAME: cov: 1"; echo "--- FUZZED: $NAME, 5 s"`

func TestALongTierResumesWhereItsBudgetEnded(t *testing.T) {
	r := newRepository(t, `a | script 20m src/a | echo "2 passed, 0 failed, 1 skipped"
b | script 50m src/b | echo "3 passed, 0 failed, 0 skipped"
c | plain 30m src | true
`)
	passed, out, book := r.run(context.Background(), 45*time.Minute)
	if !passed || names(book) != "a c" || !strings.Contains(out, "--- PASSED OVER: b takes about 50m0s, and 45m0s are left\n") || !strings.HasSuffix(out, "3 passed, 0 failed, 1 skipped\n") {
		t.Errorf("passed %v, ran %q:\n%s", passed, names(book), out)
	}
	if got := book["a"].Passed; got.Passed != 2 || got.Skipped != 1 || got.Took != time.Second || !got.At.Equal(r.now) || len(got.Commit) != 12 || len(got.Files) != 12 {
		t.Errorf("a is kept as %+v", got)
	}
	_, out, book = r.run(context.Background(), 50*time.Minute)
	if names(book) != "a b c" || !strings.HasPrefix(out, "--- b, about 50m0s\n") {
		t.Errorf("%q ran:\n%s", names(book), out)
	}
	// No part of it is run by a budget of nothing.
	if _, out, again := r.run(context.Background(), 0); !maps.Equal(again, book) || !strings.HasSuffix(out, "0 passed, 0 failed, 0 skipped\n") {
		t.Errorf("%+v became %+v:\n%s", book, again, out)
	}
}

func TestNamedPartsRunAlone(t *testing.T) {
	r := newRepository(t, "a | script 20m src/a | echo '1 passed, 0 failed'\nb c | plain 50m src/b | true\n"+fuzzer(60, fuzzed)+"\n")
	passed, out, err := r.try(context.Background(), longrun.Unlimited, splitNames("b c, t3,")...)
	if !passed || err != nil || names(r.book()) != "b c t3" || strings.Contains(out, "PASSED OVER") {
		t.Errorf("passed %v (%v), ran %q:\n%s", passed, err, names(r.book()), out)
	}
	if _, out, err := r.try(context.Background(), 19*time.Minute, "a"); err != nil || names(r.book()) != "b c t3" || !strings.Contains(out, "PASSED OVER: a takes about 20m0s") {
		t.Errorf("a budget counts for them too: %v, ran %q:\n%s", err, names(r.book()), out)
	}
	if _, _, err := r.try(context.Background(), 0, "a", "d"); err == nil || err.Error() != `no part has the name "d": the names are a, b c, fuzz, t1, t2, t3, t4` {
		t.Errorf("an unknown name: %v", err)
	}
	if _, out, err := r.try(context.Background(), longrun.Unlimited, "fuzz"); err != nil || names(r.book()) != "b c t1 t2 t3 t4" {
		t.Errorf("the name of a step stands for its targets: %v, ran %q:\n%s", err, names(r.book()), out)
	}
}

func TestAFailedPartKeepsItsGoodDate(t *testing.T) {
	r := newRepository(t, `a | script 1m src/a | [ "$(cat src/b)" = 1 ] && echo "1 passed, 0 failed" || { echo "not ok - a wish"; echo "0 passed, 1 failed"; exit 1; }
`)
	_, _, before := r.run(context.Background(), longrun.Unlimited)
	r.put("src/b", "2")
	r.commit()
	passed, out, after := r.run(context.Background(), longrun.Unlimited)
	if passed || after["a"].Passed != before["a"].Passed || after["a"].Failed.Failed != 1 || !strings.Contains(out, "--- FAIL: a: a wish\n") {
		t.Errorf("passed %v, %+v became %+v:\n%s", passed, before, after, out)
	}
}

func TestAPartWhoseTestsAreAllSkippedHasNotPassed(t *testing.T) {
	r := newRepository(t, "a | script 1m src/a | echo '0 passed, 0 failed, 3 skipped'\n")
	if passed, out, book := r.run(context.Background(), longrun.Unlimited); passed || !book["a"].Passed.At.IsZero() || book["a"].Failed.Skipped != 3 {
		t.Errorf("passed %v, %+v:\n%s", passed, book, out)
	}
}

func TestEachFuzzTargetIsAPart(t *testing.T) {
	r := newRepository(t, fuzzer(5, `if [ $NAME = t2 ]; then echo "ok - t2: the corpus"; echo "not ok - t2: its input is /home/me/t2-crash-1"; echo "--- FUZZED: t2, 0 s"; else `+fuzzed+`; fi`))
	r.tick = time.Second
	// The build, and two turns of two targets.
	passed, out, book := r.run(context.Background(), 85*time.Second)
	if passed || names(book) != "t1 t2 t3 t4" || !strings.Contains(out, "--- FAIL: fuzz: t2: its input is /home/me/t2-crash-1\n") || !strings.HasSuffix(out, "7 passed, 1 failed, 0 skipped\n") {
		t.Errorf("passed %v, ran %q:\n%s", passed, names(book), out)
	}
	if b := book["t2"]; b.Finding != "t2-crash-1" || !b.Passed.At.IsZero() || b.Fuzzed != 0 || b.Failed.Failed != 1 || b.Failed.Passed != 1 {
		t.Errorf("the finding is kept as %+v", b)
	}
	if _, _, book = r.run(context.Background(), 75*time.Second); book["t1"].Fuzzed != 10*time.Second || book["t3"].Fuzzed != 5*time.Second {
		t.Errorf("a budget for two targets ran others than the first two, or seconds do not add up: %+v", book)
	}
	r.put("src/b", "2")
	r.commit()
	if _, _, book = r.run(context.Background(), longrun.Unlimited); book["t1"].Fuzzed != 15*time.Second {
		t.Errorf("another file changed, and the seconds of t1 are those of %+v", book["t1"])
	}
	r.put("src/a", "2")
	r.commit()
	if _, _, book = r.run(context.Background(), longrun.Unlimited); book["t1"].Fuzzed != 5*time.Second {
		t.Errorf("its file changed, and the seconds of t1 are those of %+v", book["t1"])
	}
}

func TestATargetWithoutAResultHasFailed(t *testing.T) {
	r := newRepository(t, fuzzer(5, `if [ $NAME = t3 ]; then echo "the build fails"; exit 1; fi; `+fuzzed))
	passed, out, book := r.run(context.Background(), longrun.Unlimited)
	if passed || book["t1"].Passed.At.IsZero() || book["t3"].Failed.At.IsZero() || book["t4"].Failed.At.IsZero() || !strings.Contains(out, "the build fails") {
		t.Errorf("passed %v, %+v:\n%s", passed, book, out)
	}
}

func TestATargetThatWasNotBegunWaits(t *testing.T) {
	r := newRepository(t, fuzzer(5, `if [ $NAME = t4 ]; then echo "--- LEFT: t4"; else [ -n "$FUZZ_UNTIL" ]; `+fuzzed+`; fi`))
	passed, out, book := r.run(context.Background(), time.Hour)
	if !passed || names(book) != "t1 t2 t3" || !strings.Contains(out, "--- PASSED OVER: 1 targets of fuzz") {
		t.Errorf("passed %v, ran %q:\n%s", passed, names(book), out)
	}
}

// interrupt runs the tier until it has made the file "reached".
func (r *repository) interrupt() (string, longrun.Book) {
	r.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	reached := make(chan bool, 1)
	go func() {
		defer cancel()
		for range 1000 {
			if _, err := os.Stat(filepath.Join(r.dir, ".git", "reached")); err == nil {
				reached <- true
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
		reached <- false
	}()
	began := time.Now()
	_, out, book := r.run(ctx, longrun.Unlimited)
	if !<-reached {
		r.t.Fatalf("nothing was there to interrupt:\n%s", out)
	}
	if took := time.Since(began); took > 20*time.Second {
		r.t.Errorf("the programs of the step went on for %s", took)
	}
	return out, book
}

func TestAnInterruptedPartCountsForNothing(t *testing.T) {
	// A job in the background ignores SIGINT, and holds the output of the step.
	r := newRepository(t, `a | plain 1m src/a | true
b | plain 1m src/b | touch .git/reached; sleep 60 & sleep 60
c | plain 1m src/b | true
`)
	out, book := r.interrupt()
	if names(book) != "a" || !strings.Contains(out, "interrupted") || strings.Contains(out, "FAIL") {
		t.Errorf("%+v:\n%s", book, out)
	}
}

func TestTargetsThatEndedBeforeAnInterruptCount(t *testing.T) {
	r := newRepository(t, fuzzer(5, `if [ $NAME = t3 ]; then touch .git/reached; sleep 60; fi; `+fuzzed))
	out, book := r.interrupt()
	if names(book) != "t1 t2" || book["t2"].Fuzzed != 5*time.Second || !strings.Contains(out, "2 of 4 targets ended before") {
		t.Errorf("%+v:\n%s", book, out)
	}
}

func TestATreeWithChangesIsRefused(t *testing.T) {
	r := newRepository(t, "a | plain 1m src/a | true\nb | plain 1m src/b | true\n")
	r.put("src/a", "2")
	if _, _, err := r.try(context.Background(), longrun.Unlimited); err == nil || !strings.Contains(err.Error(), "src/a") {
		t.Errorf("a changed file: %v", err)
	}
	r.commit()
	if _, _, err := r.try(context.Background(), longrun.Unlimited); err != nil {
		t.Errorf("a committed change: %v", err)
	}
	// The first run has changed the page.
	if _, _, err := r.try(context.Background(), longrun.Unlimited); err != nil {
		t.Errorf("a changed page: %v", err)
	}
	r.put("new", "1")
	if _, _, err := r.try(context.Background(), longrun.Unlimited); err == nil || !strings.Contains(err.Error(), "new") {
		t.Errorf("a new file: %v", err)
	}
}

func TestARunEndsWhenTheTreeChangesBelowIt(t *testing.T) {
	r := newRepository(t, "a | plain 1m src/a | echo 2 >src/b\nb | plain 1m src/b | true\n")
	if _, out, err := r.try(context.Background(), longrun.Unlimited); err == nil || !strings.Contains(err.Error(), "src/b") || names(r.book()) != "a" {
		t.Errorf("%v, %q ran:\n%s", err, names(r.book()), out)
	}
}

func TestTheDigestIsThatOfTheFilesAndNotOfThePage(t *testing.T) {
	r := newRepository(t, "a | plain 1m . | true\n")
	l := tree{dir: r.dir, page: longPage}
	digest := func(paths ...string) string {
		t.Helper()
		files, err := l.files()
		if err != nil {
			t.Fatal(err)
		}
		d, err := files.digest(paths)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	all, a := digest("."), digest("src/a")
	r.put(longPage, "anew")
	r.commit()
	if digest(".") != all {
		t.Error("the page counts")
	}
	r.put("src/b", "2")
	r.commit()
	if digest(".") == all || digest("src/a") != a {
		t.Error("a change does not count where it is, or counts elsewhere")
	}
	for _, gone := range []string{"src/none", "src/", "sr"} {
		if _, err := (fileList{{name: "src/a"}}).digest([]string{"src/a", gone}); err == nil {
			t.Errorf("%s is not there, and is taken for a file that never changes", gone)
		}
	}
}

func TestATierWhosePartsAreNotDescribedIsRefused(t *testing.T) {
	for _, tc := range []struct{ name, tier, want string }{
		{"beside another", "& a | plain 1m src | true\n", "remove wait"},
		{"without a duration", "a | plain | true\n", "how long it takes"},
		{"without files", "a | plain 1m | true\n", "files that it tests"},
		{"with a file that is not there", "a | plain 1m src/none | true\n", "src/none"},
		{"twice", "a | plain 1m src | true\na | plain 1m src | true\n", "two parts"},
		{"without targets", "a | targets 1m | true\n", "names no target"},
		{"with a target without files", "a | targets 1m | echo t1 5; true\n", "want NAME SECONDS PARSERS FILES"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if _, _, err := newRepository(t, tc.tier).try(context.Background(), 0); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}

// The tier of this repository has its steps and fuzz targets as parts, and the committed page can be read.
func TestTheLongTierOfThisRepositoryIsRead(t *testing.T) {
	steps, err := readSteps("../../../tests/tiers/test-long")
	if err != nil {
		t.Fatal(err)
	}
	l := &long{ctx: context.Background(), tree: tree{dir: "../../..", page: "docs/reference/test-long.md"}}
	if err := l.partsOf(steps); err != nil {
		t.Fatal(err)
	}
	targets := 0
	for _, p := range l.parts {
		if p.Target() {
			targets++
		}
	}
	if targets < 60 || len(l.parts)-targets < 4 {
		t.Errorf("%d parts, %d of them targets", len(l.parts), targets)
	}
	page, err := os.ReadFile(l.pageFile())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := longrun.Read(string(page)); err != nil {
		t.Error(err)
	}
}
