package term

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// Progress shows one activity after the other: on a terminal a line that moves until its activity ends, elsewhere one
// plain line per activity that ended and one when it starts, so that a log shows where time went. The moving line is cut to
// the terminal's width, because only one line can be rewritten; lines that stay are folded.
type Progress struct {
	out     io.Writer
	style   Style
	columns func() int // of the terminal, asked for each line, because its window may change

	mu     sync.Mutex
	active string // as it is shown now
	name   string // as it was started
	began  time.Time
	stop   chan struct{}
	done   sync.WaitGroup
	frame  int
}

// NewProgress returns a Progress that writes to out.
func NewProgress(out io.Writer, style Style) *Progress {
	return &Progress{out: out, style: style, columns: func() int { return Columns(out) }}
}

var frames = []string{"⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"}

const frameTime = 100 * time.Millisecond

// Start names the activity that runs now. An activity still shown is taken as done, unless it is the same.
func (p *Progress) Start(text string) {
	if p.runs(text) {
		return
	}
	if p.current() != "" {
		p.Done("")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.active, p.name, p.began = text, text, time.Now()
	if !p.style.Terminal {
		_, _ = fmt.Fprintf(p.out, "  %s ...\n", text)
		return
	}
	p.draw()
	p.stop = make(chan struct{})
	p.done.Add(1)
	go p.spin(p.stop)
}

// Update changes the text of the running activity, for a count or what is waited for. It shows on a terminal only.
func (p *Progress) Update(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.active == "" || p.active == text {
		return
	}
	p.active = text
	if p.style.Terminal {
		p.draw()
	}
}

// Done ends the running activity well. An empty text keeps the activity's own.
func (p *Progress) Done(text string) { p.end(p.style.Good(MarkGood), text) }

// Warn ends the running activity with something that deserves a look.
func (p *Progress) Warn(text string) { p.end(p.style.Warn(MarkWarn), text) }

// Fail ends the running activity badly.
func (p *Progress) Fail(text string) { p.end(p.style.Bad(MarkBad), text) }

// Note writes a line of its own below what has ended.
func (p *Progress) Note(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.active != "" && p.style.Terminal {
		_, _ = fmt.Fprint(p.out, clearLine)
	}
	p.lasting("", text, "")
	if p.active != "" && p.style.Terminal {
		p.draw()
	}
}

// Abandon removes a running activity from the screen without a verdict, before an error is printed below it.
func (p *Progress) Abandon() {
	p.halt()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.active != "" && p.style.Terminal {
		_, _ = fmt.Fprint(p.out, clearLine)
	}
	p.active = ""
}

// clearLine returns to the first column and clears the line (ECMA-48 EL).
const clearLine = "\r\x1b[2K"

func (p *Progress) end(mark, text string) {
	p.halt()
	p.mu.Lock()
	defer p.mu.Unlock()
	if text == "" {
		text = p.active
	}
	took := ""
	if p.active != "" {
		if d := time.Since(p.began); d >= time.Second {
			took = fmt.Sprintf(" (%.1f s)", d.Seconds())
		}
		if p.style.Terminal {
			_, _ = fmt.Fprint(p.out, clearLine)
		}
	}
	p.active = ""
	p.lasting(mark+" ", text, took)
}

// lasting writes a line that stays: folded on a terminal, as it is elsewhere. The caller holds the lock.
func (p *Progress) lasting(mark, text, took string) {
	text = Escape(text)
	columns := 0
	if p.style.Terminal {
		columns = p.columns()
	}
	indent := 0
	if mark != "" {
		indent = 2 // a mark and a space
	}
	if columns <= indent {
		_, _ = fmt.Fprintf(p.out, "%s%s%s\n", mark, text, p.style.Faint(took))
		return
	}
	for i, line := range Fold(text+took, columns-indent, 0) {
		if whole, ends := strings.CutSuffix(line, took); ends {
			line = whole + p.style.Faint(took)
		}
		if i > 0 && mark != "" {
			mark = "  "
		}
		_, _ = fmt.Fprintf(p.out, "%s%s\n", mark, line)
	}
}

func (p *Progress) current() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.active
}

func (p *Progress) runs(name string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.active != "" && p.name == name
}

func (p *Progress) halt() {
	p.mu.Lock()
	stop := p.stop
	p.stop = nil
	p.mu.Unlock()
	if stop != nil {
		close(stop)
		p.done.Wait()
	}
}

func (p *Progress) spin(stop <-chan struct{}) {
	defer p.done.Done()
	ticker := time.NewTicker(frameTime)
	defer ticker.Stop()
	for {
		select {
		case <-stop:
			return
		case <-ticker.C:
			p.mu.Lock()
			p.frame++
			p.draw()
			p.mu.Unlock()
		}
	}
}

// draw writes the moving line; the caller holds the lock. The last column stays free: some terminals move to the next line as
// soon as it is filled.
func (p *Progress) draw() {
	text := oneLine(p.active)
	if columns := p.columns(); columns > 0 {
		text = Cut(text, columns-3) // a frame and a space precede it
	}
	_, _ = fmt.Fprintf(p.out, "%s%s %s", clearLine, p.style.Faint(frames[p.frame%len(frames)]), text)
}

// Interject writes a line of its own to a stream on which a Progress may have a moving line, which the next frame draws again.
func Interject(w io.Writer, style Style, text string) {
	if style.Terminal {
		text = clearLine + Paragraph(w, style, 0, text)
	}
	_, _ = fmt.Fprintln(w, text)
}
