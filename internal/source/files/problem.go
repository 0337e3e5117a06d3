package files

import (
	"fmt"
	"slices"
	"strings"

	"lateen.dev/lateen/internal/model"
)

// Severity tells a refusal from a remark.
type Severity int

const (
	// Refused means that the object was not taken; an earlier good version of it stays live.
	Refused Severity = iota
	// Warning means that the object was taken but does not do what its author may expect.
	Warning
)

// String renders the severity for people and for JSON.
func (s Severity) String() string {
	if s == Warning {
		return "warning"
	}
	return "error"
}

// MarshalText lets the debug pages show the name.
func (s Severity) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Problem is one thing wrong with a file, or with an object of a cluster: what, where, and how to put it right.
type Problem struct {
	Severity Severity `json:"severity"`
	File     string   `json:"file"`             // empty if the object comes from a cluster
	Line     int      `json:"line,omitempty"`   // 1-based; 0 when the whole file is meant
	Object   string   `json:"object,omitempty"` // "Service default/reviews"; empty when not even that could be read
	Field    string   `json:"field,omitempty"`  // "spec.ports[0].port"
	Message  string   `json:"message"`
	Fix      string   `json:"fix,omitempty"`

	// key is the object that the problem is about, as far as that could be read; empty if any object of the file may be meant.
	key model.Key
	// bare says that the object does not name its namespace, and start is the line where it begins; 0 if it has no name or known kind.
	bare  bool
	start int
}

// Limits of the problems of one object, in bytes and in number. An object of a cluster may have a million bytes, and all of them
// may be wrong; what is said of it is logged, and kept for as long as it is there.
const (
	mostField, mostMessage = 256, 512
	mostFaults             = 32
)

// clipped is the problem at a length that people read.
func (p Problem) clipped() Problem {
	p.Object, p.Field, p.Message, p.Fix = clip(p.Object, mostMessage), clip(p.Field, mostField), clip(p.Message, mostMessage), clip(p.Fix, mostMessage)
	return p
}

// clip cuts a text to at most so many bytes, of which the last tell that it goes on.
func clip(s string, most int) string {
	const more = "…"
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most-len(more)], "") + more
}

// tally gathers the faults of one list, of which none is worse than another: as many as are told, and of the others how many they are.
// Putting into words what is wrong with each of half a million values would take longer than all else that is done for an object.
type tally struct {
	faults []fault
	more   int
}

// full says that no more are told; one that comes then is counted alone.
func (t *tally) full() bool {
	if len(t.faults) < mostFaults {
		return false
	}
	t.more++
	return true
}

func (t *tally) add(f fault) {
	if !t.full() {
		t.faults = append(t.faults, f)
	}
}

// all are the faults, of which the last one stands for those that were only counted.
func (t *tally) all() []fault {
	if t.more > 0 {
		t.faults[len(t.faults)-1].more = t.more
	}
	return t.faults
}

// fewest leaves of an object's faults as many as people read, those for which it is refused first.
func fewest(faults []fault) []fault {
	sum := 0
	for _, f := range faults {
		sum += 1 + f.more
	}
	if sum <= mostFaults {
		return faults
	}
	faults = slices.Clone(faults)
	slices.SortStableFunc(faults, func(a, b fault) int { return int(a.severity) - int(b.severity) })
	rest := sum - mostFaults + 1
	return append(faults[:mostFaults-1], fault{severity: faults[mostFaults-1].severity, message: fmt.Sprintf("%d more of the kind", rest), fix: "correct those that are named; then the others are"})
}

// Error renders "file:line: object: field: message; fix".
func (p Problem) Error() string {
	place := p.File
	if p.Line > 0 {
		place += fmt.Sprintf(":%d", p.Line)
	}
	var b strings.Builder
	for _, part := range []string{place, p.Object, p.Field, p.Message} {
		if part == "" {
			continue
		}
		if b.Len() > 0 {
			b.WriteString(": ")
		}
		b.WriteString(part)
	}
	if p.Fix != "" {
		b.WriteString("; ")
		b.WriteString(p.Fix)
	}
	return b.String()
}
