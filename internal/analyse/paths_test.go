package analyse

import (
	"fmt"
	"strings"
	"testing"

	"lateen.dev/lateen/internal/gen/l7"
)

// pathPolicy is a policy for waypoints with one path pattern.
func pathPolicy(action, list, pattern string) string {
	return "---\napiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\nmetadata: {name: p, namespace: default}\nspec:\n  targetRefs: [{kind: Service, group: \"\", name: web}]\n" +
		fmt.Sprintf("  action: %s\n  rules: [{to: [{operation: {%s: [/other, '%s']}}]}]\n", action, list, pattern)
}

func meshConfig(normalization string) string {
	return "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: istio, namespace: istio-system}\ndata: {mesh: \"pathNormalization: {normalization: " + normalization + "}\"}\n"
}

// levels are the normalisations in the order of the letters of the table below.
var levels = []string{"NONE", "BASE", "MERGE_SLASHES", "DECODE_AND_MERGE_SLASHES"}

func TestPathPatternsThatMatchNothingAreTold(t *testing.T) {
	// A letter for each of the levels: a dot for no finding, u for unmatched-path, e for escaped-path. deny is what a list says that keeps requests
	// out, and allow what one says that admits them.
	for _, tt := range []struct{ pattern, deny, allow, because string }{
		{"/", "....", "....", ""},
		{"*", "....", "....", ""},
		{"/a/*", "....", "....", ""},
		{"*.html", "....", "....", ""},
		{"*a/b", "....", "....", ""},
		{"**", "....", "....", ""},
		{"/a.b/..c/.../x", "....", "....", ""},
		{"admin", "uuuu", "uuuu", "every path begins with /"},
		{"admin/*", "uuuu", "uuuu", "every path begins with /"},
		{"http://web/a", "uuuu", "uuuu", "every path begins with /"},
		{"%2Fadmin", "....", "uuuu", "every path begins with /"},

		{"/a//b", "..eu", "..uu", "adjacent slashes"},
		{"//*", "..eu", "..uu", "adjacent slashes"},
		{"*//b", "..eu", "..uu", "adjacent slashes"},
		{"*/b/", "....", "....", ""},
		{"/a//{*}", "..eu", "..uu", "adjacent slashes"},
		{"/a/{*}//b/{**}", "..eu", "..uu", "adjacent slashes"},
		{"/a/{**}//b", "..eu", "..uu", "adjacent slashes"},
		{"/a/{**}/b", "....", "....", ""},

		{`/a\b`, ".eeu", ".uuu", `\ becomes /`},
		{`*\b`, ".eeu", ".uuu", `\ becomes /`},
		{"/a%5Cb", "...e", "...u", "%2F and %5C become /"},
		{"/a%2fb", "....", "...u", "%2F and %5C become /"},
		{"/a%2F*", "....", "...u", "%2F and %5C become /"},
		{"/a%2F{*}", ".", ".", "refused as a template"},
		{"/a%2F/{*}", "...e", "...u", "%2F and %5C become /"},
		{"/a%2", "....", "uuuu", "two hexadecimal digits"},
		{"/a%2*", "....", "....", ""},
		{"*2F", "....", "....", ""},

		{"/a?b=c", "eeee", "uuuu", "the query"},
		{"/a?*", "eeee", "uuuu", "the query"},
		{"*?b", "eeee", "uuuu", "the query"},
		{"/a#b", "eeee", "uuuu", "#"},
		{"/a%3Fb", "....", "....", ""},
		{"/a%3fb", "....", "....", ""},
		{"/a%23b", "....", "....", ""},

		{"/a/../b", "uuuu", "uuuu", "segment . or .."},
		{"/a/./b", "uuuu", "uuuu", "segment . or .."},
		{"/a/..", "uuuu", "uuuu", "segment . or .."},
		{"/a/.*", "....", "....", ""},
		{"/a/..*", "....", "....", ""},
		{"/a/../*", "uuuu", "uuuu", "segment . or .."},
		{"/a/..;x*", "uuuu", "uuuu", "segment . or .."},
		{"/a/..;x/b", "uuuu", "uuuu", "segment . or .."},
		{"*../b", "....", "....", ""},
		{"*/../b", "uuuu", "uuuu", "segment . or .."},
		{"*..", "....", "....", ""},
		{"/a/{*}/../b", "uuuu", "uuuu", "segment . or .."},
		{"/a/{**}/..", "uuuu", "uuuu", "segment . or .."},
		{"/a/{*}..", "....", "....", ""},
		{"/a/{**}..", "....", "....", ""},
		{"/a/%2e%2E/b", "eeee", "uuuu", "segment . or .."},
		{"/a%2F../b", "eeee", "uuuu", "segment . or .."},
		{"/a%5c..", "eeee", "uuuu", "segment . or .."},
		{"/a/..%3Bx/b", "eeee", "uuuu", "segment . or .."},

		{"/%61dmin", "....", "....", ""},
		{"/a%c3%a9", "....", "....", ""},
		{"/aé", "....", "....", ""},
		{`/a"b|c`, "....", "....", ""},
		{"/a b", "....", "....", ""},
		{`%2Fa"é`, "....", "uuuu", "every path begins with /"},
		{"%2A", "....", "uuuu", "every path begins with /"},
		{"/100%", "....", "uuuu", "two hexadecimal digits"},
		{"/a%%612", "....", "....", ""}, // without the escape of the letter it is /a%a2
		{"/100%/b", "....", "uuuu", "two hexadecimal digits"},
		{"/100%*", "....", "....", ""},
		{"/a%zz", "....", "uuuu", "two hexadecimal digits"},
		{"/a%00", "eeee", "uuuu", "%00"},
		{"/a%C0%AF", "eeee", "uuuu", "%00"},
	} {
		for _, list := range []struct{ action, name, want string }{
			{"DENY", "paths", tt.deny}, {"AUDIT", "paths", tt.deny}, {"ALLOW", "paths", tt.allow}, {"DENY", "notPaths", tt.allow}, {"ALLOW", "notPaths", tt.deny},
		} {
			for i, letter := range strings.Repeat(list.want, len(levels)/len(list.want)) {
				found := Analyse(input(t, mesh, world(), meshConfig(levels[i]), pathPolicy(list.action, list.name, tt.pattern)))
				where := fmt.Sprintf("%s of %s %s at %s", tt.pattern, list.action, list.name, levels[i])
				if letter == '.' {
					if len(found) > 0 {
						t.Errorf("%s: want no finding, got\n%s", where, said(found))
					}
					continue
				}
				want := map[rune]Code{'u': UnmatchedPath, 'e': EscapedPath}[letter]
				if len(found) != 1 || found[0].Code != want || found[0].Severity != Warning || found[0].State != Partial || !strings.Contains(found[0].Message, tt.because) || found[0].Fix == "" ||
					found[0].Field != "spec.rules[0].to[0].operation."+list.name+"[1]" || strings.HasSuffix(found[0].Message, "; so it excepts no path") != (list.name == "notPaths" && letter == 'u') {
					t.Errorf("%s: want %s because of %s, got\n%s", where, want, tt.because, said(found))
				}
			}
		}
	}
}

func TestThePathFindingSaysWhatIsWrongAndTheCure(t *testing.T) {
	for _, tt := range []struct{ action, list, pattern, want string }{
		{"ALLOW", "paths", "/a//b", `unmatched-path warning partial|spec.rules[0].to[0].operation.paths[1]|"/a//b" matches no path: adjacent slashes become one before policies see the path (MeshConfig pathNormalization)|write one slash` + "\n"},
		{"DENY", "notPaths", "/a/../b", `unmatched-path warning partial|spec.rules[0].to[0].operation.notPaths[1]|"/a/../b" matches no path: policies see no path with a segment . or ..; so it excepts no path|write the path without these segments` + "\n"},
		{"DENY", "paths", "/a?b", `escaped-path warning partial|spec.rules[0].to[0].operation.paths[1]|"/a?b" matches only paths that have an escape for a part of it: the query and its ? are no part of the path|leave out ? and what follows; a condition on request.headers[:path] sees the query` + "\n"},
	} {
		if got := said(Analyse(input(t, mesh, world(), meshConfig("MERGE_SLASHES"), pathPolicy(tt.action, tt.list, tt.pattern)))); got != tt.want {
			t.Errorf("got\n%swant\n%s", got, tt.want)
		}
	}
}

// Only waypoints read paths: the findings about a policy for node proxies say that they do not.
func TestOnlyPathsThatWaypointsReadAreJudged(t *testing.T) {
	p := strings.Replace(pathPolicy("DENY", "paths", "/a?b"), "  targetRefs: [{kind: Service, group: \"\", name: web}]\n", "", 1)
	if got := said(Analyse(input(t, mesh, world(), p))); strings.Contains(got, "path ") || strings.Contains(got, "paths[") {
		t.Errorf("got\n%s", got)
	}
}

// The ConfigMap of the mesh alone says how paths are normalised.
func TestTheNormalisationComesFromTheConfigMapOfTheMesh(t *testing.T) {
	of := func(documents ...string) l7.PathNormalization { return input(t, mesh, documents...).PathNormalization }
	other := strings.Replace(meshConfig("NONE"), "namespace: istio-system", "namespace: default", 1)
	if got := of(other); got != l7.PathNormalization_BASE {
		t.Errorf("another ConfigMap: got %v", got)
	}
	if got := of(other, meshConfig("MERGE_SLASHES")); got != l7.PathNormalization_MERGE_SLASHES {
		t.Errorf("the mesh's: got %v", got)
	}
}
