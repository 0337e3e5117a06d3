package printer

import (
	"strings"
	"unicode/utf8"
)

// leastWidth is the narrowest terminal that lines are broken for; below it they are left to the terminal.
const leastWidth = 20

// Wrap breaks a line between words so that no part is wider than width characters; a word that is wider stays whole. The parts after the first
// begin with the indent. A width of 0 breaks nothing. Escape sequences that set colours take no room.
func Wrap(line string, width int, indent string) []string {
	if width < leastWidth || visible(line) <= width {
		return []string{line}
	}
	lead := line[:len(line)-len(strings.TrimLeft(line, " "))]
	var out []string
	part, empty := lead, true
	for _, word := range strings.Fields(line) {
		if !empty && visible(part)+1+visible(word) > width {
			out = append(out, part)
			part, empty = indent, true
		}
		if !empty {
			part += " "
		}
		part, empty = part+word, false
	}
	return append(out, part)
}

// visible is how many characters a text takes on a terminal.
func visible(text string) int {
	n := utf8.RuneCountInString(text)
	for {
		i := strings.Index(text, "\x1b[")
		if i < 0 {
			return n
		}
		end := strings.IndexByte(text[i:], 'm')
		if end < 0 {
			return n
		}
		n -= end + 1
		text = text[i+end+1:]
	}
}
