package logfile

import (
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/quick"
	"time"
)

// clock sets the clock of the marks for one test.
func clock(t *testing.T) func(time.Duration) time.Time {
	t.Helper()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	now = func() time.Time { return at }
	t.Cleanup(func() { now = time.Now })
	return func(d time.Duration) time.Time {
		at = at.Add(d)
		return at
	}
}

func newLog(t *testing.T, limit int64) (*File, func(string)) {
	t.Helper()
	l := New(filepath.Join(t.TempDir(), "x.log"), limit, 0o600)
	return l, func(text string) {
		t.Helper()
		if n, err := l.Write([]byte(text)); n != len(text) || err != nil {
			t.Fatalf("%d bytes, %v", n, err)
		}
	}
}

func rest(t *testing.T, r *Reader) string {
	t.Helper()
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func readerOf(t *testing.T, l *File) *Reader {
	t.Helper()
	r, err := l.Reader()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	return r
}

func TestAReaderFollowsALogIntoItsNextFiles(t *testing.T) {
	l, write := newLog(t, 4)
	write("one\n")
	r := readerOf(t, l)
	if got := rest(t, r); got != "one\n" {
		t.Errorf("at first %q", got)
	}
	write("two\n")
	write("six\n") // in the next file
	if got := rest(t, r); got != "two\nsix\n" {
		t.Errorf("then %q", got)
	}
	// The file that has what comes next may be the one before the current one by now.
	write("ten\n")
	write("elf\n")
	if got := rest(t, r); got != "ten\nelf\n" {
		t.Errorf("at last %q", got)
	}
	if all := rest(t, readerOf(t, l)); all != "six\nten\nelf\n" {
		t.Errorf("what is kept: %q", all)
	}
}

func TestTailGivesTheLastLines(t *testing.T) {
	for _, tc := range []struct {
		text string
		n    int
		want string
	}{
		{"a\nb\nc\n", 1, "c\n"}, {"a\nb\nc", 1, "c"}, {"a\nb\nc\n", 2, "b\nc\n"}, {"a\nb\n", 5, "a\nb\n"}, {"\n\n\n", 2, "\n\n"},
		{strings.Repeat("x", 200_000) + "\ny\n", 1, "y\n"},
	} {
		l, write := newLog(t, 1<<20)
		write(tc.text)
		r := readerOf(t, l)
		if err := r.Tail(tc.n); err != nil {
			t.Fatal(err)
		}
		if got := rest(t, r); got != tc.want {
			t.Errorf("last %d of %.20q: %.20q, want %q", tc.n, tc.text, got, tc.want)
		}
	}
}

// Lines are written one by one, at times that grow, into files that are small: a reader since a time has exactly the lines from then
// that are kept, and every line knows its time.
func TestLinesKnowWhenTheyWereWritten(t *testing.T) {
	advance := clock(t)
	holds := func(lengths []uint8, pick, last uint8) bool {
		l, write := newLog(t, 300)
		var lines []string
		var at []time.Time
		for i, n := range lengths {
			at = append(at, advance(time.Duration(n)*time.Millisecond+time.Millisecond))
			lines = append(lines, strings.Repeat(string(rune('a'+i%26)), int(n)%40)+"\n")
			write(lines[i])
		}
		if len(lines) == 0 {
			return true
		}
		kept := rest(t, readerOf(t, l))
		if !strings.HasSuffix(strings.Join(lines, ""), kept) {
			return false
		}
		first := len(lines) - strings.Count(kept, "\n")
		i := int(pick) % len(lines)
		r := readerOf(t, l)
		if r.Since(at[i]) != nil {
			return false
		}
		want := lines[max(i, first):]
		begin := r.At()
		if rest(t, r) != strings.Join(want, "") {
			return false
		}
		for j := max(i, first); j < len(lines); j++ {
			if !l.Time(begin).Equal(at[j]) {
				return false
			}
			begin += int64(len(lines[j]))
		}
		// Both bounds together are the stricter one.
		r, n := readerOf(t, l), int(last)%5+1
		if r.Since(at[i]) != nil || r.Tail(n) != nil {
			return false
		}
		return rest(t, r) == strings.Join(want[max(0, len(want)-n):], "")
	}
	if err := quick.Check(holds, &quick.Config{MaxCount: 300}); err != nil {
		t.Error(err)
	}
}

func TestALineBelongsToTheTimeWhenItBegan(t *testing.T) {
	advance := clock(t)
	l, write := newLog(t, 1000)
	write("one\ntw")
	then := advance(time.Second)
	write("o\nthree\n")
	r := readerOf(t, l)
	if err := r.Since(then); err != nil {
		t.Fatal(err)
	}
	if got := rest(t, r); got != "three\n" {
		t.Errorf("got %q", got)
	}
	r = readerOf(t, l)
	if err := r.Since(advance(time.Second)); err != nil {
		t.Fatal(err)
	}
	if got := rest(t, r); got != "" {
		t.Errorf("after the last line there is %q", got)
	}
}

func TestALogKnowsItsRuns(t *testing.T) {
	l, write := newLog(t, 12)
	if _, _, ok := l.Run(false); ok {
		t.Error("a log without a run has one")
	}
	for _, run := range []string{"a1\na2\n", "b1\nb2\n", "c1\n"} {
		l.Begin()
		write(run)
	}
	for before, want := range map[bool]string{true: "b1\nb2\n", false: "c1\n"} {
		from, to, ok := l.Run(before)
		r := readerOf(t, l)
		if err := r.Between(from, to); !ok || err != nil {
			t.Fatalf("%v, %v", ok, err)
		}
		if got := rest(t, r); got != want {
			t.Errorf("before %v: %q, want %q", before, got, want)
		}
	}
}

// The number of marks is bounded, and the times of later bytes are never before those of earlier ones.
func TestMarksAreBounded(t *testing.T) {
	var m times
	begin := time.Unix(1000, 0)
	for i := range 3 * maxMarks {
		m.add(int64(i*10), begin.Add(time.Duration(i)*time.Second))
	}
	if n := len(m.marks); n > maxMarks {
		t.Errorf("%d marks", n)
	}
	if !slices.IsSortedFunc(m.marks, func(a, b mark) int { return int(a.at - b.at) }) {
		t.Error("marks are out of order")
	}
	m.forget(1000)
	if got := m.of(1000); got.After(begin.Add(100 * time.Second)) {
		t.Errorf("the byte at 1000 is from %s", got)
	}
	for i := range 10 {
		m.add(int64(1<<40+i), begin.Add(1000*time.Hour+time.Duration(i)*time.Microsecond))
	}
	if last := m.marks[len(m.marks)-1]; last.at != 1<<40 {
		t.Errorf("writes within a millisecond have marks of their own: %+v", last)
	}
	m.add(1<<41, begin) // the clock was set back
	if got := m.of(1 << 41); got.Before(begin.Add(1000 * time.Hour)) {
		t.Errorf("a later line is older: %s", got)
	}
	if m.of(0).IsZero() {
		t.Error("what is older than the marks has no time")
	}
}
