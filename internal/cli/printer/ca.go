package printer

import (
	"fmt"
	"io"
	"strings"
	"time"

	"lateen.dev/lateen/internal/cli/term"
	"lateen.dev/lateen/internal/engine/api"
)

// CA writes how it stands with a mesh's certificate authority for people.
func CA(w io.Writer, s api.CAStatus, style term.Style, now time.Time) error {
	p := &page{w: w, style: style}
	p.line("Signing with %s, until %s", style.Bold(s.Signing), day(s.Expires))
	switch {
	case s.Source != "" && s.Stage != "":
		p.line("  kept in %s", s.Source)
	case s.Source != "":
		p.line("  plugged in from %s", s.Source)
	}
	for _, r := range s.Trusted {
		p.line("  trusted: %s, until %s", r.Subject, day(r.Expires))
	}
	p.rotation(s, now)
	if s.Trouble != "" {
		p.line("%s It is in trouble: %s", style.Bad(term.MarkBad), s.Trouble)
	}
	return p.err
}

// rotation tells how far a change of roots is, if there is one, and for whom it waits.
func (p *page) rotation(s api.CAStatus, now time.Time) {
	if s.Stage != "" && s.Stage != api.CASteady {
		p.line("%s Rotation of the root, stage %s for %s: %s", p.style.Warn(term.MarkWarn), s.Stage, Age(s.Since, now), CAStage(s.Stage))
		p.waiting(s, now)
	}
	if s.Held != "" {
		p.line("%s The next stage waits: %s", p.style.Warn(term.MarkWarn), s.Held)
	}
}

func (p *page) waiting(s api.CAStatus, now time.Time) {
	if s.Behind > 0 {
		var names []string
		for _, h := range s.Waiting {
			names = append(names, fmt.Sprintf("%s on %s", h.Identity, h.Node))
		}
		more := ""
		if len(names) < s.Behind {
			more = ", …"
		}
		p.line("  waits for the renewal of %d certificates: %s%s", s.Behind, strings.Join(names, ", "), more)
	}
	if s.Known.After(now) {
		p.line("  waits until %s for certificates that nobody remembers issuing", minute(s.Known))
	}
	p.line("  ends at %s at the latest", minute(s.Latest))
}

// CAStage says what happens at a stage of root rotation; nothing at the one between rotations.
func CAStage(stage string) string {
	switch stage {
	case api.CAPublishing:
		return "every proxy learns to trust the next root"
	case api.CADropping:
		return "the next root signs; every proxy gets a certificate below it"
	}
	return ""
}

func day(t time.Time) string    { return t.UTC().Format(time.DateOnly) }
func minute(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05") + " UTC" }
