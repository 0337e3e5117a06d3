package demo

import (
	"strings"
)

// AccessLine is one line of a node proxy's access log: one connection, seen from one side.
type AccessLine struct {
	Text   string // as the proxy wrote it
	fields map[string]string
}

// Get returns a field such as src.identity; it is empty if the line has none.
func (l AccessLine) Get(name string) string { return l.fields[name] }

// Failed reports whether the connection ended with an error or a refusal.
func (l AccessLine) Failed() bool { return l.fields["error"] != "" }

// accessTarget is the third column of an access line, as ztunnel writes it.
const accessTarget = "access"

// ParseAccessLine reads a line in ztunnel's text format: tab-separated time, level, target and message, then
// key=value pairs where a value may be quoted. Other lines of the log are not access lines.
func ParseAccessLine(line string) (AccessLine, bool) {
	columns := strings.SplitN(line, "\t", 5)
	if len(columns) < 5 || columns[2] != accessTarget {
		return AccessLine{}, false
	}
	fields := map[string]string{}
	for rest := strings.TrimLeft(columns[4], " \t"); rest != ""; rest = strings.TrimLeft(rest, " \t") {
		key, after, ok := strings.Cut(rest, "=")
		if !ok || strings.ContainsAny(key, " \t\"") {
			return AccessLine{}, false
		}
		fields[key], rest = value(after)
	}
	return AccessLine{Text: line, fields: fields}, true
}

// value reads one value and returns what follows it. Inside quotes a backslash protects the next character.
func value(s string) (string, string) {
	if !strings.HasPrefix(s, `"`) {
		if end := strings.IndexAny(s, " \t"); end >= 0 {
			return s[:end], s[end:]
		}
		return s, ""
	}
	var b strings.Builder
	escaped := false
	for i, r := range s[1:] {
		switch {
		case escaped:
			b.WriteRune(unescape(r))
			escaped = false
		case r == '\\':
			escaped = true
		case r == '"':
			return b.String(), s[1+i+1:]
		default:
			b.WriteRune(r)
		}
	}
	return b.String(), "" // an unfinished quote: the line was cut
}

func unescape(r rune) rune {
	switch r {
	case 'n':
		return '\n'
	case 't':
		return '\t'
	case 'r':
		return '\r'
	}
	return r
}
