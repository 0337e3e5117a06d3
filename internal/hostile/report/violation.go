package report

import (
	"fmt"
	"slices"
	"strings"

	"lateen.dev/lateen/internal/hostile/cases"
)

// Violations are what this mesh must never make of a case, whatever others do.
func Violations(c cases.Case, o Outcome) []string {
	var list []string
	say := func(format string, args ...any) { list = append(list, fmt.Sprintf(format, args...)) }
	for _, r := range o.Records {
		switch {
		case r.Fault != "":
			say("the upstream got what a strict reader refuses: %s", r.Fault)
		case r.Early:
			say("the upstream got bytes behind a request that it had not answered")
		case isClosing(r):
		case !r.Partial && r.Case() != fmt.Sprint(c.Number) && r.Target != "/second":
			say("the upstream got a request of no case or of case %q: %s %s", r.Case(), r.Method, r.Target)
		}
		if r.Target == cases.HiddenPath {
			say("the upstream got a request that stood where content is")
		}
		if r.Method == "CONNECT" || r.Target == "*" || r.Fault != "" || r.Target == "" {
			continue
		}
		path, _, _ := strings.Cut(r.Target, "?")
		if normal := normalise(path); normal != path {
			say("the upstream got the path %q, which policies see as %q", path, normal)
		}
		if path := normalise(path); path == cases.DeniedPath || strings.HasPrefix(path, cases.DeniedPath+"/") {
			say("the upstream got the denied path %q", r.Target)
		}
	}
	if n := len(o.forwarded()); n > c.Requests {
		say("the upstream got %d requests of %d", n, c.Requests)
	}
	if status := o.status(); len(c.Want) > 0 && !slices.Contains(c.Want, status) {
		say("the answer is %s, want %v", statusWords(status), c.Want)
	}
	return list
}

func statusWords(status int) string {
	switch status {
	case 0:
		return "a reset of the stream"
	case -1:
		return "the end of the connection"
	case -2:
		return "silence"
	}
	return fmt.Sprint(status)
}

// normalise is the path that policies see: Istio's BASE (RFC 3986 section 6.2.2, and a backslash is a slash).
func normalise(path string) string {
	var plain strings.Builder
	for i := 0; i < len(path); i++ {
		switch c := path[i]; {
		case c == '\\':
			plain.WriteByte('/')
		case c == '%' && i+2 < len(path) && isHex(path[i+1]) && isHex(path[i+2]):
			b := unhex(path[i+1])<<4 | unhex(path[i+2])
			if isUnreserved(b) {
				plain.WriteByte(b)
			} else {
				plain.WriteString("%" + strings.ToUpper(path[i+1:i+3]))
			}
			i += 2
		default:
			plain.WriteByte(c)
		}
	}
	segments := strings.Split(plain.String(), "/")
	kept := segments[:1:1]
	for i, segment := range segments[1:] {
		last := i == len(segments)-2
		name, _, _ := strings.Cut(segment, ";")
		switch name {
		case ".":
		case "..":
			if len(kept) > 1 {
				kept = kept[:len(kept)-1]
			}
		default:
			kept = append(kept, segment)
			continue
		}
		if last {
			kept = append(kept, "")
		}
	}
	return strings.Join(kept, "/")
}

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'f'
}

func unhex(c byte) byte {
	if c <= '9' {
		return c - '0'
	}
	return c | 0x20 - 'a' + 10
}

func isUnreserved(c byte) bool {
	return 'a' <= c|0x20 && c|0x20 <= 'z' || '0' <= c && c <= '9' || strings.IndexByte("-._~", c) >= 0
}
