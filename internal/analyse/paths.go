package analyse

import (
	"fmt"
	"strconv"
	"strings"

	securityapi "istio.io/api/security/v1beta1"

	"lateen.dev/lateen/internal/gen/l7"
	"lateen.dev/lateen/internal/translate"
)

// paths looks at the path patterns of a policy for waypoints: whether the normalisation of paths leaves anything that a pattern can match. What
// keeps requests out also covers what a path decodes to, as in crates/policy/src/request/path.rs.
func (a *analysis) paths(p *policy) {
	allows := p.Spec.Action == securityapi.AuthorizationPolicy_ALLOW
	for i, rule := range p.Spec.Rules {
		for j, to := range rule.GetTo() {
			o, at := to.GetOperation(), fmt.Sprintf("spec.rules[%d].to[%d].operation.", i, j)
			a.values(p, values{at + "paths", o.GetPaths(), "", pathLook(!allows)})
			a.values(p, values{at + "notPaths", o.GetNotPaths(), "no path", pathLook(allows)})
		}
	}
}

// pathLook looks at one pattern of a list that keeps requests out, or that admits them.
func pathLook(keepsOut bool) func(*analysis, *policy, string) (Finding, bool) {
	return func(a *analysis, _ *policy, value string) (Finding, bool) {
		m := translate.PathPattern(value)
		if m == nil {
			return Finding{}, false // the policy's condition says so
		}
		pattern := pathPieces(m)
		fault := pattern.mapped(withoutNeedlessEscapes).canonicalFault(a.PathNormalization)
		if fault == nil {
			return Finding{}, false
		}
		f := Finding{Code: UnmatchedPath, Severity: Warning, Message: quoted(value) + " matches no path: " + fault.because, Fix: fault.fix}
		if !keepsOut {
			return f, true
		}
		for _, decoded := range []pathPattern{pattern.mapped(spread), pattern.mapped(decodedOctets)} {
			switch {
			case decoded.decodedFault(a.PathNormalization) != nil:
			case fault.literal, decoded.canonicalFault(a.PathNormalization) == nil:
				return Finding{}, false // the author may mean the text that an application decodes
			default:
				f.Code = EscapedPath
				f.Message = quoted(value) + " matches only paths that have an escape for a part of it: " + fault.because
			}
		}
		return f, true
	}
}

// pathPiece is text that paths must have: as their beginning, as their end, as both, or somewhere.
type pathPiece struct {
	text            string
	begins, endsAll bool
}

// pathPattern is the pieces of a pattern in their order. A pattern without pieces matches every path.
type pathPattern []pathPiece

func pathPieces(m *l7.PathMatch) pathPattern {
	if template := m.GetTemplate(); template != "" {
		texts := strings.Split(strings.ReplaceAll(template, "{**}", "{*}"), "{*}")
		var out pathPattern
		for i, text := range texts {
			out = append(out, pathPiece{text, i == 0, i == len(texts)-1})
		}
		return out
	}
	switch text := m.GetText().GetMatch().(type) {
	case *l7.StringMatch_Exact:
		return pathPattern{{text.Exact, true, true}}
	case *l7.StringMatch_Prefix:
		return pathPattern{{text.Prefix, true, false}}
	case *l7.StringMatch_Suffix:
		return pathPattern{{text.Suffix, false, true}}
	}
	return nil
}

func (p pathPattern) mapped(f func(string) string) pathPattern {
	var out pathPattern
	for _, piece := range p {
		piece.text = f(piece.text)
		out = append(out, piece)
	}
	return out
}

// pathFault is a reason for which no path has a text, and the cure.
type pathFault struct {
	because, fix string
	// literal says that a decoded path may well have the text as its author wrote it.
	literal bool
}

// The faults.
var (
	noSlash     = pathFault{because: "every path begins with /", fix: "begin it with /, or with * for any beginning"}
	hasQuery    = pathFault{because: "the query and its ? are no part of the path", fix: "leave out ? and what follows; a condition on request.headers[:path] sees the query"}
	hasFragment = pathFault{because: "a request with # in its path is refused", fix: "leave out # and what follows"}
	hasDots     = pathFault{because: "policies see no path with a segment . or ..", fix: "write the path without these segments"}
	backslash   = pathFault{because: `\ becomes / before policies see the path`, fix: `write / for \`}
	twoSlashes  = pathFault{because: "adjacent slashes become one before policies see the path (MeshConfig pathNormalization)", fix: "write one slash"}
	slashEscape = pathFault{because: "%2F and %5C become / before policies see the path (MeshConfig pathNormalization)", fix: "write / for the escape"}
	badOctet    = pathFault{because: "a request with %00, %C0 or %C1 in its path is refused", fix: "leave it out"}
	badEscape   = pathFault{because: "two hexadecimal digits follow each % of a path", fix: "write %25 for a percent sign", literal: true}
)

// canonicalFault says why no canonical path has the pieces; nil if one can have each of them.
func (p pathPattern) canonicalFault(level l7.PathNormalization) *pathFault {
	for _, piece := range p {
		if f := piece.canonicalFault(level); f != nil {
			return f
		}
	}
	return nil
}

// decodedFault says why no path without its escapes has the pieces; nil if one can have each of them.
func (p pathPattern) decodedFault(level l7.PathNormalization) *pathFault {
	for _, piece := range p {
		if f := piece.decodedFault(level); f != nil {
			return f
		}
	}
	return nil
}

func (p pathPiece) canonicalFault(level l7.PathNormalization) *pathFault {
	asItCame := level == l7.PathNormalization_NO_NORMALIZATION
	decodes := level == l7.PathNormalization_DECODE_AND_MERGE_SLASHES
	switch {
	case p.beginsOtherwise():
		return &noSlash
	case strings.Contains(p.text, "?"):
		return &hasQuery
	case strings.Contains(p.text, "#"):
		return &hasFragment
	case p.hasDots(decodedOctets(p.text)):
		return &hasDots
	case strings.Contains(p.text, `\`) && !asItCame:
		return &backslash
	case strings.Contains(p.text, "//") && (decodes || level == l7.PathNormalization_MERGE_SLASHES):
		return &twoSlashes
	}
	for i := range len(p.text) {
		if p.text[i] != '%' {
			continue
		}
		octet, digits := escapeAt(p.text, i)
		switch {
		case digits == 2 && isBadOctet(octet):
			return &badOctet
		case digits == 2 && decodes && (octet == '/' || octet == '\\'):
			return &slashEscape
		case digits < 2 && (p.endsAll || i+1+digits < len(p.text)):
			return &badEscape
		}
	}
	return nil
}

func (p pathPiece) decodedFault(level l7.PathNormalization) *pathFault {
	switch {
	case p.beginsOtherwise():
		return &noSlash
	case strings.ContainsAny(p.text, "\x00\u00c0\u00c1"):
		return &badOctet
	case p.hasDots(p.text):
		return &hasDots
	case level != l7.PathNormalization_DECODE_AND_MERGE_SLASHES:
	case strings.Contains(p.text, `\`):
		return &backslash
	case strings.Contains(p.text, "//"):
		return &twoSlashes
	}
	return nil
}

// beginsOtherwise says whether the text begins like no path. The path of OPTIONS * is an asterisk.
func (p pathPiece) beginsOtherwise() bool {
	return p.begins && p.text != "" && p.text[0] != '/' && p.text != "*"
}

// hasDots says whether a text without escapes has a segment that is . or .. but for its parameters. Neither the first segment of an end is known as a
// whole nor the last one of a beginning.
func (p pathPiece) hasDots(text string) bool {
	segments := strings.Split(strings.ReplaceAll(text, `\`, "/"), "/")
	for i, segment := range segments {
		name, _, parameters := strings.Cut(segment, ";")
		isWhole := (i > 0 || p.begins) && (i < len(segments)-1 || p.endsAll || parameters)
		if isWhole && (name == "." || name == "..") {
			return true
		}
	}
	return false
}

// escapeAt returns the octet of an escape at a percent sign, and how many hexadecimal digits follow the sign, at most two.
func escapeAt(text string, at int) (octet byte, digits int) {
	for _, c := range []byte(text[at+1 : min(at+3, len(text))]) {
		digit, err := strconv.ParseUint(string(rune(c)), 16, 8)
		if err != nil {
			break
		}
		octet, digits = octet<<4|byte(digit), digits+1
	}
	return octet, digits
}

func isUnreserved(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("-._~", c) >= 0
}

// isBadOctet says whether a proxy refuses the escape of an octet, whatever stands beside it.
func isBadOctet(c byte) bool { return c == 0 || c == 0xc0 || c == 0xc1 }

// withoutNeedlessEscapes is a pattern's text in which characters that need no escape have none, as waypoints read it. The form of
// other escapes decides no fault.
func withoutNeedlessEscapes(text string) string {
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		c := text[i]
		if c == '%' {
			if octet, digits := escapeAt(text, i); digits == 2 && isUnreserved(octet) {
				c = octet
				i += digits
			}
		}
		b.WriteByte(c)
	}
	return b.String()
}

// decodedOctets is a text without its escapes, each octet as one character.
func decodedOctets(text string) string {
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		c := text[i]
		if c == '%' {
			if octet, digits := escapeAt(text, i); digits == 2 {
				c = octet
				i += digits
			}
		}
		b.WriteRune(rune(c))
	}
	return b.String()
}

// spread is a text with each octet as one character.
func spread(text string) string {
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		b.WriteRune(rune(text[i]))
	}
	return b.String()
}
