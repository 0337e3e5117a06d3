package term

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestProgressIsPlainLinesWithoutATerminal(t *testing.T) {
	var out bytes.Buffer
	p := NewProgress(&out, Style{})
	p.Start("start the control plane")
	p.Update("start the control plane: 1 of 2")
	p.Done("control plane ready")
	p.Start("start the proxies")
	p.Start("start the pods")
	p.Fail("pods did not start")
	p.Start("nothing")
	p.Abandon()
	want := "  start the control plane ...\n✓ control plane ready\n  start the proxies ...\n✓ start the proxies\n" +
		"  start the pods ...\n✗ pods did not start\n  nothing ...\n"
	if out.String() != want {
		t.Errorf("got\n%q\nwant\n%q", out.String(), want)
	}
}

func TestProgressRewritesItsLineOnATerminal(t *testing.T) {
	var out bytes.Buffer
	p := NewProgress(&out, Style{Terminal: true})
	p.Start("start the pods")
	p.Update("start the pods: 3 of 6")
	p.Warn("5 of 6 pods run")
	if got := out.String(); !strings.HasSuffix(got, clearLine+"! 5 of 6 pods run\n") || !strings.Contains(got, "3 of 6") {
		t.Errorf("got %q", got)
	}
}

func TestColourNeedsATerminalAndPermission(t *testing.T) {
	if s := StyleOf(&bytes.Buffer{}, func(string) string { return "" }); s.Terminal || s.Colour {
		t.Errorf("a buffer is taken for a terminal: %+v", s)
	}
	file, err := os.CreateTemp(t.TempDir(), "out")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	if s := StyleOf(file, func(string) string { return "" }); s.Terminal || s.Colour {
		t.Errorf("a file is taken for a terminal: %+v", s)
	}
	if got := (Style{}).Bad("x"); got != "x" {
		t.Errorf("an escape without permission: %q", got)
	}
	if got := (Style{Colour: true}).Bad("x"); got != "\x1b[31mx\x1b[0m" {
		t.Errorf("got %q", got)
	}
}
