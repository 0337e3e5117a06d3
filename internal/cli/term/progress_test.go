package term

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// terminal is a pseudo-terminal of a width in columns. The function that it returns ends the writing and yields all that the
// terminal received.
func terminal(t *testing.T, columns uint16) (out *os.File, received func() string) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = master.Close() })
	fd := int(master.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	out, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	resize(t, out, columns)
	var text bytes.Buffer
	read := make(chan struct{})
	go func() {
		defer close(read)
		_, _ = text.ReadFrom(master) // ends with EIO when the last writer has closed
	}()
	return out, func() string {
		_ = out.Close()
		<-read
		return text.String()
	}
}

func resize(t *testing.T, tty *os.File, columns uint16) {
	t.Helper()
	if err := unix.IoctlSetWinsize(int(tty.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: columns}); err != nil {
		t.Fatal(err)
	}
}

// moments are the lines that a terminal showed, moving ones included, without their escapes.
func moments(received string) []string {
	lines := strings.FieldsFunc(strings.ReplaceAll(received, clearLine, "\n"), func(r rune) bool { return r == '\n' || r == '\r' })
	for i := range lines {
		lines[i] = strings.NewReplacer("\x1b[2m", "", "\x1b[33m", "", "\x1b[32m", "", "\x1b[0m", "").Replace(lines[i])
	}
	return lines
}

const long = "details-nagle: round 3 of 10: details without NODELAY, 100 ms, lateen (31 of 210 blocks, about 19m23s left)"

func TestAMovingLineIsNeverWiderThanItsTerminal(t *testing.T) {
	for _, columns := range []uint16{20, 40, 80, 100, 160} {
		for _, text := range []string{long, strings.Repeat("日本", 60), strings.Repeat("e\u0301", 100), "two\nlines\tand " + long} {
			out, received := terminal(t, columns)
			p := NewProgress(out, Style{Terminal: true, Colour: true})
			p.Start(text)
			p.Update(text + "!")
			p.Abandon()
			for _, line := range moments(received()) {
				if n := Width(line); n >= int(columns) {
					t.Errorf("%d columns: %d cells in %q", columns, n, line)
				}
			}
		}
	}
}

func TestAMovingLineFollowsTheTerminalsSize(t *testing.T) {
	out, received := terminal(t, 160)
	p := NewProgress(out, Style{Terminal: true})
	p.Start(long)
	resize(t, out, 30)
	p.Update(long + "!")
	p.Abandon()
	lines := moments(received())
	if first, last := lines[0], lines[len(lines)-1]; !strings.HasSuffix(first, "left)") || Width(last) >= 30 || !strings.HasSuffix(last, "…") {
		t.Errorf("first %q, then %q", first, last)
	}
}

// A line that stays on the screen is whole: it goes on in further lines.
func TestALastingLineIsFoldedAndNotCut(t *testing.T) {
	out, received := terminal(t, 40)
	p := NewProgress(out, Style{Terminal: true, Colour: true})
	p.Start("x")
	p.Warn(long)
	p.Note("    | " + long)
	got := received()
	var words []string
	for _, line := range moments(got) {
		if Width(line) > 40 {
			t.Errorf("%d cells in %q", Width(line), line)
		}
		words = append(words, strings.Fields(line)...)
	}
	if text := strings.Join(words, " "); strings.Count(text, long) != 2 {
		t.Errorf("got %q", text)
	}
}

// A log or a pipe is no terminal: a text that changes often stands in it once, and an activity that begins again does as well.
func TestAnActivityThatBeginsAgainIsOnePlainLine(t *testing.T) {
	var out bytes.Buffer
	p := NewProgress(&out, Style{})
	for i := range 100 {
		p.Start("wait for the pods")
		p.Update(fmt.Sprintf("wait for the pods: %d", i))
	}
	p.Done("pods ready")
	if want := "  wait for the pods ...\n✓ pods ready\n"; out.String() != want {
		t.Errorf("got %q", out.String())
	}
}

// A message follows a lead of its own colour, and goes on below it. In a log it is one line.
func TestAMessageIsFoldedForATerminalOnly(t *testing.T) {
	out, received := terminal(t, 20)
	if got := Paragraph(out, Style{Terminal: true}, len("error: "), "pods did not start at all\n\nof late"); got != "pods did not\n  start at all\n\nof late" {
		t.Errorf("got %q", got)
	}
	if got := Paragraph(out, Style{}, len("error: "), long); got != long {
		t.Errorf("a dumb terminal: %q", got)
	}
	if got := Paragraph(&bytes.Buffer{}, Style{}, len("error: "), long); got != long {
		t.Errorf("a pipe: %q", got)
	}
	received()
}

func TestTextIsCutAndFoldedByCells(t *testing.T) {
	for _, tt := range []struct {
		text    string
		columns int
		want    string
	}{
		{"short", 5, "short"}, {"longer", 5, "long…"}, {"日本語", 6, "日本語"}, {"日本語", 5, "日本…"}, {"日本語", 4, "日…"},
		{"e\u0301e\u0301e\u0301", 2, "e\u0301…"}, {"ab", 1, "…"}, {"ab", 0, ""}, {"a\nb\x1bc", 9, "a b c"},
	} {
		if got := Cut(tt.text, tt.columns); got != tt.want || Width(got) > max(tt.columns, 0) {
			t.Errorf("Cut(%q, %d) = %q", tt.text, tt.columns, got)
		}
	}
	for _, tt := range []struct {
		text string
		want []string
	}{
		{"one two three", []string{"one two", "  three"}}, {"one", []string{"one"}}, {"abcdefghijkl", []string{"abcdefghi", "  jkl"}},
		{"  in two three", []string{"  in two", "    three"}}, {"", []string{""}},
	} {
		if got := Fold(tt.text, 9, 2); strings.Join(got, "|") != strings.Join(tt.want, "|") {
			t.Errorf("Fold(%q) = %q, want %q", tt.text, got, tt.want)
		}
	}
}
