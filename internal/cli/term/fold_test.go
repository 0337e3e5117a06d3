package term

import (
	"strings"
	"testing"
)

func TestFoldBreaksBetweenWordsAndGivesColoursNoRoom(t *testing.T) {
	for _, tt := range []struct {
		line    string
		columns int
		want    string
	}{
		{"one two", 0, "one two"},
		{"  one two three four five", 20, "  one two three four|    five"},
		{"a-word-that-is-wider-than-all-of-it and more", 20, "a-word-that-is-wider|  -than-all-of-it|  and more"},
		{"\x1b[33mwarning:\x1b[0m one two three", 22, "\x1b[33mwarning:\x1b[0m one two three"},
		{"\x1b[33mwarning:\x1b[0m one two three", 21, "\x1b[33mwarning:\x1b[0m one two|  three"},
		{"a\x1b[2Kb\tc", 80, "a [2Kb c"},
	} {
		if got := strings.Join(Fold(tt.line, tt.columns, 2), "|"); got != tt.want {
			t.Errorf("%q at %d: got %q, want %q", tt.line, tt.columns, got, tt.want)
		}
	}
}
