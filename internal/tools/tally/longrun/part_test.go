package longrun

import (
	"slices"
	"strings"
	"testing"
	"time"
)

var noon = time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)

// passed is a record of a run that passed some hours before noon and took some minutes.
func passed(hours, minutes int) Record {
	return Record{Passed: Run{At: noon.Add(-time.Duration(hours) * time.Hour), Commit: "c", Files: "f", Took: time.Duration(minutes) * time.Minute, Passed: 1}}
}

func failedAt(r Record, hours int) Record {
	r.Failed = Run{At: noon.Add(-time.Duration(hours) * time.Hour), Commit: "c", Files: "f", Took: time.Second, Failed: 1}
	return r
}

func TestThePartThatHasWaitedLongestRunsFirst(t *testing.T) {
	steps := []Part{{Name: "a", Step: "a", Assumed: 10 * time.Minute}, {Name: "b", Step: "b", Assumed: 10 * time.Minute}, {Name: "c", Step: "c", Assumed: 10 * time.Minute}}
	var targets []Part
	for _, name := range []string{"t1", "t2", "t3", "t4", "t5"} {
		targets = append(targets, Part{Name: name, Step: "fuzz", Assumed: time.Minute, Setup: 2 * time.Minute, Lanes: 2})
	}
	all := slices.Concat(targets, steps)
	for _, c := range []struct {
		name  string
		parts []Part
		book  Book
		left  time.Duration
		want  string
	}{
		{"nothing ran: the tier's order", steps, Book{}, time.Hour, "a"},
		{"a part that never ran before all others", steps, Book{"a": passed(9, 1), "c": passed(8, 1)}, time.Hour, "b"},
		{"the oldest run", steps, Book{"a": passed(2, 1), "b": passed(9, 1), "c": passed(8, 1)}, time.Hour, "b"},
		{"a failed run ends the wait", steps, Book{"a": failedAt(passed(9, 1), 1), "b": passed(3, 1), "c": passed(2, 1)}, time.Hour, "b"},
		{"the assumed duration does not fit", steps, Book{}, 9 * time.Minute, ""},
		{"the assumed duration just fits", steps, Book{}, 10 * time.Minute, "a"},
		{"the last duration does not fit, that of the next does", steps, Book{"a": passed(9, 30), "b": passed(8, 20), "c": passed(7, 40)}, 20 * time.Minute, "b"},
		{"the duration of a failed run tells nothing", steps[:1], Book{"a": failedAt(Record{}, 1)}, 9 * time.Minute, ""},
		{"no time is left", steps, Book{"a": passed(9, 0)}, -time.Second, ""},
		{"targets in turns of two, behind their build", targets, Book{}, 4 * time.Minute, "t1 t2 t3 t4"},
		{"a turn with one target", targets, Book{}, Unlimited, "t1 t2 t3 t4 t5"},
		{"the build and a target do not fit", targets, Book{}, 2 * time.Minute, ""},
		{"the oldest targets", targets, Book{"t1": passed(1, 1), "t2": passed(5, 1), "t3": passed(2, 1), "t4": passed(4, 1), "t5": passed(3, 1)}, 3 * time.Minute, "t2 t4"},
		{"targets up to a step that has waited longer than the others", all, Book{"a": passed(4, 9), "b": passed(1, 1), "c": passed(1, 1), "t3": passed(3, 1), "t4": passed(3, 1), "t5": passed(3, 1)}, time.Hour, "t1 t2"},
		{"further targets in place of a step that does not fit", all, Book{"a": passed(4, 9), "b": passed(1, 9), "c": passed(1, 9), "t3": passed(3, 1), "t4": passed(3, 1), "t5": passed(3, 1)}, 5 * time.Minute, "t1 t2 t3 t4 t5"},
		{"further targets in place of a step that does not fit behind them", all, Book{"a": passed(4, 9), "b": passed(1, 9), "c": passed(1, 9), "t3": passed(3, 1), "t4": passed(3, 1), "t5": passed(3, 1)}, 10 * time.Minute, "t1 t2 t3 t4 t5"},
		{"a step, and no target beside it", all, Book{"t1": passed(1, 1), "t2": passed(1, 1), "t3": passed(1, 1), "t4": passed(1, 1), "t5": passed(1, 1)}, time.Hour, "a"},
		{"no parts", nil, Book{}, time.Hour, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var names []string
			for _, p := range c.book.Next(c.book.Waiting(c.parts), c.left) {
				names = append(names, p.Name)
			}
			if got := strings.Join(names, " "); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestWhatOneRunChangesInARecord(t *testing.T) {
	run := func(minute int, files string, bad int) Run {
		return Run{At: noon.Add(time.Duration(minute) * time.Minute), Commit: "c", Files: files, Took: time.Second, Passed: 2, Failed: bad}
	}
	ok := func(minute int, files string, fuzzed time.Duration) Outcome {
		return Outcome{Run: run(minute, files, 0), OK: true, Fuzzed: fuzzed}
	}
	bad := func(minute int, files, finding string) Outcome {
		return Outcome{Run: run(minute, files, 1), Finding: finding}
	}
	for _, c := range []struct {
		name string
		runs []Outcome
		want Record
	}{
		{"a part that fails keeps its good date", []Outcome{ok(1, "f", 0), bad(2, "f", "")}, Record{Passed: run(1, "f", 0), Failed: run(2, "f", 1)}},
		{"a part that passes again has no failure", []Outcome{bad(1, "f", ""), ok(2, "f", 0)}, Record{Passed: run(2, "f", 0)}},
		{"seconds of fuzzing add up", []Outcome{ok(1, "f", 60*time.Second), ok(2, "f", 30*time.Second)}, Record{Passed: run(2, "f", 0), Fuzzed: 90 * time.Second}},
		{"seconds of fuzzing older files do not count", []Outcome{ok(1, "f", 60*time.Second), ok(2, "g", 30*time.Second)}, Record{Passed: run(2, "g", 0), Fuzzed: 30 * time.Second}},
		{"a finding stays open though a later run does not meet it", []Outcome{bad(1, "f", "crash-1"), ok(2, "f", 60*time.Second)},
			Record{Passed: run(2, "f", 0), Failed: run(1, "f", 1), Finding: "crash-1", Fuzzed: 60 * time.Second}},
		{"a finding stays open through another failure", []Outcome{bad(1, "f", "crash-1"), bad(2, "f", "")}, Record{Failed: run(2, "f", 1), Finding: "crash-1"}},
		{"a finding is closed by a run with other files", []Outcome{bad(1, "f", "crash-1"), ok(2, "g", time.Second)}, Record{Passed: run(2, "g", 0), Fuzzed: time.Second}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var r Record
			for _, o := range c.runs {
				r = r.After(o)
			}
			if r != c.want {
				t.Errorf("got  %+v\nwant %+v", r, c.want)
			}
		})
	}
}
