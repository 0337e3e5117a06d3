package longrun

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// anyBook makes parts and a book in which each of them has a record, or none.
func anyBook(r *rand.Rand) ([]Part, Book) {
	word := func(letters string) string {
		b := make([]byte, 1+r.IntN(12))
		for i := range b {
			b[i] = letters[r.IntN(len(letters))]
		}
		return string(b)
	}
	run := func(bad int) Run {
		return Run{At: time.Unix(60*r.Int64N(60_000_000), 0).UTC(), Commit: word("0123456789abcdef"), Files: word("0123456789abcdef"),
			Took: time.Duration(r.IntN(100_000)) * time.Second, Passed: r.IntN(2000), Failed: bad, Skipped: r.IntN(30)}
	}
	var parts []Part
	book := Book{}
	for i := range r.IntN(8) {
		p := Part{Name: fmt.Sprintf("%s %d", word("abcXYZ/_.-"), i), Files: word("abc"), Lanes: r.IntN(2)}
		parts = append(parts, p)
		var record Record
		if r.IntN(3) > 0 {
			record.Passed = run(0)
			if p.Target() {
				record.Fuzzed = time.Duration(r.IntN(10_000)) * time.Second
			}
		}
		if r.IntN(3) == 0 {
			record.Failed = run(r.IntN(9))
			if r.IntN(2) == 0 {
				record.Finding = word("abc-.019_")
			}
		}
		if record != (Record{}) {
			book[p.Name] = record
		}
	}
	return parts, book
}

func TestAPageReadBackIsTheBookThatWasWritten(t *testing.T) {
	for seed := range uint64(2000) {
		parts, book := anyBook(rand.New(rand.NewPCG(seed, 1)))
		page := book.Page(parts, noon, "0123456789ab")
		got, err := Read(page)
		if err != nil {
			t.Fatalf("seed %d: %v in\n%s", seed, err, page)
		}
		if !maps.Equal(got, book) {
			t.Fatalf("seed %d: read  %+v\nwrote %+v\n%s", seed, got, book, page)
		}
	}
}

func TestRecordsOfPartsThatAreGoneLeaveThePage(t *testing.T) {
	book := Book{"kept": passed(1, 1), "gone": failedAt(passed(1, 1), 1)}
	got, err := Read(book.Page([]Part{{Name: "kept", Step: "kept"}}, noon, "c"))
	if err != nil || len(got) != 1 || got["kept"] != book["kept"] {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestThePageSaysAtItsTopWhichPartsNeedARun(t *testing.T) {
	of := func(r Record, files string, fuzzed time.Duration) Record {
		r.Passed.Files, r.Fuzzed = files, fuzzed
		return r
	}
	found := failedAt(of(passed(1, 1), "new", 2*time.Hour), 2)
	found.Finding = "crash-1"
	parts := []Part{{Name: "soak", Files: "new"}, {Name: "bare", Files: "new"}, {Name: "agree", Files: "new"},
		{Name: "dns", Files: "new", Lanes: 2}, {Name: "wds", Files: "new", Lanes: 2}, {Name: "crl", Files: "new", Lanes: 2}, {Name: "zds", Files: "new", Lanes: 2}}
	book := Book{"soak": of(passed(1, 1), "old", 0), "agree": failedAt(of(passed(9, 1), "new", 0), 1),
		"dns": of(passed(1, 1), "new", time.Hour), "wds": of(passed(1, 1), "new", time.Hour-time.Second), "crl": of(passed(1, 1), "old", 2*time.Hour), "zds": found}
	page := book.Page(parts, noon, "0123456789ab")
	top, _, _ := strings.Cut(page, "\n| step |")
	for _, want := range []string{
		"2 of 7 parts have passed with the newest files", "commit `0123456789ab` on\n2026-11-27 12:00 UTC",
		"| failed in their last run, or have an open finding | 2 of 7 | `agree`, `zds` |\n",
		"| never passed | 1 of 7 | `bare` |\n",
		"| passed before the newest change of what they test | 2 of 7 | `soak`, `crl` |\n",
		"| were fuzzed for an hour since that change, and have no open finding | 1 of 4 | `dns` |\n",
	} {
		if !strings.Contains(top, want) {
			t.Errorf("%q is missing in\n%s", want, top)
		}
	}
	for _, want := range []string{
		"| `agree` | **failed** | 2026-11-27 03:00 | `c` | 60 | 1 | 0 | `new` |\n", "| `bare` | never ran | – | – | – | – | – | – |\n",
		"| `zds` | 2026-11-27 10:00 | `c` | 1 | 0 | 1 | 0 | `f` | `crash-1` |\n",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("%q is missing in\n%s", want, page)
		}
	}
}

func TestAParserHasTheTimesOfItsTargets(t *testing.T) {
	target := func(name, files string, parsers ...string) Part {
		return Part{Name: name, Files: files, Parsers: parsers, Lanes: 2}
	}
	fuzzed := func(d time.Duration) Record {
		r := passed(1, 1)
		r.Fuzzed = d
		return r
	}
	found := failedAt(fuzzed(time.Hour), 2)
	found.Finding = "crash-1"
	parts := []Part{target("core", "f", "HTTP/2", "HPACK"), target("through", "f", "HTTP/1", "HTTP/2"), target("older", "g", "HTTP/1"),
		target("bad", "f", "HTTP/1"), target("hpack", "f", "HPACK"), target("crl", "f", "crl")}
	page := Book{"core": fuzzed(10 * time.Second), "through": fuzzed(20 * time.Second), "older": fuzzed(time.Hour), "bad": found, "hpack": fuzzed(3 * time.Second),
		"crl": fuzzed(time.Second)}.Page(parts, noon, "c")
	want := "| parser | targets | fuzzed, s |\n|---|---|---|\n| HPACK | `core`, `hpack` | 13 |\n| HTTP/1 | `through`, `older`, `bad` | 20 |\n| HTTP/2 | `core`, `through` | 30 |\n\n"
	if !strings.Contains(page, want) {
		t.Errorf("%q is missing in\n%s", want, page)
	}
	if _, err := Read(page); err != nil {
		t.Error(err)
	}
}

func TestADamagedPageIsRefusedByItsLine(t *testing.T) {
	parts := []Part{{Name: "soak"}, {Name: "dns", Lanes: 2}}
	page := Book{"soak": failedAt(passed(1, 1), 1), "dns": passed(1, 1)}.Page(parts, noon, "c")
	for _, c := range []struct{ name, old, new string }{
		{"a date", "2026-11-27 11:00 | `c` | 60", "yesterday | `c` | 60"},
		{"the seconds", "| `c` | 60 |", "| `c` | an hour |"},
		{"a count", "| 60 | 1 |", "| 60 | -1 |"},
		{"a cell too few", "| 60 | 1 |", "| 60 |"},
		{"the seconds of fuzzing", "| `f` | 0 |", "| `f` | – |"},
	} {
		t.Run(c.name, func(t *testing.T) {
			damaged := strings.Replace(page, c.old, c.new, 1)
			if damaged == page {
				t.Fatalf("%q is not on the page:\n%s", c.old, page)
			}
			if _, err := Read(damaged); err == nil || !strings.HasPrefix(err.Error(), "line ") {
				t.Errorf("got %v from\n%s", err, damaged)
			}
		})
	}
}
