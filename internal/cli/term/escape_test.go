package term

import "testing"

// A terminal obeys controls, colours and overrides of the writing direction wherever they come from.
func TestEscape(t *testing.T) {
	for _, tt := range []struct{ text, escaped, line string }{
		{"plain, with ä, 世 and ✓", "plain, with ä, 世 and ✓", "plain, with ä, 世 and ✓"},
		{"a\x1b]0;title\aend", `a\x1b]0;title\aend`, `a\x1b]0;title\aend`},
		{"\x1b[31mred", `\x1b[31mred`, `\x1b[31mred`},
		{"tab\tand\x00nul\x7f", `tab\tand\x00nul\x7f`, `tab\tand\x00nul\x7f`},
		{"c1 \u009b31m", `c1 \u009b31m`, `c1 \u009b31m`},
		{"turned \u202ederutn\u2069", `turned \u202ederutn\u2069`, `turned \u202ederutn\u2069`},
		{"two\nlines", "two\nlines", `two\nlines`},
		{"back\rover", `back\rover`, `back\rover`},
		{"no UTF-8 \xff", `no UTF-8 \ufffd`, `no UTF-8 \ufffd`},
	} {
		if got := Escape(tt.text); got != tt.escaped {
			t.Errorf("Escape(%q): got %q, want %q", tt.text, got, tt.escaped)
		}
		if got := EscapeLine(tt.text); got != tt.line {
			t.Errorf("EscapeLine(%q): got %q, want %q", tt.text, got, tt.line)
		}
	}
}
