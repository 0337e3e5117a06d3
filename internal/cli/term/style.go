// Package term writes to a person's terminal: marks, colours and progress that fall back to plain lines where no
// terminal is. It decides how something looks, never what is said.
package term

import (
	"io"
	"os"

	"github.com/mattn/go-isatty"
)

// Style says how a stream may be written to.
type Style struct {
	// Terminal is true if the stream is a terminal, so that lines may be rewritten.
	Terminal bool
	// Colour is true if the stream takes colours: a terminal, unless the user said otherwise.
	Colour bool
}

// StyleOf inspects a stream. The NO_COLOR convention (https://no-color.org) asks for a non-empty variable; a dumb
// terminal understands no escape at all.
func StyleOf(w io.Writer, getenv func(string) string) Style {
	file, ok := w.(*os.File)
	if !ok || !isatty.IsTerminal(file.Fd()) || getenv("TERM") == "dumb" {
		return Style{}
	}
	return Style{Terminal: true, Colour: getenv("NO_COLOR") == ""}
}

func (s Style) paint(code, text string) string {
	if !s.Colour || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// Good paints what went well.
func (s Style) Good(text string) string { return s.paint("32", text) }

// Warn paints what deserves a look.
func (s Style) Warn(text string) string { return s.paint("33", text) }

// Bad paints what failed.
func (s Style) Bad(text string) string { return s.paint("31", text) }

// Bold paints a heading.
func (s Style) Bold(text string) string { return s.paint("1", text) }

// Faint paints what may be overlooked.
func (s Style) Faint(text string) string { return s.paint("2", text) }

// The marks that stand before a line. They are characters of their own, not colours, so that a log keeps them.
const (
	MarkGood = "✓"
	MarkWarn = "!"
	MarkBad  = "✗"
)
