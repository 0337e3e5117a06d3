package files

import (
	"fmt"
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

// Problem is one thing wrong with one file: what, where, and how to put it right.
type Problem struct {
	Severity Severity `json:"severity"`
	File     string   `json:"file"`
	Line     int      `json:"line,omitempty"`   // 1-based; 0 when the whole file is meant
	Object   string   `json:"object,omitempty"` // "Service default/reviews"; empty when not even that could be read
	Field    string   `json:"field,omitempty"`  // "spec.ports[0].port"
	Message  string   `json:"message"`
	Cure     string   `json:"cure,omitempty"`

	// key is the object that the problem is about, as far as that could be read; empty if any object of the file may be meant.
	key model.Key
	// bare says that the object does not name its namespace, and start is the line where it begins; 0 if it has no name or known kind.
	bare  bool
	start int
}

// Error renders "file:line: object: field: message; cure".
func (p Problem) Error() string {
	var b strings.Builder
	b.WriteString(p.File)
	if p.Line > 0 {
		fmt.Fprintf(&b, ":%d", p.Line)
	}
	for _, part := range []string{p.Object, p.Field, p.Message} {
		if part != "" {
			b.WriteString(": ")
			b.WriteString(part)
		}
	}
	if p.Cure != "" {
		b.WriteString("; ")
		b.WriteString(p.Cure)
	}
	return b.String()
}
