package report

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"lateen.dev/lateen/internal/hostile/cases"
	"lateen.dev/lateen/internal/hostile/upstream"
)

// Escapes are what this mesh must never let through to an upstream, whatever others do and however busy the machine is.
func Escapes(c cases.Case, o Outcome) []string {
	var list []string
	say := func(format string, args ...any) { list = append(list, fmt.Sprintf(format, args...)) }
	for _, r := range o.Records {
		if said := escapes(r); len(said) > 0 {
			list = append(list, said...)
		} else if isWhole(r) && r.Case() != fmt.Sprint(c.Number) {
			say("the upstream got a request of no case or of case %q: %s %s", r.Case(), r.Method, r.Target)
		}
	}
	n := len(o.forwarded())
	if n > c.Requests {
		say("the upstream got %d requests of %d", n, c.Requests)
	}
	if n > 0 && mustRefuse(c) {
		say("the upstream got a request that must be refused, by %v", c.Want)
	}
	return list
}

// Late are escapes among requests that came when their cases were over.
func Late(list []cases.Case, records []upstream.Record) []string {
	var found []string
	for _, r := range records {
		said := escapes(r)
		at := slices.IndexFunc(list, func(c cases.Case) bool { return fmt.Sprint(c.Number) == r.Case() })
		switch {
		case len(said) > 0 || !isWhole(r):
		case at < 0:
			said = []string{fmt.Sprintf("the upstream got a request of no case or of case %q: %s %s", r.Case(), r.Method, r.Target)}
		case mustRefuse(list[at]):
			said = []string{fmt.Sprintf("the upstream got a request that must be refused, by %v", list[at].Want)}
		}
		for _, s := range said {
			found = append(found, fmt.Sprintf("late, of case %q: %s", r.Case(), s))
		}
	}
	return found
}

// Unexpected says that the answer is none that the rule of a case allows. A busy machine may bring that about.
func Unexpected(c cases.Case, o Outcome) []string {
	status := o.status()
	if len(c.Want) == 0 || slices.Contains(c.Want, status) {
		return nil
	}
	return []string{fmt.Sprintf("the answer is %s, want %v", statusWords(status), c.Want)}
}

// mustRefuse says whether no answer that the rule of a case allows is one of an upstream.
func mustRefuse(c cases.Case) bool {
	return len(c.Want) > 0 && !slices.ContainsFunc(c.Want, func(status int) bool { return status > 0 && status < 400 })
}

// claims are fields by which a client would speak as a proxy. The waypoint removes them, and adds none of them by itself.
var claims = []string{"x-forwarded-client-cert", "x-envoy-internal", "x-envoy-original-path", "x-envoy-original-dst-host"}

// escapes are what no upstream may get, of whatever case it is.
func escapes(r upstream.Record) []string {
	var list []string
	say := func(format string, args ...any) { list = append(list, fmt.Sprintf(format, args...)) }
	switch {
	case r.Fault != "":
		say("the upstream got what a strict reader refuses: %s", r.Fault)
	case r.Early:
		say("the upstream got bytes behind a request that it had not answered")
	}
	if r.Target == cases.HiddenPath {
		say("the upstream got a request that stood where content is")
	}
	for _, name := range slices.Sorted(maps.Keys(r.Fields)) {
		if slices.Contains(claims, strings.ReplaceAll(name, "_", "-")) {
			say("the upstream got the field %s, by which a client speaks as a proxy", name)
		}
	}
	if r.Method == "CONNECT" || r.Target == "*" || r.Fault != "" || r.Target == "" {
		return list
	}
	path, _, _ := strings.Cut(r.Target, "?")
	normal := normalise(path)
	if normal != path {
		say("the upstream got the path %q, which policies see as %q", path, normal)
	}
	if normal == cases.DeniedPath || strings.HasPrefix(normal, cases.DeniedPath+"/") {
		say("the upstream got the denied path %q", r.Target)
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

// normalise is the path that policies see: Istio's BASE (RFC 3986 section 6.2.2, and a backslash is a slash). Bytes that no URI has are
// written as escapes.
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
		case strings.IndexByte("\"<>^`{|}", c) >= 0:
			fmt.Fprintf(&plain, "%%%02X", c)
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
