package printer

import (
	"fmt"
	"io"

	"lateen.dev/lateen/internal/check"
	"lateen.dev/lateen/internal/cli/term"
)

// Check writes a report of the preflight checks, each finding with its cause and its fix. Lines are at most so many columns wide; 0 has no
// bounds.
func Check(w io.Writer, r check.Report, columns int, style term.Style) error {
	p := &page{w: w, style: style, width: columns}
	for _, x := range r.Results {
		mark := style.Good(term.MarkGood)
		switch x.Outcome {
		case check.Warning:
			mark = style.Warn(term.MarkWarn)
		case check.Failure:
			mark = style.Bad(term.MarkBad)
		}
		if x.Outcome == check.OK {
			p.line("%s %s %s: %s", mark, style.Faint(x.Code), x.Title, x.Found)
			continue
		}
		p.line("%s %s %s: %s", mark, style.Faint(x.Code), x.Title, x.Cause)
		p.line("         fix: %s", x.Fix)
	}
	if p.err != nil {
		return p.err
	}
	_, err := fmt.Fprintf(w, "%d checks: %d ok, %d warnings, %d failures\n", len(r.Results),
		r.Count(check.OK), r.Count(check.Warning), r.Count(check.Failure))
	return err
}
