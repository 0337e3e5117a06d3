package oracle

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	securityapi "istio.io/api/security/v1beta1"
	typev1beta1 "istio.io/api/type/v1beta1"
	securityv1 "istio.io/client-go/pkg/apis/security/v1"

	"lateen.dev/lateen/internal/analyse"
	"lateen.dev/lateen/internal/gen/l7"
	"lateen.dev/lateen/internal/translate"
)

// pathParts are what random patterns of paths, and the targets of requests for them, are made of.
var pathParts = []string{
	"/", "/", "/", "/", "a", "b", "a", ".", "..", "/../", "/./", "//", "%2F", "%2f", "%5C", "%2e", "%61", "%3F", "%3b", "%25", "%00", "%", "2", "\\", "?", "#", ";x", "\"", "|",
}

var (
	noVisible       = regexp.MustCompile("[^!-~]")
	refusedEscape   = regexp.MustCompile("%(00|C0|C1)")
	escapedSlash    = regexp.MustCompile("%(2F|5C)")
	escapedDivision = regexp.MustCompile("%(2F|5C|3B)")
)

// pathOfWire is the path of a target as policies see it. ok is false for one that the proxy refuses before it asks a policy.
func pathOfWire(target string, level l7.PathNormalization) (path string, ok bool) {
	path, _, _ = strings.Cut(target, "?")
	upper := escape.ReplaceAllStringFunc(path, strings.ToUpper)
	if !strings.HasPrefix(path, "/") || noVisible.MatchString(target) || strings.Contains(target, "#") || strings.Contains(escape.ReplaceAllString(path, ""), "%") || refusedEscape.MatchString(upper) {
		return "", false
	}
	asItCame := level == l7.PathNormalization_NO_NORMALIZATION
	if asItCame || level == l7.PathNormalization_DECODE_AND_MERGE_SLASHES {
		upper = escapedSlash.ReplaceAllString(upper, "/")
	}
	for segment := range strings.SplitSeq(strings.ReplaceAll(upper, `\`, "/"), "/") {
		if !asItCame && !escapedDivision.MatchString(segment) {
			continue // its dots are resolved
		}
		for part := range strings.SplitSeq(strings.ReplaceAll(decoded(segment), `\`, "/"), "/") {
			if name, _, _ := strings.Cut(part, ";"); name == "." || name == ".." {
				return "", false
			}
		}
	}
	if asItCame {
		return path, true
	}
	return ours.normal(target, level), true
}

// pathGenerator draws patterns of paths, and targets that they may match.
type pathGenerator struct{ *rand.Rand }

func (g pathGenerator) text() string {
	var b strings.Builder
	for range 1 + g.IntN(5) {
		b.WriteString(pathParts[g.IntN(len(pathParts))])
	}
	return b.String()
}

func (g pathGenerator) pattern() string {
	switch g.IntN(8) {
	case 0:
		return "*" + g.text()
	case 1:
		return "/" + g.text() + "*"
	case 2:
		return g.text()
	case 3:
		return "/a/{*}/" + g.text()
	case 4:
		return "/" + g.text() + "/{**}" + g.text()
	}
	return "/" + g.text()
}

// fillings are for stars. They also go on an escape that the end of a beginning cut off.
var fillings = []string{"x", "20", "0", "B"}

// filled is a pattern with a text for its stars.
func filled(pattern, filling string) string {
	if strings.HasPrefix(pattern, "*") {
		pattern = "/x" + pattern[1:]
	}
	return strings.NewReplacer("{**}", filling, "{*}", filling, "*", filling).Replace(pattern)
}

// target draws another spelling of a path.
func (g pathGenerator) target(path string) string {
	if g.IntN(2) == 0 {
		path = decoded(path)
	}
	var b strings.Builder
	for i := range len(path) {
		switch c := path[i]; {
		case g.IntN(6) == 0 && c != '?', c == '#':
			fmt.Fprintf(&b, "%%%02x", c)
		case g.IntN(12) == 0 && c == '/':
			b.WriteString([]string{"//", "/./", "/z/../", `\`}[g.IntN(4)])
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}

// A pattern that analyse calls unmatched matches no path, and one that it calls escaped matches paths with escapes alone. Every other pattern
// matches the path that its author wrote.
func TestPathFindingsAgreeWithTheReading(t *testing.T) {
	g := pathGenerator{rand.New(rand.NewPCG(uint64(number(t, "LATEEN_ORACLE_SEED", 1)), 0))}
	mesh := translate.Mesh{TrustDomain: ownDomain, RootNamespace: "istio-system"}
	told, served, matched := map[analyse.Code]int{}, 0, 0
	for _, level := range []l7.PathNormalization{l7.PathNormalization_NO_NORMALIZATION, l7.PathNormalization_BASE, l7.PathNormalization_MERGE_SLASHES, l7.PathNormalization_DECODE_AND_MERGE_SLASHES} {
		for _, action := range []securityapi.AuthorizationPolicy_Action{securityapi.AuthorizationPolicy_ALLOW, securityapi.AuthorizationPolicy_DENY} {
			var patterns []string
			for len(patterns) < 300 {
				// The reading makes an expression of a template's decoded text.
				if p := g.pattern(); translate.PathPattern(p) != nil && utf8.ValidString(decoded(p)) {
					patterns = append(patterns, p)
				}
			}
			p := &securityv1.AuthorizationPolicy{}
			p.Namespace, p.Name, p.Spec.Action = policyNamespace, "p", action
			p.Spec.TargetRefs = []*typev1beta1.PolicyTargetReference{{Kind: "Service", Name: "web"}}
			p.Spec.Rules = []*securityapi.Rule{{To: []*securityapi.Rule_To{{Operation: &securityapi.Operation{Paths: patterns}}}}}
			codes := map[string]analyse.Code{}
			for _, f := range analyse.Analyse(&analyse.Input{Mesh: mesh, PathNormalization: level, AuthorizationPolicies: []*securityv1.AuthorizationPolicy{p}}) {
				codes[f.Field] = f.Code
				told[f.Code]++
			}
			for i, pattern := range patterns {
				code, plain := codes[fmt.Sprintf("spec.rules[0].to[0].operation.paths[%d]", i)], false
				covers := func(target string) bool {
					path, ok := pathOfWire(target, level)
					if !ok {
						return false
					}
					served++
					j := judge{reading: ours, action: action, path: path}
					if !j.covers(action != securityapi.AuthorizationPolicy_ALLOW)(pattern) {
						return false
					}
					matched++
					if code == analyse.UnmatchedPath || code == analyse.EscapedPath && decoded(path) == path {
						t.Errorf("%v %v: %s is told for %q, and %q has the path %q, which it matches", level, action, code, pattern, target, path)
					}
					return true
				}
				for _, filling := range fillings {
					written := filled(pattern, filling)
					plain = covers(written) || covers(canonical(written)) || plain
					for range 5 {
						covers(g.target(written))
					}
				}
				if code == "" && !plain && action == securityapi.AuthorizationPolicy_ALLOW {
					t.Errorf("%v %v: nothing is told for %q, and it does not match what its author wrote", level, action, pattern)
				}
			}
		}
	}
	t.Logf("told %v; %d of %d requests match", told, matched, served)
	if told[analyse.UnmatchedPath] < 200 || told[analyse.EscapedPath] < 200 || matched*10 < served {
		t.Error("too little is drawn")
	}
}
