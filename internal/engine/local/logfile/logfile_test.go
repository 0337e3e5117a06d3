package logfile

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/quick"
	"time"
)

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return string(b)
}

func TestALogGoesOnInANewFileAtALine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.log")
	l := New(path, 20, 0o600)
	for i := range 7 {
		if _, err := fmt.Fprintf(l, "line %d\n", i); err != nil {
			t.Fatal(err)
		}
	}
	if before, now := read(t, path+Suffix), read(t, path); before != "line 3\nline 4\nline 5\n" || now != "line 6\n" {
		t.Errorf("before %q, now %q", before, now)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Write([]byte("again\n")); err != nil || read(t, path) != "line 6\nagain\n" {
		t.Errorf("%v, %q", err, read(t, path))
	}
}

// Whatever is written in whatever pieces: the two files are the end of it, whole lines while lines are short, and bounded.
func TestTheFilesAreTheEndOfWhatWasWritten(t *testing.T) {
	const limit = 100
	holds := func(pieces [][]byte) bool {
		path := filepath.Join(t.TempDir(), "x.log")
		l := New(path, limit, 0o600)
		var all []byte
		for _, p := range pieces {
			p = p[:min(len(p), limit)]
			if n, err := l.Write(p); n != len(p) || err != nil {
				return false
			}
			all = append(all, p...)
		}
		before, now := read(t, path+Suffix), read(t, path)
		return bytes.HasSuffix(all, []byte(before+now)) && len(now) <= 3*limit && len(before) <= 3*limit &&
			(len(before) > 0 || len(now) == len(all)) && l.Close() == nil
	}
	if err := quick.Check(holds, nil); err != nil {
		t.Error(err)
	}
}

func TestAPipeLosesNothingAndNeverStallsTheWriter(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.log")
	l := New(path, 64<<10, 0o600)
	p, err := l.Pipe(os.Getuid())
	if err != nil {
		t.Fatal(err)
	}
	const lines = 50_000
	for i := range lines {
		if _, err := fmt.Fprintf(p.Writer, "line %d\n", i); err != nil {
			t.Fatal(err)
		}
		if i == lines/2 {
			// Nobody can write there any more, for a while.
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	p.Started()
	p.Drain(time.Minute)
	both := read(t, path+Suffix) + read(t, path)
	kept := strings.Split(strings.TrimSuffix(both, "\n"), "\n")
	for i, line := range kept {
		if want := fmt.Sprintf("line %d", lines-len(kept)+i); line != want {
			t.Fatalf("%q where %q belongs", line, want)
		}
	}
	if len(both) < 64<<10 || len(both) > 4*64<<10 {
		t.Errorf("%d bytes are kept", len(both))
	}
}

func TestAWriterOutlivesItsLog(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "gone")
	p, err := New(filepath.Join(dir, "x.log"), 10, 0o600).Pipe(os.Getuid())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Writer.Write(bytes.Repeat([]byte("line\n"), 1<<20)); err != nil {
		t.Error(err)
	}
	p.End(10 * time.Millisecond) // the writing end is still open
	if _, err := p.Writer.Write([]byte("x")); err == nil {
		t.Error("somebody still reads")
	}
	p.Started()
}

// Of all that processes write into one log each pipe knows which line tells why its own process ended.
func TestAPipeRemembersTheReason(t *testing.T) {
	for name, tc := range map[string]struct{ written, want string }{
		"nothing":          {"", ""},
		"one line":         {"cannot start: no such address\n", "cannot start: no such address"},
		"an error":         {"2026 INFO starting\n2026 ERROR bind 15001: in use\n2026 INFO stopping\n", "2026 ERROR bind 15001: in use"},
		"the last error":   {"error: first\nerror: second\n\n", "error: second"},
		"after much":       {strings.Repeat("a line of no use\n", 5000) + "Error: at the end\nbye", "Error: at the end"},
		"without an error": {"one\ntwo\n", "two"},
	} {
		t.Run(name, func(t *testing.T) {
			log := New(filepath.Join(t.TempDir(), "x.log"), 1<<20, 0o644)
			other, err := log.Pipe(os.Getuid())
			if err != nil {
				t.Fatal(err)
			}
			p, err := log.Pipe(os.Getuid())
			if err != nil {
				t.Fatal(err)
			}
			_, err = p.Writer.WriteString(tc.written)
			if _, e := other.Writer.WriteString("error: of another process\n"); err != nil || e != nil {
				t.Fatal(err, e)
			}
			p.Started()
			other.Started()
			p.Drain(time.Minute)
			other.Drain(time.Minute)
			if got := p.Reason(); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}
