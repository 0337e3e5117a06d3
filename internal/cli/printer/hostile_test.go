package printer

import (
	"bytes"
	"strings"
	"testing"
	"time"
	"unicode"

	"lateen.dev/lateen/internal/cli/term"
	"lateen.dev/lateen/internal/engine/api"
)

// hostile is what a tenant may write into an object: it sets the title and the colour of a terminal, and turns the writing direction.
const hostile = "evil\x1b]0;title\a\x1b[31m\u202e\r\x00"

// Nothing that an object holds reaches a terminal as a control character. Line ends and the program's own colours do.
func TestObjectsDoNotControlTheTerminal(t *testing.T) {
	at := time.Date(2026, 11, 20, 22, 0, 0, 0, time.UTC)
	for name, write := range map[string]func(*bytes.Buffer) error{
		"describe": func(out *bytes.Buffer) error {
			return Describe(out, Description{Name: "x", Kind: "Pod", Annotations: map[string]string{hostile: hostile}, Labels: map[string]string{"a": hostile}, State: hostile, Problems: []string{hostile}}, at, 60)
		},
		"a table": func(out *bytes.Buffer) error {
			grid := NewGrid("NAME", "REASON")
			grid.Row("x", hostile+"\nforged row")
			return grid.Print(out, "")
		},
		"status": func(out *bytes.Buffer) error {
			p := &page{w: out, width: 60}
			p.line("x: %s", hostile)
			p.mark(hostile)
			return p.err
		},
		"tap": func(out *bytes.Buffer) error {
			s := NewStream(out, term.Style{}, "default", nil)
			return s.Write(api.Connection{Node: "n1", Event: "closed", Source: api.ConnectionEnd{Workload: hostile, Address: hostile}}, Reason{hostile}, at)
		},
	} {
		var out bytes.Buffer
		if err := write(&out); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if text := out.String(); strings.ContainsFunc(text, func(r rune) bool { return r != '\n' && unicode.IsControl(r) || r == '\u202e' }) || !strings.Contains(text, `evil`) {
			t.Errorf("%s: %q", name, text)
		}
		if strings.Contains(out.String(), "\nforged") {
			t.Errorf("%s: a cell made a row of its own: %q", name, out.String())
		}
	}
	var out bytes.Buffer
	p := &page{w: &out, style: term.Style{Colour: true}}
	p.line("%s %s", p.style.Bold("Nodes"), "\x1b[31mred")
	if got := out.String(); got != "\x1b[1mNodes\x1b[0m \\x1b[31mred\n" {
		t.Errorf("got %q", got)
	}
}
