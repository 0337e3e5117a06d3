package term

import (
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/sys/unix"
	"golang.org/x/text/width"
)

// unknownColumns is the width assumed of a terminal that does not tell its own, in cells: what terminals have had since the
// VT100.
const unknownColumns = 80

// Columns is the present width of the terminal behind w, in cells, and 0 if w is no terminal.
func Columns(w io.Writer) int {
	file, ok := w.(*os.File)
	if !ok {
		return 0
	}
	size, err := unix.IoctlGetWinsize(int(file.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0
	}
	if size.Col == 0 {
		return unknownColumns
	}
	return int(size.Col)
}

// cells is how many columns a character takes: none for marks that combine with the one before, two for East Asian wide ones
// and pictures.
func cells(r rune) int {
	switch {
	case unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf):
		return 0
	case width.LookupRune(r).Kind() == width.EastAsianWide, width.LookupRune(r).Kind() == width.EastAsianFullwidth:
		return 2
	}
	return 1
}

// colour is an escape sequence that sets colours (ECMA-48 SGR). It takes no room.
var colour = regexp.MustCompile("\x1b\\[[0-9;]*m")

// Width is how many columns a text of one line takes on a terminal.
func Width(text string) (columns int) {
	for _, r := range colour.ReplaceAllString(text, "") {
		columns += cells(r)
	}
	return columns
}

// plain replaces what would move the cursor.
func plain(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, text)
}

// Escape writes what would move the cursor, colour the terminal or turn its writing direction as an escape of Go: the objects of a mesh
// are written by others, and a terminal obeys what it is sent. Line ends stay.
func Escape(text string) string {
	if !strings.ContainsFunc(text, obeyed) {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		if !obeyed(r) {
			b.WriteRune(r)
			continue
		}
		quoted := strconv.QuoteRuneToASCII(r)
		b.WriteString(quoted[1 : len(quoted)-1])
	}
	return b.String()
}

// EscapeLine is Escape for a text that has one line, such as a cell of a table.
func EscapeLine(text string) string { return strings.ReplaceAll(Escape(text), "\n", `\n`) }

// obeyed tells whether a terminal acts on a character: controls, and marks and overrides of the writing direction (Unicode UAX #9 §2).
func obeyed(r rune) bool {
	switch {
	case r == '\n':
		return false
	case unicode.IsControl(r), r == utf8.RuneError:
		return true
	}
	return r == 0x061c || r == 0x200e || r == 0x200f || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069
}

// oneLine is plain, but for escape sequences that set colours.
func oneLine(text string) string {
	var b strings.Builder
	rest := text
	for {
		at := colour.FindStringIndex(rest)
		if at == nil {
			return b.String() + plain(rest)
		}
		b.WriteString(plain(rest[:at[0]]) + rest[at[0]:at[1]])
		rest = rest[at[1]:]
	}
}

// Cut shortens a text to one line of at most so many columns. An ellipsis stands for what is missing.
func Cut(text string, columns int) string {
	text = plain(text)
	if Width(text) <= columns {
		return text
	}
	if columns < 1 {
		return ""
	}
	used := 0
	for i, r := range text {
		if used+cells(r) > columns-1 { // one is the ellipsis's
			return text[:i] + "…"
		}
		used += cells(r)
	}
	return text
}

// Fold breaks a text between its words into lines of at most so many columns. Further lines begin with the text's own
// indentation and indent more columns. A word that is longer than a line is broken, unless it has a colour. No columns break nothing.
func Fold(text string, columns, indent int) []string {
	text = oneLine(text)
	words := strings.Fields(text)
	lead := text[:len(text)-len(strings.TrimLeft(text, " "))]
	further := lead + strings.Repeat(" ", indent)
	if Width(text) <= columns || len(words) == 0 || columns <= len(further)+1 {
		return []string{text}
	}
	var lines []string
	line, used := lead, len(lead)
	begin := func() {
		lines = append(lines, line)
		line, used = further, len(further)
	}
	fresh := true // nothing but indentation is in the line
	for _, word := range words {
		if !fresh && used+1+Width(word) > columns {
			begin()
			fresh = true
		}
		if !fresh {
			line, used = line+" ", used+1
		}
		if strings.Contains(word, "\x1b") {
			line, used, word = line+word, used+Width(word), ""
		}
		for _, r := range word {
			if used+cells(r) > columns {
				begin()
			}
			line, used = line+string(r), used+cells(r)
		}
		fresh = false
	}
	return append(lines, line)
}

// Paragraph folds a message of one or more lines for the terminal behind w, after a lead that takes so many columns in its
// first line. It leaves the message as it is where w is no terminal: a log is searched by whole lines.
func Paragraph(w io.Writer, style Style, lead int, message string) string {
	columns := Columns(w)
	if !style.Terminal || columns <= lead {
		return message
	}
	var lines []string
	for i, line := range strings.Split(message, "\n") {
		if i > 0 || lead == 0 {
			lines = append(lines, Fold(line, columns, 2)...)
			continue
		}
		// A stand-in for the lead, which has colours.
		folded := Fold(strings.Repeat("x", lead-1)+" "+line, columns, 2)
		folded[0] = folded[0][min(lead, len(folded[0])):]
		lines = append(lines, folded...)
	}
	return strings.Join(lines, "\n")
}
